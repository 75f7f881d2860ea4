#include "core/cuda/slices.h"

#include <algorithm>

namespace symm::cuda {

void Slices::freed(int rank, const std::vector<uint64_t>& windows) {
  for (const uint64_t window : windows) {
    if (slab_of_.count(window) == 0) continue;
    auto& ranks = told_[window];
    ranks.insert(rank);
    if (ranks.size() == static_cast<size_t>(ranks_)) remove(window);
  }
}

std::optional<Slices::Place> Slices::place(uint64_t window, size_t bytes) {
  const size_t wanted = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  for (auto& [number, slices] : slabs_) {
    size_t offset = 0;
    auto next = slices.begin();
    while (next != slices.end() && next->offset - offset < wanted) {
      offset = next->offset + next->bytes;
      ++next;
    }
    if (next == slices.end() && slab_bytes_ - offset < wanted) continue;
    slices.insert(next, Slice{offset, wanted, window});
    slab_of_[window] = number;
    return Place{number, offset};
  }
  return std::nullopt;
}

uint64_t Slices::add_slab() {
  slabs_[next_slab_];
  return next_slab_++;
}

void Slices::undo(uint64_t window) {
  if (slab_of_.count(window) != 0) remove(window);
}

void Slices::remove(uint64_t window) {
  auto& slices = slabs_[slab_of_[window]];
  std::erase_if(slices, [&](const Slice& slice) { return slice.window == window; });
  slab_of_.erase(window);
  told_.erase(window);
}

std::vector<uint64_t> Slices::take_empty_slabs() {
  std::vector<uint64_t> empty;
  for (const auto& [number, slices] : slabs_) {
    if (slices.empty()) empty.push_back(number);
  }
  if (!empty.empty()) empty.erase(empty.begin());
  for (const uint64_t number : empty) slabs_.erase(number);
  return empty;
}

}  // namespace symm::cuda
