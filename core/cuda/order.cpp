#include "core/cuda/order.h"

#include <algorithm>

namespace symm::cuda {
namespace {

// What a graph holds. CUDA destroys it in a thread of its own, where CUDA must not be called: that
// is left to the reaper.
struct Kept {
  std::shared_ptr<Reaper> reaper;
  std::shared_ptr<void> what;
};

void CUDA_CB give_up(void* data) {
  const std::unique_ptr<Kept> kept(static_cast<Kept*>(data));
  kept->reaper->hold(std::move(kept->what), nullptr);
}

bool same(const std::weak_ptr<void>& a, const std::shared_ptr<void>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

[[noreturn]] void refuse_stream(CUstream stream, const std::string& why) {
  throw Error(SYMM_INVALID_ARGUMENT, text("stream ", static_cast<void*>(stream), " ", why));
}

}  // namespace

void Order::check_stream(CUstream stream) const {
  CUcontext context = nullptr;
  const CUresult result = driver().cuStreamGetCtx(stream, &context);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    refuse_stream(stream,
                  "is the legacy default stream, which cannot be used during a capture; "
                  "pass the capturing stream");
  }
  if (result != CUDA_SUCCESS) {
    refuse_stream(stream, text("is no stream: ", error_text(result, "cuStreamGetCtx")));
  }
  if (context != context_->get()) {
    refuse_stream(stream, text("belongs to another GPU or context; the communicator is on GPU ",
                               context_->ordinal(), " (its primary context)"));
  }
}

Order::Turn Order::begin(CUstream stream, Keepable& owner) {
  Turn turn;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver().cuStreamGetCaptureInfo(stream, &status, &turn.capture,
                                                          &turn.graph, nullptr, nullptr, nullptr);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    refuse_stream(stream,
                  "is the legacy default stream, which cannot be used while another stream of its "
                  "context is capturing; pass a stream");
  }
  check(result, "cuStreamGetCaptureInfo");
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    refuse_stream(stream, "has a capture that an earlier error has broken; end it first");
  }
  turn.captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (!turn.captured) {
    SYMM_CUDA_CHECK(cuStreamGetId, (stream, &turn.stream));
    turn.event = event_to_record();
    if (turn.stream == stream_) return turn;
    check_stream(stream);
    const auto event = last();
    if (event) SYMM_CUDA_CHECK(cuStreamWaitEvent, (stream, event->get(), 0));
    return turn;
  }
  turn.stream = reinterpret_cast<uintptr_t>(stream);
  const auto found = std::find_if(captures_.begin(), captures_.end(),
                                  [&](const Capture& c) { return c.id == turn.capture; });
  if (found == captures_.end()) {
    if (captures_.size() == kMostCaptures) captures_.pop_front();
    captures_.push_back({turn.capture, turn.stream, {}, {}});
  } else if (found->stream != turn.stream && !found->nodes.empty()) {
    SYMM_CUDA_CHECK(cuStreamUpdateCaptureDependencies,
                    (stream, found->nodes.data(), nullptr, found->nodes.size(),
                     CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  }
  retain(turn, owner.keep());
  return turn;
}

void Order::retain(const Turn& turn, const std::shared_ptr<void>& keep) {
  Capture& capture = *std::find_if(captures_.begin(), captures_.end(),
                                   [&](const Capture& c) { return c.id == turn.capture; });
  for (const auto& one : capture.kept) {
    if (same(one, keep)) return;
  }
  auto kept = std::make_unique<Kept>(Kept{reaper_, keep});
  CUuserObject object = nullptr;
  SYMM_CUDA_CHECK(cuUserObjectCreate,
                  (&object, kept.get(), give_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  kept.release();  // the object's now
  const CUresult result =
      driver().cuGraphRetainUserObject(turn.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (result != CUDA_SUCCESS) {
    driver().cuUserObjectRelease(object, 1);
    check(result, "cuGraphRetainUserObject");
  }
  capture.kept.push_back(keep);
}

void Order::end(const Turn& turn, CUstream stream) {
  if (turn.captured) {
    Capture& capture = *std::find_if(captures_.begin(), captures_.end(),
                                     [&](const Capture& c) { return c.id == turn.capture; });
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* edges = nullptr;
    size_t count = 0;
    SYMM_CUDA_CHECK(cuStreamGetCaptureInfo,
                    (stream, &status, nullptr, nullptr, &nodes, &edges, &count));
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
      refuse_stream(stream, "has a capture that another thread's call has broken meanwhile");
    }
    // What comes next on the stream depends on them: a kernel of ours is one, NCCL may leave
    // several.
    capture.nodes.assign(nodes, nodes + count);
    capture.stream = turn.stream;
    return;
  }
  const CUresult result = driver().cuEventRecord(turn.event->get(), stream);
  // The operation is enqueued: the call cannot be repeated.
  if (result != CUDA_SUCCESS) throw Error(SYMM_CUDA, error_text(result, "cuEventRecord"));
  stream_ = turn.stream;
  std::lock_guard lock(mutex_);
  event_ = turn.event;
}

std::shared_ptr<Event> Order::event_to_record() const {
  {
    std::lock_guard lock(mutex_);
    // One that the reaper still asks must not be recorded again: it would never be done.
    if (event_ && event_.use_count() == 1) return event_;
  }
  return std::make_shared<Event>(context_);
}

std::shared_ptr<const Event> Order::last() const {
  std::lock_guard lock(mutex_);
  return event_;
}

}  // namespace symm::cuda
