// One call as the algorithms see it, and how its bytes are cut into chunks and shares.
#ifndef SYMM_CORE_CPU_REDUCTION_H_
#define SYMM_CORE_CPU_REDUCTION_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/cpu/arena.h"
#include "core/cpu/words.h"
#include "kernels/cpu/reduce.h"

namespace symm::cpu {

struct Reduction {
  CallWord word;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  size_t bytes = 0;
  int element_shift = 0;              // log2 of the element's size
  ReduceFunction function = nullptr;  // null where bytes is 0
  Level level = Level::kBaseline;
  Store store = Store::kCached;  // of the output

  void reduce(std::byte* out, std::byte* also, const void* const* sources, int n,
              size_t length) const {
    function(out, also, sources, n, length >> element_shift, store);
  }
};

struct Piece {
  size_t offset = 0;
  size_t bytes = 0;
};

// A message in chunks of nearly equal size, each in one share a rank. Shares start at multiples of
// a line from the message's start, so that they hold whole elements and never split a line of a
// box.
class Chunks {
 public:
  // `most` bytes a chunk, a multiple of `parts` lines. A message of 0 bytes has one empty chunk:
  // ranks meet all the same.
  Chunks(size_t bytes, size_t most, int parts) : bytes_(bytes), parts_(static_cast<size_t>(parts)) {
    const size_t pieces = std::max<size_t>((bytes + most - 1) / most, 1);
    chunk_ = std::min(round_up((bytes + pieces - 1) / pieces, kLineBytes), most);
    count_ = std::max<size_t>(chunk_ == 0 ? 1 : (bytes + chunk_ - 1) / chunk_, 1);
  }

  size_t count() const { return count_; }

  Piece chunk(size_t index) const {
    const size_t offset = std::min(index * chunk_, bytes_);
    return {offset, std::min(chunk_, bytes_ - offset)};
  }

  Piece share(size_t index, int part) const {
    const Piece whole = chunk(index);
    const size_t each = round_up((whole.bytes + parts_ - 1) / parts_, kLineBytes);
    const size_t begin = std::min(each * static_cast<size_t>(part), whole.bytes);
    return {whole.offset + begin, std::min(each, whole.bytes - begin)};
  }

 private:
  size_t bytes_;
  size_t parts_;
  size_t chunk_;
  size_t count_;
};

// For a few bytes: calling memcpy takes longer than this.
inline void copy_short(std::byte* out, const std::byte* in, size_t bytes) {
  for (; bytes >= 8; bytes -= 8, out += 8, in += 8) std::memcpy(out, in, 8);
  if ((bytes & 4) != 0) {
    std::memcpy(out, in, 4);
    out += 4;
    in += 4;
  }
  if ((bytes & 2) != 0) {
    std::memcpy(out, in, 2);
    out += 2;
    in += 2;
  }
  if ((bytes & 1) != 0) *out = *in;
}

// Asks for all lines of a small payload at once: the arithmetic that follows fills the core's
// buffers, so that without it few misses overlap. Larger ones the hardware fetches better.
inline void prefetch(const std::byte* data, size_t bytes) {
  constexpr size_t kMost = 4096;
  if (bytes > kMost) return;
  for (size_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(data + i);
}

}  // namespace symm::cpu

#endif  // SYMM_CORE_CPU_REDUCTION_H_
