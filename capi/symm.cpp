// The C boundary: arguments in, statuses and messages out. What a call does stands in core.
// Everything is hidden but what the header declares; capi/symm.map says the same to the linker.
#pragma GCC visibility push(default)
#include "capi/symm.h"
#pragma GCC visibility pop

#include "capi/boundary.h"
#include "core/address.h"
#include "core/attempt.h"
#include "core/cuda/support.h"
#include "core/report.h"
#include "core/serving.h"
#include "core/types.h"

using symm::attempt;
using symm::boundary;
using symm::Comm;
using symm::deref;
using symm::Error;
using symm::require;
using symm::text;

namespace {

// For messages: the communicator behind a handle, or null where asking it is not allowed.
const Comm* peek(const symm_comm* handle) {
  if (handle == nullptr || handle->comm->generation() != symm::process_generation()) return nullptr;
  return handle->comm.get();
}

const Comm* peek(const symm_window* handle) {
  if (handle == nullptr || handle->window->generation() != symm::process_generation())
    return nullptr;
  return &handle->window->comm();
}

// The ordinal, or SYMM_CPU.
int32_t resolve_device(int32_t device) {
  if (device == SYMM_CPU) return device;
  if ((device >= 0 && device < 0x10000) || device == SYMM_LOCAL_GPU || device == SYMM_CURRENT_GPU) {
    return symm::cuda::resolve_device(device);
  }
  throw Error(
      SYMM_UNSUPPORTED,
      text("device ", device, " is not known to this version of symm (symm_device in symm.h)"));
}

void refuse_nccl_on_cpu(int32_t device, bool wanted, const char* flag) {
  if (device != SYMM_CPU || !wanted) return;
  throw Error(SYMM_UNSUPPORTED,
              text("options.flags has ", flag,
                   ", and the communicator is on the CPU, where there is no NCCL"));
}

}  // namespace

extern "C" {

int32_t symm_version(void) {
  return SYMM_VERSION_MAJOR * 1000000 + SYMM_VERSION_MINOR * 1000 + SYMM_VERSION_PATCH;
}

const char* symm_status_name(int32_t status) { return symm::status_name(status); }

const char* symm_last_error(void) { return symm::message_of_thread(); }

symm_status symm_report(const symm_comm* comm, char* buffer, size_t size, size_t* needed) {
  return boundary("symm_report", peek(comm), {}, [&] {
    const Comm* inner = comm == nullptr ? nullptr : deref(comm).get();
    symm::answer(symm::report(inner), buffer, size, needed);
  });
}

symm_status symm_plan(const symm_comm* comm, const symm_window* window_or_null, size_t count,
                      symm_dtype dtype, symm_op op, char* buffer, size_t size, size_t* needed) {
  return boundary("symm_plan", peek(comm), {}, [&] {
    const Comm& inner = *deref(comm);
    if (window_or_null != nullptr) {
      require(&deref(window_or_null)->comm() == &inner,
              "window_or_null is of another communicator");
    }
    symm::check_dtype_and_op(dtype, op);
    const size_t bytes = symm::checked_bytes(count, dtype);
    if (window_or_null != nullptr && bytes > window_or_null->window->size()) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("count ", count, " is ", bytes, " bytes; the window has ",
                       window_or_null->window->size()));
    }
    symm::Call call;
    call.form = window_or_null == nullptr ? symm::Form::kAllReduce : symm::Form::kWindowAllReduce;
    call.dtype = dtype;
    call.op = op;
    call.count = count;
    symm::answer(symm::plan(inner, call), buffer, size, needed);
  });
}

symm_status symm_address_create(const char* host, char* buffer, size_t size, size_t* needed) {
  return boundary("symm_address_create", nullptr, {},
                  [&] { symm::answer(symm::create_served_address(host), buffer, size, needed); });
}

symm_status symm_comm_create(const char* address, int32_t rank, int32_t size, int32_t device,
                             const symm_comm_options* options, symm_comm** comm) {
  return boundary("symm_comm_create", nullptr, symm::error_buffer(options), [&] {
    require(address != nullptr, "address is NULL");
    symm::CommOptions checked;
    int32_t resolved = SYMM_CPU;
    // What is wrong with this rank's call alone still has to be told to the others, who would wait.
    const symm::Failure failure = attempt([&] {
      checked.agreed = {0, 300000, 600000, 0};
      if (options != nullptr && options->size >= sizeof *options && options->name != nullptr) {
        checked.name = options->name;
      }
      checked = symm::check_options(options, nullptr);
      resolved = resolve_device(device);
      refuse_nccl_on_cpu(resolved, checked.agreed.flags & SYMM_COMM_NCCL, "SYMM_COMM_NCCL");
      require(comm != nullptr, "comm is NULL");
    });
    auto handle = std::make_unique<symm_comm>();
    handle->comm = Comm::create(address, rank, size, resolved, checked, failure);
    *comm = handle.release();
  });
}

symm_status symm_comm_split(symm_comm* comm, int32_t color, int32_t key,
                            const symm_comm_options* options, symm_comm** out) {
  return boundary("symm_comm_split", peek(comm), symm::error_buffer(options), [&] {
    Comm& inner = *deref(comm);
    symm::CommOptions checked = inner.options();
    const symm::Failure failure = attempt([&] {
      require(out != nullptr, "out is NULL");
      if (color < 0 && color != SYMM_NO_COLOR) {
        throw Error(SYMM_INVALID_ARGUMENT,
                    text("color is ", color, "; it must be 0 or more, or SYMM_NO_COLOR"));
      }
      checked = symm::check_options(options, &inner);
      refuse_nccl_on_cpu(inner.device(), checked.agreed.flags & SYMM_COMM_NCCL, "SYMM_COMM_NCCL");
    });
    auto handle = std::make_unique<symm_comm>();
    handle->comm = inner.split(color, key, checked, failure);
    *out = handle->comm == nullptr ? nullptr : handle.release();
  });
}

symm_status symm_comm_rank(const symm_comm* comm, int32_t* rank) {
  return boundary("symm_comm_rank", peek(comm), {}, [&] {
    const Comm& inner = *deref(comm);
    require(rank != nullptr, "rank is NULL");
    *rank = inner.rank();
  });
}

symm_status symm_comm_size(const symm_comm* comm, int32_t* size) {
  return boundary("symm_comm_size", peek(comm), {}, [&] {
    const Comm& inner = *deref(comm);
    require(size != nullptr, "size is NULL");
    *size = inner.size();
  });
}

symm_status symm_comm_device(const symm_comm* comm, int32_t* device) {
  return boundary("symm_comm_device", peek(comm), {}, [&] {
    const Comm& inner = *deref(comm);
    require(device != nullptr, "device is NULL");
    *device = inner.device();
  });
}

symm_status symm_comm_barrier(symm_comm* comm, void* stream) {
  return boundary("symm_comm_barrier", peek(comm), {}, [&] {
    Comm& inner = *deref(comm);
    inner.throw_if_failed();
    inner.backend().check_stream(stream);
    inner.barrier(stream);
  });
}

symm_status symm_comm_check(const symm_comm* comm, int32_t* rank) {
  return boundary("symm_comm_check", peek(comm), {}, [&] {
    Comm& inner = *deref(comm);
    const symm::Failure failure = inner.sticky();
    if (failure.status != SYMM_OK) inner.tell_untold();  // the caller may exit next
    if (rank != nullptr) *rank = failure.rank;
    if (failure.status != SYMM_OK) throw Error(failure.status, failure.message, failure.rank);
  });
}

symm_status symm_comm_abort(symm_comm* comm) {
  return boundary("symm_comm_abort", peek(comm), {}, [&] { deref(comm)->abort(); });
}

void symm_comm_free(symm_comm* comm) {
  if (peek(comm) == nullptr) return;
  Comm& inner = *comm->comm;
  inner.retire(std::move(comm->comm));
  delete comm;
}

symm_status symm_comm_nccl(const symm_comm* comm, void** nccl) {
  return boundary("symm_comm_nccl", peek(comm), {}, [&] {
    const Comm& inner = *deref(comm);
    require(nccl != nullptr, "nccl is NULL");
    // It goes when the communicator fails.
    inner.throw_if_failed();
    *nccl = inner.backend().nccl();
  });
}

symm_status symm_window_alloc(symm_comm* comm, size_t bytes, const symm_window_options* options,
                              symm_window** window) {
  return boundary("symm_window_alloc", peek(comm), symm::error_buffer(options), [&] {
    Comm& inner = *deref(comm);
    bool nccl = false;
    const symm::Failure failure = attempt([&] {
      require(window != nullptr, "window is NULL");
      nccl = (symm::check_options(options, false).flags & SYMM_WINDOW_NCCL) != 0;
      refuse_nccl_on_cpu(inner.device(), nccl, "SYMM_WINDOW_NCCL");
    });
    auto handle = std::make_unique<symm_window>();
    handle->window = inner.alloc_window(bytes, nccl, failure);
    *window = handle.release();
  });
}

symm_status symm_window_register(symm_comm* comm, void* pointer, size_t bytes,
                                 const symm_window_options* options, symm_window** window) {
  return boundary("symm_window_register", peek(comm), symm::error_buffer(options), [&] {
    Comm& inner = *deref(comm);
    symm::CallersMemory memory;
    const symm::Failure failure = attempt([&] {
      require(window != nullptr, "window is NULL");
      const symm_window_options checked = symm::check_options(options, true);
      const bool nccl = (checked.flags & SYMM_WINDOW_NCCL) != 0;
      refuse_nccl_on_cpu(inner.device(), nccl, "SYMM_WINDOW_NCCL");
      memory = {pointer,           bytes, (checked.flags & SYMM_WINDOW_FD) != 0, checked.fd,
                checked.fd_offset, nccl};
    });
    memory.bytes = bytes;
    auto handle = std::make_unique<symm_window>();
    handle->window = inner.register_window(memory, failure);
    *window = handle.release();
  });
}

symm_status symm_window_size(const symm_window* window, size_t* bytes) {
  return boundary("symm_window_size", peek(window), {}, [&] {
    const symm::Window& inner = *deref(window);
    require(bytes != nullptr, "bytes is NULL");
    *bytes = inner.size();
  });
}

symm_status symm_window_data(const symm_window* window, int32_t rank, void** pointer) {
  return boundary("symm_window_data", peek(window), {}, [&] {
    const symm::Window& inner = *deref(window);
    require(pointer != nullptr, "pointer is NULL");
    *pointer = inner.data(rank);
  });
}

void symm_window_free(symm_window* window) {
  if (peek(window) == nullptr) return;
  // The window may be what keeps the communicator, which then goes the same way.
  std::shared_ptr<Comm> comm = window->window->comm().shared_from_this();
  Comm& inner = *comm;
  window->window->give_up();
  inner.retire(std::move(window->window));
  inner.retire(std::move(comm));
  delete window;
}

symm_status symm_all_reduce(symm_comm* comm, const void* input, void* output, size_t count,
                            symm_dtype dtype, symm_op op, void* stream) {
  return boundary("symm_all_reduce", peek(comm), {}, [&] {
    Comm& inner = *deref(comm);
    inner.throw_if_failed();
    inner.backend().check_stream(stream);
    symm::check_dtype_and_op(dtype, op);
    const size_t bytes = symm::checked_bytes(count, dtype);
    const size_t element = symm::dtype_size(dtype);
    symm::check_pointer("input", input, bytes, element);
    symm::check_pointer("output", output, bytes, element);
    symm::check_overlap("input", input, output, bytes);
    symm::Call call;
    call.form = symm::Form::kAllReduce;
    call.dtype = dtype;
    call.op = op;
    call.count = count;
    inner.all_reduce(call, input, output, stream, inner);
  });
}

symm_status symm_window_all_reduce(symm_window* window, size_t offset, void* output, size_t count,
                                   symm_dtype dtype, symm_op op, void* stream) {
  return boundary("symm_window_all_reduce", peek(window), {}, [&] {
    symm::Window& inner = *deref(window);
    inner.comm().throw_if_failed();
    inner.comm().backend().check_stream(stream);
    inner.all_reduce(offset, output, count, dtype, op, stream);
  });
}

}  // extern "C"
