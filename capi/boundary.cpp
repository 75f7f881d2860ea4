#include "capi/boundary.h"

#include <cstddef>
#include <cstdio>

namespace symm {

char* message_of_thread() {
  static thread_local char message[kMessageSize] = "";
  return message;
}

const std::shared_ptr<Comm>& deref(const symm_comm* handle) {
  require(handle != nullptr, "comm is NULL");
  if (handle->comm->generation() != process_generation()) {
    throw Error(
        SYMM_INVALID_ARGUMENT,
        "comm belongs to the parent process of this fork and is dead here; create one of this "
        "process's own");
  }
  return handle->comm;
}

const std::shared_ptr<Window>& deref(const symm_window* handle) {
  require(handle != nullptr, "window is NULL");
  if (handle->window->generation() != process_generation()) {
    throw Error(SYMM_INVALID_ARGUMENT,
                "window belongs to the parent process of this fork and is dead here; create a "
                "communicator and windows of this process's own");
  }
  return handle->window;
}

void require(bool condition, const char* what) {
  if (!condition) throw Error(SYMM_INVALID_ARGUMENT, what);
}

CommOptions check_options(const symm_comm_options* user, const Comm* parent) {
  const symm_comm_options given = read_options(user);
  CommOptions options;
  options.agreed = {size_t{128} << 20, 300000, 600000, 0};
  if (parent != nullptr) options = parent->options();
  if (given.name != nullptr) options.name = given.name;
  if (given.nccl_path != nullptr) options.nccl_path = given.nccl_path;
  constexpr size_t kMostName = 1024;
  if (options.name.size() > kMostName) {
    throw Error(SYMM_INVALID_ARGUMENT, text("options.name has ", options.name.size(),
                                            " characters; at most ", kMostName, " are allowed"));
  }
  constexpr uint32_t kKnown =
      SYMM_COMM_SHARE_GPU | SYMM_COMM_NCCL | SYMM_COMM_STRICT | SYMM_COMM_SOLE;
  if ((given.flags & ~kKnown) != 0) {
    throw Error(SYMM_UNSUPPORTED, text("options.flags has bits ", given.flags & ~kKnown,
                                       " that this version of symm does not know"));
  }
  if (given.reserved != 0) {
    throw Error(SYMM_UNSUPPORTED, text("options.reserved is ", given.reserved, "; it must be 0"));
  }
  if (given.timeout_ms < 0 || given.wait_timeout_ms < 0) {
    throw Error(
        SYMM_INVALID_ARGUMENT,
        text(given.timeout_ms < 0 ? "options.timeout_ms is " : "options.wait_timeout_ms is ",
             given.timeout_ms < 0 ? given.timeout_ms : given.wait_timeout_ms,
             "; it is in milliseconds and not negative (0 is the default)"));
  }
  if (given.timeout_ms > 0) options.agreed.timeout_ms = given.timeout_ms;
  if (given.wait_timeout_ms > 0) options.agreed.wait_timeout_ms = given.wait_timeout_ms;
  if (given.scratch_bytes > 0) options.agreed.scratch_bytes = given.scratch_bytes;
  if (given.flags != 0) options.agreed.flags = given.flags;
  return options;
}

symm_window_options check_options(const symm_window_options* user, bool may_have_fd) {
  const symm_window_options options = read_options(user);
  constexpr uint32_t kKnown = SYMM_WINDOW_NCCL | SYMM_WINDOW_FD;
  if ((options.flags & ~kKnown) != 0) {
    throw Error(SYMM_UNSUPPORTED, text("options.flags has bits ", options.flags & ~kKnown,
                                       " that this version of symm does not know"));
  }
  if ((options.flags & SYMM_WINDOW_FD) != 0 && !may_have_fd) {
    throw Error(SYMM_INVALID_ARGUMENT,
                "options.flags has SYMM_WINDOW_FD, which is for symm_window_register");
  }
  if ((options.flags & SYMM_WINDOW_FD) == 0 && (options.fd != 0 || options.fd_offset != 0)) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("options.fd is ", options.fd, " and options.fd_offset ", options.fd_offset,
                     " without SYMM_WINDOW_FD in options.flags"));
  }
  return options;
}

void answer(const std::string& text_, char* buffer, size_t size, size_t* needed) {
  if (needed != nullptr) *needed = text_.size() + 1;
  if (buffer == nullptr && size == 0) {
    require(needed != nullptr,
            "buffer and needed are both NULL: there is nowhere to put the answer");
    return;
  }
  require(buffer != nullptr, "buffer is NULL with a size above 0");
  if (size < text_.size() + 1) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("size is ", size, "; the answer needs ", text_.size() + 1));
  }
  std::memcpy(buffer, text_.c_str(), text_.size() + 1);
}

}  // namespace symm
