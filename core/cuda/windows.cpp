// Windows over GPU memory: who tells whom what, step by step.
//
// Large windows have memory of their own; small ones are slices of slabs (slices.h). Registered
// ones are the caller's memory. In every case each rank first makes its own part and then maps the
// others', and both are agreed: a failure of one rank is every rank's, and leaves nothing behind.
// What this rank made stays until the last agreement, as threads of its process find it there.
#include <algorithm>
#include <cstring>

#include "core/attempt.h"
#include "core/cuda/backend.h"
#include "core/cuda/caller_memory.h"
#include "core/memory.h"
#include "core/window.h"

namespace symm::cuda {
namespace {

constexpr char kAlloc[] = "symm_window_alloc";
constexpr char kRegister[] = "symm_window_register";
constexpr size_t kMostTold = 4096;  // freed windows in one message
constexpr int kSettleMs = 1000;

// What a rank says in symm_window_alloc.
struct AllocPart {
  uint64_t bytes = 0;
  bool nccl = false;
  std::vector<uint64_t> freed;
};

Bytes encode(const AllocPart& part) {
  Writer w;
  w.u64(part.bytes);
  w.u8(part.nccl);
  w.u32(static_cast<uint32_t>(part.freed.size()));
  for (const uint64_t window : part.freed) w.u64(window);
  return w.take();
}

AllocPart decode_alloc_part(const Bytes& blob) {
  Reader r(blob);
  AllocPart part;
  part.bytes = r.u64();
  part.nccl = r.u8() != 0;
  const uint32_t count = r.u32();
  if (count > kMostTold) throw WireError("too many freed windows");
  for (uint32_t i = 0; i < count; ++i) part.freed.push_back(r.u64());
  r.end();
  return part;
}

// What a rank says in symm_window_register: of cuMem memory the sizes of its allocations, of other
// memory the IPC handle.
struct RegisterPart {
  uint64_t bytes = 0;
  uint64_t offset = 0;
  uint64_t pointer = 0;  // for ranks of the same process
  bool nccl = false;
  uint64_t same_as = 0;  // CudaBackend::nccl_window_over()
  CUipcMemHandle ipc{};
  std::vector<uint64_t> sizes;
};

Bytes encode(const RegisterPart& part) {
  Writer w;
  w.u64(part.bytes);
  w.u64(part.offset);
  w.u64(part.pointer);
  w.u8(part.nccl);
  w.u64(part.same_as);
  w.string(std::string(part.ipc.reserved, sizeof part.ipc.reserved));
  w.u32(static_cast<uint32_t>(part.sizes.size()));
  for (const uint64_t size : part.sizes) w.u64(size);
  return w.take();
}

RegisterPart decode_register_part(const Bytes& blob) {
  Reader r(blob);
  RegisterPart part;
  part.bytes = r.u64();
  part.offset = r.u64();
  part.pointer = r.u64();
  part.nccl = r.u8() != 0;
  part.same_as = r.u64();
  const std::string ipc = r.string(sizeof part.ipc.reserved);
  if (ipc.size() != sizeof part.ipc.reserved) throw WireError("an IPC handle of another length");
  std::copy(ipc.begin(), ipc.end(), part.ipc.reserved);
  const uint32_t count = r.u32();
  if (count > kMostAllocations) throw WireError("too many allocations");
  for (uint32_t i = 0; i < count; ++i) part.sizes.push_back(r.u64());
  r.end();
  return part;
}

// Every rank has the same wishes before it, by rank, so that every rank comes to the same verdict.
void check_same_flag(const std::vector<bool>& nccl) {
  for (size_t rank = 1; rank < nccl.size(); ++rank) {
    if (nccl[rank] == nccl[0]) continue;
    throw Error(SYMM_INVALID_ARGUMENT,
                text("options.flags differ: SYMM_WINDOW_NCCL is ", nccl[0] ? "set" : "not set",
                     " on rank 0 and ", nccl[rank] ? "set" : "not set", " on rank ", rank,
                     "; it must be the same on every rank"),
                static_cast<int>(rank));
  }
}

// NCCL takes a rank's own allocation for every rank's: its size, and where in it the window starts.
void check_same_place(const std::vector<RegisterPart>& parts) {
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    if (parts[rank].offset == parts[0].offset && parts[rank].sizes == parts[0].sizes) continue;
    const auto place = [](const RegisterPart& p) {
      return text(p.offset, " bytes into an allocation of ", p.sizes.empty() ? 0 : p.sizes[0]);
    };
    throw Error(SYMM_UNSUPPORTED,
                text("pointer is ", place(parts[0]), " on rank 0 and ", place(parts[rank]),
                     " on rank ", rank,
                     "; an NCCL window is at the same place on every rank. Allocate alike, or "
                     "leave SYMM_WINDOW_NCCL out"),
                static_cast<int>(rank));
  }
}

std::string slab_key(const std::string& comm, uint64_t window, int rank) {
  return text("window ", comm, ' ', window, ' ', rank);
}

}  // namespace

// What NCCL would refuse, or worse, on some ranks only.
void check_nccl_memory(const Shareable& memory, const void* pointer) {
  constexpr size_t kAlignment = 4096;
  if (memory.allocations.size() > 1) {
    throw Error(SYMM_UNSUPPORTED,
                text("pointer ", pointer, ": the memory is made of ", memory.allocations.size(),
                     " allocations, and an NCCL window is in one; register each, or leave "
                     "SYMM_WINDOW_NCCL out"));
  }
  if (memory.allocations.empty()) {
    throw Error(SYMM_UNSUPPORTED,
                text("pointer ", pointer,
                     " is memory of cudaMalloc, which cannot be an NCCL window; take it from "
                     "ncclMemAlloc, cuMemCreate or symm_window_alloc, or leave SYMM_WINDOW_NCCL "
                     "out"));
  }
  if (memory.offset % kAlignment != 0) {
    throw Error(SYMM_UNSUPPORTED,
                text("pointer ", pointer, " is ", memory.offset,
                     " bytes into its allocation; an NCCL window starts at a multiple of ",
                     kAlignment, ". Align it, or leave SYMM_WINDOW_NCCL out"));
  }
}

// The last reference to a small window's memory here; the others learn of it in the next agreement.
struct CudaBackend::SliceKeeper {
  SliceKeeper(std::shared_ptr<Freed> list, uint64_t number, Mappings mappings)
      : freed(std::move(list)), window(number), slab(std::move(mappings)) {}
  const std::shared_ptr<Freed> freed;
  const uint64_t window;
  const Mappings slab;
  ~SliceKeeper() {
    std::lock_guard lock(freed->mutex);
    freed->windows.push_back(window);
  }
};

std::vector<uint64_t> CudaBackend::untold() const {
  std::lock_guard lock(freed_->mutex);
  const size_t count = std::min(freed_->windows.size(), kMostTold);
  return {freed_->windows.begin(), freed_->windows.begin() + static_cast<ptrdiff_t>(count)};
}

void CudaBackend::hear_freed(const std::vector<std::vector<uint64_t>>& of_rank) {
  for (size_t rank = 0; rank < of_rank.size(); ++rank) {
    slices_->freed(static_cast<int>(rank), of_rank[rank]);
  }
  // Unmapped in the reaper, where no capture is disturbed and nothing can fail.
  for (const uint64_t slab : slices_->take_empty_slabs()) {
    auto node = slabs_.extract(slab);
    reaper_->hold(std::make_shared<Mappings>(std::move(node.mapped())), nullptr);
  }
  std::lock_guard lock(freed_->mutex);
  const auto told = of_rank[static_cast<size_t>(comm_.rank())].size();
  freed_->windows.erase(freed_->windows.begin(),
                        freed_->windows.begin() + static_cast<ptrdiff_t>(told));
}

std::shared_ptr<Mapping> CudaBackend::make_shared_memory(const std::string& key, size_t bytes,
                                                         std::shared_ptr<Fd>* fd) {
  std::shared_ptr<Allocation> allocation;
  try {
    allocation = Allocation::create(*context_, bytes);
  } catch (const Error& e) {
    if (e.status() != SYMM_OUT_OF_MEMORY) throw;
    // What was given back may not be back yet.
    reaper_->settle(Deadline::after_ms(kSettleMs));
    allocation = Allocation::create(*context_, bytes);
  }
  if (comm_.size() > 1) *fd = allocation->export_fd();
  return map_own(std::move(allocation), key, *context_, *stream_);
}

std::shared_ptr<Window> CudaBackend::alloc_window(uint64_t number, size_t bytes, bool nccl,
                                                  const Failure& failure, Deadline deadline) {
  require_one_domain();
  // NCCL wants windows at offsets of 4096 in their allocation, and one each.
  const bool small = bytes <= slices_->most_bytes() && (!nccl || bytes == 0);
  const std::string key = slab_key(comm_.id(), number, comm_.rank());
  std::shared_ptr<Mapping> own;
  std::shared_ptr<Fd> fd;
  size_t whole = 0;
  const Failure made = attempt([&] {
    if (failure.status != SYMM_OK) throw Error(failure.status, failure.message);
    if (nccl) this->nccl();
    if (small) return;
    whole = round_up(bytes, gpus_.granularity);
    const HostWork work(*context_);
    own = make_shared_memory(key, whole, &fd);
  });
  auto said = comm_.gather(kAlloc, {made, encode(AllocPart{bytes, nccl, untold()}), fd}, deadline);
  std::vector<uint64_t> sizes;
  std::vector<bool> wishes;
  std::vector<std::vector<uint64_t>> freed;
  for (const Bytes& blob : said.blobs) {
    AllocPart part = decode_alloc_part(blob);
    sizes.push_back(part.bytes);
    wishes.push_back(part.nccl);
    freed.push_back(std::move(part.freed));
  }
  hear_freed(freed);
  check_equal_bytes(sizes);
  check_same_flag(wishes);
  if (bytes == 0) {
    comm_.agree(kAlloc, {}, deadline);
    return make_window(number, 0, {}, 0, nullptr);
  }
  if (small) return place_window(number, bytes, deadline);

  Mappings mappings;
  const Failure mapped = attempt([&] {
    said.check_fds();
    const HostWork work(*context_);
    mappings = map_all(text("window ", comm_.id(), ' ', number, ' '), whole, own, said.fds);
  });
  comm_.agree(kAlloc, mapped, deadline);
  const auto keeper = std::make_shared<Mappings>(mappings);
  std::shared_ptr<void> registered;
  if (nccl) registered = make_nccl_window(kAlloc, number, own->data(), bytes, keeper, deadline);
  auto window = make_window(number, bytes, mappings, 0, keeper);
  window->hold_while_in_use(std::move(registered));
  return window;
}

CudaBackend::Mappings CudaBackend::map_all(const std::string& key, size_t bytes,
                                           std::shared_ptr<Mapping> own,
                                           const std::vector<Fd>& fds) {
  Mappings mappings(static_cast<size_t>(comm_.size()));
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto index = static_cast<size_t>(rank);
    mappings[index] = rank == comm_.rank()
                          ? own
                          : map_of_rank(rank, fds[index], bytes, text(key, rank), *context_);
  }
  return mappings;
}

CudaBackend::Mappings CudaBackend::make_slab(uint64_t window, Deadline deadline) {
  std::shared_ptr<Mapping> own;
  std::shared_ptr<Fd> fd;
  const Failure made = attempt([&] {
    const HostWork work(*context_);
    own = make_shared_memory(slab_key(comm_.id(), window, comm_.rank()), gpus_.granularity, &fd);
  });
  const auto said = comm_.gather(kAlloc, {made, {}, fd}, deadline);
  Mappings slab;
  const Failure mapped = attempt([&] {
    said.check_fds();
    const HostWork work(*context_);
    slab = map_all(text("window ", comm_.id(), ' ', window, ' '), gpus_.granularity, own, said.fds);
  });
  comm_.agree(kAlloc, mapped, deadline);
  return slab;
}

std::shared_ptr<Window> CudaBackend::place_window(uint64_t number, size_t bytes,
                                                  Deadline deadline) {
  auto place = slices_->place(number, bytes);
  if (place) {
    // The slice may have been another window's.
    const Failure zeroed = attempt([&] {
      const HostWork work(*context_);
      const auto& own = slabs_[place->slab][static_cast<size_t>(comm_.rank())];
      SYMM_CUDA_CHECK(cuMemsetD8Async, (own->address() + place->offset, 0, bytes, stream_->get()));
      stream_->synchronize();
    });
    try {
      comm_.agree(kAlloc, zeroed, deadline);
    } catch (...) {
      slices_->undo(number);
      throw;
    }
  } else {
    Mappings slab = make_slab(number, deadline);
    slabs_[slices_->add_slab()] = std::move(slab);
    place = slices_->place(number, bytes);
  }
  const Mappings& slab = slabs_[place->slab];
  auto keeper = std::make_shared<SliceKeeper>(freed_, number, slab);
  return make_window(number, bytes, slab, place->offset, std::move(keeper));
}

std::shared_ptr<Window> CudaBackend::make_window(uint64_t number, size_t bytes,
                                                 const Mappings& mappings, size_t offset,
                                                 std::shared_ptr<void> keeper) {
  std::vector<std::byte*> copies(static_cast<size_t>(comm_.size()), nullptr);
  for (size_t rank = 0; rank < mappings.size(); ++rank) {
    copies[rank] = mappings[rank]->data() + offset;
  }
  return std::make_shared<Window>(comm_.shared_from_this(), number, bytes, std::move(copies),
                                  std::vector<std::shared_ptr<void>>{std::move(keeper)}, nullptr);
}

std::shared_ptr<Window> CudaBackend::register_window(uint64_t number, const CallersMemory& memory,
                                                     const Failure& failure, Deadline deadline) {
  require_one_domain();
  const size_t bytes = memory.bytes;
  const auto ranks = static_cast<size_t>(comm_.size());
  const auto self = static_cast<size_t>(comm_.rank());
  const std::string key = text("registered ", comm_.id(), ' ', number, ' ');
  Shareable shareable;
  std::shared_ptr<Mapping> own;  // cuMem memory, at an address that stays whatever the owner does
  std::shared_ptr<Fd> fd;
  CUmemGenericAllocationHandle handle = 0;
  RegisterPart part;
  part.bytes = bytes;
  part.pointer = reinterpret_cast<uint64_t>(memory.pointer);
  part.nccl = memory.nccl;
  const Failure made = attempt([&] {
    if (failure.status != SYMM_OK) throw Error(failure.status, failure.message);
    if (memory.nccl) this->nccl();
    if (bytes == 0) return;
    if (memory.has_fd) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  "options.flags has SYMM_WINDOW_FD, which is for memory of the CPU");
    }
    check_pointer("pointer", memory.pointer, bytes, 1);
    const HostWork work(*context_);
    shareable = find_shareable(memory.pointer, bytes, *context_);
    part.offset = shareable.offset;
    part.ipc = shareable.ipc;
    if (memory.nccl) {
      check_nccl_memory(shareable, memory.pointer);
      handle = shareable.allocations[0]->get();
      part.same_as = nccl_window_over(memory.pointer, bytes, handle);
    }
    if (shareable.allocations.empty()) return;
    for (const auto& allocation : shareable.allocations) part.sizes.push_back(allocation->size());
    own = std::make_shared<Mapping>(shareable.allocations);
    own->grant(context_->ordinal());
    share_in_process(text(key, self), own);
    if (ranks > 1) fd = shareable.allocations[0]->export_fd();
  });
  auto said = comm_.gather(kRegister, {made, encode(part), fd}, deadline);
  std::vector<RegisterPart> parts;
  std::vector<uint64_t> sizes;
  std::vector<bool> wishes;
  std::vector<uint64_t> same_as;
  size_t steps = 0;
  for (const Bytes& blob : said.blobs) {
    parts.push_back(decode_register_part(blob));
    sizes.push_back(parts.back().bytes);
    wishes.push_back(parts.back().nccl);
    same_as.push_back(parts.back().same_as);
    steps = std::max(steps, parts.back().sizes.size());
  }
  check_equal_bytes(sizes);
  check_same_flag(wishes);
  if (memory.nccl) check_same_place(parts);

  // A step carries one descriptor a rank, so that a range of several allocations takes several.
  std::vector<std::vector<std::shared_ptr<Allocation>>> imported(ranks);
  Failure so_far;
  for (size_t step = 0; step < std::max<size_t>(steps, 1); ++step) {
    if (step > 0) {
      fd.reset();
      const Failure exported = attempt([&] {
        if (so_far.status != SYMM_OK) throw Error(so_far.status, so_far.message, so_far.rank);
        const HostWork work(*context_);
        if (step < shareable.allocations.size()) fd = shareable.allocations[step]->export_fd();
      });
      said = comm_.gather(kRegister, {exported, {}, fd}, deadline);
    }
    so_far = attempt([&] {
      if (so_far.status != SYMM_OK) throw Error(so_far.status, so_far.message, so_far.rank);
      said.check_fds();
      const HostWork work(*context_);
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (!said.fds[rank]) continue;
        if (step >= parts[rank].sizes.size()) throw WireError("an fd of no allocation");
        imported[rank].push_back(Allocation::import(said.fds[rank], parts[rank].sizes[step]));
      }
    });
  }

  std::vector<std::byte*> copies(ranks, nullptr);
  std::vector<std::shared_ptr<void>> keep;
  const auto& roster = comm_.roster();
  const Failure mapped = attempt([&] {
    if (so_far.status != SYMM_OK) throw Error(so_far.status, so_far.message, so_far.rank);
    const HostWork work(*context_);
    for (size_t rank = 0; rank < ranks && bytes > 0; ++rank) {
      const RegisterPart& theirs = parts[rank];
      const bool here = roster[rank].process_id == roster[self].process_id;
      if (!theirs.sizes.empty()) {
        std::shared_ptr<Mapping> mapping =
            rank == self ? own
            : here       ? find_in_process(text(key, rank))
                         : std::make_shared<Mapping>(std::move(imported[rank]));
        if (!mapping) {
          throw Error(SYMM_INTERNAL,
                      text("rank ", rank, " of this process did not map its memory"));
        }
        mapping->grant(context_->ordinal());
        copies[rank] = mapping->data() + theirs.offset;
        keep.push_back(std::move(mapping));
      } else if (!here) {
        auto mapping = std::make_shared<IpcMapping>(context_, theirs.ipc);
        copies[rank] = mapping->data() + theirs.offset;
        keep.push_back(std::move(mapping));
      } else {
        copies[rank] = reinterpret_cast<std::byte*>(theirs.pointer);
        if (roster[rank].device == context_->ordinal()) continue;
        auto peer = std::make_shared<Context>(roster[rank].device);
        const CUresult result = driver().cuCtxEnablePeerAccess(peer->get(), 0);
        if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
          check(result, "cuCtxEnablePeerAccess", text("to GPU ", roster[rank].device));
        }
        keep.push_back(std::move(peer));
      }
    }
  });
  comm_.agree(kRegister, mapped, deadline);
  std::shared_ptr<void> registered;
  if (memory.nccl && bytes > 0) {
    registered = register_nccl_window(number, memory.pointer, bytes, handle, same_as, deadline);
  }

  std::function<void()> check_alias;
  if (bytes > 0 && own == nullptr) {
    check_alias = [pointer = memory.pointer, id = shareable.buffer_id] {
      check_buffer_id(pointer, id);
    };
  }
  auto window = std::make_shared<Window>(comm_.shared_from_this(), number, bytes, std::move(copies),
                                         std::move(keep), static_cast<std::byte*>(memory.pointer),
                                         std::move(check_alias));
  window->hold_while_in_use(std::move(registered));
  return window;
}

}  // namespace symm::cuda
