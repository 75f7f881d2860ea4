// Where small windows are: slices of slabs of one granule, so that 4 bytes do not cost 2 MiB.
//
// Placement is a pure function of what the ranks agreed on, and so the same on every rank: which
// windows there were, how large, and which of them every rank has told to be free. Each rank tells
// in every agreement what it freed since the last; a slice is free once all have.
#ifndef SYMM_CORE_CUDA_SLICES_H_
#define SYMM_CORE_CUDA_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace symm::cuda {

class Slices {
 public:
  Slices(int ranks, size_t slab_bytes) : ranks_(ranks), slab_bytes_(slab_bytes) {}

  struct Place {
    uint64_t slab;  // its number
    size_t offset;
    bool operator==(const Place&) const = default;
  };
  static constexpr size_t kAlignment = 256;
  // A window of more bytes has memory of its own.
  size_t most_bytes() const { return slab_bytes_ / 2; }

  // What rank r told in an agreement. Unknown windows (of a failed call) are no slices and ignored.
  void freed(int rank, const std::vector<uint64_t>& windows);
  // The first room in the slabs there are; none where a new slab is needed.
  std::optional<Place> place(uint64_t window, size_t bytes);
  // A new slab, which every rank has made: its number.
  uint64_t add_slab();
  // The call that placed it failed on every rank.
  void undo(uint64_t window);
  // Slabs that nothing is in any more, but for one that is kept for the next window: forgotten
  // here, and to be released.
  std::vector<uint64_t> take_empty_slabs();

  size_t slabs() const { return slabs_.size(); }

 private:
  struct Slice {
    size_t offset;
    size_t bytes;
    uint64_t window;
  };
  void remove(uint64_t window);

  const int ranks_;
  const size_t slab_bytes_;
  uint64_t next_slab_ = 0;
  std::map<uint64_t, std::vector<Slice>> slabs_;  // by number; slices by offset
  std::map<uint64_t, uint64_t> slab_of_;          // by window
  std::map<uint64_t, std::set<int>> told_;        // by window: ranks that freed it
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_SLICES_H_
