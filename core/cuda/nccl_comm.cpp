#include "core/cuda/nccl_comm.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "core/attempt.h"
#include "core/cuda/nccl_threads.h"
#include "core/text.h"
#include "core/types.h"

namespace symm::cuda {
namespace {

constexpr auto kAskEvery = std::chrono::milliseconds(5);
// How long the end waits for calls of NCCL that are under way in other threads.
constexpr auto kCallsEnd = std::chrono::seconds(1);
// How long kernels may take to see an abort.
constexpr auto kAbortEnds = std::chrono::seconds(10);
// How long a call may take after another rank has left: its part may still be under way.
constexpr auto kAfterLeft = std::chrono::seconds(1);
constexpr size_t kMostSpare = 64;
// NCCL connects an algorithm when it is first used; which one depends on the size.
constexpr uint64_t kConnectBytes[] = {4, 64 << 10, 1 << 20, 16 << 20};

// What a thread that may be left behind shares with whoever waits for it.
struct Job {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Failure failure;
  std::atomic<bool> abandoned{false};
};

// Runs `part` in a thread until it is over; false if it gave up waiting. Throws what `part` throws,
// and TIMEOUT. `part` owns what it uses.
bool run_bounded(const char* what, const std::shared_ptr<const Context>& context, Deadline deadline,
                 const NcclComm::GiveUp& give_up,
                 std::function<void(const std::function<bool()>& abandoned)> part) {
  const auto job = std::make_shared<Job>();
  const int error = start_nccl_thread([job, context, part = std::move(part)]() mutable {
    const Failure failure = attempt([&] {
      const HostWork work(*context);
      part([&] { return job->abandoned.load(std::memory_order_relaxed); });
    });
    part = nullptr;  // what was made is the waiter's alone, and goes when that gives it back
    std::lock_guard lock(job->mutex);
    job->failure = failure;
    job->done = true;
    job->changed.notify_all();
  });
  if (error == ECANCELED) throw Error(SYMM_SYSTEM, text(what, " of NCCL: the process exits"));
  if (error != 0) {
    throw Error(SYMM_SYSTEM, text("cannot start a thread for NCCL: ", errno_text(error),
                                  "; raise the limit on threads (ulimit -u)"));
  }
  std::unique_lock lock(job->mutex);
  while (!job->done) {
    job->changed.wait_for(lock, kAskEvery);
    if (job->done) break;
    const bool passed = deadline.passed();
    if (!passed && !give_up()) continue;
    job->abandoned.store(true, std::memory_order_relaxed);
    if (!passed) return false;
    throw Error(
        SYMM_TIMEOUT,
        text(what,
             " of NCCL is not over within the deadline: do the hosts reach each "
             "other over the network that NCCL takes (NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO)?"));
  }
  if (job->failure.status != SYMM_OK) {
    throw Error(job->failure.status, job->failure.message, job->failure.rank);
  }
  return true;
}

}  // namespace

NcclComm::NcclComm(const nccl::Library& library, std::shared_ptr<const Context> context)
    : library_(library), context_(std::move(context)) {}

std::shared_ptr<NcclComm> NcclComm::create(const nccl::Library& library, const nccl::UniqueId& id,
                                           int rank, int size,
                                           std::shared_ptr<const Context> context,
                                           Deadline deadline, const GiveUp& give_up) {
  std::shared_ptr<NcclComm> made(new NcclComm(library, context));
  end_before_nccl();
  // Also where it fails, and a thread stays in NCCL.
  const struct Afterwards {
    ~Afterwards() { end_before_nccl(); }
  } afterwards;
  const bool over = run_bounded("the creation of a communicator", context, deadline, give_up,
                                [made, id, rank, size](const auto& abandoned) {
                                  made->initialise(id, rank, size, abandoned);
                                  if (abandoned()) return made->abort();
                                  made->connect(abandoned);
                                });
  return over ? made : nullptr;
}

void NcclComm::check(int result, const char* function) const {
  if (result == nccl::kSuccess) return;
  const char* more = library_.ncclGetLastError(comm_);
  throw Error(SYMM_NCCL, text(function, ": ", library_.ncclGetErrorString(result), " (NCCL result ",
                              result, more != nullptr && *more != '\0' ? text("; ", more) : "",
                              "); NCCL_DEBUG=WARN makes NCCL say more"));
}

int NcclComm::finished(int result, const std::function<bool()>& stop) {
  while (result == nccl::kInProgress && !stop()) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    int state = nccl::kSuccess;
    result = library_.ncclCommGetAsyncError(comm_, &state);
    if (result == nccl::kSuccess) result = state;
  }
  return result;
}

void NcclComm::initialise(const nccl::UniqueId& id, int rank, int size,
                          const std::function<bool()>& abandoned) {
  nccl::Config config;
  const int result = library_.ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  check(finished(result, abandoned), "ncclCommInitRankConfig");
}

void NcclComm::connect(const std::function<bool()>& abandoned) {
  struct Work {
    explicit Work(const std::shared_ptr<const Context>& context) : stream(context), done(context) {}
    const Stream stream;
    const Event done;
    std::shared_ptr<Mapping> memory;
  };
  const auto work = std::make_shared<Work>(context_);
  const CUstream stream = work->stream.get();
  word_ = map_private(*context_, sizeof(int32_t), work->stream);
  work->memory = map_private(*context_, *std::rbegin(kConnectBytes), work->stream);
  Mapping& scratch = *work->memory;
  // Kernels may still use the memory; what they do not leave soon is better lost than given to
  // others.
  const auto end_early = [&] {
    driver().cuEventRecord(work->done.get(), stream);
    abort();
    start_nccl_thread([work, self = shared_from_this()] {
      const auto deadline = Clock::now() + kAbortEnds;
      while (!work->done.is_done() && Clock::now() < deadline) {
        std::this_thread::sleep_for(kAskEvery);
      }
      if (!work->done.is_done()) [[maybe_unused]]
        auto* lost = new std::pair(work, self->word_);
    });
  };
  try {
    for (const uint64_t bytes : kConnectBytes) {
      const int result =
          library_.ncclAllReduce(scratch.data(), scratch.data(), bytes / sizeof(float),
                                 SYMM_FLOAT32, SYMM_SUM, comm_, stream);
      check(finished(result, abandoned), "ncclAllReduce");
    }
    SYMM_CUDA_CHECK(cuEventRecord, (work->done.get(), stream));
    while (!work->done.is_done()) {
      int error = nccl::kSuccess;
      check(library_.ncclCommGetAsyncError(comm_, &error), "ncclCommGetAsyncError");
      if (error != nccl::kInProgress) check(error, "the first all-reduce of NCCL");
      if (abandoned()) return end_early();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (const Error&) {
    end_early();
    throw;
  }
}

bool NcclComm::begin_ending() {
  std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return false;
  return !std::exchange(ending_, true);
}

// Whatever was enqueued has run, and no graph has work of it: its communicator's end waits for
// them.
NcclComm::~NcclComm() {
  if (!begin_ending()) return;
  try {
    start_nccl_thread([library = &library_, comm = comm_, context = context_, word = word_,
                       windows = std::move(given_up_)]() mutable {
      const ReleaseWork work(*context);
      library->ncclCommDestroy(comm);
      windows.clear();
    });
  } catch (const std::bad_alloc&) {
    // NCCL keeps what it has until the process ends.
  }
}

void NcclComm::abort() noexcept {
  if (!begin_ending()) return;
  try {
    start_nccl_thread([self = shared_from_this()] {
      {
        // A call that is inside NCCL is left a while to come back.
        std::unique_lock lock(self->mutex_);
        self->changed_.wait_for(lock, kCallsEnd, [&] { return self->calls_ == 0; });
      }
      const ReleaseWork work(*self->context_);
      self->release_calls();
      self->library_.ncclCommAbort(self->comm_);
    });
  } catch (const std::bad_alloc&) {
    // NCCL's work then ends with the processes.
  }
}

// One that hangs there comes back once the communicator is revoked, which frees nothing under it.
// Older versions have the abort alone.
void NcclComm::release_calls() {
  {
    std::lock_guard lock(mutex_);
    if (calls_ == 0) return;
  }
  if (library_.ncclCommRevoke == nullptr) return;
  library_.ncclCommRevoke(comm_, 0);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAbortEnds, [&] { return calls_ == 0; });
}

int NcclComm::counted(const std::function<int()>& call) {
  {
    std::lock_guard lock(mutex_);
    if (ending_) throw Error(SYMM_NCCL, "the NCCL communicator has been aborted");
    ++calls_;
  }
  const int result = call();
  std::lock_guard lock(mutex_);
  --calls_;
  changed_.notify_all();
  return result;
}

void NcclComm::enqueue(const Call& call, const void* input, void* output, CUstream stream) {
  const bool barrier = call.form == Form::kBarrier;
  const int result = counted([&] {
    const int enqueued = library_.ncclAllReduce(
        barrier ? word_->data() : input, barrier ? word_->data() : output, barrier ? 1 : call.count,
        barrier ? SYMM_INT32 : call.dtype, barrier ? SYMM_SUM : call.op, comm_, stream);
    if (enqueued == nccl::kSuccess) return enqueued;
    return finished(enqueued, [&] {
      std::lock_guard lock(mutex_);
      return ending_;
    });
  });
  if (result != nccl::kSuccess) check(result, text("ncclAllReduce for ", call_text(call)).c_str());
}

std::shared_ptr<Event> NcclComm::mark(CUstream stream) {
  std::shared_ptr<Event> event;
  {
    std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      event = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (!event) event = std::make_shared<Event>(context_);
  SYMM_CUDA_CHECK(cuEventRecord, (event->get(), stream));
  return event;
}

void NcclComm::watch(const Call& call, std::shared_ptr<Event> before) {
  std::lock_guard lock(mutex_);
  watched_.push_back({call, std::move(before), nullptr, {}});
}

void NcclComm::enqueued(std::shared_ptr<const Event> after) {
  std::lock_guard lock(mutex_);
  watched_.back().after = std::move(after);
}

std::optional<Failure> NcclComm::asynchronous_error() {
  std::lock_guard lock(mutex_);
  if (ending_) return std::nullopt;
  int error = nccl::kSuccess;
  const int result = library_.ncclCommGetAsyncError(comm_, &error);
  const Failure failure = attempt([&] {
    check(result, "ncclCommGetAsyncError");
    if (error != nccl::kInProgress) check(error, "work of NCCL that was enqueued before");
  });
  if (failure.status == SYMM_OK) return std::nullopt;
  return failure;
}

std::optional<Failure> NcclComm::look(int32_t wait_timeout_ms, int left) {
  const InNccl inside;
  if (!inside) return std::nullopt;
  if (auto failure = asynchronous_error()) return failure;
  // The driver is asked without the lock: it may be held for as long as the work goes on, and the
  // abort that ends the work takes the lock. Nobody else removes the oldest.
  std::shared_ptr<const Event> before, after;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (watched_.empty()) return std::nullopt;
      before = watched_.front().before;
      after = watched_.front().after;
    }
    if (!after || !after->is_done()) break;
    Watched over;  // ends without the lock too
    std::lock_guard lock(mutex_);
    over = std::move(watched_.front());
    watched_.pop_front();
    if (spare_.size() < kMostSpare) spare_.push_back(std::move(over.before));
  }
  const bool has_begun = before->is_done();
  std::lock_guard lock(mutex_);
  Watched& oldest = watched_.front();
  const auto now = Clock::now();
  if (!oldest.begun && has_begun) oldest.begun = now;
  if (!oldest.begun) return std::nullopt;
  const auto age = now - *oldest.begun;
  if (left != kNoRank && !left_since_) left_since_ = now;
  if (left != kNoRank && age >= kAfterLeft && now - *left_since_ >= kAfterLeft) {
    return Failure{SYMM_PEER, left, has_left_text(left, call_text(oldest.call))};
  }
  if (age < std::chrono::milliseconds(wait_timeout_ms)) return std::nullopt;
  return Failure{SYMM_TIMEOUT, kNoRank,
                 text(call_text(oldest.call), " is not over ", wait_timeout_ms,
                      " ms (options.wait_timeout_ms) after it began; it went through NCCL, which "
                      "does not say whom it waits for: did every rank make the same call?")};
}

// What NCCL gave for memory; it goes before the memory does.
struct NcclComm::NcclWindow {
  std::shared_ptr<NcclComm> comm;
  std::shared_ptr<void> keep;
  uint64_t number = 0;
  nccl::Window window = nullptr;
  ~NcclWindow() {
    if (window == nullptr) return;
    try {
      std::lock_guard lock(comm->mutex_);
      comm->given_up_[number] = {window, keep};
    } catch (const std::bad_alloc&) {
      // It stays registered until the communicator ends. So must the memory.
      [[maybe_unused]] auto* lost = new (std::nothrow) auto(keep);
    }
  }
};

std::vector<uint64_t> NcclComm::given_up() {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> numbers;
  for (const auto& [number, window] : given_up_) numbers.push_back(number);
  return numbers;
}

void NcclComm::never_had(uint64_t number) {
  std::lock_guard lock(mutex_);
  given_up_[number] = {};
}

void NcclComm::let_go(uint64_t number) {
  GivenUp one;
  {
    std::lock_guard lock(mutex_);
    auto node = given_up_.extract(number);
    if (node.empty()) return;
    one = std::move(node.mapped());
  }
  if (one.window == nullptr) return;
  const int result = counted([&] { return library_.ncclCommWindowDeregister(comm_, one.window); });
  check(result, "ncclCommWindowDeregister");
}

std::shared_ptr<void> NcclComm::register_window(uint64_t number, void* pointer, size_t bytes,
                                                std::shared_ptr<void> keep,
                                                std::vector<uint64_t> gone, Deadline deadline,
                                                const GiveUp& give_up) {
  const auto made = std::make_shared<NcclWindow>();
  made->comm = shared_from_this();
  made->keep = std::move(keep);
  made->number = number;
  const bool over =
      run_bounded("ncclCommWindowRegister", context_, deadline, give_up,
                  [made, pointer, bytes, gone = std::move(gone)](const auto& abandoned) {
                    NcclComm& comm = *made->comm;
                    for (const uint64_t one : gone) comm.let_go(one);
                    const int result = comm.counted([&] {
                      return comm.finished(
                          comm.library_.ncclCommWindowRegister(
                              comm.comm_, pointer, bytes, &made->window, nccl::kSymmetricWindow),
                          abandoned);
                    });
                    comm.check(result, "ncclCommWindowRegister");
                  });
  // Registered with success and without a window: NCCL cannot make any here.
  if (!over || made->window == nullptr) return nullptr;
  return made;
}

}  // namespace symm::cuda
