#include "core/cuda/hierarchy.h"

#include <algorithm>

#include "core/types.h"

namespace symm::cuda {
namespace {

// The way back goes in parts of this.
constexpr size_t kZeroBytes = size_t{2} << 20;

bool is_integer(symm_dtype dtype) { return dtype <= SYMM_UINT64; }

}  // namespace

bool may_be_hierarchical(const Domains& domains, const Call& call) {
  if (call.form == Form::kBarrier || call.op != SYMM_AVG) return true;
  if (is_integer(call.dtype)) return false;
  for (int domain = 1; domain < domains.count; ++domain) {
    if (domains.members(domain).size() != domains.members(0).size()) return false;
  }
  return true;
}

Hierarchy::Hierarchy(std::shared_ptr<Comm> domain, std::vector<int> members,
                     std::shared_ptr<NcclComm> leaders, const Context& context,
                     const Stream& stream)
    : domain_(std::move(domain)), members_(std::move(members)), leaders_(std::move(leaders)) {
  if (leaders_) return;
  zeros_ = map_private(context, kZeroBytes, stream);
  stream.synchronize();
}

// A call that failed above may have work below, which the domain's own order knows of.
Hierarchy::~Hierarchy() {
  Comm& domain = *domain_;
  domain.retire(std::make_shared<std::pair<std::shared_ptr<Comm>, std::shared_ptr<Mapping>>>(
      std::move(domain_), std::move(zeros_)));
}

void Hierarchy::enqueue(const Call& call, const void* input, void* output, CUstream stream,
                        bool captured, Keepable& owner) {
  // Nothing is enqueued yet: what is wrong with the call changes nothing.
  within([&] { there(call, input, output, stream, owner); });
  // From here on the other ranks may have begun: the call can be neither repeated nor taken back.
  try {
    if (leaders_) between(call, output, stream, captured);
    within([&] { back(call, output, stream, owner); });
  } catch (const Error& e) {
    if (is_sticky(e.status())) throw;
    throw Error(SYMM_CUDA, e.what(), e.rank());
  }
}

void Hierarchy::there(const Call& call, const void* input, void* output, CUstream stream,
                      Keepable& owner) {
  if (call.form == Form::kBarrier) return domain_->barrier(stream);
  domain_->all_reduce(call, input, output, stream, owner);
}

// What fails in the domain, in the numbers of the whole.
template <class Part>
void Hierarchy::within(Part part) const {
  try {
    part();
  } catch (const Error& e) {
    const Failure failure = in_whole({e.status(), e.rank(), e.what()});
    throw Error(failure.status, text("within the peer domain: ", failure.message), failure.rank);
  }
}

void Hierarchy::between(const Call& call, void* output, CUstream stream, bool captured) {
  if (!captured) leaders_->watch(call, leaders_->mark(stream));
  leaders_->enqueue(call, output, output, stream);
  if (!captured) leaders_->enqueued(leaders_->mark(stream));
}

void Hierarchy::back(const Call& call, void* output, CUstream stream, Keepable& owner) {
  if (call.form == Form::kBarrier) return domain_->barrier(stream);
  const size_t element = dtype_size(call.dtype);
  const size_t bytes = static_cast<size_t>(call.count) * element;
  Call part;
  part.form = Form::kAllReduce;
  part.op = SYMM_SUM;
  // By what is the same on every rank, whose outputs may be aligned otherwise.
  part.dtype = element == 8 ? SYMM_UINT64 : element == 4 ? SYMM_UINT32 : SYMM_UINT8;
  const size_t width = dtype_size(part.dtype);
  for (size_t done = 0; done < bytes; done += kZeroBytes) {
    auto* at = static_cast<std::byte*>(output) + done;
    part.count = std::min(bytes - done, kZeroBytes) / width;
    domain_->all_reduce(part, leaders_ ? at : zeros_->data(), at, stream, owner);
  }
}

Failure Hierarchy::in_whole(Failure failure) const {
  if (failure.rank < 0) return failure;
  const int there = failure.rank;
  if (failure.status == SYMM_TIMEOUT && there == 0) {
    // It waits for the other domains, and its own deadline is over at the same time.
    failure.rank = kNoRank;
    failure.message = text("rank ", members_[0],
                           ", through which this domain reaches the others, or a rank of another "
                           "domain did not arrive: ",
                           failure.message);
    return failure;
  }
  failure.rank = members_[static_cast<size_t>(there)];
  if (failure.rank != there) {
    failure.message =
        text("(rank ", there, " of the domain is rank ", failure.rank, ") ", failure.message);
  }
  return failure;
}

Hierarchy::Found Hierarchy::found(const Failure& failure) const {
  return {in_whole(failure), failure.rank >= 0};
}

std::optional<Hierarchy::Found> Hierarchy::fault_within() const {
  const Failure failure = domain_->sticky();
  if (failure.status == SYMM_OK) return std::nullopt;
  return found(failure);
}

std::optional<Hierarchy::Found> Hierarchy::fault() const {
  if (auto within = fault_within()) return within;
  if (!leaders_) return std::nullopt;
  if (auto failure = leaders_->asynchronous_error()) return Found{*failure};
  return std::nullopt;
}

std::optional<Hierarchy::Found> Hierarchy::look(int32_t wait_timeout_ms, int left) {
  // Not sticky(): the domain's own watch finds what is to be found, and tells the others.
  if (domain_->fault_box().is_set()) return found(domain_->fault_box().get());
  if (!leaders_) return std::nullopt;
  if (auto failure = leaders_->look(wait_timeout_ms, left)) return Found{*failure};
  return std::nullopt;
}

void Hierarchy::raise(const Failure& failure) {
  Failure inside = failure;
  const auto member = std::find(members_.begin(), members_.end(), failure.rank);
  inside.rank = member == members_.end() ? kNoRank : static_cast<int>(member - members_.begin());
  domain_->fail(inside);
  if (leaders_) leaders_->abort();
}

}  // namespace symm::cuda
