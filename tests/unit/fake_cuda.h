// A driver of GPUs that are not there: its memory is the host's, its kernels do nothing, and it
// writes down what it was asked. One a process; threads of the process are the ranks.
#ifndef SYMM_TESTS_UNIT_FAKE_CUDA_H_
#define SYMM_TESTS_UNIT_FAKE_CUDA_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/cuda/driver.h"
#include "kernels/cuda/abi.h"

namespace symm::cuda {

class FakeCuda {
 public:
  // Puts itself in the driver's place.
  explicit FakeCuda(int gpus = 2);
  ~FakeCuda();

  // What is alive now. Contexts count primary retains.
  struct Alive {
    int contexts = 0, streams = 0, events = 0, allocations = 0, reservations = 0, mappings = 0,
        pinned = 0, ipc = 0, user_objects = 0, pushed = 0;
    bool operator==(const Alive&) const = default;
  };
  Alive alive() const;

  // One launch as it was enqueued.
  struct Launched {
    CUstream stream;
    CUfunction function;
    bool dependent;
    Params params;
  };
  std::vector<Launched> launches() const;
  // "wait S E", "record S E", "launch S", "depend S N" in order.
  std::vector<std::string> log() const;
  void clear_log();

  // The n-th call from now (0: the next) of any function that can fail returns `result` instead of
  // doing anything; negative: none.
  void fail_at(int call, CUresult result);
  // How many calls that can fail there were since fail_at() or the start.
  int calls() const;
  // The function that failed, after fail_at().
  std::string failed() const;

  // Calls of the driver wait while the lock lives: as where one, a cudaFree say, waits for a
  // kernel.
  std::unique_lock<std::mutex> hold_driver();

  // Events stay undone while held.
  void hold_events(bool held);
  // Those that are recorded after the next `records` stay undone; negative: all are done again.
  void hold_events_after(int records);

  CUstream make_stream(int gpu);
  void destroy_stream(CUstream stream);
  // cudaMalloc and cuMem memory of the caller's, of `parts` allocations.
  void* malloc(int gpu, size_t bytes);
  void free(void* pointer);
  void* map(int gpu, size_t bytes, int parts, bool exportable = true);
  void unmap(void* pointer);

  // Graphs: captures on streams that are joined by hand.
  CUgraph begin_capture(CUstream stream);
  void join_capture(CUstream stream, CUgraph graph);
  void invalidate_capture(CUstream stream);
  void end_capture(CUgraph graph);
  void destroy_graph(CUgraph graph);  // user objects' destructors run here

  void set_integrated(int gpu, bool integrated);
  void set_peer_access(bool can);
  // Of one GPU to one other.
  void set_peer_access(int from, int to, bool can);
  // The GPUs' compute capability, 90 at first.
  void set_capability(int capability);
  // Copies through peers' mappings bring other bytes.
  void corrupt_peers(bool corrupt);
  // Fake pinned memory of the rank whose arena a launch had, for tests that play the kernel.
  static ErrorRecord* error_of(const Params& params) { return params.error; }
};

}  // namespace symm::cuda

#endif  // SYMM_TESTS_UNIT_FAKE_CUDA_H_
