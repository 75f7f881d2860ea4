#include "core/cpu/record.h"

namespace symm::cpu {
namespace {

constexpr uint32_t epoch_of(uint64_t head) { return static_cast<uint32_t>(head >> 32); }
constexpr uint32_t phase_of(uint64_t head) { return static_cast<uint32_t>(head); }

void unpack_kind(uint64_t kind, Call* call) {
  call->form = static_cast<Form>(kind & 0xff);
  call->dtype = static_cast<symm_dtype>(static_cast<int>(kind >> 8 & 0xff) - 1);
  call->op = static_cast<symm_op>(static_cast<int>(kind >> 16 & 0xff) - 1);
}

}  // namespace

std::optional<Published> read(const Record& record) {
  const uint64_t before = record.head.load(std::memory_order_acquire);
  if (phase_of(before) != kValid) return std::nullopt;
  Published published;
  published.epoch = epoch_of(before);
  unpack_kind(record.kind.load(std::memory_order_acquire), &published.call);
  published.call.count = record.count.load(std::memory_order_acquire);
  published.call.window = record.window.load(std::memory_order_acquire);
  published.call.offset = record.offset.load(std::memory_order_acquire);
  // Relaxed: the acquire loads above keep it behind them.
  if (record.head.load(std::memory_order_relaxed) != before) return std::nullopt;
  return published;
}

bool has_reached(const Record& record, uint32_t epoch) {
  const uint64_t now = record.head.load(std::memory_order_acquire);
  if (phase_of(now) == kNothing) return false;
  return static_cast<int32_t>(epoch_of(now) - epoch) >= 0;
}

}  // namespace symm::cpu
