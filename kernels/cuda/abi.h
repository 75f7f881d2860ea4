// What host and device code agree on: the memory that ranks share, a kernel's parameters, the error
// record. Plain data; no CUDA header, so that host code is plain C++.
#ifndef SYMM_KERNELS_CUDA_ABI_H_
#define SYMM_KERNELS_CUDA_ABI_H_

#include <cstddef>
#include <cstdint>

namespace symm::cuda {

constexpr int kMostRanks = 32;  // of a communicator of GPUs

// What a rank called, as its peers see it. Equal on every rank, or it is a MISMATCH.
struct CallRecord {
  uint64_t kind;    // form | algorithm << 8 | dtype + 1 << 16 | op + 1 << 32
  uint64_t count;   // elements of the whole call
  uint64_t window;  // the window's number in its communicator
  uint64_t offset;  // bytes
};

// One published record: every 64-bit half is {epoch, half of a field}, so that relaxed stores and
// loads of 64 bits are enough to see data and epoch together.
struct alignas(64) RecordSlot {
  uint64_t halves[8];  // (epoch << 32) | 32 bits: low and high of kind, count, window, offset
};

// At the start of each rank's arena. Zeroed at creation.
struct alignas(128) Control {
  // Own kernels only.
  uint32_t epoch;   // of the last operation that this rank has begun and finished sending
  uint32_t ticket;  // blocks of the running operation that have read the epoch
  uint32_t busy;    // an operation is running: a second one is a violated order
  uint32_t pad0[29];
  // Own host, and peers' kernels: non-zero ends every wait and makes every later kernel return at
  // once. The value is -symm_status of the cause.
  uint32_t abort;
  uint32_t pad1[31];
  // Own host: peer r has left cleanly. What it still had to send is here already.
  uint32_t left[kMostRanks];
  // Peers' kernels: what each rank called, by parity of the epoch.
  RecordSlot records[2][kMostRanks];
};

// In host-mapped memory, one a rank: written once, by whichever thread gives up first.
struct alignas(64) ErrorRecord {
  uint32_t claimed;  // by a kernel, with an atomic of the system's scope
  uint32_t valid;    // written last, with release: the rest is there
  uint32_t status;   // -symm_status
  int32_t peer;      // the rank to blame, or -1
  uint32_t epoch;
  uint32_t pad;
  uint64_t waited_ns;
  CallRecord mine;
  CallRecord theirs;  // MISMATCH only
};

// Byte offsets from the base of an arena; the same on every rank. Areas hold one part a sending
// rank, in two banks by parity of the epoch.
struct Layout {
  uint64_t low_latency;     // part of sender s in bank b: low_latency + (b * size + s) * low_latency_part
  uint64_t low_latency_part;
  uint64_t packed;          // the same; kept poisoned between operations
  uint64_t packed_part;
  uint64_t escape;          // true words where the data holds the poison
  uint64_t escape_part;
  uint64_t bytes;           // of the whole arena
};

// Of every kernel, by value in a __grid_constant__ parameter.
struct Params {
  const std::byte* input;   // of this launch's part
  std::byte* output;
  uint64_t count;           // elements of this launch's part
  uint64_t timeout_ns;
  ErrorRecord* error;       // the device's address of host-mapped memory
  std::byte* arena[kMostRanks];  // of every rank, as this rank's GPU sees them; own one too
  Layout layout;
  CallRecord call;          // of the whole call
  uint32_t call_hash;       // of `call`
  uint32_t flags;           // see LaunchFlags
  int32_t rank;
  int32_t size;
  int32_t op;
  int32_t part;             // number of this launch among those of its call
};

enum LaunchFlags : uint32_t {
  kLastPart = 1,
};

}  // namespace symm::cuda

#endif  // SYMM_KERNELS_CUDA_ABI_H_
