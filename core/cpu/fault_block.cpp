#include "core/cpu/fault_block.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/deadline.h"

namespace symm::cpu {
namespace {

enum Phase : uint64_t { kWriting = 1, kSet = 2 };

// rank + 1 in the upper half, -status in bits 8 to 31, phase in bits 0 to 7.
uint64_t pack(const Fault& fault, Phase phase) {
  return uint64_t{static_cast<uint32_t>(fault.rank + 1)} << 32 |
         uint64_t{static_cast<uint32_t>(-fault.status) & 0xffffff} << 8 | phase;
}

Fault unpack(uint64_t state) {
  Fault fault;
  fault.rank = static_cast<int>(static_cast<uint32_t>(state >> 32)) - 1;
  fault.status = static_cast<symm_status>(-static_cast<int>(state >> 8 & 0xffffff));
  return fault;
}

Phase phase_of(uint64_t state) { return static_cast<Phase>(state & 0xff); }

// A text of kFaultText bytes takes a microsecond to write, a raiser that lost its CPU some slices.
constexpr auto kTextPatience = std::chrono::milliseconds(100);

}  // namespace

bool raise(FaultBlock& block, const Fault& fault) {
  uint64_t none = 0;
  // Relaxed: it publishes nothing but itself; the text is published by the store below.
  if (!block.state.compare_exchange_strong(none, pack(fault, kWriting),
                                           std::memory_order_relaxed)) {
    return false;
  }
  block.length = std::min(fault.message.size(), kFaultText);
  std::memcpy(block.text, fault.message.data(), block.length);
  block.state.store(pack(fault, kSet), std::memory_order_release);
  return true;
}

std::optional<Fault> read(const FaultBlock& block) {
  uint64_t state = block.state.load(std::memory_order_acquire);
  if (state == 0) return std::nullopt;
  const Deadline patience(Clock::now() + kTextPatience);
  while (phase_of(state) != kSet && !patience.passed()) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    state = block.state.load(std::memory_order_acquire);
  }
  Fault fault = unpack(state);
  if (phase_of(state) == kSet) {
    fault.message.assign(block.text, std::min<size_t>(block.length, kFaultText));
  } else {
    fault.message =
        text("the rank that found ", status_name(fault.status), " died before it could say why",
             fault.rank == kNoRank ? "" : text("; it blamed rank ", fault.rank));
  }
  return fault;
}

}  // namespace symm::cpu
