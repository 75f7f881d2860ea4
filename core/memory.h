// Shared memory of a host: memfds, their mappings, and which mapping an address belongs to.
#ifndef SYMM_CORE_MEMORY_H_
#define SYMM_CORE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/socket.h"

namespace symm {

size_t page_size();
size_t round_up(size_t value, size_t multiple);  // throws OUT_OF_MEMORY on overflow

// An anonymous file of `bytes` (a whole number of pages), sparse, that nobody can shrink.
std::shared_ptr<Fd> create_memfd(const char* name, size_t bytes);

// Makes pages [offset, offset + bytes) of a memfd exist, zeroed, on this thread's NUMA node where
// it is the first to touch them. Throws OUT_OF_MEMORY, where touching them later would be a SIGBUS.
void commit(const Fd& fd, size_t offset, size_t bytes);

// A shared mapping of part of a file. `offset` need not be page-aligned.
class Mapping {
 public:
  Mapping(const Fd& fd, size_t offset, size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* base_ = nullptr;  // page-aligned
  size_t length_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// One mapping a process: threads that are ranks of one communicator share it. `key` names the
// memory in this process. An empty `fd` finds what another thread has mapped already; INTERNAL if
// none has.
std::shared_ptr<Mapping> shared_mapping(const std::string& key, const Fd& fd, size_t offset,
                                        size_t bytes);

// What backs [pointer, pointer + bytes) in this process, as a file others can map.
struct Backing {
  std::shared_ptr<Fd> fd;
  size_t offset = 0;
};

// Memory of symm windows is found without asking the kernel.
void note_window_memory(const std::shared_ptr<Mapping>& mapping, const std::shared_ptr<Fd>& fd,
                        size_t offset);

// In a forked child: the descriptors of window memory are the parent's and go; GlobalLock::kMemory
// is held. The mappings stay, as any memory does.
void close_window_memory_after_fork();

// For symm_window_register. Throws UNSUPPORTED with the remedy where the memory is private or its
// file cannot be found among this process's descriptors.
Backing find_backing(const void* pointer, size_t bytes);
// The same for memory whose file the caller names; throws INVALID_ARGUMENT if that is not what is
// mapped there.
Backing check_backing(const void* pointer, size_t bytes, int fd, size_t offset);
// Half of find_backing(): memory of windows that this process has.
std::optional<Backing> find_window_memory(const void* pointer, size_t bytes);

}  // namespace symm

#endif  // SYMM_CORE_MEMORY_H_
