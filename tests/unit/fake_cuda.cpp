#include "tests/unit/fake_cuda.h"

#include <cstdlib>

#include "tests/unit/fake_cuda_state.h"

namespace symm::cuda {
namespace fake {

State* state = nullptr;

}  // namespace fake

using namespace fake;  // this file is its other half

// States are never freed: threads of a communicator that ends late may still look at one.
FakeCuda::FakeCuda(int gpus) {
  static const Driver table = fake::make_table();
  state = new State;
  state->gpus = gpus;
  state->contexts.resize(static_cast<size_t>(gpus));
  use_driver(&table);
}

FakeCuda::~FakeCuda() = default;

FakeCuda::Alive FakeCuda::alive() const {
  std::lock_guard lock(state->mutex);
  Alive alive;
  for (const Context& context : state->contexts) alive.contexts += context.retained;
  alive.streams = static_cast<int>(state->streams.size());
  alive.events = static_cast<int>(state->events.size());
  alive.allocations = static_cast<int>(state->memories.size());
  alive.reservations = static_cast<int>(state->reserved.size());
  alive.mappings = static_cast<int>(state->mapped.size());
  alive.pinned = static_cast<int>(state->pinned.size());
  for (const auto& [address, count] : state->ipc) alive.ipc += count;
  alive.user_objects = static_cast<int>(state->objects.size());
  for (const auto& [thread, pushed] : state->stacks)
    alive.pushed += static_cast<int>(pushed.size());
  return alive;
}

std::vector<FakeCuda::Launched> FakeCuda::launches() const {
  std::lock_guard lock(state->mutex);
  return state->launches;
}
std::vector<std::string> FakeCuda::log() const {
  std::lock_guard lock(state->mutex);
  return state->log;
}
void FakeCuda::clear_log() {
  std::lock_guard lock(state->mutex);
  state->log.clear();
  state->launches.clear();
}
void FakeCuda::fail_at(int call, CUresult result) {
  std::lock_guard lock(state->mutex);
  state->countdown = call;
  state->result = result;
  state->calls = 0;
  state->failed.clear();
}
int FakeCuda::calls() const {
  std::lock_guard lock(state->mutex);
  return state->calls;
}
std::string FakeCuda::failed() const {
  std::lock_guard lock(state->mutex);
  return state->failed;
}
std::unique_lock<std::mutex> FakeCuda::hold_driver() { return std::unique_lock(state->mutex); }
void FakeCuda::hold_events(bool held) {
  std::lock_guard lock(state->mutex);
  state->hold = held;
}
void FakeCuda::hold_events_after(int records) {
  std::lock_guard lock(state->mutex);
  state->hold_after = records;
  if (records >= 0) return;
  for (Event* event : state->events) event->held = false;
}
CUstream FakeCuda::make_stream(int gpu) {
  std::lock_guard lock(state->mutex);
  auto* stream = new Stream{gpu, state->next_id++, 0, false, nullptr, {}};
  state->streams.insert(stream);
  return reinterpret_cast<CUstream>(stream);
}
void FakeCuda::destroy_stream(CUstream stream) { driver().cuStreamDestroy(stream); }
void* FakeCuda::malloc(int gpu, size_t bytes) {
  std::lock_guard lock(state->mutex);
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  state->ranges[reinterpret_cast<uintptr_t>(memory)] = {bytes, gpu, true, state->next_buffer++};
  return memory;
}
void FakeCuda::free(void* pointer) {
  std::lock_guard lock(state->mutex);
  state->ranges.erase(reinterpret_cast<uintptr_t>(pointer));
  std::free(pointer);
}
void* FakeCuda::map(int gpu, size_t bytes, int parts, bool exportable) {
  CUdeviceptr address = 0;
  const size_t part = bytes / static_cast<size_t>(parts);
  // Room behind it, so that no other allocation makes up one buffer with it.
  constexpr size_t kGap = 65536;
  driver().cuMemAddressReserve(&address, bytes + kGap, 0, 0, 0);
  for (int i = 0; i < parts; ++i) {
    CUmemAllocationProp properties{};
    properties.location.id = gpu;
    if (exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    driver().cuMemCreate(&handle, part, &properties, 0);
    driver().cuMemMap(address + static_cast<size_t>(i) * part, part, 0, handle, 0);
    driver().cuMemRelease(handle);
  }
  return reinterpret_cast<void*>(address);
}
void FakeCuda::unmap(void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  size_t size = 0;
  std::vector<std::pair<uintptr_t, size_t>> parts;
  {
    std::lock_guard lock(state->mutex);
    size = state->reserved[address];
    for (const auto& [at, mapped] : state->mapped) {
      if (at >= address && at < address + size) parts.emplace_back(at, mapped.size);
    }
  }
  for (const auto& [at, bytes] : parts) driver().cuMemUnmap(at, bytes);
  driver().cuMemAddressFree(address, size);
}
CUgraph FakeCuda::begin_capture(CUstream stream) {
  auto graph = reinterpret_cast<CUgraph>(new Graph);
  std::lock_guard lock(state->mutex);
  Stream* s = look_up(stream);
  s->capture = state->next_capture++;
  s->graph = graph;
  s->depends.clear();
  return graph;
}
void FakeCuda::join_capture(CUstream stream, CUgraph graph) {
  std::lock_guard lock(state->mutex);
  for (Stream* other : state->streams) {
    if (other->graph != graph) continue;
    Stream* s = look_up(stream);
    s->capture = other->capture;
    s->graph = graph;
    return;
  }
}
void FakeCuda::invalidate_capture(CUstream stream) {
  std::lock_guard lock(state->mutex);
  look_up(stream)->invalid = true;
}
void FakeCuda::end_capture(CUgraph graph) {
  std::lock_guard lock(state->mutex);
  for (Stream* s : state->streams) {
    if (s->graph != graph) continue;
    s->capture = 0;
    s->graph = nullptr;
    s->invalid = false;
  }
}
void FakeCuda::destroy_graph(CUgraph graph) {
  auto* g = reinterpret_cast<Graph*>(graph);
  for (Object* object : g->objects)
    driver().cuUserObjectRelease(reinterpret_cast<CUuserObject>(object), 1);
  delete g;
}
void FakeCuda::set_integrated(int gpu, bool integrated) {
  std::lock_guard lock(state->mutex);
  if (integrated) state->integrated.insert(gpu);
}
void FakeCuda::set_peer_access(bool can) {
  std::lock_guard lock(state->mutex);
  state->peer_access = can;
}
void FakeCuda::set_peer_access(int from, int to, bool can) {
  std::lock_guard lock(state->mutex);
  if (can) {
    state->unreachable.erase({from, to});
  } else {
    state->unreachable.insert({from, to});
  }
}
void FakeCuda::set_capability(int capability) {
  std::lock_guard lock(state->mutex);
  state->capability = capability;
}
void FakeCuda::corrupt_peers(bool corrupt) {
  std::lock_guard lock(state->mutex);
  state->corrupt = corrupt;
}

}  // namespace symm::cuda
