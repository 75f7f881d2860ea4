// Where NCCL comes into a communicator of GPUs: between peer domains, and where it was asked for.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/attempt.h"
#include "core/cuda/backend.h"
#include "core/json.h"
#include "core/text.h"
#include "core/types.h"

namespace symm::cuda {
namespace {

constexpr char kCreate[] = "symm_comm_create";
constexpr char kRegister[] = "symm_window_register";
// How long the agreement may take on what NCCL made of the deadline.
constexpr auto kGrace = std::chrono::seconds(5);
// NCCL's kernels for windows that may start early and do not wait.
constexpr int kFirstEarly = 22800;
constexpr int kLastEarly = 23005;
// Registered memory that NCCL windows are remembered of; older ones are registered anew.
constexpr size_t kMostRemembered = 4096;

// What a rank says of its NCCL; rank 0 also names the communicator.
struct NcclFacts {
  int32_t version = 0;
  std::string path;
  nccl::UniqueId ids[2]{};  // of all ranks, and of the domains' first ones
};

Bytes encode(const NcclFacts& facts) {
  Writer w;
  w.i32(facts.version);
  w.string(facts.path.substr(0, kMostText));
  for (const nccl::UniqueId& id : facts.ids) w.string(std::string(id.bytes, sizeof id.bytes));
  return w.take();
}

NcclFacts decode_nccl_facts(const Bytes& blob) {
  Reader r(blob);
  NcclFacts facts;
  facts.version = r.i32();
  facts.path = r.string(kMostText);
  for (nccl::UniqueId& id : facts.ids) {
    const std::string bytes = r.string(sizeof id.bytes);
    if (bytes.size() != sizeof id.bytes) throw WireError("an NCCL id of another length");
    std::copy(bytes.begin(), bytes.end(), id.bytes);
  }
  r.end();
  return facts;
}

Exchange::Contribution saying(Bytes blob) {
  Exchange::Contribution contribution;
  contribution.blob = std::move(blob);
  return contribution;
}

// What a rank says before and after a window is registered with NCCL.
struct NcclWish {
  std::string lacks;               // why it has none, or ""
  std::vector<uint64_t> given_up;  // NcclComm::given_up()
};

Bytes encode(const NcclWish& wish) {
  Writer w;
  w.string(wish.lacks.substr(0, kMostText));
  w.u32(static_cast<uint32_t>(wish.given_up.size()));
  for (const uint64_t number : wish.given_up) w.u64(number);
  return w.take();
}

NcclWish decode_nccl_wish(const Bytes& blob) {
  Reader r(blob);
  NcclWish wish;
  wish.lacks = r.string(kMostText);
  const uint32_t count = r.u32();
  if (count > kMostRemembered) throw WireError("too many windows");
  for (uint32_t i = 0; i < count; ++i) wish.given_up.push_back(r.u64());
  r.end();
  return wish;
}

// NCCL's own check comes late and says less.
void check_versions(const std::vector<NcclFacts>& facts) {
  for (size_t rank = 1; rank < facts.size(); ++rank) {
    if (facts[rank].version == facts[0].version) continue;
    throw Error(SYMM_UNSUPPORTED,
                text("rank ", rank, " has NCCL ", nccl::version_text(facts[rank].version), " (",
                     facts[rank].path, "), rank 0 has ", nccl::version_text(facts[0].version), " (",
                     facts[0].path, "); all ranks need the same version"),
                static_cast<int>(rank));
  }
}

}  // namespace

std::shared_ptr<NcclComm> CudaBackend::nccl_comm() const {
  std::lock_guard lock(nccl_mutex_);
  return nccl_;
}

int CudaBackend::someone_left() const {
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank != comm_.rank() && has_left(rank)) return rank;
  }
  return kNoRank;
}

void CudaBackend::set_up_apart(const Failure& failure, std::vector<Fd> pidfds, Deadline deadline) {
  const Failure allowed = attempt([&] {
    if (failure.status != SYMM_OK) throw Error(failure.status, failure.message, failure.rank);
    if ((comm_.options().agreed.flags & SYMM_COMM_STRICT) != 0) {
      throw Error(
          SYMM_UNSUPPORTED,
          text("options.flags has SYMM_COMM_STRICT, and the ranks are in ", gpus_.domains.count,
               " peer domains (", gpus_.domains.text(), "): ", gpus_.domains.why,
               ". Between them there is only NCCL, whose order of operands is not 0..N-1; "
               "leave SYMM_COMM_STRICT out, or split the communicator by domain"));
    }
  });
  if (comm_.one_host()) {
    share_leavers(allowed, deadline);
  } else {
    comm_.agree(kCreate, allowed, deadline);
  }
  comm_.agree(kCreate, attempt([&] { begin_watch(std::move(pidfds)); }), deadline);
}

int CudaBackend::own_domain() const {
  return gpus_.domains.of_rank[static_cast<size_t>(comm_.rank())];
}

bool CudaBackend::leads() const {
  return gpus_.domains.members(own_domain()).front() == comm_.rank();
}

void CudaBackend::check_gpus_for_nccl(const std::string& why) const {
  std::vector<Uuid> leaders;
  for (int domain = 0; domain < gpus_.domains.count; ++domain) {
    const auto first = static_cast<size_t>(gpus_.domains.members(domain).front());
    leaders.push_back(gpus_.of_rank[first].uuid);
  }
  std::sort(leaders.begin(), leaders.end());
  const bool leaders_share = std::adjacent_find(leaders.begin(), leaders.end()) != leaders.end();
  const bool wanted = (comm_.options().agreed.flags & SYMM_COMM_NCCL) != 0;
  if (has_flat_nccl() || (has_hierarchy() && !leaders_share && !wanted)) return;
  throw Error(SYMM_UNSUPPORTED, why + "and it refuses ranks that share a GPU, as some do here");
}

void CudaBackend::set_up_nccl(Deadline deadline) {
  const std::string why =
      apart()
          ? text("the ranks are in ", gpus_.domains.count, " peer domains (", gpus_.domains.text(),
                 "): ", gpus_.domains.why, ". Between them NCCL is needed: ")
          : text("options.flags has SYMM_COMM_NCCL: ");
  const nccl::Library* library = nullptr;
  NcclFacts own;
  const Failure found = attempt([&] {
    check_gpus_for_nccl(why);
    try {
      library = &nccl::library(comm_.options().nccl_path);
    } catch (const Error& e) {
      throw Error(e.status(), why + e.what());
    }
    own.version = library->version;
    own.path = library->path;
  });
  const auto said = comm_.gather(kCreate, {found, encode(own), nullptr}, deadline);
  std::vector<NcclFacts> facts;
  const Failure named = attempt([&] {
    for (const Bytes& blob : said.blobs) facts.push_back(decode_nccl_facts(blob));
    check_versions(facts);
    if (comm_.rank() != 0) return;
    // NCCL serves each from a thread and a socket that only its use ends: none is made in vain.
    const HostWork work(*context_);
    const bool used[] = {has_flat_nccl(), has_hierarchy()};
    for (size_t i = 0; i < std::size(used); ++i) {
      if (!used[i]) continue;
      const int result = library->ncclGetUniqueId(&own.ids[i]);
      if (result == nccl::kSuccess) continue;
      throw Error(SYMM_NCCL, text("ncclGetUniqueId: ", library->ncclGetErrorString(result),
                                  "; NCCL_DEBUG=WARN makes NCCL say more"));
    }
  });
  const auto ids = comm_.gather(kCreate, {named, encode(own), nullptr}, deadline);

  std::shared_ptr<NcclComm> all;
  std::shared_ptr<NcclComm> leaders;
  bool given_up = false;
  const Failure joined = attempt([&] {
    const NcclFacts first = decode_nccl_facts(ids.blobs[0]);
    const auto create = [&](const nccl::UniqueId& id, int rank, int size) {
      auto made = NcclComm::create(*library, id, rank, size, context_, deadline,
                                   [&] { return comm_.is_doomed(); });
      given_up = given_up || !made;
      return made;
    };
    if (has_flat_nccl()) all = create(first.ids[0], comm_.rank(), comm_.size());
    if (given_up || !has_hierarchy() || !leads()) return;
    leaders = create(first.ids[1], own_domain(), gpus_.domains.count);
  });
  // If it gave up another rank has said why, and this step fails with that.
  comm_.agree(kCreate, joined, Deadline(deadline.when() + kGrace));
  if (given_up) throw Error(SYMM_INTERNAL, "NCCL was given up and no rank has failed");
  {
    std::lock_guard lock(nccl_mutex_);
    nccl_ = all;
    leaders_ = leaders;
    nccl_version_ = library->version;
  }
  // A fault that came while there was none yet.
  if (!comm_.fault_box().is_set()) return;
  if (all) all->abort();
  if (leaders) leaders->abort();
}

std::optional<Backend::InDomain> CudaBackend::domain() const {
  if (!has_hierarchy()) return std::nullopt;
  return InDomain{own_domain(), gpus_.agreed.most_ranks_on_a_gpu > 1};
}

void CudaBackend::use_domain(const std::shared_ptr<Comm>& domain) {
  const HostWork work(*context_);
  auto made = std::make_shared<Hierarchy>(domain, gpus_.domains.members(own_domain()), leaders_,
                                          *context_, *stream_);
  {
    std::lock_guard lock(nccl_mutex_);
    hierarchy_ = made;
  }
  if (comm_.fault_box().is_set()) made->raise(comm_.fault_box().get());
}

std::shared_ptr<Hierarchy> CudaBackend::hierarchy() const {
  std::lock_guard lock(nccl_mutex_);
  return hierarchy_;
}

bool CudaBackend::goes_hierarchical(const Call& call) const {
  if (!has_hierarchy() || !may_be_hierarchical(gpus_.domains, call)) return false;
  if (!has_flat_nccl() || call.form == Form::kBarrier) return true;
  return call.count <= kMostHierarchical / dtype_size(call.dtype);
}

void CudaBackend::refuse_flat(const Call& call) const {
  throw Error(SYMM_UNSUPPORTED,
              text(call_text(call), ": ranks of several peer domains (", gpus_.domains.text(),
                   ") that share GPUs average integers not at all, and other types only in domains "
                   "of one size; use SYMM_SUM and divide"));
}

void* CudaBackend::nccl() const {
  const auto nccl = nccl_comm();
  if (!nccl) {
    throw Error(SYMM_UNSUPPORTED,
                apart() ? "there is no NCCL communicator of all ranks inside, as some share a GPU"
                        : "there is no NCCL communicator inside: the ranks are one peer domain, "
                          "and options.flags had no SYMM_COMM_NCCL when it was created");
  }
  return nccl->get();
}

void CudaBackend::require_one_domain() const {
  if (!apart()) return;
  throw Error(SYMM_UNSUPPORTED,
              text("windows need ranks that reach each other's memory, and these are in ",
                   gpus_.domains.count, " peer domains (", gpus_.domains.text(),
                   "): ", gpus_.domains.why, "; split the communicator by domain"));
}

std::shared_ptr<void> CudaBackend::make_nccl_window(const char* kind, uint64_t number,
                                                    void* pointer, size_t bytes,
                                                    std::shared_ptr<void> keep, Deadline deadline) {
  const auto nccl = nccl_comm();
  // Agreed first: who lacks windows would leave the others waiting for it inside NCCL.
  NcclWish own{nccl->library().no_windows(process_environment()), nccl->given_up()};
  own.given_up.resize(std::min(own.given_up.size(), kMostRemembered));
  std::vector<NcclWish> wishes;
  for (const Bytes& blob : comm_.gather(kind, saying(encode(own)), deadline).blobs) {
    wishes.push_back(decode_nccl_wish(blob));
  }
  const auto lacks = [&](const std::vector<NcclWish>& of_rank) {
    for (size_t rank = 0; rank < of_rank.size(); ++rank) {
      if (of_rank[rank].lacks.empty()) continue;
      std::lock_guard lock(nccl_mutex_);
      no_nccl_windows_ = text("rank ", rank, ": ", of_rank[rank].lacks);
      return true;
    }
    return false;
  };
  if (lacks(wishes)) return nullptr;
  std::vector<uint64_t> gone = wishes[0].given_up;
  for (const NcclWish& wish : wishes) {
    std::vector<uint64_t> both;
    std::set_intersection(gone.begin(), gone.end(), wish.given_up.begin(), wish.given_up.end(),
                          std::back_inserter(both));
    gone = std::move(both);
  }

  std::shared_ptr<void> made;
  NcclWish result;
  const Failure asked = attempt([&] {
    made = nccl->register_window(number, pointer, bytes, std::move(keep), std::move(gone), deadline,
                                 [&] { return comm_.is_doomed(); });
    if (!made) {
      result.lacks =
          "ncclCommWindowRegister succeeded and gave none: NCCL has no symmetric memory here "
          "(NCCL_DEBUG=INFO says why)";
    }
  });
  std::vector<NcclWish> results;
  const Deadline grace(deadline.when() + kGrace);
  for (const Bytes& blob : comm_.gather(kind, {asked, encode(result), nullptr}, grace).blobs) {
    results.push_back(decode_nccl_wish(blob));
  }
  if (lacks(results)) {
    if (!made) nccl->never_had(number);
    return nullptr;
  }
  std::lock_guard lock(nccl_mutex_);
  no_nccl_windows_.clear();
  if (nccl_version_ >= kFirstEarly && nccl_version_ <= kLastEarly) keeps_nccl_off_ = true;
  return made;
}

uint64_t CudaBackend::nccl_window_over(void* pointer, size_t bytes,
                                       CUmemGenericAllocationHandle handle) const {
  for (const NcclMemory& memory : nccl_memory_) {
    if (memory.pointer == pointer && memory.bytes == bytes && memory.handle == handle &&
        !memory.registered.expired()) {
      return memory.window + 1;
    }
  }
  return 0;
}

std::shared_ptr<void> CudaBackend::register_nccl_window(uint64_t number, void* pointer,
                                                        size_t bytes,
                                                        CUmemGenericAllocationHandle handle,
                                                        const std::vector<uint64_t>& same_as,
                                                        Deadline deadline) {
  std::erase_if(nccl_memory_, [](const NcclMemory& one) { return one.registered.expired(); });
  const bool known = same_as[0] != 0 && std::all_of(same_as.begin(), same_as.end(),
                                                    [&](uint64_t s) { return s == same_as[0]; });
  if (known) {
    // Every rank has found one. It may have gone meanwhile in some, so that has to be agreed.
    std::shared_ptr<void> window;
    for (const NcclMemory& one : nccl_memory_) {
      if (one.window + 1 == same_as[0]) window = one.registered.lock();
    }
    Writer w;
    w.u8(window != nullptr);
    const auto said = comm_.gather(kRegister, saying(w.take()), deadline);
    bool all = true;
    for (const Bytes& blob : said.blobs) all = all && Reader(blob).u8() != 0;
    if (all) return window;
  }
  auto window = make_nccl_window(kRegister, number, pointer, bytes, nullptr, deadline);
  if (window && nccl_memory_.size() < kMostRemembered) {
    nccl_memory_.push_back({pointer, bytes, handle, number, window});
  }
  return window;
}

void CudaBackend::describe_nccl(JsonWriter& json) const {
  const auto nccl = nccl_comm();
  json.key("nccl").begin_object();
  json.key("inside").boolean(nccl != nullptr);
  if (nccl) {
    json.key("version").string(nccl::version_text(nccl->library().version));
    std::string lacks = nccl->library().no_windows(process_environment());
    {
      std::lock_guard lock(nccl_mutex_);
      if (lacks.empty()) lacks = no_nccl_windows_;
    }
    if (lacks.empty() && apart()) lacks = "windows need one peer domain";
    json.key("windows").begin_object();
    json.key("available").boolean(lacks.empty());
    if (!lacks.empty()) json.key("reason").string(lacks);
    json.end_object();
  }
  json.end_object();
}

}  // namespace symm::cuda
