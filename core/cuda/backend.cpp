// Creation, faults and the end of a communicator of GPUs. Its windows are in windows.cpp, its
// launches in launch.cpp.
#include "core/cuda/backend.h"

#include <algorithm>
#include <thread>

#include "core/attempt.h"
#include "core/cuda/support.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/types.h"

namespace symm::cuda {
namespace {

constexpr char kCreate[] = "symm_comm_create";
// How long the cause of another rank's ending is waited for before it is called unknown.
constexpr auto kExplanation = std::chrono::seconds(1);
constexpr int kExplanationOfCallMs = 20;
// At exit, for what is still enqueued.
constexpr int kFinishMs = 2000;

}  // namespace

int32_t resolve_device(int32_t device) { return choose_device(device, process_environment()); }

std::unique_ptr<Backend> make_backend(Comm& comm) { return std::make_unique<CudaBackend>(comm); }

// Asked by the reaper now and then: what a kernel reports becomes the communicator's fault on every
// rank, also where the host that could read it makes no call; and an abort is brought to the GPU.
class CudaBackend::Watch : public Reaper::Watched {
 public:
  Watch(std::weak_ptr<Comm> comm, const CudaBackend& backend)
      : comm_(std::move(comm)), backend_(backend) {}

  void look() override {
    const auto comm = comm_.lock();
    if (!comm) return;
    if (backend_.arena_) backend_.arena_->bring_abort();
    if (comm->fault_box().is_set()) return;
    if (const auto nccl = backend_.nccl_comm()) {
      const auto failure =
          nccl->look(comm->options().agreed.wait_timeout_ms, backend_.someone_left());
      if (failure) return fail(*comm, *failure);
    }
    if (const auto hierarchy = backend_.hierarchy()) {
      const auto found =
          hierarchy->look(comm->options().agreed.wait_timeout_ms, backend_.someone_left());
      if (found && !found->explained && !is_over()) return;
      if (found) return fail(*comm, found->failure);
    }
    if (!backend_.arena_ || !backend_.arena_->page().has_error()) return;
    bool explained = false;
    const Failure failure = backend_.reported(&explained);
    // Another rank knows why, and is telling.
    if (!explained && !is_over()) return;
    comm->fail(failure);
  }

 private:
  // What NCCL finds, a connection that ended, may be a death that the lifelines are about to tell.
  void fail(Comm& comm, const Failure& failure) {
    if (failure.status == SYMM_NCCL && !is_over()) return;
    comm.fail(failure);
  }

  // Whether the time for a better explanation is.
  bool is_over() {
    if (first_seen_ == Clock::time_point()) first_seen_ = Clock::now();
    return Clock::now() - first_seen_ >= kExplanation;
  }

  const std::weak_ptr<Comm> comm_;
  const CudaBackend& backend_;  // alive as long as comm_ is
  Clock::time_point first_seen_{};
};

CudaBackend::CudaBackend(Comm& comm) : comm_(comm) {}

CudaBackend::~CudaBackend() {
  if (!context_) return;
  try {
    const HostWork work(*context_);
    // In the order of who needs whom.
    slabs_.clear();
    hierarchy_.reset();
    leaders_.reset();
    nccl_.reset();
    order_.reset();
    stream_.reset();
    arena_.reset();
  } catch (const Error&) {
    // The context is gone; the members' own ends find that out too.
  }
}

void CudaBackend::set_up(Deadline deadline) {
  // Everyone's GPU.
  Exchange::Contribution facts;
  facts.failure = attempt([&] {
    context_ = std::make_shared<const Context>(comm_.device());
    reaper_ = Reaper::acquire();
    const HostWork work(*context_);
    facts.blob = encode(describe_gpu(*context_, process_environment()));
    if (comm_.size() > 1 && comm_.one_host()) facts.fd = open_own_pidfd();
  });
  auto everyones = comm_.gather(kCreate, std::move(facts), deadline);

  // The verdict on them, and what any communicator needs. A failure is told in the next step.
  const Failure made = attempt([&] {
    everyones.check_fds();
    std::vector<GpuInfo> infos;
    for (const Bytes& blob : everyones.blobs) infos.push_back(decode_gpu_info(blob));
    gpus_ = conclude(std::move(infos), comm_.roster(), comm_.options().agreed);
    const HostWork work(*context_);
    stream_ = std::make_unique<Stream>(context_);
    order_ = std::make_unique<Order>(context_, reaper_);
    slices_ = std::make_unique<Slices>(comm_.size(), gpus_.granularity);
  });
  const bool wants_nccl = (comm_.options().agreed.flags & SYMM_COMM_NCCL) != 0;
  if (comm_.size() == 1) {
    comm_.agree(kCreate, made, deadline);
  } else if (apart()) {
    set_up_apart(made, std::move(everyones.fds), deadline);
  } else {
    set_up_domain(made, std::move(everyones.fds), deadline);
  }
  if (wants_nccl || apart()) set_up_nccl(deadline);
}

void CudaBackend::set_up_domain(const Failure& failure, std::vector<Fd> pidfds, Deadline deadline) {
  const int ranks = comm_.size();
  std::shared_ptr<Fd> own;
  const Failure made = attempt([&] {
    if (failure.status != SYMM_OK) throw Error(failure.status, failure.message, failure.rank);
    const HostWork work(*context_);
    functions_ = std::make_unique<Functions>(ranks);
    arena_ = std::make_unique<Arena>(context_, gpus_.agreed, comm_.rank(), comm_.id(),
                                     gpus_.granularity);
    own = arena_->make_own();
  });
  auto arenas = comm_.gather(kCreate, {made, {}, own}, deadline);

  // The others' arenas, and rank 0's page of host memory.
  const Failure mapped = attempt([&] {
    arenas.check_fds();
    const HostWork work(*context_);
    arena_->map_peers(arenas.fds);
  });
  arenas.fds.clear();
  share_leavers(mapped, deadline);

  // Everyone reaches this rank's memory, and it is as the first operation needs it.
  const Failure checked = attempt([&] {
    {
      const HostWork work(*context_);
      arena_->check_probes();
    }
    params_.timeout_ns = static_cast<uint64_t>(comm_.options().agreed.wait_timeout_ms) * 1000000;
    params_.error = arena_->page().error_on_device();
    params_.own = arena_->base(comm_.rank());
    for (int rank = 0, peer = 0; rank < ranks; ++rank) {
      if (rank != comm_.rank()) params_.peers[peer++] = arena_->base(rank);
    }
    params_.layout = arena_->layout();
    params_.rank = comm_.rank();
    params_.size = ranks;
    begin_watch(std::move(pidfds));
  });
  comm_.agree(kCreate, checked, deadline);
}

void CudaBackend::begin_watch(std::vector<Fd> pidfds) {
  if (comm_.one_host()) comm_.watch_peers(std::move(pidfds));
  watch_ = std::make_shared<Watch>(comm_.weak_from_this(), *this);
  reaper_->watch(watch_);
}

// Two steps of which the first carries `failure`: rank 0 makes the page, the others map it.
void CudaBackend::share_leavers(Failure failure, Deadline deadline) {
  const std::string key = text("leavers ", comm_.id());
  std::shared_ptr<Fd> page;
  if (failure.status == SYMM_OK && comm_.rank() == 0) {
    failure = attempt([&] {
      page = create_memfd("symm-leavers", page_size());
      leavers_ = shared_mapping(key, *page, 0, page_size());
    });
  }
  const auto pages = comm_.gather(kCreate, {failure, {}, page}, deadline);
  const Failure mapped = attempt([&] {
    pages.check_fds();
    if (comm_.rank() != 0) leavers_ = shared_mapping(key, pages.fds[0], 0, page_size());
  });
  comm_.agree(kCreate, mapped, deadline);
}

void CudaBackend::raise(const Failure& failure) {
  if (arena_) arena_->raise(failure.status);
  if (const auto nccl = nccl_comm()) nccl->abort();
  if (const auto below = hierarchy()) below->raise(failure);
}

Failure CudaBackend::reported(bool* explained) const {
  const ErrorRecord& record = arena_->page().error();
  Failure failure;
  failure.status = static_cast<symm_status>(-static_cast<int32_t>(record.status));
  failure.rank = record.peer;
  *explained = record.peer >= 0;
  const std::string mine = call_text(call_of(record.mine));
  const std::string peer = text("rank ", record.peer);
  if (!*explained) {
    failure.message = text(mine, " was ended by another rank's failure");
    return failure;
  }
  switch (failure.status) {
    case SYMM_MISMATCH:
      failure.message = text("rank ", comm_.rank(), " called ", mine, " and ", peer, " called ",
                             call_text(call_of(record.theirs)),
                             "; all ranks must make the same calls in the same order");
      break;
    case SYMM_TIMEOUT:
      failure.message =
          text(peer, " did not arrive in ", mine, " of rank ", comm_.rank(), " within ",
               record.waited_ns / 1000000,
               " ms (options.wait_timeout_ms): did it make the call, and does its stream run?");
      break;
    case SYMM_PEER:
      failure.message = has_left_text(record.peer, text(mine, " of rank ", comm_.rank()));
      break;
    default:
      failure.message = text(mine, " of rank ", comm_.rank(), " ended with ",
                             status_name(failure.status), " for the sake of ", peer);
  }
  return failure;
}

std::optional<Failure> CudaBackend::fault() const {
  if (const auto nccl = nccl_comm()) {
    if (auto failure = nccl->asynchronous_error()) return failure;
  }
  if (const auto below = hierarchy()) {
    const auto found = below->fault();
    if (found) return found->explained ? found->failure : explained(found->failure);
  }
  return fault_before_call();
}

std::optional<Failure> CudaBackend::untold_fault() const {
  if (arena_ && arena_->page().has_error()) {
    bool known = false;
    const Failure failure = reported(&known);
    if (known) return failure;
  }
  if (const auto below = hierarchy()) {
    const auto found = below->fault_within();
    if (found && found->explained) return found->failure;
  }
  return std::nullopt;
}

// `failure`, whose rank is not known, or what the rank that ended it says: it is telling why, which
// takes a fraction of a millisecond.
Failure CudaBackend::explained(const Failure& failure) const {
  const auto deadline = Deadline::after_ms(kExplanationOfCallMs);
  while (!comm_.fault_box().is_set() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return comm_.fault_box().is_set() ? comm_.fault_box().get() : failure;
}

std::optional<Failure> CudaBackend::fault_before_call() const {
  if (!arena_ || !arena_->page().has_error()) return std::nullopt;
  bool known = false;
  const Failure failure = reported(&known);
  return known ? failure : explained(failure);
}

void CudaBackend::finish() noexcept {
  Reaper::stop_at_exit();
  try {
    if (!order_) return;
    const RelaxedCapture relaxed;
    const auto last = order_->last();
    const auto deadline = Deadline::after_ms(kFinishMs);
    while (last && !last->is_done() && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  } catch (const std::exception&) {
    // The driver has ended before the program: nothing runs any more.
  }
}

void CudaBackend::leave() {
  // Whoever needs this rank from here on is told PEER: by the word on its GPU if it waits there.
  if (arena_) arena_->tell_left();
  if (leavers_) {
    auto* leavers = reinterpret_cast<Leavers*>(leavers_->data());
    // Release: pairs with has_left(), which decides whether the end of the process was a death.
    leavers->left[comm_.rank()].store(1, std::memory_order_release);
  }
}

bool CudaBackend::has_left(int rank) const {
  if (!leavers_) return false;
  const auto* leavers = reinterpret_cast<const Leavers*>(leavers_->data());
  return leavers->left[rank].load(std::memory_order_acquire) != 0;
}

void CudaBackend::retire(std::shared_ptr<void> last) {
  const auto reaper = reaper_;
  auto after = order_ ? order_->last() : nullptr;
  // Nothing of this object may be touched from here on: `last` may be what keeps it.
  reaper->hold(std::move(last), std::move(after));
}

CallPlan CudaBackend::plan(const Call& call) const {
  CallPlan result;
  if (comm_.size() == 1) {
    result.algorithm = algorithm_name(Algorithm::kCopy);
    result.reason = "the communicator has one rank";
    return result;
  }
  if (apart()) {
    result.algorithm = goes_hierarchical(call) ? kHierarchical : kNccl;
    result.reason = text(
        "the ranks are in ", gpus_.domains.count, " peer domains (", gpus_.domains.text(), "); ",
        goes_hierarchical(call)
            ? "each reduces by its own kernels, NCCL between their first ranks; "
            : "",
        "through NCCL the order of operands is NCCL's, 16- and 8-bit floats may be "
        "rounded at every step, MAX and MIN may pass over a NaN, and calls that "
        "differ between ranks are not recognised");
    const bool fits =
        comm_.size() <= kMostRanks && gpus_.agreed.scratch_bytes >= least_scratch(comm_.size());
    const Algorithm other =
        fits ? cuda::plan(gpus_.agreed, call).algorithm : Algorithm::kLowLatency;
    result.faster.push_back({algorithm_name(other), gpus_.domains.why});
    return result;
  }
  const Plan chosen = cuda::plan(gpus_.agreed, call);
  const uint64_t count = chosen.parts > 1 ? chosen.part_count : call.count;
  const Launch grid = cuda::launch(gpus_.agreed, chosen, call, count);
  result.algorithm = algorithm_name(chosen.algorithm);
  result.reason = chosen.reason;
  result.blocks = grid.blocks;
  result.threads = grid.threads;
  if (chosen.faster != chosen.algorithm) {
    result.faster.push_back({algorithm_name(chosen.faster), chosen.why_not});
  }
  return result;
}

std::vector<AlgorithmRow> CudaBackend::table() const {
  std::vector<AlgorithmRow> rows;
  if (comm_.size() == 1) return {{SIZE_MAX, algorithm_name(Algorithm::kCopy)}};
  if (apart()) {
    if (!has_hierarchy()) return {{SIZE_MAX, kNccl}};
    if (!has_flat_nccl()) return {{SIZE_MAX, kHierarchical}};
    return {{kMostHierarchical, kHierarchical}, {SIZE_MAX, kNccl}};
  }
  constexpr size_t kMostBytes = size_t{1} << 32;
  for (size_t bytes = sizeof(float); bytes <= kMostBytes; bytes *= 2) {
    Call call;
    call.form = Form::kAllReduce;
    call.dtype = SYMM_FLOAT32;
    call.op = SYMM_SUM;
    call.count = bytes / sizeof(float);
    const std::string name = algorithm_name(cuda::plan(gpus_.agreed, call).algorithm);
    if (rows.empty() || rows.back().algorithm != name) rows.push_back({bytes, name});
    rows.back().up_to_bytes = bytes;
  }
  rows.back().up_to_bytes = SIZE_MAX;
  return rows;
}

void CudaBackend::describe(JsonWriter& json) const {
  const GpuInfo& own = gpus_.of_rank[static_cast<size_t>(comm_.rank())];
  json.key("gpu").begin_object();
  json.key("ordinal").number(own.ordinal);
  json.key("name").string(own.name);
  json.key("uuid").string(uuid_text(own.uuid));
  json.key("granularity_bytes").number(own.granularity);
  json.end_object();
  json.key("ranks_on_a_gpu").number(gpus_.agreed.most_ranks_on_a_gpu);
  json.key("dependent_launch").boolean(gpus_.agreed.dependent_launch);
  json.key("arena_bytes").number(arena_ ? arena_->layout().bytes : 0);
  json.key("domains").number(gpus_.domains.count);
  describe_nccl(json);
}

bool CudaBackend::describe_peer(JsonWriter& json, int rank) const {
  if (rank == comm_.rank()) return false;
  const GpuInfo& mine = gpus_.of_rank[static_cast<size_t>(comm_.rank())];
  const GpuInfo& theirs = gpus_.of_rank[static_cast<size_t>(rank)];
  const RankInfo& peer = comm_.roster()[static_cast<size_t>(rank)];
  const bool same_process =
      peer.process_id == comm_.roster()[static_cast<size_t>(comm_.rank())].process_id;
  json.key("gpu").string(uuid_text(theirs.uuid));
  json.key("domain").number(gpus_.domains.of_rank[static_cast<size_t>(rank)]);
  const std::string why = why_apart(gpus_.of_rank, comm_.roster(), std::min(rank, comm_.rank()),
                                    std::max(rank, comm_.rank()));
  if (apart()) {
    json.key("path").string("nccl");
    json.key("why_not_better").string(why.empty() ? gpus_.domains.why : why);
    return true;
  }
  const std::string how = theirs.uuid == mine.uuid ? "same GPU" : "peer access";
  json.key("path").string(text(how, same_process ? ", same process" : ", memory mapped by fd"));
  return true;
}

}  // namespace symm::cuda
