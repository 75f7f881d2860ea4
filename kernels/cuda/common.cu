// Kernels that no dtype matters to: the barrier, and the all-reduce of one rank.
#include "kernels/cuda/operation.cuh"

namespace symm::cuda {

// One block of a warp; lane r deals with peer r. The seals are released and acquired: what this
// rank stored before, to windows too, is seen by whatever follows on the peer's stream. Kernel
// boundaries order the stores of earlier kernels before the release, and release is cumulative.
extern "C" __global__ void __launch_bounds__(32) symm_barrier(const __grid_constant__ Params p) {
  const int peer = static_cast<int>(threadIdx.x);
  std::byte* own_arena = p.own;
  wait_for_predecessor();
  const Beginning beginning = begin(of_this_thread(own_arena));
  if (beginning.aborted != 0) return;
  const uint32_t epoch = beginning.epoch();
  const bool has_peer = peer < p.size && peer != p.rank;
  if (has_peer) {
    RecordSlot& record = control_of(p, peer)->records[epoch & 1][p.rank];
    const uint64_t* fields = &p.call.kind;
#pragma unroll
    for (int piece = 0; piece < RecordSlot::kSeal; ++piece) {
      const auto low = static_cast<uint32_t>(fields[piece]);
      const auto high = static_cast<uint32_t>(fields[piece] >> 32);
      store_relaxed(reinterpret_cast<std::byte*>(record.pieces[piece]), {low, epoch, high, epoch});
    }
    store_release_half(record.pieces[RecordSlot::kSeal], {p.call_hash, epoch});
  }
  allow_successor();
  advance(own_arena, epoch);
  if (has_peer) {
    const bool complete = wait(
        p, epoch,
        [&] {
          const uint2 seal = load_acquire_half(record_piece(p, epoch, peer, RecordSlot::kSeal));
          return seal.x == p.call_hash && seal.y == epoch;
        },
        [&] { return peer; });
    if (!complete) return;
  }
  sweep(p, epoch, 0);
}

// log2 of an element's bytes, two bits a dtype in symm_dtype's order.
constexpr uint32_t kElementShifts = 0b0000'01'11'10'01'11'11'10'10'00'00;

// Any dtype, as bytes; nothing to do in place. Counts as an operation: the epoch advances.
extern "C" __global__ void __launch_bounds__(256) symm_copy(const __grid_constant__ Params p) {
  const auto dtype = static_cast<uint32_t>(p.call.kind >> 16 & 0xffff) - 1;
  const uint64_t bytes = p.count << (kElementShifts >> (2 * dtype) & 3);
  const uint64_t packets = (bytes + kPacketBytes - 1) / kPacketBytes;
  std::byte* own_arena = p.own;
  wait_for_predecessor();
  const Beginning beginning = begin(of_this_thread(own_arena));
  if (beginning.aborted != 0) return;
  allow_successor();
  advance(own_arena, beginning.epoch());
  if (p.input == p.output) return;
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packets; i += stride) {
    const uint64_t at = i * kPacketBytes;
    const int valid = valid_of(bytes - at);
    const std::byte* from = p.input + at;
    std::byte* to = p.output + at;
    const uint4 v = load_input<1>(from, valid, is_aligned(from, 16) && valid == 16);
    store_output<1>(to, v, valid, is_aligned(to, 16) && valid == 16);
  }
}

}  // namespace symm::cuda
