#include "tests/cuda/gpu.h"

#include <dlfcn.h>

#include <chrono>
#include <iterator>
#include <map>
#include <stdexcept>
#include <thread>

#include "tests/cuda/driver.h"

namespace symm_test {
namespace {

using symm::cuda::testing::check;
using symm::cuda::testing::driver;

// Functions that the tests of the kernels do not need.
#define SYMM_TEXT_OF(name) #name
#define SYMM_TEXT(name) SYMM_TEXT_OF(name)
#define SYMM_FIND(name) find<decltype(&::name)>(SYMM_TEXT(name))
template <class Function>
Function find(const char* name) {
  driver();
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(name);
  return function;
}

class Pool {
 public:
  CUdeviceptr take(size_t bytes) {
    if (base_ == 0) {
      check(driver()->alloc(&base_, kBytes), "cuMemAlloc");
      free_[0] = kBytes;
    }
    const size_t wanted = (bytes + 511) / 512 * 512 + 512;
    for (const auto& [offset, size] : free_) {
      if (size < wanted) continue;
      const size_t at = offset, rest = size - wanted;
      free_.erase(at);
      if (rest > 0) free_[at + wanted] = rest;
      taken_[base_ + at] = wanted;
      return base_ + at;
    }
    throw std::runtime_error("the test's pool of GPU memory is full");
  }
  void give_back(CUdeviceptr data) {
    const auto found = taken_.find(data);
    auto here = free_.emplace(data - base_, found->second).first;
    taken_.erase(found);
    const auto next = std::next(here);
    if (next != free_.end() && here->first + here->second == next->first) {
      here->second += next->second;
      free_.erase(next);
    }
    if (here == free_.begin()) return;
    const auto before = std::prev(here);
    if (before->first + before->second == here->first) {
      before->second += here->second;
      free_.erase(here);
    }
  }

 private:
  static constexpr size_t kBytes = size_t{512} << 20;
  CUdeviceptr base_ = 0;
  std::map<size_t, size_t> free_;  // size by offset
  std::map<CUdeviceptr, size_t> taken_;
};

// Never given back: the process ends with its tests.
Pool& pool() {
  static thread_local auto* const instance = new Pool;
  return *instance;
}

const GpuStream& copies() {
  static thread_local auto* const instance = new GpuStream;
  return *instance;
}

}  // namespace

int gpu_count() {
  int count = 0;
  if (driver() != nullptr) check(driver()->device_count(&count), "cuDeviceGetCount");
  return count;
}

bool launches_block() { return symm::cuda::testing::launches_block(); }

void use_gpu(int ordinal) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(driver()->device(&device, ordinal), "cuDeviceGet");
  check(driver()->retain_context(&context, device), "cuDevicePrimaryCtxRetain");
  check(driver()->set_context(context), "cuCtxSetCurrent");
}

int gpu_of(const Rank& rank) { return rank.rank % gpu_count(); }

symm_comm_options gpu_options(const char* name, int timeout_ms, int wait_timeout_ms) {
  symm_comm_options options = comm_options(name, timeout_ms, wait_timeout_ms);
  options.flags = SYMM_COMM_SHARE_GPU;
  options.scratch_bytes = size_t{32} << 20;
  return options;
}

Comm create_on_gpu(const Rank& rank, const symm_comm_options& options) {
  use_gpu(gpu_of(rank));
  { const Buffer first(1); }  // the pool's memory
  symm_comm* comm = nullptr;
  EXPECT_TRUE(ok(symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CURRENT_GPU,
                                  &options, &comm)));
  return Comm(comm);
}

Buffer::Buffer(size_t bytes) : data_(pool().take(bytes)), bytes_(bytes) {}
Buffer::~Buffer() {
  if (data_ != 0) pool().give_back(data_);
}
OwnAllocation::OwnAllocation(size_t bytes) { check(driver()->alloc(&data_, bytes), "cuMemAlloc"); }
OwnAllocation::~OwnAllocation() { driver()->free(data_); }

void Buffer::set(const void* data, size_t bytes, size_t offset) {
  write_gpu(this->data() + offset, data, bytes);
}
void Buffer::fill(unsigned char value) {
  const std::vector<unsigned char> bytes(bytes_, value);
  set(bytes.data(), bytes_);
}
std::vector<std::byte> Buffer::get() const { return read_gpu(data(), bytes_); }

void write_gpu(void* to, const void* data, size_t bytes) {
  const GpuStream& stream = copies();
  check(driver()->upload(reinterpret_cast<CUdeviceptr>(to), data, bytes, stream.get()),
        "cuMemcpyHtoDAsync");
  stream.synchronize();
}

std::vector<std::byte> read_gpu(const void* from, size_t bytes) {
  std::vector<std::byte> data(bytes);
  const GpuStream& stream = copies();
  check(driver()->download(data.data(), reinterpret_cast<CUdeviceptr>(from), bytes, stream.get()),
        "cuMemcpyDtoHAsync");
  stream.synchronize();
  return data;
}

Segments::Segments(int ordinal, int count, bool exportable) : count_(count) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  if (exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  check(SYMM_FIND(cuMemGetAllocationGranularity)(&granule_, &properties,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
  check(SYMM_FIND(cuMemAddressReserve)(&address_, size(), 0, 0, 0), "cuMemAddressReserve");
  for (int i = 0; i < count; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr at = address_ + granule_ * static_cast<size_t>(i);
    check(SYMM_FIND(cuMemCreate)(&handle, granule_, &properties, 0), "cuMemCreate");
    check(SYMM_FIND(cuMemMap)(at, granule_, 0, handle, 0), "cuMemMap");
    check(SYMM_FIND(cuMemRelease)(handle), "cuMemRelease");
  }
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(SYMM_FIND(cuMemSetAccess)(address_, size(), &access, 1), "cuMemSetAccess");
}

Segments::~Segments() {
  for (int i = 0; i < count_; ++i) {
    SYMM_FIND(cuMemUnmap)(address_ + granule_ * static_cast<size_t>(i), granule_);
  }
  SYMM_FIND(cuMemAddressFree)(address_, size());
}

GpuStream::GpuStream() {
  check(driver()->stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}
GpuStream::~GpuStream() { driver()->stream_destroy(stream_); }
void GpuStream::synchronize() const {
  check(driver()->stream_synchronize(stream_), "cuStreamSynchronize");
}

GpuEvent::GpuEvent() {
  check(driver()->event_create(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}
GpuEvent::~GpuEvent() { driver()->event_destroy(event_); }
void GpuEvent::order(const GpuStream& earlier, const GpuStream& later) const {
  check(driver()->event_record(event_, earlier.get()), "cuEventRecord");
  check(driver()->stream_wait(later.get(), event_, 0), "cuStreamWaitEvent");
}

Graph::Graph(const GpuStream& stream, const std::function<void()>& body, CUstreamCaptureMode mode) {
  check(driver()->begin_capture(stream.get(), mode), "cuStreamBeginCapture");
  body();
  check(driver()->end_capture(stream.get(), &graph_), "cuStreamEndCapture");
  check(driver()->instantiate(&exec_, graph_, 0), "cuGraphInstantiateWithFlags");
}
Graph::~Graph() {
  driver()->exec_destroy(exec_);
  driver()->graph_destroy(graph_);
}
void Graph::launch(const GpuStream& stream) const {
  check(driver()->graph_launch(exec_, stream.get()), "cuGraphLaunch");
}

size_t free_memory() {
  size_t available = 0, total = 0;
  check(SYMM_FIND(cuMemGetInfo)(&available, &total), "cuMemGetInfo");
  return available;
}

testing::AssertionResult gpu_works() {
  try {
    Buffer buffer(1 << 20);
    buffer.fill(0x5a);
    for (const std::byte byte : buffer.get()) {
      if (byte != std::byte{0x5a})
        return testing::AssertionFailure() << "a copy brought other data";
    }
    return testing::AssertionSuccess();
  } catch (const std::exception& e) {
    return testing::AssertionFailure() << e.what();
  }
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

symm_status wait_for_error(const symm_comm* comm, int32_t* blamed, int most_ms) {
  const int64_t start = now_ms();
  symm_status status = symm_comm_check(comm, blamed);
  while (status == SYMM_OK && now_ms() - start < most_ms) {
    sleep_ms(2);
    status = symm_comm_check(comm, blamed);
  }
  return status;
}

}  // namespace symm_test
