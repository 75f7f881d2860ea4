// All-reduce of large messages among more than two ranks: every rank owns a share of the packets,
// gets that share of every peer's input, reduces it, and sends the result to every peer. 2 (N - 1)
// / N times the message leaves each GPU, instead of N - 1 times. Packed packets both ways, no
// barrier.
//
// A part of a bank is halved: inputs arrive in its first half, results in its second, both by the
// packet's index in its owner's share. A result is never the poison: a computed NaN is all ones.
//
// Rounds as in rounds.cuh, in a bounded grid: scatter round j, reduce round j - 1, gather round
// j - 2. A thread deals with the same index of every share. In place is safe: it has read each of
// its packets before it stores any output of that round, its own share's when it reduces it.
#ifndef SYMM_KERNELS_CUDA_TWO_SHOT_CUH_
#define SYMM_KERNELS_CUDA_TWO_SHOT_CUH_

#include <cstdint>

#include "kernels/cuda/rounds.cuh"

namespace symm::cuda {

template <class Kind, bool kSum, int kWorld>
class TwoShot {
 public:
  __device__ __forceinline__ explicit TwoShot(const Params& p)
      : p_(p),
        message_(message_of<Kind>(p)),
        size_(kWorld != 0 ? kWorld : p.size),
        share_((message_.packets + size_ - 1) / size_) {}

  __device__ __forceinline__ void run() {
    const uint32_t stride = gridDim.x * blockDim.x;
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t rounds = (share_ + stride - 1) / stride;
    std::byte* own_arena = p_.own;
    const Publication<kWorld> publication(p_);

    wait_for_predecessor();
    const Beginning beginning = begin(of_this_thread(own_arena));
    if (beginning.aborted != 0) return;
    epoch_ = beginning.epoch();
    const Slots<kWorld> slots(p_, size_, epoch_);
    publication.send(p_, epoch_);

    for (uint32_t round = 0; round < rounds + 2; ++round) {
      const uint32_t index = round * stride + thread;
      if (round < rounds && index < share_) scatter(slots, index);
      if (round >= 1 && round <= rounds) {
        const uint32_t one = index - stride;
        if (one < share_ && !reduce(slots, one)) return;
      }
      if (round == rounds) {
        allow_successor();
        advance(own_arena, epoch_);
      }
      if (round >= 2) {
        const uint32_t two = index - 2 * stride;
        if (two < share_ && !gather(slots, two)) return;
      }
    }
    if (!wait_for_seals<kWorld>(p_, epoch_)) return;
    sweep(p_, epoch_, 0);
  }

 private:
  // The place in the message of a share's packet; at or past the end for the last shares' last.
  __device__ __forceinline__ uint32_t global(int owner, uint32_t index) const {
    return owner * share_ + index;
  }
  __device__ __forceinline__ uint64_t result_slot(uint32_t index) const {
    return p_.layout.packed_part / kPacketBytes / 2 + index;
  }

  __device__ __forceinline__ void scatter(const Slots<kWorld>& slots, uint32_t index) const {
    constexpr int kAtOnce = kWorld != 0 ? kWorld : 1;
#pragma unroll kAtOnce
    for (int i = 0; i < size_ - 1; ++i) {
      const uint32_t packet = global(rank_of_peer(i, p_.rank), index);
      if (packet >= message_.packets) continue;
      send_packed<Kind>(slots.to(i, index), slots.escape, load_packet<Kind>(message_, packet),
                        epoch_);
    }
  }

  __device__ __forceinline__ bool reduce(const Slots<kWorld>& slots, uint32_t index) const {
    const uint32_t packet = global(p_.rank, index);
    if (packet >= message_.packets) return true;
    uint4 result;
    if (!receive_and_reduce<Kind, kSum, kWorld>(p_, slots, epoch_, index,
                                                load_packet<Kind>(message_, packet), result)) {
      return false;
    }
    for (int i = 0; i < size_ - 1; ++i) {
      send_packed<Kind>(slots.to(i, result_slot(index)), slots.escape, result, epoch_);
    }
    store_packet<Kind>(message_, packet, result);
    return true;
  }

  __device__ __forceinline__ bool gather(const Slots<kWorld>& slots, uint32_t index) const {
    for (int i = 0; i < size_ - 1; ++i) {
      const int owner = rank_of_peer(i, p_.rank);
      const uint32_t packet = global(owner, index);
      if (packet >= message_.packets) continue;
      std::byte* from = slots.from(i, result_slot(index));
      uint4 result;
      if (!receive_packed<Kind>(p_, epoch_, owner, from, slots.escape, result)) return false;
      store_packet<Kind>(message_, packet, result);
    }
    return true;
  }

  const Params& p_;
  Message message_;
  int size_;
  uint32_t share_;
  uint32_t epoch_ = 0;
};

template <class Kind, bool kSum, int kWorld>
__device__ __forceinline__ void two_shot(const Params& p) {
  TwoShot<Kind, kSum, kWorld>(p).run();
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_TWO_SHOT_CUH_
