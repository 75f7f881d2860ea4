// The fault that ended a communicator, in the arena where every rank finds it.
#ifndef SYMM_CORE_CPU_FAULT_BLOCK_H_
#define SYMM_CORE_CPU_FAULT_BLOCK_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "core/cpu/arena.h"
#include "core/cpu/engine.h"

namespace symm::cpu {

constexpr size_t kFaultText = 1000;

// state goes 0 -> being written -> set, once. Status and rank are in the state itself, so that a
// raiser that dies while it writes the text costs the text only.
struct alignas(kLineBytes) FaultBlock {
  std::atomic<uint64_t> state;
  uint64_t length;
  char text[kFaultText];
};

// False: another fault was there before. A longer message is cut.
bool raise(FaultBlock& block, const Fault& fault);

// Whether there is a fault, for places that look often. Relaxed: read() acquires.
inline bool raised(const FaultBlock& block) {
  return block.state.load(std::memory_order_relaxed) != 0;
}

// Waits a moment for a text that is just being written.
std::optional<Fault> read(const FaultBlock& block);

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_FAULT_BLOCK_H_
