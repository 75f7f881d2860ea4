// The all-reduce and the barrier of CPU ranks on one host, over a shared arena.
//
// One arena (a memfd of arena_bytes(), zeroed) is mapped by every rank of a communicator. The
// engine owns its layout: fault block, a call record a rank, doorbells, boxes, lines and slots.
// Protocols and their proofs stand in the files that implement them.
#ifndef SYMM_CORE_CPU_ENGINE_H_
#define SYMM_CORE_CPU_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/call.h"
#include "core/error.h"
#include "kernels/cpu/reduce.h"

namespace symm::cpu {

// Everything here but `rank` is equal on every rank: algorithms, grids of chunks and layout follow
// from it alone.
struct EngineOptions {
  int rank = 0;
  int size = 1;
  Level level = Level::kBaseline;
  bool oversubscribed = false;       // ranks outnumber the CPUs that they may run on
  size_t scratch_bytes = 128 << 20;  // bound of this rank's share of the arena
  int64_t wait_timeout_ms = 600000;
  uint32_t first_epoch = 0;  // tests start near the wrap-around
};

// Size of the arena; OUT_OF_MEMORY-free and pure. Throws INVALID_ARGUMENT, with the least value
// that would do, where scratch_bytes is too small for `size` ranks.
size_t arena_bytes(const EngineOptions& options);

// How a fault ends a communicator: status, the rank to blame and a message.
struct Fault {
  symm_status status = SYMM_OK;
  int rank = kNoRank;
  std::string message;
};

class Engine {
 public:
  // `arena` outlives the engine. `local_fault` is a word in this process's memory that is non-zero
  // (a symm_status) once the communicator has failed for a reason the arena does not know (a
  // lifeline's end); the slow part of every wait reads it and then raises and throws the fault that
  // `describe`, called on the waiting thread, gives for it. Without `describe`, or if it gives
  // SYMM_OK, the message only names the status. A fault raised earlier by any rank goes first.
  Engine(std::byte* arena, const EngineOptions& options, const std::atomic<int32_t>& local_fault,
         std::function<Fault()> describe = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Blocks until done. The caller has checked the arguments and holds the communicator's lock.
  // Throws Error TIMEOUT, PEER, MISMATCH or whatever the fault was; it has then been raised in the
  // arena, so that peers' waits end too. input == output or disjoint, element-aligned, count may be
  // 0.
  void all_reduce(const Call& call, const void* input, void* output);
  void barrier();

  // Set-up calls (split, windows) go through the exchange, not the arena; they publish their record
  // and advance the epoch here, so that a peer inside an all-reduce or barrier sees the mismatch.
  void publish_setup(const Call& call);
  // For a rank that waits in the exchange: throws MISMATCH if some rank's record shows another call
  // at this epoch; raises it first. Cheap; called now and then while waiting.
  void check_setup(const Call& call);

  // First fault wins; every rank's waits end with it, now and later. Any thread.
  void raise(const Fault& fault);
  // The fault raised in the arena by any rank, if any. Any thread.
  std::optional<Fault> fault() const;

  // This rank will take no further part. Peers that still need it fail with PEER; what it has
  // already contributed remains valid.
  void leave();
  bool has_left(int rank) const;

  // What all_reduce would do: for symm_plan.
  struct Plan {
    std::string
        algorithm;  // "box_inline", "box_one_shot", "box_reduce_scatter", "line", "slot_..."
    std::string reason;
    struct Other {
      std::string algorithm;
      std::string why_not;
    };
    std::vector<Other> faster;  // algorithms that would be faster were it not for ...
  };
  Plan plan(const Call& call) const;

  // For symm_report: rows of (bytes up to, algorithm).
  struct TableRow {
    size_t up_to_bytes;  // inclusive; SIZE_MAX for the last
    std::string algorithm;
  };
  std::vector<TableRow> table() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_ENGINE_H_
