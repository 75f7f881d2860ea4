// The order of one communicator's operations across a caller's streams.
//
// Each operation of a rank must run after the one before it: they share one epoch and one arena.
// Within a stream CUDA sees to that. Eager calls on another stream than the last wait for an event
// recorded after the last; calls of one capture depend on the last node of that capture. Between a
// graph and other work the order is the caller's (symm.h).
//
// The event is recorded after every eager call, although only a change of streams needs it: by then
// the last stream may have been destroyed, and its handle is not to be touched.
#ifndef SYMM_CORE_CUDA_ORDER_H_
#define SYMM_CORE_CUDA_ORDER_H_

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "core/backend.h"
#include "core/cuda/context.h"
#include "core/cuda/reaper.h"

namespace symm::cuda {

class Order {
 public:
  Order(std::shared_ptr<const Context> context, std::shared_ptr<Reaper> reaper)
      : context_(std::move(context)), reaper_(std::move(reaper)) {}

  // Throws INVALID_ARGUMENT where the stream is another context's, or is the legacy default stream
  // while a capture forbids its use. Not for streams that capture. The context is current.
  void check_stream(CUstream stream) const;

  // What a call is part of.
  struct Turn {
    bool captured = false;
    // Of an eager call an id that is never used twice, unlike a handle. A capture does not let that
    // be asked; but no stream of it can be destroyed either, so that the handle will do.
    unsigned long long stream = 0;
    cuuint64_t capture = 0;
    CUgraph graph = nullptr;
    std::shared_ptr<Event> event;  // of an eager call: there before anything is enqueued
  };
  // What is launched next on the stream follows the last operation; then end(). `owner` stays as
  // long as the graph that the call becomes part of. One call at a time.
  Turn begin(CUstream stream, Keepable& owner);
  void end(const Turn& turn, CUstream stream);

  // An event after everything enqueued so far; null if there is none. Any thread.
  std::shared_ptr<const Event> last() const;

 private:
  void retain(const Turn& turn, const std::shared_ptr<void>& keep);
  std::shared_ptr<Event> event_to_record() const;

  const std::shared_ptr<const Context> context_;
  const std::shared_ptr<Reaper> reaper_;

  mutable std::mutex mutex_;  // for event_: a handle may be freed beside a call
  std::shared_ptr<Event> event_;
  unsigned long long stream_ = ~0ull;  // of the last eager call

  struct Capture {
    cuuint64_t id;
    unsigned long long stream;         // of its last call
    std::vector<CUgraphNode> nodes{};  // that what follows its last call depends on
    std::vector<std::weak_ptr<void>> kept;
  };
  // The latest; older ones have ended, or nobody has so many at once.
  static constexpr size_t kMostCaptures = 256;
  std::deque<Capture> captures_;
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_ORDER_H_
