// Windows: memory that every rank of a communicator on one host maps.
//
// Allocated windows are slices of one memfd, made by rank 0, one slice a rank; registered ones are
// mapped from whatever file each rank's memory belongs to. Both take two agreed steps: everyone's
// part, and that everyone has mapped everyone else's. A failure of one rank in either is every
// rank's, and leaves nothing behind.
#include <algorithm>
#include <cstring>

#include "core/attempt.h"
#include "core/cpu/backend.h"
#include "core/window.h"

namespace symm::cpu {
namespace {

constexpr char kAlloc[] = "symm_window_alloc";
constexpr char kRegister[] = "symm_window_register";

// One rank's part: how many bytes it asked for, and where they are in its file.
struct Part {
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

Bytes encode(const Part& part) {
  Writer w;
  w.u64(part.bytes);
  w.u64(part.offset);
  return w.take();
}

std::vector<Part> decode_parts(const std::vector<Bytes>& blobs) {
  std::vector<Part> parts;
  for (const Bytes& blob : blobs) {
    Reader r(blob);
    Part part;
    part.bytes = r.u64();
    part.offset = r.u64();
    r.end();
    parts.push_back(part);
  }
  std::vector<uint64_t> bytes;
  for (const Part& part : parts) bytes.push_back(part.bytes);
  check_equal_bytes(bytes);
  return parts;
}

}  // namespace

std::shared_ptr<Window> CpuBackend::alloc_window(uint64_t number, size_t bytes, bool,
                                                 const Failure& failure, Deadline deadline) {
  const std::string key = text("window ", comm_.id(), ' ', number);
  const auto ranks = static_cast<size_t>(comm_.size());

  size_t slice = 0;
  std::shared_ptr<Fd> file;
  std::shared_ptr<Mapping> mapping;
  const auto map_all = [&](const std::shared_ptr<Fd>& fd) {
    // A thread of a process that has mapped it already needs no file.
    static const Fd none;
    mapping = shared_mapping(key, fd ? *fd : none, 0, slice * ranks);
    if (fd) note_window_memory(mapping, fd, 0);
  };
  const Failure made = attempt([&] {
    if (failure.status != SYMM_OK) throw Error(failure.status, failure.message);
    slice = round_up(bytes, page_size());
    if (slice > static_cast<size_t>(PTRDIFF_MAX) / ranks) {
      throw Error(SYMM_OUT_OF_MEMORY, text("bytes ", bytes, " for each of ", ranks,
                                           " ranks are more memory than there can be"));
    }
    if (comm_.rank() != 0 || slice == 0) return;
    file = create_memfd("symm-window", slice * ranks);
    map_all(file);
  });
  auto said = comm_.gather(kAlloc, {made, encode(Part{bytes, 0}), file}, deadline);
  decode_parts(said.blobs);

  const Failure mapped = attempt([&] {
    if (slice == 0) return;
    said.check_fds();
    if (comm_.rank() != 0) {
      if (said.fds[0]) file = std::make_shared<Fd>(std::move(said.fds[0]));
      map_all(file);
    }
    // Each rank makes its own slice exist: it is the first to touch it, and it is the one to
    // fail.
    const auto own = find_window_memory(mapping->data(), 1);
    if (own) commit(*own->fd, static_cast<size_t>(comm_.rank()) * slice, slice);
  });
  comm_.agree(kAlloc, mapped, deadline);

  std::vector<std::byte*> copies(ranks, nullptr);
  if (slice > 0) {
    for (size_t rank = 0; rank < ranks; ++rank) copies[rank] = mapping->data() + rank * slice;
  }
  return std::make_shared<Window>(comm_.shared_from_this(), number, bytes, std::move(copies),
                                  std::vector<std::shared_ptr<void>>{mapping}, nullptr);
}

std::shared_ptr<Window> CpuBackend::register_window(uint64_t number, const CallersMemory& memory,
                                                    const Failure& failure, Deadline deadline) {
  const size_t bytes = memory.bytes;
  Backing backing;
  const auto ranks = static_cast<size_t>(comm_.size());
  std::vector<std::shared_ptr<Mapping>> mappings(ranks);
  const auto map = [&](size_t rank, const Fd& fd, size_t offset) {
    mappings[rank] =
        shared_mapping(text("window ", comm_.id(), ' ', number, ' ', rank), fd, offset, bytes);
  };
  // The library's own mapping, so that its addresses stay valid whatever the owner unmaps.
  const Failure made = attempt([&] {
    if (failure.status != SYMM_OK) throw Error(failure.status, failure.message);
    if (bytes == 0) return;
    check_pointer("pointer", memory.pointer, bytes, 1);
    backing = memory.has_fd ? check_backing(memory.pointer, bytes, memory.fd, memory.fd_offset)
                            : find_backing(memory.pointer, bytes);
    map(static_cast<size_t>(comm_.rank()), *backing.fd, backing.offset);
  });
  auto said =
      comm_.gather(kRegister, {made, encode(Part{bytes, backing.offset}), backing.fd}, deadline);
  const auto parts = decode_parts(said.blobs);

  const Failure mapped = attempt([&] {
    said.check_fds();
    for (size_t rank = 0; rank < ranks && bytes > 0; ++rank) {
      if (static_cast<int>(rank) != comm_.rank()) map(rank, said.fds[rank], parts[rank].offset);
    }
  });
  comm_.agree(kRegister, mapped, deadline);

  std::vector<std::byte*> copies(ranks, nullptr);
  for (size_t rank = 0; rank < ranks && bytes > 0; ++rank) copies[rank] = mappings[rank]->data();
  return std::make_shared<Window>(
      comm_.shared_from_this(), number, bytes, std::move(copies),
      std::vector<std::shared_ptr<void>>(mappings.begin(), mappings.end()),
      static_cast<std::byte*>(memory.pointer));
}

}  // namespace symm::cpu
