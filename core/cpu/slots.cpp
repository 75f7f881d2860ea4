#include "core/cpu/slots.h"

#include "core/cpu/float_environment.h"

namespace symm::cpu {
namespace {

int bank(uint32_t step) { return static_cast<int>(step & 1); }

}  // namespace

Slots::Slots(const Arena& arena, uint32_t first_step, Waiter& waiter)
    : arena_(arena),
      waiter_(waiter),
      step_(first_step),
      sources_(static_cast<size_t>(arena.size())) {}

void Slots::reduce_scatter(const Reduction& reduction) {
  const Chunks chunks(reduction.bytes, arena_.layout().areas.slot_operand, waiter_.size());
  send(reduction, chunks, 0, step_);
  waiter_.publish();
  const FloatEnvironment environment;
  for (size_t chunk = 0; chunk < chunks.count(); ++chunk, ++step_) {
    if (chunk + 1 < chunks.count()) send(reduction, chunks, chunk + 1, step_ + 1);
    sum(reduction, chunks, chunk, step_);
    collect(reduction, chunks, chunk, step_);
  }
}

void Slots::send(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step) {
  const int me = waiter_.rank();
  std::byte* const slot = arena_.slot_operand(bank(step), me);
  const Piece whole = chunks.chunk(chunk);
  const Piece own = chunks.share(chunk, me);
  const std::byte* const input = reduction.input + whole.offset;
  const size_t before = own.offset - whole.offset;
  const size_t after = before + own.bytes;
  copy(reduction.level, slot, input, before, Store::kCached);
  copy(reduction.level, slot + after, input + after, whole.bytes - after, Store::kCached);
  waiter_.post_to_all(arena_.slot_words(me).operand[bank(step)].word, reduction.word.at(step));
}

void Slots::sum(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step) {
  const int me = waiter_.rank();
  const int size = waiter_.size();
  const Piece share = chunks.share(chunk, me);
  const size_t place = share.offset - chunks.chunk(chunk).offset;
  for (int i = 1; i < size; ++i) {
    const int peer = me + i < size ? me + i : me + i - size;
    waiter_.await(arena_.slot_words(peer).operand[bank(step)].word, reduction.word.at(step), peer);
    const std::byte* const operand = arena_.slot_operand(bank(step), peer) + place;
    prefetch(operand, share.bytes);
    sources_[peer] = operand;
  }
  sources_[me] = reduction.input + share.offset;
  if (share.bytes != 0) {
    reduction.reduce(reduction.output + share.offset, arena_.slot_result(bank(step), me),
                     sources_.data(), size, share.bytes);
  }
  waiter_.post_to_all(arena_.slot_words(me).result[bank(step)].word, reduction.word.at(step));
}

void Slots::collect(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step) {
  const int me = waiter_.rank();
  const int size = waiter_.size();
  for (int i = 1; i < size; ++i) {
    const int peer = me + i < size ? me + i : me + i - size;
    waiter_.await(arena_.slot_words(peer).result[bank(step)].word, reduction.word.at(step), peer);
    const Piece share = chunks.share(chunk, peer);
    copy(reduction.level, reduction.output + share.offset, arena_.slot_result(bank(step), peer),
         share.bytes, reduction.store);
  }
}

}  // namespace symm::cpu
