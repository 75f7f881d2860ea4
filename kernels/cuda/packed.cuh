// All-reduce in packed packets (slots.cuh), one a thread, the whole grid at once: for every message
// whose grid may be as large as that. No loop, no stride: a second packet a thread costs more than
// it saves.
//
// The packets do not carry the call, so the first warp of the grid waits for the peers' seals in
// the same loop as for its packets.
#ifndef SYMM_KERNELS_CUDA_PACKED_CUH_
#define SYMM_KERNELS_CUDA_PACKED_CUH_

#include <cstdint>

#include "kernels/cuda/operation.cuh"
#include "kernels/cuda/operations.cuh"
#include "kernels/cuda/slots.cuh"

namespace symm::cuda {

template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ void packed(const Params& p) {
  const int size = kWorld != 0 ? kWorld : p.size;
  const int rank = p.rank;
  const uint32_t index = packet_index(p.flags);
  const uint64_t bytes = p.count * Kind::kElement;
  const auto packets = static_cast<uint32_t>((bytes + kPacketBytes - 1) / kPacketBytes);
  const bool active = index < packets;
  const uint64_t at = uint64_t{index} * kPacketBytes;
  const int valid = valid_of(bytes - at);  // where active

  const std::byte* input = p.input + at;
  const bool input_whole = is_aligned(input, 16) && valid == 16;
  std::byte* own_arena = p.own;
  const std::byte* control = of_this_thread(own_arena);
  const uint64_t part = p.layout.packed_part;
  const uint64_t slot = p.layout.packed + at;
  const uint64_t bank = (size - 1) * part;
  const uint64_t escape = p.layout.escape - p.layout.packed;
  const uint32_t hash = p.call_hash;
  // Addresses of the slots in the first bank.
  constexpr int kPeers = kWorld != 0 ? kWorld - 1 : 1;
  std::byte* theirs[kPeers];
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
  uint4 own = {0, 0, 0, 0};
  if (active) own = load_input<Kind::kElement>(input, valid, input_whole);
  if (__builtin_expect(beginning.aborted != 0, false)) return;
  const uint32_t epoch = beginning.epoch();
  const uint64_t in_bank = (epoch & 1) != 0 ? bank : 0;
  if (active) {
    if constexpr (kWorld != 0) {
#pragma unroll
      for (int i = 0; i < kPeers; ++i) send_packed<Kind>(theirs[i] + in_bank, escape, own, epoch);
    } else {
      for (int i = 0; i < size - 1; ++i) {
        const int r = rank_of_peer(i, rank);
        send_packed<Kind>(p.peers[i] + slot + in_bank + part_of<kWorld>(rank, r) * part, escape,
                          own, epoch);
      }
    }
  }
  publication.send(p, epoch);
  allow_successor();
  advance(own_arena, epoch);

  // Registers are scarce (all_reduce.cu): these take none while the sends are under way.
  const uint64_t place = uint64_t{again(index)} * kPacketBytes;
  std::byte* mine =
      own_arena + p.layout.packed + place + (again(epoch) & 1) * (size - 1) * p.layout.packed_part;
  uint4 result;
  if constexpr (kWorld != 0) {
    Received received[kPeers];
    const auto missing_peer = [&] { return missing_peer_of(received, rank); };
    if (is_watching()) {
      // A loop of its own: the others' is the shorter.
      const int watched = watched_peer<kWorld>(p);
      const uint32_t* seal = record_piece(p, epoch, watched, RecordSlot::kSeal);
      bool sealed;
      const bool complete = wait(
          p, epoch,
          [&] {
            // In flight together with the packets.
            const uint2 words = load_relaxed_half(seal);
            const bool all = !active || poll_packed<Kind>(received, mine, part, escape, epoch);
            sealed = words.x == hash && words.y == epoch;
            return all && sealed;
          },
          [&] { return sealed ? missing_peer() : watched; });
      if (!complete) return;
    } else if (active) {
      const bool complete = wait(
          p, epoch, [&] { return poll_packed<Kind>(received, mine, part, escape, epoch); },
          missing_peer);
      if (!complete) return;
    }
    if (active) {
      result = reduce_received<Kind, kSum, kWorld>(p, own, received, mine, part, escape);
    }
  } else {
    if (!wait_for_seals<kWorld>(p, epoch)) return;
    if (active && !reduce_in_turn<Kind, kSum>(p, epoch, own, mine, part, escape, result)) return;
  }
  if (active) {
    std::byte* output = p.output + place;
    const int left = valid_of(p.count * Kind::kElement - place);
    store_output<Kind::kElement>(output, result, left, is_aligned(output, 16) && left == 16);
  }
  sweep(p, epoch, 0);
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_PACKED_CUH_
