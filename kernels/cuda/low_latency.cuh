// All-reduce for the smallest messages: packets of 8 bytes of data and two flags,
//   {data, epoch, data, epoch ^ hash of the call}.
// Each flag shares 64 bits with the data it vouches for. Any bits may be sent, nothing is cleared,
// and a peer that called something else is one whose second flag never comes: no wait for its seal.
// That is why this form is the fastest while twice the bytes cost nothing.
//
// The epoch alone is not enough for both flags: calls that differ between ranks would be reduced
// together. It is enough for one, as no two operations of one bank within 2^31 share it.
#ifndef SYMM_KERNELS_CUDA_LOW_LATENCY_CUH_
#define SYMM_KERNELS_CUDA_LOW_LATENCY_CUH_

#include <cstdint>

#include "kernels/cuda/operation.cuh"
#include "kernels/cuda/operations.cuh"

namespace symm::cuda {

__device__ __forceinline__ bool has_flags(uint4 packet, uint32_t first, uint32_t second) {
  return packet.y == first && packet.w == second;
}

// kWorld: ranks, or 0 for any number.
template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ void low_latency(const Params& p) {
  const int size = kWorld != 0 ? kWorld : p.size;
  const int rank = p.rank;
  const uint32_t index = packet_index(p.flags);
  const uint64_t bytes = p.count * Kind::kElement;
  const auto packets = static_cast<uint32_t>((bytes + 7) / 8);
  const bool active = index < packets;
  const uint64_t at = uint64_t{index} * 8;
  // Of this packet, where active.
  const int valid = bytes - at < 8 ? static_cast<int>(bytes - at) : 8;

  const std::byte* input = p.input + at;
  std::byte* output = p.output + at;
  std::byte* own_arena = p.own;
  const std::byte* control = of_this_thread(own_arena);
  uint64_t part = p.layout.low_latency_part;
  uint64_t slot = p.layout.low_latency + uint64_t{index} * kPacketBytes;
  uint64_t bank = p.layout.low_latency_bank;
  uint32_t hash = p.call_hash;
  // Addresses of the slots in the first bank.
  const bool input_whole = is_aligned(input, 8) && valid == 8;
  constexpr int kPeers = kWorld != 0 ? kWorld - 1 : 1;
  std::byte* theirs[kPeers];
  const std::byte* mine = own_arena + slot;
  if constexpr (kWorld != 0) {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) {
      theirs[i] = p.peers[i] + slot + part_of<kWorld>(rank, rank_of_peer(i, rank)) * part;
    }
  }
  const Publication<kWorld> publication(p);
  uint64_t addresses = 0;
  if constexpr (kWorld != 0) {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) addresses |= reinterpret_cast<uint64_t>(theirs[i]);
  }
  if (are_all_zero(input, control, bank, addresses, valid, input_whole, active,
                   publication.touch())) {
    return;
  }

  wait_for_predecessor();
  const Beginning beginning = begin(control);
  uint2 own[1] = {{0, 0}};
  if (active) own[0] = load_input_half<Kind::kElement>(input, valid, input_whole);
  if (__builtin_expect(beginning.aborted != 0, false)) return;
  const uint32_t epoch = beginning.epoch();
  const uint32_t second = epoch ^ hash;
  const uint64_t in_bank = (epoch & 1) != 0 ? bank : 0;
  if (active) {
    const uint4 packet{own[0].x, epoch, own[0].y, second};
    if constexpr (kWorld != 0) {
#pragma unroll
      for (int i = 0; i < kPeers; ++i) store_relaxed(theirs[i] + in_bank, packet);
    } else {
      for (int i = 0; i < size - 1; ++i) {
        const int r = rank_of_peer(i, rank);
        store_relaxed(p.peers[i] + slot + in_bank + part_of<kWorld>(rank, r) * part, packet);
      }
    }
  }
  publication.send(p, epoch);
  allow_successor();
  advance(own_arena, epoch);

  if (active) {
    mine += in_bank;
    Accumulator<Kind, kSum, 1> accumulator;
    if constexpr (kWorld != 0) {
      uint4 packet[kPeers];
      // All peers' slots in flight together.
      const bool complete = wait(
          p, epoch,
          [&] {
            bool all = true;
#pragma unroll
            for (int i = 0; i < kPeers; ++i) packet[i] = load_relaxed(mine + i * part);
#pragma unroll
            for (int i = 0; i < kPeers; ++i) all &= has_flags(packet[i], epoch, second);
            return all;
          },
          [&] {
            int peer = kPeers - 1;
#pragma unroll
            for (int i = kPeers - 2; i >= 0; --i) {
              if (!has_flags(packet[i], epoch, second)) peer = i;
            }
            return peer < rank ? peer : peer + 1;
          });
      if (!complete) return;
#pragma unroll
      for (int r = 0; r < kWorld; ++r) {
        // Peer r is number r, or r - 1 past this rank; constant indices keep them in registers.
        const uint4 before = packet[r < kPeers ? r : kPeers - 1];
        const uint4 after = packet[r > 0 ? r - 1 : 0];
        const uint4 theirs_at = r < rank ? before : after;
        const uint2 operand[1] = {r == rank ? own[0] : uint2{theirs_at.x, theirs_at.z}};
        if (r == 0) {
          accumulator.start(operand);
        } else {
          accumulator.add(operand, p.op);
        }
      }
    } else {
      for (int r = 0; r < size; ++r) {
        uint2 operand[1] = {own[0]};
        if (r != rank) {
          uint4 packet;
          const bool complete = wait(
              p, epoch,
              [&] {
                packet = load_relaxed(mine + part_of<kWorld>(r, rank) * part);
                return has_flags(packet, epoch, second);
              },
              [&] { return r; });
          if (!complete) return;
          operand[0] = {packet.x, packet.z};
        }
        if (r == 0) {
          accumulator.start(operand);
        } else {
          accumulator.add(operand, p.op);
        }
      }
    }
    uint2 result[1];
    accumulator.finish(result, p.op, size);
    store_output_half<Kind::kElement>(output, result[0], valid,
                                      is_aligned(output, 8) && valid == 8);
  }
  // Nothing to send is a call like any other, but it brings no packet that says so.
  if (packets == 0 && !wait_for_seals<kWorld>(p, epoch)) return;
  sweep(p, epoch, packets);
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_LOW_LATENCY_CUH_
