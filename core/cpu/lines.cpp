#include "core/cpu/lines.h"

#include "core/cpu/float_environment.h"

namespace symm::cpu {

Lines::Lines(const Arena& arena, uint32_t first_step, Waiter& waiter)
    : arena_(arena),
      waiter_(waiter),
      step_(first_step),
      sources_(static_cast<size_t>(arena.size())) {}

void Lines::one_shot(const Reduction& reduction) {
  const int me = waiter_.rank();
  const int size = waiter_.size();
  const uint32_t step = step_++;
  const int bank = static_cast<int>(step & 1);
  const uint64_t word = reduction.word.at(step);
  const bool fits_line = reduction.bytes <= kInlineBytes;
  WordLine& mine = arena_.line(bank, me);
  if (fits_line) {
    copy_short(mine.payload, reduction.input, reduction.bytes);
  } else {
    copy(reduction.level, arena_.line_payload(bank, me), reduction.input, reduction.bytes,
         Store::kCached);
  }
  waiter_.post_to_all(mine.word, word);
  waiter_.publish();
  const FloatEnvironment environment;
  sources_[me] = reduction.input;
  for (int i = 1; i < size; ++i) {
    const int peer = me + i < size ? me + i : me + i - size;
    const WordLine& theirs = arena_.line(bank, peer);
    waiter_.await(theirs.word, word, peer);
    if (fits_line) {
      sources_[peer] = theirs.payload;
    } else {
      const std::byte* const payload = arena_.line_payload(bank, peer);
      prefetch(payload, reduction.bytes);
      sources_[peer] = payload;
    }
  }
  if (reduction.bytes == 0) return;
  reduction.reduce(reduction.output, nullptr, sources_.data(), size, reduction.bytes);
}

}  // namespace symm::cpu
