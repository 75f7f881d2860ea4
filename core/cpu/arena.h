// The arena of one communicator: what lies where, as a pure function of EngineOptions.
//
// Order: fault block, doorbells, call records, slot words, then per algorithm the memory that the
// table of algorithms uses for this number of ranks. The head (one page for up to 40 ranks or so)
// is touched by every call; of the rest only pages that a message reaches are ever touched, so that
// a sparse memfd costs what is used.
#ifndef SYMM_CORE_CPU_ARENA_H_
#define SYMM_CORE_CPU_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "core/cpu/engine.h"

namespace symm::cpu {

constexpr size_t kLineBytes = 64;  // bytes that move between cores together
constexpr size_t kPageBytes = 4096;
constexpr size_t kInlineBytes = 56;  // payload beside the word in its line

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Words are read and written by several processes: only lock-free atomics work there.
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// A word with a small payload in its line. Whoever writes the line writes the payload first.
struct alignas(kLineBytes) WordLine {
  std::atomic<uint64_t> word;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(WordLine) == kLineBytes);

// What a slot's owner says, by bank: its operand is there, its share's result is there.
struct SlotWords {
  WordLine operand[2];
  WordLine result[2];
};

// Sizes that depend on how much memory there is; 0: this number of ranks does not use it.
struct ArenaAreas {
  size_t line_payload = 0;  // bytes a rank and bank
  size_t box_payload = 0;   // bytes a box
  size_t slot_operand = 0;  // bytes a rank and bank
};

struct ArenaLayout {
  int size = 1;
  ArenaAreas areas;
  size_t slot_result = 0;  // bytes a rank and bank

  // Offsets.
  size_t fault = 0;
  size_t doorbells = 0;
  size_t records = 0;
  size_t lines = 0;
  size_t slot_words = 0;
  size_t line_payloads = 0;
  size_t boxes = 0;
  size_t slots = 0;
  size_t total = 0;

  size_t box_stride() const { return round_up(kLineBytes + areas.box_payload, kPageBytes); }
  size_t slot_stride() const {
    return round_up(2 * (areas.slot_operand + slot_result), kPageBytes);
  }
};

// Areas as large as scratch_bytes allows, up to what measured best. Throws as arena_bytes() does.
ArenaLayout arena_layout(const EngineOptions& options);

struct FaultBlock;
struct Record;

struct Box {
  WordLine* line = nullptr;
  std::byte* data = nullptr;
};

// Typed addresses in one mapping of an arena.
class Arena {
 public:
  Arena(std::byte* base, const ArenaLayout& layout) : base_(base), layout_(layout) {}

  const ArenaLayout& layout() const { return layout_; }
  int size() const { return layout_.size; }

  FaultBlock& fault() const;
  Record& record(int rank) const;
  std::atomic<uint32_t>& doorbell(int rank) const {
    return at<std::atomic<uint32_t>>(layout_.doorbells)[rank];
  }

  WordLine& line(int bank, int rank) const {
    return at<WordLine>(layout_.lines)[static_cast<size_t>(bank) * size() + rank];
  }
  std::byte* line_payload(int bank, int rank) const {
    return base_ + layout_.line_payloads +
           (static_cast<size_t>(bank) * size() + rank) * layout_.areas.line_payload;
  }

  // Box `which` (0 or 1) of the pair of ranks {a, b}.
  Box box(int a, int b, int which) const;

  SlotWords& slot_words(int rank) const { return at<SlotWords>(layout_.slot_words)[rank]; }
  std::byte* slot_operand(int bank, int rank) const {
    return slot(rank) + bank * layout_.areas.slot_operand;
  }
  std::byte* slot_result(int bank, int rank) const {
    return slot(rank) + 2 * layout_.areas.slot_operand + bank * layout_.slot_result;
  }

 private:
  // A fresh mapping is zero, which is the value of every atomic and array that starts there.
  template <class T>
  T* at(size_t offset) const {
    return std::launder(reinterpret_cast<T*>(base_ + offset));
  }
  std::byte* slot(int rank) const {
    return base_ + layout_.slots + static_cast<size_t>(rank) * layout_.slot_stride();
  }

  std::byte* base_;
  ArenaLayout layout_;
};

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_ARENA_H_
