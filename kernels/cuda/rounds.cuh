// All-reduce in packed packets by a grid of bounded size, for messages whose whole grid would keep
// other ranks' or communicators' kernels off the GPU: each thread sends the packets of round j, and
// then receives those of round j - 1, whose input it has kept.
//
// In place is safe: a thread loads the input of a packet before it stores that packet's output, and
// touches no other thread's. All blocks run at once (core/cuda/plan.cpp bounds the grid), and a
// round's sends wait for nothing but earlier rounds' receipts, so every send is made in the end.
#ifndef SYMM_KERNELS_CUDA_ROUNDS_CUH_
#define SYMM_KERNELS_CUDA_ROUNDS_CUH_

#include <cstdint>

#include "kernels/cuda/operation.cuh"
#include "kernels/cuda/operations.cuh"
#include "kernels/cuda/slots.cuh"

namespace symm::cuda {

// What the threads of a bounded grid share out.
struct Message {
  const std::byte* input;
  std::byte* output;
  uint64_t bytes;
  uint32_t packets;
};

template <class Kind>
__device__ __forceinline__ Message message_of(const Params& p) {
  const uint64_t bytes = p.count * Kind::kElement;
  return {p.input, p.output, bytes,
          static_cast<uint32_t>((bytes + kPacketBytes - 1) / kPacketBytes)};
}

template <class Kind>
__device__ __forceinline__ uint4 load_packet(const Message& message, uint32_t index) {
  const uint64_t at = uint64_t{index} * kPacketBytes;
  const std::byte* from = message.input + at;
  const int valid = valid_of(message.bytes - at);
  return load_input<Kind::kElement>(from, valid, is_aligned(from, 16) && valid == 16);
}
template <class Kind>
__device__ __forceinline__ void store_packet(const Message& message, uint32_t index, uint4 v) {
  const uint64_t at = uint64_t{index} * kPacketBytes;
  std::byte* to = message.output + at;
  const int valid = valid_of(message.bytes - at);
  store_output<Kind::kElement>(to, v, valid, is_aligned(to, 16) && valid == 16);
}

// The slots of this epoch's bank.
template <int kWorld>
struct Slots {
  const Params& p;
  uint64_t bank;
  uint64_t escape;

  __device__ __forceinline__ Slots(const Params& params, int size, uint32_t epoch)
      : p(params),
        bank(params.layout.packed + (epoch & 1) * (size - 1) * params.layout.packed_part),
        escape(params.layout.escape - params.layout.packed) {}

  // Where this rank's packets for `peer` go, and where the peer's for this rank arrive.
  __device__ __forceinline__ std::byte* to(int peer, uint64_t index) const {
    return p.arena[peer] + bank + part_of<kWorld>(p.rank, peer) * p.layout.packed_part +
           index * kPacketBytes;
  }
  __device__ __forceinline__ std::byte* bank_of_own() const { return p.arena[p.rank] + bank; }
  __device__ __forceinline__ std::byte* from(int peer, uint64_t index) const {
    return bank_of_own() + part_of<kWorld>(peer, p.rank) * p.layout.packed_part +
           index * kPacketBytes;
  }
};

// Receives packet `index` of every peer and reduces it with this rank's own. False: failed.
template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ bool receive_and_reduce(const Params& p, const Slots<kWorld>& slots,
                                                   uint32_t epoch, uint64_t index, uint4 own,
                                                   uint4& result) {
  const uint64_t part = p.layout.packed_part;
  std::byte* mine = slots.bank_of_own() + index * kPacketBytes;
  if constexpr (kWorld == 0) {
    return reduce_in_turn<Kind, kSum>(p, epoch, own, mine, part, slots.escape, result);
  } else {
    Received received[kWorld - 1];
    const bool complete = wait(
        p, epoch, [&] { return poll_packed<Kind>(received, mine, part, slots.escape, epoch); },
        [&] { return missing_peer_of(received, p.rank); });
    if (!complete) return false;
    result = reduce_received<Kind, kSum, kWorld>(p, own, received, mine, part, slots.escape);
    return true;
  }
}

// Two ranks: this thread's packets of a round, all polled together. `from` is the slot of the
// first. False: failed.
template <class Kind, bool kSum, int kPackets>
__device__ __forceinline__ bool receive_round_of_two(const Params& p, const Message& message,
                                                     std::byte* from, uint64_t escape,
                                                     uint32_t epoch, uint32_t first,
                                                     uint32_t stride,
                                                     const uint4 (&own)[kPackets]) {
  const uint64_t step = uint64_t{stride} * kPacketBytes;
  Received received[kPackets];
  const bool complete = wait(
      p, epoch,
      [&] {
#pragma unroll
        for (int k = 0; k < kPackets; ++k) {
          if (first + k * stride < message.packets) {
            received[k].packet = load_relaxed(from + k * step);
          }
        }
        bool all = true;
#pragma unroll
        for (int k = 0; k < kPackets; ++k) {
          if (first + k * stride >= message.packets) continue;
          examine<Kind>(received[k], from + k * step, escape, epoch);
          all &= !received[k].missing;
        }
        return all;
      },
      [&] { return 1 - p.rank; });
  if (!complete) return false;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    const uint32_t index = first + k * stride;
    if (index >= message.packets) continue;
    clear_packed<Kind>(from + k * step, escape, received[k].escaped);
    Accumulator<Kind, kSum, 2> accumulator;
    uint2 units[2];
    split(p.rank == 0 ? own[k] : received[k].packet, units);
    accumulator.start(units);
    split(p.rank == 0 ? received[k].packet : own[k], units);
    accumulator.add(units, p.op);
    accumulator.finish(units, p.op, 2);
    store_packet<Kind>(message, index, joined(units));
  }
  return true;
}

template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ void packed_rounds(const Params& p) {
  // Packets a thread has on their way at once.
  constexpr int kPackets = kWorld == 2 ? 3 : kWorld == 4 ? 2 : 1;
  const int size = kWorld != 0 ? kWorld : p.size;
  const Message message = message_of<Kind>(p);
  const uint32_t stride = gridDim.x * blockDim.x;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t rounds = (message.packets + stride * kPackets - 1) / (stride * kPackets);
  std::byte* own_arena = p.arena[p.rank];
  const Publication<kWorld> publication(p);

  wait_for_predecessor();
  const Beginning beginning = begin(of_this_thread(own_arena));
  if (beginning.aborted != 0) return;
  const uint32_t epoch = beginning.epoch();
  const Slots<kWorld> slots(p, size, epoch);
  publication.send(p, epoch);

  uint4 before[kPackets];
  for (uint32_t round = 0;; ++round) {
    uint4 own[kPackets];
    const uint32_t first = round * stride * kPackets + thread;
    if (round < rounds) {
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        const uint32_t index = first + k * stride;
        if (index < message.packets) own[k] = load_packet<Kind>(message, index);
      }
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        const uint32_t index = first + k * stride;
        if (index >= message.packets) continue;
        if constexpr (kWorld == 2) {
          send_packed<Kind>(slots.to(1 - p.rank, index), slots.escape, own[k], epoch);
        } else {
          for (int r = 0; r < size; ++r) {
            if (r != p.rank) send_packed<Kind>(slots.to(r, index), slots.escape, own[k], epoch);
          }
        }
      }
    } else {
      allow_successor();
      advance(own_arena, epoch);
    }
    if (round > 0) {
      const uint32_t first_before = first - stride * kPackets;
      if constexpr (kWorld == 2) {
        if (!receive_round_of_two<Kind, kSum, kPackets>(
                p, message, slots.from(1 - p.rank, first_before), slots.escape, epoch, first_before,
                stride, before)) {
          return;
        }
      } else {
#pragma unroll
        for (int k = 0; k < kPackets; ++k) {
          const uint32_t index = first_before + k * stride;
          if (index >= message.packets) continue;
          uint4 result;
          if (!receive_and_reduce<Kind, kSum, kWorld>(p, slots, epoch, index, before[k], result)) {
            return;
          }
          store_packet<Kind>(message, index, result);
        }
      }
    }
    if (round >= rounds) break;
#pragma unroll
    for (int k = 0; k < kPackets; ++k) before[k] = own[k];
  }
  if (!wait_for_seals<kWorld>(p, epoch)) return;
  sweep(p, epoch, 0);
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_ROUNDS_CUH_
