#include "core/cuda/arena.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "core/deadline.h"
#include "core/memory.h"

namespace symm::cuda {
namespace {

constexpr int kTellLeftMs = 100;

}  // namespace

Arena::Arena(std::shared_ptr<const Context> context, const Agreed& agreed, int rank,
             std::string key, size_t granularity)
    : context_(context),
      agreed_(agreed),
      rank_(rank),
      key_(std::move(key)),
      layout_(layout_of(agreed)),
      bytes_(round_up(layout_.bytes, granularity)),
      page_(context),
      stream_(context),
      signals_(context),
      mappings_(static_cast<size_t>(agreed.size)) {}

// The copies of bring_abort() and tell_left() may be waiting behind large ones of the program's.
Arena::~Arena() { driver().cuStreamSynchronize(signals_.get()); }

std::string Arena::key_of(int rank) const { return text("arena ", key_, ' ', rank); }

std::shared_ptr<Fd> Arena::make_own() {
  auto allocation = Allocation::create(*context_, bytes_);
  auto fd = allocation->export_fd();
  mappings_[static_cast<size_t>(rank_)] =
      map_own(std::move(allocation), key_of(rank_), *context_, stream_);
  return fd;
}

// A writer's own place in a reader's arena: where it will publish what it calls.
CUdeviceptr Arena::probe_address(int writer, int reader) const {
  return mappings_[static_cast<size_t>(reader)]->address() + offsetof(Control, records) +
         static_cast<size_t>(writer) * sizeof(RecordSlot);
}

void Arena::fill_probe(int writer, int reader, std::byte* probe) const {
  // Other for each pair and communicator, so that no other memory looks like it by chance.
  uint32_t state = 2166136261u;
  for (const char c : key_) state = (state ^ static_cast<unsigned char>(c)) * 16777619u;
  state ^= static_cast<uint32_t>(writer * 64 + reader + 1) * 2654435761u;
  for (size_t i = 0; i < HostPage::kProbeBytes; ++i) {
    state = state * 1664525u + 1013904223u;
    probe[i] = static_cast<std::byte>(state >> 24);
  }
}

// Once the copies are done; `fault` says what it means that a rank's probe is not what was seen.
void Arena::compare_probes(std::string (*fault)(int rank)) {
  stream_.synchronize();
  for (int rank = 0; rank < agreed_.size; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank == rank_ ||
        std::memcmp(page_->seen[index], page_->probes[index], HostPage::kProbeBytes) == 0) {
      continue;
    }
    throw Error(SYMM_UNSUPPORTED,
                text(fault(rank),
                     ": peer access between the two is broken on this machine (an IOMMU or PCIe "
                     "ACS setting, often)"),
                rank);
  }
}

void Arena::map_peers(const std::vector<Fd>& fds) {
  for (int rank = 0; rank < agreed_.size; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank == rank_) continue;
    mappings_[index] = map_of_rank(rank, fds[index], bytes_, key_of(rank), *context_);
    fill_probe(rank_, rank, page_->probes[index]);
    SYMM_CUDA_CHECK(cuMemcpyHtoDAsync, (probe_address(rank_, rank), page_->probes[index],
                                        HostPage::kProbeBytes, stream_.get()));
    SYMM_CUDA_CHECK(cuMemcpyDtoHAsync, (page_->seen[index], probe_address(rank_, rank),
                                        HostPage::kProbeBytes, stream_.get()));
  }
  compare_probes([](int rank) {
    return text("what this rank wrote to the GPU of rank ", rank, " reads back as something else");
  });
}

void Arena::check_probes() {
  for (int rank = 0; rank < agreed_.size; ++rank) {
    if (rank == rank_) continue;
    const auto index = static_cast<size_t>(rank);
    fill_probe(rank, rank_, page_->probes[index]);
    SYMM_CUDA_CHECK(cuMemcpyDtoHAsync, (page_->seen[index], probe_address(rank, rank_),
                                        HostPage::kProbeBytes, stream_.get()));
  }
  compare_probes([](int rank) {
    return text("what rank ", rank, " wrote to this rank's GPU did not arrive");
  });
  const CUdeviceptr own = mappings_[static_cast<size_t>(rank_)]->address();
  SYMM_CUDA_CHECK(cuMemsetD8Async, (own, 0, sizeof(Control), stream_.get()));
  SYMM_CUDA_CHECK(cuMemsetD32Async, (own + layout_.packed, kPoison,
                                     layout_.packed_bytes / sizeof(uint32_t), stream_.get()));
  stream_.synchronize();
}

void Arena::raise(symm_status status) noexcept {
  uint32_t none = 0;
  const auto cause = static_cast<uint32_t>(-status);
  // Release: who finds that a kernel has ended by it finds the communicator's fault, set before.
  std::atomic_ref(page_->error.abort)
      .compare_exchange_strong(none, cause, std::memory_order_release, std::memory_order_relaxed);
}

void Arena::bring_abort() noexcept {
  try {
    // Relaxed: nothing but the word itself goes on, and the copy reads it again.
    if (brought_ || std::atomic_ref(page_->error.abort).load(std::memory_order_relaxed) == 0) {
      return;
    }
    const auto& own = mappings_[static_cast<size_t>(rank_)];
    if (!own) return;
    brought_ = true;
    const HostWork work(*context_);
    SYMM_CUDA_CHECK(cuMemcpyHtoDAsync, (own->address() + offsetof(Control, abort),
                                        &page_->error.abort, sizeof(uint32_t), signals_.get()));
  } catch (const std::exception&) {
    // The context is in error or gone: none of its kernels runs any more.
  }
}

void Arena::tell_left() noexcept {
  try {
    const HostWork work(*context_);
    for (int rank = 0; rank < agreed_.size; ++rank) {
      const auto& mapping = mappings_[static_cast<size_t>(rank)];
      if (rank == rank_ || !mapping) continue;
      const size_t offset = offsetof(Control, left) + static_cast<size_t>(rank_) * sizeof(uint32_t);
      SYMM_CUDA_CHECK(cuMemcpyHtoDAsync,
                      (mapping->address() + offset, &page_->one, sizeof(uint32_t), signals_.get()));
    }
    const auto deadline = Deadline::after_ms(kTellLeftMs);
    while (driver().cuStreamQuery(signals_.get()) == CUDA_ERROR_NOT_READY && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  } catch (const std::exception&) {
    // As above; peers then learn it from the goodbye alone.
  }
}

}  // namespace symm::cuda
