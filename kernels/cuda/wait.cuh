// Waits for peers: bounded, watched, and reported when they end without what they waited for.
//
// A wait polls its own GPU's memory. Every 64 polls it looks at the time, at what the peer it
// waits for has called, at whether that peer has left, and at the abort word, all in its own GPU's
// memory too: reading the host's memory in a spin costs milliseconds. None of that shows in the
// time of an operation whose peers are there. A wait that has lasted longer than any operation
// reads the host's word as well, every few milliseconds: the one way to it that needs no driver.
//
// Whoever gives up writes the error record (the first one only), raises this rank's abort word, or
// every rank's if the calls differ, and returns: the context and other communicators live on. The
// communicator does not: slots may hold half an operation, and every later kernel returns at once.
#ifndef SYMM_KERNELS_CUDA_WAIT_CUH_
#define SYMM_KERNELS_CUDA_WAIT_CUH_

#include <cstdint>

#include "capi/symm.h"
#include "kernels/cuda/abi.h"
#include "kernels/cuda/memory.cuh"

namespace symm::cuda {

__device__ __forceinline__ Control* control_of(const Params& p, int rank) {
  if (rank == p.rank) return reinterpret_cast<Control*>(p.own);
  return reinterpret_cast<Control*>(p.peers[rank < p.rank ? rank : rank - 1]);
}

__device__ __forceinline__ Control* own_control(const Params& p) {
  return reinterpret_cast<Control*>(p.own);
}

__device__ __forceinline__ const uint32_t* record_piece(const Params& p, uint32_t epoch, int peer,
                                                        int piece) {
  return own_control(p)->records[epoch & 1][peer].pieces[piece];
}

// Waits are timed in ticks of 2^20 ns, which a register holds for 50 days.
constexpr int kTickShift = 20;

// Whether the peer has published another call under this epoch.
__device__ __forceinline__ bool called_another(const Params& p, uint32_t epoch, int peer) {
  const uint2 seal = load_acquire_half(record_piece(p, epoch, peer, RecordSlot::kSeal));
  return seal.y == epoch && seal.x != p.call_hash;
}

// When waits begin to read the host's word, in ticks, and at how many polls again: milliseconds. A
// warp's lanes read it together; a full GPU's warps keep the bus busy for some ten microseconds.
constexpr uint32_t kLongWait = 16;
constexpr uint32_t kPollsOfHost = 4096;

// A status, as a positive number, that ends the wait for `peer`; 0: go on. Acquire, so that the
// poll that follows sees what was sent before the word was set.
__device__ __forceinline__ uint32_t look(const Params& p, uint32_t epoch, int peer, uint32_t waited,
                                         uint32_t polls) {
  if (called_another(p, epoch, peer)) return -SYMM_MISMATCH;
  const Control* own = own_control(p);
  if (const uint32_t cause = load_acquire(&own->abort); cause != 0) return cause;
  if (waited >= kLongWait && polls % kPollsOfHost == 0) {
    if (const uint32_t cause = load_acquire(&p.error->abort); cause != 0) return cause;
  }
  if (load_acquire(&own->left[peer]) != 0) return -SYMM_PEER;
  return uint64_t{waited} << kTickShift > p.timeout_ns ? -SYMM_TIMEOUT : 0;
}

// One field of the record that a peer published. The pieces are separate stores: the seal may be
// here a little before them.
__device__ inline uint64_t published_field(const Params& p, uint32_t epoch, int peer, int piece) {
  const uint64_t start = nanoseconds();
  for (;;) {
    const uint32_t* at = record_piece(p, epoch, peer, piece);
    const uint2 low = load_relaxed_half(at);
    const uint2 high = load_relaxed_half(at + 2);
    const bool whole = low.y == epoch && high.y == epoch;
    if (whole || nanoseconds() - start > 1000000) {
      return whole ? low.x | static_cast<uint64_t>(high.x) << 32 : 0;
    }
  }
}

// Ends the communicator on this rank. Not inlined: it is never run in an operation that works.
__device__ __noinline__ void fail(const Params& p, uint32_t epoch, int peer, uint32_t cause,
                                  uint32_t waited) {
  Control* own = own_control(p);
  if (atomicCAS(&own->failed, 0u, 1u) != 0) return;
  if (cause != -SYMM_TIMEOUT && cause != -SYMM_PEER) {
    // The abort word says what happened, not who: a peer may have found that a third rank differs.
    int differing = -1;
    for (int r = 0; cause == -SYMM_MISMATCH && r < p.size; ++r) {
      if (differing < 0 && r != p.rank && called_another(p, epoch, r)) differing = r;
    }
    peer = differing;
  }
  ErrorRecord* error = p.error;
  error->status = cause;
  error->peer = peer;
  error->epoch = epoch;
  error->waited_ns = uint64_t{waited} << kTickShift;
  error->mine = p.call;
  if (cause == -SYMM_MISMATCH && peer >= 0) {
    error->theirs.kind = published_field(p, epoch, peer, 0);
    error->theirs.count = published_field(p, epoch, peer, 1);
    error->theirs.window = published_field(p, epoch, peer, 2);
    error->theirs.offset = published_field(p, epoch, peer, 3);
  }
  store_release(&error->valid, 1);
  if (cause == -SYMM_MISMATCH) {
    for (int r = 0; r < p.size; ++r) store_relaxed(&control_of(p, r)->abort, cause);
  } else {
    store_relaxed(&own->abort, cause);
  }
}

// Polls until `poll` says that nothing is missing; `missing_peer` then says of whom its last call
// missed something. False: the wait has failed, and this thread must touch nothing more.
template <class Poll, class MissingPeer>
__device__ __forceinline__ bool wait(const Params& p, uint32_t epoch, Poll&& poll,
                                     MissingPeer&& missing_peer) {
  uint32_t polls = 0;
  uint32_t since = 0;
  for (;;) {
    if (poll()) return true;
    if (__builtin_expect((++polls & 63) != 0, true)) continue;
    const auto now = static_cast<uint32_t>(nanoseconds() >> kTickShift);
    if (since == 0) since = now;
    const uint32_t cause = look(p, epoch, missing_peer(), now - since, polls);
    if (cause == 0) continue;
    // What was sent before the peer left, or before the abort, still counts.
    if (poll()) return true;
    fail(p, epoch, missing_peer(), cause, now - since);
    return false;
  }
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_WAIT_CUH_
