// Memory of a communicator that every rank sees. It keeps its communicator alive.
#ifndef SYMM_CORE_WINDOW_H_
#define SYMM_CORE_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/comm.h"

namespace symm {

class Window final : public Keepable, public std::enable_shared_from_this<Window> {
 public:
  // `copies` are the ranks' memories as this process sees them, by rank; `mappings` keep them
  // alive. `alias`, if not null, is the caller's own address of this rank's copy; `check_alias`
  // throws INVALID_ARGUMENT once that is no longer the memory that was registered.
  Window(std::shared_ptr<Comm> comm, uint64_t number, size_t bytes, std::vector<std::byte*> copies,
         std::vector<std::shared_ptr<void>> mappings, std::byte* alias,
         std::function<void()> check_alias = {})
      : comm_(std::move(comm)),
        number_(number),
        bytes_(bytes),
        copies_(std::move(copies)),
        mappings_(std::move(mappings)),
        alias_(alias),
        check_alias_(std::move(check_alias)) {}

  // What goes as soon as the handle is given up, whatever enqueued work still needs.
  void hold_while_in_use(std::shared_ptr<void> what) { in_use_ = std::move(what); }
  void give_up() { in_use_.reset(); }

  Comm& comm() const { return *comm_; }
  std::shared_ptr<void> keep() override { return shared_from_this(); }
  uint64_t generation() const { return comm_->generation(); }
  size_t size() const { return bytes_; }
  // Throws INVALID_ARGUMENT for a rank out of range. Null for a window of 0 bytes.
  void* data(int rank) const;

  // Checks extents and overlap, then runs; see symm_window_all_reduce.
  void all_reduce(size_t offset, void* output, size_t count, symm_dtype dtype, symm_op op,
                  void* stream);

 private:
  const std::shared_ptr<Comm> comm_;
  const uint64_t number_;
  const size_t bytes_;
  const std::vector<std::byte*> copies_;
  const std::vector<std::shared_ptr<void>> mappings_;
  std::shared_ptr<void> in_use_;
  std::byte* const alias_;
  const std::function<void()> check_alias_;
};

// Argument checks that all-reduces of every form share. Throw INVALID_ARGUMENT or UNSUPPORTED.
void check_dtype_and_op(symm_dtype dtype, symm_op op);
size_t checked_bytes(size_t count, symm_dtype dtype);
void check_pointer(const char* name, const void* pointer, size_t bytes, size_t alignment);
// Either the same address, or no byte in common.
void check_overlap(const char* input_name, const void* input, const void* output, size_t bytes);

// Throws INVALID_ARGUMENT unless every rank, by rank, asked for a window of as many bytes. Every
// rank sees the same numbers, so every rank comes to the same verdict.
void check_equal_bytes(const std::vector<uint64_t>& bytes);

}  // namespace symm

#endif  // SYMM_CORE_WINDOW_H_
