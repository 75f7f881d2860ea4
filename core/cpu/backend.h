// The backend of CPU ranks: shared memory on one host, none among several.
#ifndef SYMM_CORE_CPU_BACKEND_H_
#define SYMM_CORE_CPU_BACKEND_H_

#include <memory>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/comm.h"
#include "core/cpu/engine.h"
#include "core/memory.h"

namespace symm::cpu {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(Comm& comm) : comm_(comm) {}

  void set_up(Deadline deadline) override;
  std::shared_ptr<Window> alloc_window(uint64_t number, size_t bytes, bool nccl,
                                       const Failure& failure, Deadline deadline) override;
  std::shared_ptr<Window> register_window(uint64_t number, const CallersMemory& memory,
                                          const Failure& failure, Deadline deadline) override;
  void check_stream(void* stream) const override;
  void all_reduce(const Call& call, const void* input, void* output, void* stream,
                  Keepable& owner) override;
  void barrier(void* stream, Keepable& owner) override;
  void begin_setup(const Call& call) override;
  void raise(const Failure& failure) override;
  std::optional<Failure> fault() const override;
  void leave() override;
  bool has_left(int rank) const override;
  void retire(std::shared_ptr<void>) override {}
  CallPlan plan(const Call& call) const override;
  std::vector<AlgorithmRow> table() const override;
  void describe(JsonWriter& json) const override;
  bool describe_peer(JsonWriter&, int) const override { return false; }
  void* nccl() const override {
    throw Error(SYMM_UNSUPPORTED,
                "this is a CPU communicator, which has no NCCL communicator inside");
  }

 private:
  Comm& comm_;
  std::shared_ptr<Mapping> arena_;
  std::unique_ptr<Engine> engine_;  // null for one rank and for several hosts
  Level level_ = Level::kBaseline;
  bool oversubscribed_ = false;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_BACKEND_H_
