// GPUs for tests that use only symm.h: memory, streams and graphs by the driver, and communicators.
#ifndef SYMM_TESTS_CUDA_GPU_H_
#define SYMM_TESTS_CUDA_GPU_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/ranks.h"

namespace symm_test {

// 0 where there is no GPU or no driver.
int gpu_count();
// Skips the test that calls it, with the reason, on a machine with fewer GPUs.
#define NEEDS_GPUS(count)                                                                   \
  if (symm_test::gpu_count() < (count))                                                     \
  GTEST_SKIP() << "this machine has " << symm_test::gpu_count() << " GPUs; the test needs " \
               << (count)

// CUDA_LAUNCH_BLOCKING: a launch holds its thread until the kernel has ended.
bool launches_block();
// Skips the test that calls it in that mode if ranks are threads of one process: a rank would hold
// the driver up in its launch, and with that the rank that its kernel waits for.
#define NEEDS_LAUNCHES_OF(layout)                                                           \
  if ((layout).threads > 1 && symm_test::launches_block())                                  \
  GTEST_SKIP() << "CUDA_LAUNCH_BLOCKING is set: a launch would hold up the other ranks of " \
                  "its process, which its kernel waits for"

// The primary context of that GPU becomes the thread's.
void use_gpu(int ordinal);
// Ranks take the GPUs in turn.
int gpu_of(const Rank& rank);

// Options with SYMM_COMM_SHARE_GPU and small scratch, deadlines as comm_options().
symm_comm_options gpu_options(const char* name = nullptr, int timeout_ms = 0,
                              int wait_timeout_ms = 0);
// The communicator of all ranks of a run, each on its GPU, whose context is then current.
Comm create_on_gpu(const Rank& rank, const symm_comm_options& options = gpu_options());
inline RunOptions gpu_run(double seconds = 60) {
  RunOptions options;
  options.seconds = seconds;
  return options;
}

// A piece of memory that its thread took once, before the first operation: cuMemAlloc and cuMemFree
// may wait for kernels, also for one that waits for what this thread has yet to do.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = 0; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(data_); }
  size_t size() const { return bytes_; }
  void set(const void* data, size_t bytes, size_t offset = 0);
  void fill(unsigned char value);
  std::vector<std::byte> get() const;

 private:
  CUdeviceptr data_ = 0;
  size_t bytes_ = 0;
};
// Any memory of a GPU.
void write_gpu(void* to, const void* data, size_t bytes);
std::vector<std::byte> read_gpu(const void* from, size_t bytes);

// An allocation of its own (cuMemAlloc, as cudaMalloc makes them); for places where no kernel
// waits.
class OwnAllocation {
 public:
  explicit OwnAllocation(size_t bytes);
  ~OwnAllocation();
  OwnAllocation(const OwnAllocation&) = delete;
  OwnAllocation& operator=(const OwnAllocation&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(data_); }

 private:
  CUdeviceptr data_ = 0;
};

// cuMem memory made of several allocations, as allocators of segments have it.
class Segments {
 public:
  Segments(int ordinal, int count, bool exportable = true);
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  size_t size() const { return granule_ * static_cast<size_t>(count_); }
  size_t granule() const { return granule_; }

 private:
  const int count_;
  size_t granule_ = 0;
  CUdeviceptr address_ = 0;
};

class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  CUstream get() const { return stream_; }
  operator void*() const { return stream_; }
  void synchronize() const;

 private:
  CUstream stream_ = nullptr;
};

// A place in a stream that other streams may wait for.
class GpuEvent {
 public:
  GpuEvent();
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;
  // What is enqueued on `later` from now on runs after what `earlier` has been given so far; where
  // that is part of a capture, `later` becomes part of it.
  void order(const GpuStream& earlier, const GpuStream& later) const;

 private:
  CUevent event_ = nullptr;
};

// What `body` enqueues on the stream, captured. The strictest mode forbids much to other threads
// too: it is for ranks that are processes.
class Graph {
 public:
  Graph(const GpuStream& stream, const std::function<void()>& body,
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(const GpuStream& stream) const;

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

size_t free_memory();
// The context still computes and copies.
testing::AssertionResult gpu_works();

// One clock for all processes of this machine: ranks and their test compare what it says.
int64_t now_ms();
void sleep_ms(int ms);
// The sticky error once there is one; SYMM_OK if none has come in time. It may come by the host a
// moment after a stream has ended.
symm_status wait_for_error(const symm_comm* comm, int32_t* blamed = nullptr, int most_ms = 15000);

}  // namespace symm_test

#endif  // SYMM_TESTS_CUDA_GPU_H_
