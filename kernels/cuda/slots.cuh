// Packed packets: 16 bytes of data, and no flag. A slot that is empty holds kPoison in its second
// and fourth word, one in each 64 bits; a packet never does, so those words say of their halves
// that they are there.
//
//   - Floats of 16 bits and more steer around it: a word equal to the poison is a NaN, and goes as
//     another NaN, the poison + 1.
//   - Everything else escapes it: where one of the two words is the poison or the poison + 1, the
//     packet has the poison + 1 there, and the true words go to the escape slot of the same index
//     as {word, epoch, word, epoch}. A reader that sees the poison + 1 waits for that slot.
//
// Readers empty both kinds of slot. They do so after the wait is over, and the slot is not written
// again before the operation after the next (operation.cuh).
#ifndef SYMM_KERNELS_CUDA_SLOTS_CUH_
#define SYMM_KERNELS_CUDA_SLOTS_CUH_

#include <cstdint>

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/operation.cuh"
#include "kernels/cuda/operations.cuh"

namespace symm::cuda {

__device__ __forceinline__ bool is_empty(uint4 packet) {
  return packet.y == kPoison || packet.w == kPoison;
}
__device__ __forceinline__ bool needs_escape(uint32_t word) { return (word | 1) == kPoison + 1; }

// Sends into slots `slot`; `escape` is how far the escape slot is from it.
template <class Kind>
__device__ __forceinline__ void send_packed(std::byte* slot, uint64_t escape, uint4 v,
                                            uint32_t epoch) {
  if constexpr (Kind::kSteers) {
    if (v.y == kPoison) v.y = kPoison + 1;
    if (v.w == kPoison) v.w = kPoison + 1;
  } else if (needs_escape(v.y) || needs_escape(v.w)) {
    store_relaxed(slot + escape, {v.y, epoch, v.w, epoch});
    if (needs_escape(v.y)) v.y = kPoison + 1;
    if (needs_escape(v.w)) v.w = kPoison + 1;
  }
  store_relaxed(slot, v);
}

// What a poll of one slot found.
struct Received {
  uint4 packet;
  bool missing;
  bool escaped;
};

template <class Kind>
__device__ __forceinline__ void examine(Received& received, const std::byte* slot, uint64_t escape,
                                        uint32_t epoch) {
  uint4& v = received.packet;
  received.missing = is_empty(v);
  received.escaped = false;
  if constexpr (!Kind::kSteers) {
    if (!received.missing && (v.y == kPoison + 1 || v.w == kPoison + 1)) {
      const uint4 words = load_relaxed(slot + escape);
      received.escaped = true;
      received.missing = words.y != epoch || words.w != epoch;
      if (v.y == kPoison + 1) v.y = words.x;
      if (v.w == kPoison + 1) v.w = words.z;
    }
  }
}

// One slot of every peer, all in flight together. True: nothing is missing.
template <class Kind, int kPeers>
__device__ __forceinline__ bool poll_packed(Received (&received)[kPeers], const std::byte* mine,
                                            uint64_t part, uint64_t escape, uint32_t epoch) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < kPeers; ++i) received[i].packet = load_relaxed(mine + i * part);
#pragma unroll
  for (int i = 0; i < kPeers; ++i) {
    examine<Kind>(received[i], mine + i * part, escape, epoch);
    all &= !received[i].missing;
  }
  return all;
}

// The first peer whose packet is missing, or the last one.
template <int kPeers>
__device__ __forceinline__ int missing_peer_of(const Received (&received)[kPeers], int rank) {
  int peer = kPeers - 1;
#pragma unroll
  for (int i = kPeers - 2; i >= 0; --i) {
    if (received[i].missing) peer = i;
  }
  return peer < rank ? peer : peer + 1;
}

template <class Kind>
__device__ __forceinline__ void clear_packed(std::byte* slot, uint64_t escape, bool escaped) {
  store_relaxed(slot, {kPoison, kPoison, kPoison, kPoison});
  if constexpr (!Kind::kSteers) {
    if (escaped) store_relaxed(slot + escape, uint4{0, 0, 0, 0});
  }
}

// Waits for one slot of one peer, and empties it. False: failed.
template <class Kind>
__device__ __forceinline__ bool receive_packed(const Params& p, uint32_t epoch, int peer,
                                               std::byte* slot, uint64_t escape, uint4& packet) {
  Received received[1];
  const bool complete = wait(
      p, epoch, [&] { return poll_packed<Kind>(received, slot, 0, escape, epoch); },
      [&] { return peer; });
  if (!complete) return false;
  clear_packed<Kind>(slot, escape, received[0].escaped);
  packet = received[0].packet;
  return true;
}

__device__ __forceinline__ void split(uint4 v, uint2 (&units)[2]) {
  units[0] = {v.x, v.y};
  units[1] = {v.z, v.w};
}
__device__ __forceinline__ uint4 joined(const uint2 (&units)[2]) {
  return {units[0].x, units[0].y, units[1].x, units[1].y};
}

// Empties the slots that were received, and reduces in rank order.
template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ uint4 reduce_received(const Params& p, uint4 own,
                                                 const Received (&received)[kWorld - 1],
                                                 std::byte* mine, uint64_t part, uint64_t escape) {
  constexpr int kPeers = kWorld - 1;
#pragma unroll
  for (int i = 0; i < kPeers; ++i) {
    clear_packed<Kind>(mine + i * part, escape, received[i].escaped);
  }
  Accumulator<Kind, kSum, 2> accumulator;
  uint2 units[2];
#pragma unroll
  for (int r = 0; r < kWorld; ++r) {
    // Peer r is number r, or r - 1 past this rank; constant indices keep them in registers.
    const uint4 before = received[r < kPeers ? r : kPeers - 1].packet;
    const uint4 after = received[r > 0 ? r - 1 : 0].packet;
    split(r == p.rank ? own : r < p.rank ? before : after, units);
    if (r == 0) {
      accumulator.start(units);
    } else {
      accumulator.add(units, p.op);
    }
  }
  accumulator.finish(units, p.op, kWorld);
  return joined(units);
}

// Any number of ranks: receives a slot of each in turn, and reduces. False: failed.
template <class Kind, bool kSum>
__device__ __forceinline__ bool reduce_in_turn(const Params& p, uint32_t epoch, uint4 own,
                                               std::byte* mine, uint64_t part, uint64_t escape,
                                               uint4& result) {
  Accumulator<Kind, kSum, 2> accumulator;
  uint2 units[2];
  for (int r = 0; r < p.size; ++r) {
    uint4 operand = own;
    if (r != p.rank) {
      std::byte* slot = mine + part_of<0>(r, p.rank) * part;
      if (!receive_packed<Kind>(p, epoch, r, slot, escape, operand)) return false;
    }
    split(operand, units);
    if (r == 0) {
      accumulator.start(units);
    } else {
      accumulator.add(units, p.op);
    }
  }
  accumulator.finish(units, p.op, p.size);
  result = joined(units);
  return true;
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_SLOTS_CUH_
