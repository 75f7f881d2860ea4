// The call record: what a rank is in, published by every collective call before its first wait and
// read by peers that have waited for long. It is how ranks in different algorithms, which look at
// different memory, find out that they called different things.
#ifndef SYMM_CORE_CPU_RECORD_H_
#define SYMM_CORE_CPU_RECORD_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "core/call.h"
#include "core/cpu/arena.h"

namespace symm::cpu {

// A sequence lock with one writer, the rank itself, in one line that peers read only when something
// is late. All members are atomics, and the orders are those of the loads and stores themselves (no
// fences): a reader that got any field of a newer call has acquired that field's store, before
// which the head was marked as being written, so its second look at the head cannot see the old
// one.
struct alignas(kLineBytes) Record {
  std::atomic<uint64_t> head;  // epoch << 32 | phase
  std::atomic<uint64_t> kind;  // form | dtype + 1 << 8 | op + 1 << 16
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> window;
  std::atomic<uint64_t> offset;
  std::atomic<uint64_t> left;  // 1: this rank will take no further part
};
static_assert(sizeof(Record) == kLineBytes);

struct Published {
  uint32_t epoch = 0;
  Call call;
};

enum RecordPhase : uint32_t { kNothing = 0, kWriting = 1, kValid = 2 };

constexpr uint64_t record_head(uint32_t epoch, RecordPhase phase) {
  return uint64_t{epoch} << 32 | phase;
}

// Inline, as every call does it.
inline void publish(Record& record, uint32_t epoch, const Call& call) {
  const uint64_t kind = static_cast<uint64_t>(call.form) |
                        static_cast<uint64_t>(call.dtype + 1) << 8 |
                        static_cast<uint64_t>(call.op + 1) << 16;
  // Relaxed: the release stores below carry it along.
  record.head.store(record_head(epoch, kWriting), std::memory_order_relaxed);
  record.kind.store(kind, std::memory_order_release);
  record.count.store(call.count, std::memory_order_release);
  record.window.store(call.window, std::memory_order_release);
  record.offset.store(call.offset, std::memory_order_release);
  record.head.store(record_head(epoch, kValid), std::memory_order_release);
}

// Nothing: no call yet, or one is just being written (the next look will find it).
std::optional<Published> read(const Record& record);

// Whether the rank of this record has called `epoch` or a later one. Ranks of a communicator are at
// most one call apart, so 32 bits compared as a circle are enough.
bool has_reached(const Record& record, uint32_t epoch);

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_RECORD_H_
