// All-reduce in packed packets by a grid of bounded size, for messages whose whole grid would keep
// other ranks' or communicators' kernels off the GPU: each thread sends its packet of round j, and
// then receives the packets of round j - 1. One packet a thread and round, and the input of round j
// - 1 is read again rather than kept: what counts is threads, and registers bound their number.
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

  // Where this rank's packets for its peer number i go.
  __device__ __forceinline__ std::byte* to(int i, uint64_t index) const {
    const int part = part_of<kWorld>(p.rank, rank_of_peer(i, p.rank));
    return p.peers[i] + bank + part * p.layout.packed_part + index * kPacketBytes;
  }
  // Where those of its peer number i arrive.
  __device__ __forceinline__ std::byte* from(int i, uint64_t index) const {
    return p.own + bank + i * p.layout.packed_part + index * kPacketBytes;
  }
};

// Receives packet `index` of every peer and reduces it with this rank's own. False: failed.
template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ bool receive_and_reduce(const Params& p, const Slots<kWorld>& slots,
                                                   uint32_t epoch, uint64_t index, uint4 own,
                                                   uint4& result) {
  const uint64_t part = p.layout.packed_part;
  std::byte* mine = slots.from(0, index);
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

template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ void packed_rounds(const Params& p) {
  const int size = kWorld != 0 ? kWorld : p.size;
  const Message message = message_of<Kind>(p);
  const uint32_t stride = gridDim.x * blockDim.x;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t rounds = (message.packets + stride - 1) / stride;
  std::byte* own_arena = p.own;
  const Publication<kWorld> publication(p);

  wait_for_predecessor();
  const Beginning beginning = begin(of_this_thread(own_arena));
  if (beginning.aborted != 0) return;
  const uint32_t epoch = beginning.epoch();
  const Slots<kWorld> slots(p, size, epoch);
  publication.send(p, epoch);

  for (uint32_t round = 0;; ++round) {
    const uint32_t index = round * stride + thread;
    if (round < rounds) {
      if (index < message.packets) {
        const uint4 own = load_packet<Kind>(message, index);
#pragma unroll
        for (int i = 0; i < (kWorld != 0 ? kWorld : size) - 1; ++i) {
          send_packed<Kind>(slots.to(i, index), slots.escape, own, epoch);
        }
      }
    } else {
      allow_successor();
      advance(own_arena, epoch);
    }
    if (round > 0 && index - stride < message.packets) {
      const uint4 own = load_packet<Kind>(message, index - stride);
      uint4 result;
      if (!receive_and_reduce<Kind, kSum, kWorld>(p, slots, epoch, index - stride, own, result)) {
        return;
      }
      store_packet<Kind>(message, index - stride, result);
    }
    if (round >= rounds) break;
  }
  if (!wait_for_seals<kWorld>(p, epoch)) return;
  sweep(p, epoch, 0);
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_ROUNDS_CUH_
