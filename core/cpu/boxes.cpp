#include "core/cpu/boxes.h"

#include <algorithm>

namespace symm::cpu {
namespace {

// What is taken and put, or summed and sent back, at a time: stays in the first-level cache.
constexpr size_t kBlock = 8192;

}  // namespace

Boxes::Boxes(const Arena& arena, uint32_t first_step, Waiter& waiter)
    : waiter_(waiter),
      most_(arena.layout().areas.box_payload * static_cast<size_t>(arena.size())),
      step_(first_step),
      boxes_(2 * static_cast<size_t>(arena.size())),
      sources_(static_cast<size_t>(arena.size())) {
  for (int peer = 0; peer < arena.size(); ++peer) {
    if (peer == waiter.rank()) continue;
    for (int which = 0; which < 2; ++which) {
      boxes_[2 * static_cast<size_t>(peer) + which] = arena.box(waiter.rank(), peer, which);
    }
  }
}

void Boxes::one_shot(const Reduction& reduction) {
  const int me = waiter_.rank();
  const int peer = 1 - me;
  const uint32_t step = step_++;
  const Box& mine = to(peer, step);
  const Box& theirs = from(peer, step);
  const uint64_t word = reduction.word.at(step);
  const void* sources[2];
  sources[me] = reduction.input;
  sources[peer] = theirs.data;
  copy(reduction.level, mine.data, reduction.input, reduction.bytes, Store::kCached);
  waiter_.post(mine.line->word, word, peer);
  waiter_.publish();
  const FloatEnvironment environment;
  waiter_.await(theirs.line->word, word, peer);
  prefetch(theirs.data, reduction.bytes);
  reduction.reduce(reduction.output, nullptr, sources, 2, reduction.bytes);
}

void Boxes::reduce_scatter(const Reduction& reduction) {
  const Chunks chunks(reduction.bytes, most_, waiter_.size());
  send(reduction, chunks, step_);
  waiter_.publish();
  const FloatEnvironment environment;
  for (size_t chunk = 0; chunk < chunks.count(); ++chunk, step_ += 2) {
    sum(reduction, chunks, chunk, step_);
    collect(reduction, chunks, chunk, step_ + 1);
  }
}

// Peers are visited from the next rank on, so that ranks do not all go to the same one first.
void Boxes::send(const Reduction& reduction, const Chunks& chunks, uint32_t step) {
  const int size = waiter_.size();
  for (int i = 1; i < size; ++i) {
    const int peer = (waiter_.rank() + i) % size;
    const Box& box = to(peer, step);
    const Piece share = chunks.share(0, peer);
    copy(reduction.level, box.data, reduction.input + share.offset, share.bytes, Store::kCached);
    waiter_.post(box.line->word, reduction.word.at(step), peer);
  }
}

void Boxes::sum(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step) {
  const int me = waiter_.rank();
  const int size = waiter_.size();
  const Piece share = chunks.share(chunk, me);
  for (int i = 1; i < size; ++i) {
    const int peer = (me + i) % size;
    const Box& box = from(peer, step);
    waiter_.await(box.line->word, reduction.word.at(step), peer);
    prefetch(box.data, share.bytes);
  }
  // The kernel stores each sum in two places, the output and the first peer's box; what further
  // peers get is copied from there block by block.
  const int first = me == 0 ? 1 : 0;
  const size_t block = size == 2 ? share.bytes : kBlock;
  for (size_t done = 0; done < share.bytes; done += block) {
    const size_t bytes = std::min(block, share.bytes - done);
    for (int rank = 0; rank < size; ++rank) {
      sources_[rank] = (rank == me ? reduction.input + share.offset : from(rank, step).data) + done;
    }
    std::byte* const sums = from(first, step).data + done;
    reduction.reduce(reduction.output + share.offset + done, sums, sources_.data(), size, bytes);
    for (int rank = first + 1; rank < size; ++rank) {
      if (rank == me) continue;
      copy(reduction.level, from(rank, step).data + done, sums, bytes, Store::kCached);
    }
  }
  for (int i = 1; i < size; ++i) {
    const int peer = (me + i) % size;
    waiter_.post(to(peer, step + 1).line->word, reduction.word.at(step + 1), peer);
  }
}

void Boxes::collect(const Reduction& reduction, const Chunks& chunks, size_t chunk, uint32_t step) {
  const int size = waiter_.size();
  const bool more = chunk + 1 < chunks.count();
  for (int i = 1; i < size; ++i) {
    const int peer = (waiter_.rank() + i) % size;
    const Box& box = from(peer, step);
    waiter_.await(box.line->word, reduction.word.at(step), peer);
    const Piece take = chunks.share(chunk, peer);
    const Piece put = more ? chunks.share(chunk + 1, peer) : Piece{};
    prefetch(box.data, take.bytes);
    for (size_t done = 0; done < std::max(take.bytes, put.bytes); done += kBlock) {
      if (done < take.bytes) {
        copy(reduction.level, reduction.output + take.offset + done, box.data + done,
             std::min(kBlock, take.bytes - done), reduction.store);
      }
      if (done < put.bytes) {
        copy(reduction.level, box.data + done, reduction.input + put.offset + done,
             std::min(kBlock, put.bytes - done), Store::kCached);
      }
    }
    if (more) waiter_.post(box.line->word, reduction.word.at(step + 1), peer);
  }
}

}  // namespace symm::cpu
