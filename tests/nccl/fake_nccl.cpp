// See fake_nccl.h. FAKE_NCCL_WITHOUT_WINDOWS: the functions that came with 2.27 are missing;
// FAKE_NCCL_WITHOUT_ALL_REDUCE: it is broken.
#include "tests/nccl/fake_nccl.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

struct Group;
struct Communicator {
  Group* group;
  int rank;
  int in_progress = 0;  // times that it is still to say so
  uint64_t operation = 0;
  bool aborted = false;
  int inside = 0;
};
struct Operation {
  int arrived = 0;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  size_t count = 0;
  int dtype = 0;
};
struct Group {
  int size = 0;
  int joined = 0;
  std::map<uint64_t, Operation> operations;
  std::map<uint64_t, int> registered;
};
struct Id {
  uint64_t number;
  char rest[120];
};

std::mutex mutex;
std::condition_variable changed;
FakeNccl controls;

// NCCL's static objects go with its exit handlers: a call that is under way then, or comes later,
// uses what is gone.
std::atomic<int> under_way{0};
std::atomic<bool> over{false};
void no_call_now(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  _exit(9);
}
struct Statics {
  ~Statics() {
    over = true;
    if (under_way != 0) no_call_now("the exit has come to NCCL while a call is in it");
  }
};
[[maybe_unused]] const Statics statics;
struct UnderWay {
  UnderWay() {
    ++under_way;
    if (over) no_call_now("a call of NCCL after the exit has come to it");
  }
  ~UnderWay() { --under_way; }
};

std::map<uint64_t, Group>& groups() {
  static auto* all = new std::map<uint64_t, Group>;
  return *all;
}
std::set<Communicator*>& alive() {
  static auto* all = new std::set<Communicator*>;
  return *all;
}
std::map<void*, Communicator*>& windows() {
  static auto* all = new std::map<void*, Communicator*>;
  return *all;
}
uint64_t next_id = 1;
int releases = 0;

void release() {
  std::lock_guard lock(mutex);
  ++releases;
  controls.hang_call = nullptr;
  changed.notify_all();
}

void reset() {
  std::lock_guard lock(mutex);
  controls.version = 22809;
  controls.null_window_rank = -1;
  controls.fail_call = controls.hang_call = nullptr;
  for (auto* one :
       {&controls.asynchronous_error, &controls.fail_rank, &controls.fail_result,
        &controls.hang_rank, &controls.enqueue_only, &controls.initialised, &controls.destroyed,
        &controls.aborted, &controls.in_progress, &controls.reductions, &controls.registrations,
        &controls.misused, &controls.unique_ids, &controls.overlapping, &controls.ended_inside,
        &controls.slow_destroy_ms, &controls.destroying}) {
    *one = 0;
  }
  std::memset(controls.order, 0, sizeof controls.order);
  ++releases;
  changed.notify_all();
}

[[maybe_unused]] const bool ready = [] {
  controls.release = release;
  controls.reset = reset;
  return true;
}();

// What the controls say of this call; 0: go on. `lock` is held.
int told(const char* call, int rank, const Communicator* communicator,
         std::unique_lock<std::mutex>* lock) {
  const auto means = [&](const char* name, int of) {
    return name != nullptr && std::strcmp(name, call) == 0 && (of == -1 || of == rank);
  };
  if (means(controls.hang_call, controls.hang_rank)) {
    const int before = releases;
    changed.wait(*lock, [&] {
      return releases != before || (communicator != nullptr && communicator->aborted);
    });
    return 5;
  }
  return means(controls.fail_call, controls.fail_rank) ? controls.fail_result.load() : 0;
}

template <class T>
void add(const Operation& op) {
  for (size_t i = 0; i < op.count; ++i) {
    T sum = 0;
    for (const void* input : op.inputs) sum += static_cast<const T*>(input)[i];
    for (void* output : op.outputs) static_cast<T*>(output)[i] = sum;
  }
}

Communicator* find(void* comm) {
  auto* communicator = static_cast<Communicator*>(comm);
  if (alive().count(communicator) != 0) return communicator;
  ++controls.misused;
  return nullptr;
}

// A call on a communicator, of which NCCL takes one at a time.
struct Inside {
  explicit Inside(Communicator* c) : communicator(c) {
    if (c->inside++ != 0) ++controls.overlapping;
  }
  ~Inside() { --communicator->inside; }
  Communicator* const communicator;
};

[[maybe_unused]] void note(const Communicator* communicator, char what) {
  char* order = controls.order[communicator->rank % 8];
  const size_t length = std::strlen(order);
  if (length + 1 < sizeof controls.order[0]) order[length] = what;
}

int done(Communicator* communicator) {
  communicator->in_progress = controls.in_progress;
  return communicator->in_progress > 0 ? 7 : 0;
}

void end(Communicator* communicator) {
  if (communicator->inside != 0) ++controls.ended_inside;
  communicator->aborted = true;
  alive().erase(communicator);
  --controls.communicators;
  for (auto one = windows().begin(); one != windows().end();) {
    const auto next = std::next(one);
    if (one->second == communicator) {
      --controls.windows;
      delete static_cast<char*>(one->first);
      windows().erase(one);
    }
    one = next;
  }
  // Never freed: a call of another thread may still be in it.
  static auto* ended = new std::vector<Communicator*>;
  ended->push_back(communicator);
  changed.notify_all();
}

}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT FakeNccl* fake_nccl() { return &controls; }

EXPORT int ncclGetVersion(int* version) {
  *version = controls.version;
  return 0;
}

EXPORT int ncclGetUniqueId(Id* id) {
  std::unique_lock lock(mutex);
  if (const int result = told("ncclGetUniqueId", 0, nullptr, &lock)) return result;
  *id = {};
  ++controls.unique_ids;
  id->number = next_id++;
  return 0;
}

EXPORT int ncclCommInitRankConfig(void** comm, int size, Id id, int rank, void* config) {
  uint32_t magic;
  std::memcpy(&magic, static_cast<char*>(config) + 8, sizeof magic);
  if (magic != 0xcafebeef) return 4;
  std::unique_lock lock(mutex);
  if (const int result = told("ncclCommInitRankConfig", rank, nullptr, &lock)) return result;
  Group& group = groups()[id.number];
  group.size = size;
  ++group.joined;
  changed.notify_all();
  const int before = releases;
  changed.wait(lock, [&] { return group.joined >= size || releases != before; });
  if (group.joined < size) return 6;
  auto* communicator = new Communicator{&group, rank};
  alive().insert(communicator);
  ++controls.communicators;
  ++controls.initialised;
  *comm = communicator;
  return done(communicator);
}

EXPORT int ncclCommDestroy(void* comm) {
  const UnderWay call;
  ++controls.destroying;
  if (controls.slow_destroy_ms != 0) {
    usleep(static_cast<unsigned>(controls.slow_destroy_ms) * 1000);
    std::fprintf(stderr, "destroyed\n");
  }
  std::unique_lock lock(mutex);
  Communicator* communicator = find(comm);
  if (communicator == nullptr) return 4;
  ++controls.destroyed;
  end(communicator);
  return 0;
}

EXPORT int ncclCommAbort(void* comm) {
  const UnderWay call;
  std::unique_lock lock(mutex);
  Communicator* communicator = find(comm);
  if (communicator == nullptr) return 4;
  ++controls.aborted;
  end(communicator);
  return 0;
}

EXPORT int ncclCommGetAsyncError(void* comm, int* error) {
  const UnderWay call;
  std::unique_lock lock(mutex);
  Communicator* communicator = find(comm);
  if (communicator == nullptr) return 4;
  *error = communicator->in_progress > 0 ? 7 : controls.asynchronous_error.load();
  if (communicator->in_progress > 0) --communicator->in_progress;
  return 0;
}

EXPORT const char* ncclGetErrorString(int result) {
  return result == 6 ? "remote process exited or there was a network error" : "made up";
}
EXPORT const char* ncclGetLastError(void*) { return "last words"; }

#ifndef FAKE_NCCL_WITHOUT_ALL_REDUCE
// As if the stream were waited for: returns once all ranks have called and the sums are there.
EXPORT int ncclAllReduce(const void* input, void* output, size_t count, int dtype, int, void* comm,
                         void*) {
  std::unique_lock lock(mutex);
  Communicator* communicator = find(comm);
  if (communicator == nullptr) return 4;
  const Inside inside(communicator);
  if (const int result = told("ncclAllReduce", communicator->rank, communicator, &lock)) {
    return result;
  }
  ++controls.reductions;
  if (controls.enqueue_only != 0) return 0;
  Group& group = *communicator->group;
  const uint64_t turn = communicator->operation++;
  Operation& op = group.operations[turn];
  op.inputs.resize(static_cast<size_t>(group.size));
  op.outputs.resize(static_cast<size_t>(group.size));
  op.inputs[static_cast<size_t>(communicator->rank)] = input;
  op.outputs[static_cast<size_t>(communicator->rank)] = output;
  op.count = count;
  op.dtype = dtype;
  if (++op.arrived == group.size) {
    if (dtype == 7) add<float>(op);
    if (dtype == 2) add<int32_t>(op);
    changed.notify_all();
    return done(communicator);
  }
  const int before = releases;
  changed.wait(lock, [&] {
    return op.arrived == group.size || communicator->aborted || releases != before;
  });
  return op.arrived == group.size ? done(communicator) : 6;
}
#endif

#ifndef FAKE_NCCL_WITHOUT_WINDOWS
// Ends what waits, and frees nothing.
EXPORT int ncclCommRevoke(void* comm, int) {
  std::unique_lock lock(mutex);
  Communicator* communicator = find(comm);
  if (communicator == nullptr) return 4;
  communicator->aborted = true;
  changed.notify_all();
  return 0;
}

// Collective, as NCCL's: nobody returns before all have come.
EXPORT int ncclCommWindowRegister(void* comm, void* pointer, size_t, void** window, int) {
  std::unique_lock lock(mutex);
  Communicator* communicator = find(comm);
  if (communicator == nullptr) return 4;
  const Inside inside(communicator);
  *window = nullptr;
  if (reinterpret_cast<uintptr_t>(pointer) % 4096 != 0) return 4;
  if (const int result = told("ncclCommWindowRegister", communicator->rank, communicator, &lock)) {
    return result;
  }
  Group& group = *communicator->group;
  const uint64_t turn = communicator->operation++;
  ++group.registered[turn];
  changed.notify_all();
  const int before = releases;
  changed.wait(lock, [&] {
    return group.registered[turn] >= group.size || communicator->aborted || releases != before;
  });
  if (group.registered[turn] < group.size) return 6;
  ++controls.registrations;
  note(communicator, 'R');
  const int none = controls.null_window_rank;
  if (none == -2 || none == communicator->rank) return 0;
  *window = new char;
  windows()[*window] = communicator;
  ++controls.windows;
  return done(communicator);
}

EXPORT int ncclCommWindowDeregister(void* comm, void* window) {
  std::unique_lock lock(mutex);
  Communicator* communicator = find(comm);
  if (communicator == nullptr) return 4;
  const Inside inside(communicator);
  note(communicator, 'D');
  if (windows().erase(window) == 0) {
    ++controls.misused;
    return 4;
  }
  delete static_cast<char*>(window);
  --controls.windows;
  return 0;
}
#endif
}
