// What host and device code agree on: the memory that ranks share, a kernel's parameters, the error
// record. Plain data; no CUDA header, so that host code is plain C++.
#ifndef SYMM_KERNELS_CUDA_ABI_H_
#define SYMM_KERNELS_CUDA_ABI_H_

#include <cstddef>
#include <cstdint>

namespace symm::cuda {

constexpr int kMostRanks = 32;  // of a communicator of GPUs

// The word that no packed packet carries where readers look: a slot that holds it is empty. Even,
// as the escape stands for it and for the word after it. As fp16, bf16, fp32 or the upper half of
// an fp64 it is a NaN, and so is the word after it.
constexpr uint32_t kPoison = 0xFFFAFFFAu;

// What a rank called, as its peers see it. Equal on every rank, or it is a MISMATCH.
struct CallRecord {
  uint64_t kind;    // form | algorithm << 8 | dtype + 1 << 16 | op + 1 << 32
  uint64_t count;   // elements of the whole call
  uint64_t window;  // the window's number in its communicator
  uint64_t offset;  // bytes
};

// One published record. Every 64-bit half of a piece is {32 bits, epoch}, so that relaxed stores
// and loads of 64 bits see data and epoch together. Pieces 0 to 3: the fields of CallRecord, low
// half and high half. Piece 4, the seal: the record's hash.
struct alignas(128) RecordSlot {
  static constexpr int kPieces = 5;
  static constexpr int kSeal = 4;
  uint32_t pieces[kPieces][4];
};

// At the start of each rank's arena. Zeroed at creation.
struct alignas(128) Control {
  // Own kernels: the epoch of the last operation that this rank has begun and finished sending.
  // Never 0 once there was one: 2 follows 0xffffffff, which keeps the parities alternating.
  uint32_t epoch;
  // Own host, and peers' kernels: non-zero ends every wait and makes every later kernel return at
  // once. The value is -symm_status of the cause. Beside the epoch, as one load reads both. The
  // host's is a copy of ErrorRecord::abort.
  uint32_t abort;
  uint32_t ticket;  // own kernels: blocks of the running operation that have read the epoch
  uint32_t failed;  // own kernels: somebody is writing, or has written, the error record
  uint32_t pad[28];
  // Own host: non-zero once peer r has left cleanly. What it still had to send is here already.
  uint32_t left[kMostRanks];
  // Peers' kernels: what each rank called, by parity of the epoch.
  RecordSlot records[2][kMostRanks];
};

// In host-mapped memory, one a rank: written once, by whichever thread gives up first; but for
// `abort`, which is the host's to write.
struct alignas(64) ErrorRecord {
  uint32_t valid;   // written last, with release: the rest is there
  uint32_t status;  // -symm_status
  int32_t peer;     // the rank to blame, or -1
  uint32_t epoch;
  uint64_t waited_ns;
  CallRecord mine;
  CallRecord theirs;  // MISMATCH only; zeros where `peer` is -1
  // -symm_status of what ends this rank's waits. For waits that have lasted long: a copy to the GPU
  // waits for the driver, which may be held by a call that waits for the kernel (a cudaFree, say).
  alignas(64) uint32_t abort;
};

// Byte offsets from the base of an arena; the same on every rank. An area has two banks by parity
// of the epoch, and in each a part for every other rank: sender s writes to rank r's part
// bank * (size - 1) + (s < r ? s : s - 1), but for low latency, whose banks lie apart.
struct Layout {
  uint64_t low_latency;  // zeroed at creation
  uint64_t low_latency_part;
  // From the first bank to the second, which is at the far end: side by side the smallest
  // operations took 0.1 us longer on H200.
  uint64_t low_latency_bank;
  uint64_t packed;  // filled with kPoison at creation (32-bit words), and again after every packet
  uint64_t packed_part;
  uint64_t packed_bytes;  // of the whole area: what is to be poisoned
  uint64_t escape;  // zeroed at creation; slots as in `packed`: true words where it has poison
  uint64_t bytes;   // of the whole arena
};

// Of every kernel, by value in a __grid_constant__ parameter. The first touch of each 64 bytes of
// the constant bank is slow, and parameters begin 16 bytes into such a line: what the smallest
// operations of two ranks need is in the first 48 bytes, in `layout`, and in what follows it.
struct Params {
  const std::byte* input;  // of this launch's part; aligned to the element at least
  std::byte* output;       // the same as `input`, or disjoint
  uint64_t count;          // elements of this launch's part
  uint32_t call_hash;      // of `call`
  uint32_t flags;          // Launch::flags
  // Arenas as this rank's GPU sees them: its own, and its peers' in the order of their ranks,
  // without a gap for its own.
  std::byte* own;
  std::byte* peers[kMostRanks - 1];
  uint64_t timeout_ns;  // of one wait
  ErrorRecord* error;   // the device's address of host-mapped memory
  Layout layout;
  CallRecord call;  // of the whole call
  int32_t rank;
  int32_t size;
  int32_t op;
  int32_t reserved;  // 0
};
static_assert(offsetof(Params, layout) % 64 == 48 && sizeof(Layout) == 64);

enum LaunchFlags : uint32_t {
  // Only lanes 0 to 7 of a warp carry a packet: one 128-byte line a warp's store.
  kEightLanes = 1,
};

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_ABI_H_
