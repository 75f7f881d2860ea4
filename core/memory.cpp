#include "core/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "core/process.h"

namespace symm {
namespace {

// Memory that is made to exist at a time: takes a fraction of a millisecond.
constexpr size_t kCommitPiece = size_t{4} << 20;

// A file size beyond RLIMIT_FSIZE is not an error to the kernel but SIGXFSZ.
void check_file_size(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    throw Error(SYMM_OUT_OF_MEMORY,
                text(bytes, " bytes of shared memory are more than the limit of ", limit.rlim_cur,
                     " on file sizes; raise it (ulimit -f)"));
  }
}

// Guarded by GlobalLock::kMemory. Never destroyed.
struct Shared {
  std::map<std::string, std::weak_ptr<Mapping>> by_key;
  struct WindowMemory {
    std::weak_ptr<Mapping> mapping;
    size_t bytes;
    std::shared_ptr<Fd> fd;
    size_t offset;
  };
  std::map<const std::byte*, WindowMemory> by_address;
};
Shared& shared() {
  static Shared* instance = new Shared;
  return *instance;
}

}  // namespace

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t round_up(size_t value, size_t multiple) {
  const size_t rest = value % multiple;
  if (rest == 0) return value;
  if (value > SIZE_MAX - multiple) {
    throw Error(SYMM_OUT_OF_MEMORY, text(value, " bytes are more than there can be"));
  }
  return value + (multiple - rest);
}

std::shared_ptr<Fd> create_memfd(const char* name, size_t bytes) {
  if (bytes > static_cast<size_t>(INT64_MAX)) {
    throw Error(SYMM_OUT_OF_MEMORY,
                text(bytes, " bytes of shared memory are more than a file can have"));
  }
  check_file_size(bytes);
  auto fd = std::make_shared<Fd>(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!*fd) {
    throw Error(SYMM_SYSTEM, text("memfd_create: ", errno_text(errno)));
  }
  if (ftruncate(fd->get(), static_cast<off_t>(bytes)) != 0) {
    throw Error(SYMM_OUT_OF_MEMORY,
                text("cannot make ", bytes, " bytes of shared memory: ", errno_text(errno)));
  }
  // Shrinking would turn every rank's accesses into SIGBUS.
  fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

void commit(const Fd& fd, size_t offset, size_t bytes) {
  // In pieces: many kernels give up at a signal and undo what the call had done, so that under a
  // profiler's timer one call for everything would begin again for ever.
  size_t piece = kCommitPiece;
  while (bytes > 0) {
    const size_t now = std::min(piece, bytes);
    if (fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(now)) == 0) {
      offset += now;
      bytes -= now;
    } else if (errno == EINTR) {
      piece = std::max(piece / 2, page_size());
    } else if (errno == EOPNOTSUPP) {
      return;  // then pages come at first touch
    } else {
      throw Error(SYMM_OUT_OF_MEMORY, text("no memory for ", bytes, " bytes: ", errno_text(errno)));
    }
  }
}

Mapping::Mapping(const Fd& fd, size_t offset, size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t before = offset % page_size();
  length_ = bytes + before;
  base_ = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
               static_cast<off_t>(offset - before));
  if (base_ == MAP_FAILED) {
    base_ = nullptr;
    const int error = errno;
    const bool memory = error == ENOMEM;
    throw Error(memory ? SYMM_OUT_OF_MEMORY : SYMM_SYSTEM,
                text("cannot map ", length_, " bytes of shared memory: ", errno_text(error),
                     memory ? "; is the address space limited (ulimit -v)?" : ""));
  }
  data_ = static_cast<std::byte*>(base_) + before;
}

Mapping::~Mapping() {
  if (base_ == nullptr) return;
  {
    std::lock_guard lock(global_mutex(GlobalLock::kMemory));
    shared().by_address.erase(data_);
  }
  munmap(base_, length_);
}

std::shared_ptr<Mapping> shared_mapping(const std::string& key, const Fd& fd, size_t offset,
                                        size_t bytes) {
  {
    std::lock_guard lock(global_mutex(GlobalLock::kMemory));
    if (const auto found = shared().by_key.find(key); found != shared().by_key.end()) {
      if (auto mapping = found->second.lock()) return mapping;
    }
  }
  if (!fd && bytes > 0) {
    throw Error(SYMM_INTERNAL, "a rank of this process did not map the memory it shares");
  }
  // Mapped without the lock, which a Mapping's end takes too; a race only maps twice.
  auto mapping = std::make_shared<Mapping>(fd, offset, bytes);
  std::lock_guard lock(global_mutex(GlobalLock::kMemory));
  std::erase_if(shared().by_key, [](const auto& entry) { return entry.second.expired(); });
  auto& slot = shared().by_key[key];
  if (auto other = slot.lock()) return other;
  slot = mapping;
  return mapping;
}

void note_window_memory(const std::shared_ptr<Mapping>& mapping, const std::shared_ptr<Fd>& fd,
                        size_t offset) {
  if (mapping->size() == 0) return;
  std::lock_guard lock(global_mutex(GlobalLock::kMemory));
  shared().by_address[mapping->data()] = {mapping, mapping->size(), fd, offset};
}

void close_window_memory_after_fork() {
  for (auto& [address, memory] : shared().by_address) memory.fd->reset();
}

// The other half, which asks the kernel, is in memory_backing.cpp.
std::optional<Backing> find_window_memory(const void* pointer, size_t bytes) {
  const auto* start = static_cast<const std::byte*>(pointer);
  std::lock_guard lock(global_mutex(GlobalLock::kMemory));
  auto next = shared().by_address.upper_bound(start);
  if (next == shared().by_address.begin()) return std::nullopt;
  const auto& [base, memory] = *std::prev(next);
  const auto inside = static_cast<size_t>(start - base);
  if (inside > memory.bytes || bytes > memory.bytes - inside) return std::nullopt;
  return Backing{memory.fd, memory.offset + inside};
}

}  // namespace symm
