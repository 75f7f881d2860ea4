// The inside of the fake driver: what it has made and what it was told to do.
#ifndef SYMM_TESTS_UNIT_FAKE_CUDA_STATE_H_
#define SYMM_TESTS_UNIT_FAKE_CUDA_STATE_H_

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/fake_cuda.h"

namespace symm::cuda::fake {

constexpr size_t kGranule = 2 << 20;

struct Context {
  int retained = 0;
};
struct Stream {
  int gpu;
  unsigned long long id;
  cuuint64_t capture = 0;  // 0: none
  bool invalid = false;
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> depends;
};
struct Event {
  bool recorded = false;
  bool held = false;
};
struct Object {
  CUhostFn destroy;
  void* data;
};
struct Graph {
  std::vector<Object*> objects;
};
struct Memory {  // physical
  int fd;
  size_t size;
  int gpu;
  bool exportable;
  int references;
};
struct Range {  // of addresses
  size_t size;
  int gpu;
  bool legacy;  // cudaMalloc
  unsigned long long buffer;
};
struct Mapped {
  size_t size;
  Memory* memory;
};

struct State {
  std::mutex mutex;
  int gpus = 2;
  std::vector<Context> contexts;
  std::map<std::thread::id, std::vector<CUcontext>> stacks;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Memory*> memories;
  std::map<uintptr_t, size_t> reserved;
  std::map<uintptr_t, Mapped> mapped;
  std::map<uintptr_t, Range> ranges;  // callers' and granted memory
  std::set<void*> pinned;
  std::map<uintptr_t, int> ipc;
  std::set<Object*> objects;
  std::vector<FakeCuda::Launched> launches;
  std::vector<std::string> log;
  int countdown = -1;
  CUresult result = CUDA_SUCCESS;
  int calls = 0;
  std::string failed;
  bool hold = false, peer_access = true, corrupt = false;
  std::set<int> integrated;
  std::set<std::pair<int, int>> unreachable;
  int capability = 90;
  int hold_after = -1;  // records, until events are held; negative: never
  unsigned long long next_id = 100, next_buffer = 1, next_capture = 1;
  uintptr_t next_node = 0x1000;
};
extern State* state;

inline CUcontext context_of(int gpu) {
  return reinterpret_cast<CUcontext>(&state->contexts[static_cast<size_t>(gpu)]);
}
inline int gpu_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<Context*>(context) - state->contexts.data());
}
inline std::vector<CUcontext>& stack() { return state->stacks[std::this_thread::get_id()]; }

// The range of callers' or mapped memory around an address; end() if there is none.
inline auto range_at(uintptr_t address) {
  auto next = state->ranges.upper_bound(address);
  if (next == state->ranges.begin()) return state->ranges.end();
  --next;
  return address < next->first + next->second.size ? next : state->ranges.end();
}

inline void drop(Memory* memory) {
  if (--memory->references > 0) return;
  close(memory->fd);
  state->memories.erase(memory);
  delete memory;
}

// The stream behind a handle. One that was destroyed must not be used, which the real driver
// answers with a fault.
inline Stream* look_up(CUstream s) {
  auto* stream = reinterpret_cast<Stream*>(s);
  if (state->streams.count(stream) == 0) std::abort();
  return stream;
}

// The driver's functions.
Driver make_table();

}  // namespace symm::cuda::fake

#endif  // SYMM_TESTS_UNIT_FAKE_CUDA_STATE_H_
