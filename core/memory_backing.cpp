// What file is behind an address: asked of the kernel by /proc/self/maps and /proc/self/fd.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <optional>

#include "core/error.h"
#include "core/memory.h"

namespace symm {

namespace {

constexpr char kRemedy[] =
    "; use memory of symm_window_alloc, or a memfd or shared file mapping that "
    "symm_window_options.fd names";

// One line of /proc/self/maps.
struct Region {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool is_shared = false;
  bool is_writable = false;
  uint64_t file_offset = 0;
  dev_t device = 0;
  ino_t inode = 0;
};

std::optional<Region> parse_region(const std::string& line) {
  uint64_t begin, end, offset, inode;
  unsigned device_major, device_minor;
  char permissions[5];
  if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &begin,
                  &end, permissions, &offset, &device_major, &device_minor, &inode) != 7) {
    return std::nullopt;
  }
  Region region;
  region.begin = static_cast<uintptr_t>(begin);
  region.end = static_cast<uintptr_t>(end);
  region.is_writable = permissions[1] == 'w';
  region.is_shared = permissions[3] == 's';
  region.file_offset = offset;
  region.device = makedev(device_major, device_minor);
  region.inode = static_cast<ino_t>(inode);
  return region;
}

struct File {
  dev_t device;
  ino_t inode;
  uint64_t offset;  // of the pointer asked for
};

// The one file behind the whole range. Throws UNSUPPORTED where there is none; nothing where
// /proc cannot be read.
std::optional<File> file_behind(const void* pointer, size_t bytes) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return std::nullopt;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t end = begin + bytes;
  const auto refuse = [&](const std::string& why) {
    return Error(SYMM_UNSUPPORTED, text("pointer ", pointer, ": ", why, kRemedy));
  };
  std::optional<File> file;
  uintptr_t reached = begin;
  std::string line;
  while (reached < end && std::getline(maps, line)) {
    const auto region = parse_region(line);
    if (!region || region->end <= reached) continue;
    if (region->begin > reached) break;
    if (!region->is_shared) {
      throw refuse(
          "the memory is private to this process (malloc, new or a private mapping), which "
          "others cannot map");
    }
    if (!region->is_writable) throw refuse("the memory is mapped read-only here");
    const uint64_t offset = region->file_offset + (reached - region->begin);
    if (!file) {
      file = File{region->device, region->inode, offset};
    } else if (region->device != file->device || region->inode != file->inode ||
               offset != file->offset + (reached - begin)) {
      throw refuse("the range spans mappings of several files");
    }
    reached = region->end;
  }
  if (reached < end) {
    throw Error(SYMM_INVALID_ARGUMENT, text("pointer ", pointer, ": only ", reached - begin, " of ",
                                            bytes, " bytes are mapped in this process"));
  }
  return file;
}

bool is_same(const struct stat& status, const File& file) {
  return status.st_dev == file.device && status.st_ino == file.inode;
}

bool is_file(int fd, const File& file) {
  struct stat status;
  return fstat(fd, &status) == 0 && is_same(status, file);
}

// The descriptor stays the program's, whatever its number.
std::shared_ptr<Fd> duplicate(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (copy < 0) {
    throw Error(SYMM_SYSTEM,
                text("cannot duplicate file descriptor ", fd, ": ", errno_text(errno)));
  }
  return std::make_shared<Fd>(copy);
}

// A descriptor of this process that is open for reading and writing on that file.
std::shared_ptr<Fd> find_descriptor(const File& file) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
  if (!directory) return nullptr;
  while (const dirent* entry = readdir(directory.get())) {
    int fd = -1;
    const char* name_end = entry->d_name + std::char_traits<char>::length(entry->d_name);
    if (std::from_chars(entry->d_name, name_end, fd).ec != std::errc()) continue;
    // By its name here: another thread may be closing what is no concern of ours.
    struct stat status;
    if (fstatat(dirfd(directory.get()), entry->d_name, &status, 0) != 0 || !is_same(status, file)) {
      continue;
    }
    auto copy = duplicate(fd);
    // Another thread may have closed it in between; and peers need to write.
    if (!is_file(copy->get(), file)) continue;
    try {
      const Mapping probe(*copy, 0, 1);
      return copy;
    } catch (const Error&) {
      continue;
    }
  }
  return nullptr;
}

void check_size(const Fd& fd, size_t offset, size_t bytes) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) throw Error(SYMM_SYSTEM, text("fstat: ", errno_text(errno)));
  const auto size = static_cast<uint64_t>(status.st_size);
  if (S_ISREG(status.st_mode) && (offset > size || bytes > size - offset)) {
    throw Error(SYMM_INVALID_ARGUMENT, text("the file has ", size, " bytes; ", bytes,
                                            " bytes at offset ", offset, " reach past its end"));
  }
}

}  // namespace

Backing find_backing(const void* pointer, size_t bytes) {
  if (auto known = find_window_memory(pointer, bytes)) return *known;
  const auto file = file_behind(pointer, bytes);
  if (!file) {
    throw Error(
        SYMM_UNSUPPORTED,
        text("pointer ", pointer, ": /proc/self/maps cannot be read to see what it is", kRemedy));
  }
  auto fd = find_descriptor(*file);
  if (!fd) {
    throw Error(
        SYMM_UNSUPPORTED,
        text("pointer ", pointer,
             ": no descriptor of this process is open on the shared mapping's file", kRemedy));
  }
  check_size(*fd, file->offset, bytes);
  return {std::move(fd), file->offset};
}

Backing check_backing(const void* pointer, size_t bytes, int fd, size_t offset) {
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) {
    throw Error(SYMM_INVALID_ARGUMENT, text("options.fd ", fd, " is not an open file descriptor"));
  }
  if (const auto file = file_behind(pointer, bytes)) {
    if (!is_file(fd, *file)) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("options.fd ", fd, " is not what is mapped at pointer ", pointer));
    }
    if (file->offset != offset) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("options.fd_offset is ", offset, "; the memory at pointer ", pointer,
                       " starts at ", file->offset, " in the file"));
    }
  }
  Backing backing{duplicate(fd), offset};
  check_size(*backing.fd, offset, bytes);
  return backing;
}

}  // namespace symm
