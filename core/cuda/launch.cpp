// All-reduces and barriers on GPUs: what a call enqueues.
#include <algorithm>

#include "core/cuda/backend.h"
#include "core/cuda/caller_memory.h"
#include "core/types.h"

namespace symm::cuda {
namespace {

constexpr int kFirstFloat8 = 22400;  // of NCCL

// What CUDA says of a stream that is not this context's, before anything was enqueued.
bool blames_stream(CUresult result) {
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
         result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

void CudaBackend::all_reduce(const Call& call, const void* input, void* output, void* stream,
                             Keepable& owner) {
  const size_t bytes = static_cast<size_t>(call.count) * dtype_size(call.dtype);
  const CurrentContext current(*context_);
  // A window's own memory is known.
  if (call.form == Form::kAllReduce) check_device_memory("input", input, bytes, *context_);
  if (output != input) check_device_memory("output", output, bytes, *context_);
  enqueue(call, input, output, static_cast<CUstream>(stream), owner);
}

void CudaBackend::barrier(void* stream, Keepable& owner) {
  const CurrentContext current(*context_);
  enqueue(Call{}, nullptr, nullptr, static_cast<CUstream>(stream), owner);
}

void CudaBackend::enqueue(const Call& call, const void* input, void* output, CUstream stream,
                          Keepable& owner) {
  const bool copies = comm_.size() == 1;
  // Alone there is nothing to wait for, and in place nothing to copy.
  if (copies && (call.count == 0 || input == output)) return;
  if (apart()) return enqueue_nccl(call, input, output, stream, owner);
  const Order::Turn turn = order_->begin(stream, owner);
  if (copies) {
    SYMM_CUDA_CHECK(cuMemcpyAsync,
                    (reinterpret_cast<CUdeviceptr>(output), reinterpret_cast<CUdeviceptr>(input),
                     call.count * dtype_size(call.dtype), stream));
  } else {
    launch(call, static_cast<const std::byte*>(input), static_cast<std::byte*>(output), stream);
  }
  if (keeps_nccl_off_ && !copies) {
    SYMM_CUDA_CHECK(cuMemsetD8Async, (nccl_comm()->word(), 0, 1, stream));
  }
  order_->end(turn, stream);
}

void CudaBackend::enqueue_nccl(const Call& call, const void* input, void* output, CUstream stream,
                               Keepable& owner) {
  // NCCL enqueues nothing for it either.
  if (call.count == 0 && call.form != Form::kBarrier) return;
  const bool is_float8 = call.dtype == SYMM_FLOAT8_E4M3 || call.dtype == SYMM_FLOAT8_E5M2;
  if (is_float8 && nccl_version_ < kFirstFloat8) {
    throw Error(SYMM_UNSUPPORTED,
                text("dtype is ", dtype_name(call.dtype), ", and between peer domains NCCL ",
                     nccl::version_text(nccl_version_), " does not have it; ",
                     nccl::version_text(kFirstFloat8), " does"));
  }
  if (is_float8 && gpus_.least_capability < 90) {
    throw Error(SYMM_UNSUPPORTED,
                text("dtype is ", dtype_name(call.dtype),
                     ", and between peer domains NCCL adds "
                     "8-bit floats only on GPUs of compute capability 9.0 and up; a rank's has ",
                     gpus_.least_capability / 10, '.', gpus_.least_capability % 10));
  }
  const bool below = goes_hierarchical(call);
  if (!below && !has_flat_nccl()) refuse_flat(call);
  const Order::Turn turn = order_->begin(stream, owner);
  if (below) {
    hierarchy()->enqueue(call, input, output, stream, turn.captured, owner);
    return order_->end(turn, stream);
  }
  const auto nccl = nccl_comm();
  if (!turn.captured) nccl->watch(call, nccl->mark(stream));
  nccl->enqueue(call, input, output, stream);
  order_->end(turn, stream);
  if (!turn.captured) nccl->enqueued(order_->last());
}

void CudaBackend::launch(const Call& call, const std::byte* input, std::byte* output,
                         CUstream stream) {
  const Plan chosen = cuda::plan(gpus_.agreed, call);
  Params params = params_;
  params.call = record_of(call, chosen.algorithm);
  params.call_hash = hash_of(params.call);
  params.op = call.op;
  const size_t element = call.count == 0 ? 0 : dtype_size(call.dtype);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = gpus_.agreed.dependent_launch ? 1 : 0;
  void* arguments[] = {&params};
  uint64_t done = 0;
  for (uint64_t part = 0; part < chosen.parts; ++part) {
    params.count = chosen.parts == 1 ? call.count : std::min(chosen.part_count, call.count - done);
    params.input = input + done * element;
    params.output = output + done * element;
    const Launch grid = cuda::launch(gpus_.agreed, chosen, call, params.count);
    params.flags = grid.flags;
    config.gridDimX = grid.blocks;
    config.blockDimX = grid.threads;
    config.sharedMemBytes = grid.shared_bytes;
    const CUresult result =
        driver().cuLaunchKernelEx(&config, (*functions_)[grid.kernel], arguments, nullptr);
    if (result != CUDA_SUCCESS && part == 0 && blames_stream(result)) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("stream ", static_cast<void*>(stream), " cannot be used on GPU ",
                       context_->ordinal(), ": ", error_text(result, "cuLaunchKernelEx")));
    }
    // Part of the call is enqueued: it cannot be repeated, and must not pass for one that did
    // nothing.
    if (result != CUDA_SUCCESS && part > 0 && !is_capture_error(result)) {
      throw Error(SYMM_CUDA, text(call_text(call), ", part ", part + 1, " of ", chosen.parts, ": ",
                                  error_text(result, "cuLaunchKernelEx")));
    }
    if (result != CUDA_SUCCESS) check(result, "cuLaunchKernelEx", call_text(call));
    done += params.count;
  }
}

}  // namespace symm::cuda
