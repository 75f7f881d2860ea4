// What every operation does around its data, and why data in the shared banks is never mistaken for
// another operation's.
//
// The protocol. An operation has an epoch, one more than the one before, the same on every rank as
// every rank makes the same calls in the same order. It lives in device memory and advances there:
// a number from the host would be frozen into a CUDA graph. Each rank
//   1. waits for its predecessor on the stream, reads the epoch and, at the same time, its input;
//   2. stores packets into every peer's arena, into the bank of the epoch's parity;
//   3. publishes its call record to every peer, and lets the next kernel of the stream start;
//   4. advances the epoch once every block has read it;
//   5. polls its own arena for its peers' packets, reduces in rank order, stores the output.
//
// Why a bank is free when it is written. Let A and B be two ranks.
//   - Every operation k that B completes brought B something that A sent in operation k: packets of
//     low latency, or the seal of A's record, for which all other algorithms wait.
//   - A sends in operation k only after its wait for the predecessor, so after A's operation k - 1
//     has ended and its accesses are performed: A has read, and cleared where it clears, every slot
//     of bank k - 1.
//   - B writes to A's bank of that parity next in operation k + 1, which starts when B's operation
//   k
//     has ended, hence after A's sends of operation k, hence after those reads and clears.
// So two banks are enough, and no operation ends with a barrier. The edge from A's accesses to B's
// writes is: kernel boundary on A, a relaxed store seen by a relaxed load, kernel boundary on B.
// The model calls that an observation, not a synchronisation; the accesses on both ends are relaxed
// system-scope accesses of one slot, and both GPUs perform them at that slot's memory, in order.
// The same holds for the records, which have two banks as well.
//
// A word and what says that it is there share one aligned 64 bits, so relaxed accesses suffice: a
// reader that sees the one sees the other. Slots belong to packets, not to blocks, so grids may
// differ from operation to operation and from rank to rank.
//
// Low-latency flags are 32-bit epochs and are not cleared by readers: a slot could hold flags of
// the same epoch 2^32 operations ago. Every 2^31 operations each bank is swept (see `sweep`), and
// no epoch is 0, so that a swept slot matches none. Other slots are emptied by their readers.
#ifndef SYMM_KERNELS_CUDA_OPERATION_CUH_
#define SYMM_KERNELS_CUDA_OPERATION_CUH_

#include <cstdint>

#include "kernels/cuda/abi.h"
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/wait.cuh"

namespace symm::cuda {

constexpr int kPacketBytes = 16;

__device__ __forceinline__ uint32_t epoch_after(uint32_t epoch) {
  return epoch == 0xffffffffu ? 2 : epoch + 1;
}

// Where sender's part is among the parts of receiver's bank.
template <int kWorld>
__device__ __forceinline__ int part_of(int sender, int receiver) {
  if constexpr (kWorld == 2) return 0;
  return sender < receiver ? sender : sender - 1;
}

// The rank of params.peers[i].
__device__ __forceinline__ int rank_of_peer(int i, int own_rank) {
  return i < own_rank ? i : i + 1;
}

// What a thread reads first, together with its input.
struct Beginning {
  uint32_t previous;
  uint32_t aborted;

  __device__ __forceinline__ uint32_t epoch() const { return epoch_after(previous); }
};

// `control`: of_this_thread(the own arena).
__device__ __forceinline__ Beginning begin(const std::byte* control) {
  static_assert(offsetof(Control, epoch) == 0 && offsetof(Control, abort) == 4);
  const uint2 v = load_relaxed_half(control);
  return {v.x, v.y};
}

// The packet of this thread, or ~0 if it has none by its place.
__device__ __forceinline__ uint32_t packet_index(uint32_t flags) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if ((flags & kEightLanes) == 0) return thread;
  const uint32_t lane = threadIdx.x & 31;
  return lane < 8 ? (thread >> 5) * 8 + lane : ~0u;
}

// Where packets do not carry the call, the grid's first warp waits for the peers' seals as well.
__device__ __forceinline__ bool is_watching() { return blockIdx.x == 0 && threadIdx.x < 32; }

// The peer that a thread of that warp watches. All peers are watched by some thread; with two
// ranks, by every thread, which costs no more than by one.
template <int kWorld>
__device__ __forceinline__ int watched_peer(const Params& p) {
  if constexpr (kWorld == 2) return 1 - p.rank;
  const int peer = static_cast<int>(threadIdx.x);
  return peer < p.size && peer != p.rank ? peer : p.rank == 0 ? 1 : 0;
}

// The call record, published to every peer by the first lanes of the grid: a lane a piece.
template <int kWorld>
class Publication {
 public:
  // Before the wait for the predecessor: fetches the lane's piece from the parameters.
  __device__ __forceinline__ explicit Publication(const Params& p) : low_(p.call_hash), high_(0) {
    if (piece() >= RecordSlot::kSeal) return;
    const uint64_t field = (&p.call.kind)[piece()];
    low_ = static_cast<uint32_t>(field);
    high_ = static_cast<uint32_t>(field >> 32);
  }

  __device__ __forceinline__ uint32_t touch() const { return low_ | high_; }

  __device__ __forceinline__ void send(const Params& p, uint32_t epoch) const {
    if (piece() >= RecordSlot::kPieces) return;
    const uint32_t at = static_cast<uint32_t>(offsetof(Control, records)) +
                        (epoch & 1) * static_cast<uint32_t>(sizeof(Control::records[0])) +
                        p.rank * static_cast<uint32_t>(sizeof(RecordSlot)) + piece() * 16;
    const uint4 words{low_, epoch, high_, epoch};
    if constexpr (kWorld == 2) {
      store_relaxed(p.peers[0] + at, words);
    } else {
#pragma unroll 1
      for (int i = 0; i < p.size - 1; ++i) store_relaxed(p.peers[i] + at, words);
    }
  }

 private:
  // Of this thread; too large a number for those that have none.
  __device__ __forceinline__ static uint32_t piece() { return blockIdx.x == 0 ? threadIdx.x : ~0u; }

  uint32_t low_;
  uint32_t high_;
};

// Once every thread of the block has read the epoch and sent: the last block to say so advances it.
// Nobody reads it before this kernel has ended.
__device__ __forceinline__ void advance(std::byte* own_arena, uint32_t epoch) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  auto* own = reinterpret_cast<Control*>(own_arena);
  if (gridDim.x != 1) {
    if (atomicAdd(&own->ticket, 1u) != gridDim.x - 1) return;
    own->ticket = 0;
  }
  store_relaxed(&own->epoch, epoch);
}

// Whether the seal of a peer's record of this epoch and this call is here.
__device__ __forceinline__ bool is_sealed(const std::byte* own_arena, uint32_t epoch, uint32_t hash,
                                          int peer) {
  const auto* own = reinterpret_cast<const Control*>(own_arena);
  const uint2 seal = load_relaxed_half(own->records[epoch & 1][peer].pieces[RecordSlot::kSeal]);
  return seal.x == hash && seal.y == epoch;
}

// For algorithms whose packets do not carry the call. False: failed.
template <int kWorld>
__device__ __forceinline__ bool wait_for_seals(const Params& p, uint32_t epoch) {
  if (!is_watching()) return true;
  const int peer = watched_peer<kWorld>(p);
  return wait(
      p, epoch, [&] { return is_sealed(p.own, epoch, p.call_hash, peer); }, [&] { return peer; });
}

// Empties this parity's bank of low-latency slots, twice in 2^32 epochs and twice at the start: a
// slot's flags are then never older than that. `used`: packets of a low-latency operation that is
// running, whose slots are fresh and perhaps awaited. No peer writes to the others: what came in
// operations before has been read, and operation epoch + 2 cannot have begun (see the top).
__device__ __forceinline__ void sweep(const Params& p, uint32_t epoch, uint32_t used) {
  if (__builtin_expect((epoch & 0x7ffffffeu) != 2, true)) return;
  const auto slots = static_cast<uint32_t>(p.layout.low_latency_part / kPacketBytes);
  std::byte* bank = p.own + p.layout.low_latency + (epoch & 1) * p.layout.low_latency_bank;
  const uint32_t stride = gridDim.x * blockDim.x;
  for (int part = 0; part < p.size - 1; ++part) {
    for (uint32_t i = used + blockIdx.x * blockDim.x + threadIdx.x; i < slots; i += stride) {
      store_relaxed(bank + part * p.layout.low_latency_part + uint64_t{i} * kPacketBytes,
                    uint4{0, 0, 0, 0});
    }
  }
}

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_OPERATION_CUH_
