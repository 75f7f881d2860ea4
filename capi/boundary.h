// Where C++ ends: handles, options structs and messages of the C interface.
#ifndef SYMM_CAPI_BOUNDARY_H_
#define SYMM_CAPI_BOUNDARY_H_

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "capi/symm.h"
#include "core/comm.h"
#include "core/error.h"
#include "core/window.h"

struct symm_comm {
  std::shared_ptr<symm::Comm> comm;
};

struct symm_window {
  std::shared_ptr<symm::Window> window;
};

namespace symm {

// The text behind symm_last_error(): a plain array, so that it needs no destructor when a thread
// ends after the library's user is done.
inline constexpr size_t kMessageSize = 2048;
char* message_of_thread();

// Where options->error points, or nowhere.
struct ErrorBuffer {
  char* data = nullptr;
  size_t size = 0;
};

// Runs one call of the interface. Nothing is thrown past it, and messages are set here only.
template <class Body>
symm_status boundary(const char* function, const Comm* comm, ErrorBuffer buffer,
                     Body body) noexcept {
  const auto failed = [&](symm_status status, const char* what) noexcept {
    char* message = message_of_thread();
    if (comm != nullptr) {
      std::snprintf(message, kMessageSize, "%s (rank %d of %d): %s", function, comm->rank(),
                    comm->size(), what);
    } else {
      std::snprintf(message, kMessageSize, "%s: %s", function, what);
    }
    if (buffer.data != nullptr && buffer.size > 0) {
      std::snprintf(buffer.data, buffer.size, "%s", message);
    }
    return status;
  };
  try {
    body();
    if (buffer.data != nullptr && buffer.size > 0) buffer.data[0] = '\0';
    return SYMM_OK;
  } catch (const Error& e) {
    return failed(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return failed(SYMM_OUT_OF_MEMORY, "no memory");
  } catch (const std::exception& e) {
    return failed(SYMM_INTERNAL, e.what());
  } catch (...) {
    return failed(SYMM_INTERNAL, "an exception of unknown type");
  }
}

// The object behind a handle. Throws INVALID_ARGUMENT for NULL and in a forked child.
const std::shared_ptr<Comm>& deref(const symm_comm* handle);
const std::shared_ptr<Window>& deref(const symm_window* handle);

// A copy of an options struct as this version knows it: what the caller's is shorter by is zero.
// Throws INVALID_ARGUMENT for an impossible size, UNSUPPORTED for a longer one whose tail is not
// zero.
template <class Options>
Options read_options(const Options* user) {
  Options options{};
  if (user == nullptr) return options;
  constexpr size_t kMostSize = 4096;
  const size_t size = user->size;
  // Structs grow by whole fields of 8 bytes; half a pointer would be read otherwise.
  if (size < sizeof(size_t) || size % sizeof(size_t) != 0 || size > kMostSize) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("options.size is ", size, "; set it to sizeof the struct (", sizeof(Options),
                     ") and the other fields to zero first"));
  }
  std::memcpy(&options, user, std::min(size, sizeof(Options)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(user);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      throw Error(SYMM_UNSUPPORTED, text("options has a field at byte ", i,
                                         " that this version of symm does not know; use a newer "
                                         "libsymm or leave it zero"));
    }
  }
  return options;
}

// options->error of the caller's struct, if it is long enough to have one.
template <class Options>
ErrorBuffer error_buffer(const Options* user) {
  if (user == nullptr) return {};
  if (user->size < offsetof(Options, error_size) + sizeof(size_t) || user->size > 4096) return {};
  return {user->error, user->error_size};
}

// Checked, with defaults filled in; `parent` gives them for a split.
CommOptions check_options(const symm_comm_options* user, const Comm* parent);
// What is wrong with them, as this rank's part of an agreement.
symm_window_options check_options(const symm_window_options* user, bool may_have_fd);

// The answer protocol of symm_report, symm_plan and symm_address_create.
void answer(const std::string& text, char* buffer, size_t size, size_t* needed);

void require(bool condition, const char* what);

}  // namespace symm

#endif  // SYMM_CAPI_BOUNDARY_H_
