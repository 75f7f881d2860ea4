// The ranks' arenas: memory of each GPU in which its peers leave their data, as this rank sees it.
//
// Created in agreed steps, so that nobody uses what another rank has not prepared:
//   1. every rank makes its own arena (make_own);
//   2. every rank maps the others' and writes a pattern into each by that path, and reads it back
//      there (map_peers);
//   3. every rank finds everybody's pattern in its own memory (check_probes), and clears it.
// Steps 2 and 3 are there because some machines map a peer's memory and then return other data.
#ifndef SYMM_CORE_CUDA_ARENA_H_
#define SYMM_CORE_CUDA_ARENA_H_

#include <memory>
#include <string>
#include <vector>

#include "core/cuda/host_page.h"
#include "core/cuda/memory.h"
#include "core/cuda/plan.h"

namespace symm::cuda {

class Arena {
 public:
  // `key` names the communicator in this process.
  Arena(std::shared_ptr<const Context> context, const Agreed& agreed, int rank, std::string key,
        size_t granularity);

  // The descriptor for ranks of other processes.
  std::shared_ptr<Fd> make_own();
  // By rank; empty for this rank and for those of this process.
  void map_peers(const std::vector<Fd>& fds);
  void check_probes();

  const Layout& layout() const { return layout_; }
  std::byte* base(int rank) const { return mappings_[static_cast<size_t>(rank)]->data(); }
  HostPage& page() { return page_; }
  const HostPage& page() const { return page_; }
  const Stream& stream() const { return stream_; }

  // Once none of this rank's kernels runs; the context is current.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // This rank's kernels end, now and later. Any thread; the first status counts. No call of the
  // driver, which may be held for as long as a kernel waits.
  void raise(symm_status status) noexcept;
  // Brings that to the GPU's own memory, once, and sooner than waits ask the host. For the reaper,
  // which may be held up. Enqueues 4 bytes on a stream of its own: a copy engine brings them
  // however full of waiting kernels the GPU is.
  void bring_abort() noexcept;
  // Tells every peer's kernels that this rank has left. Returns once they know, or soon.
  void tell_left() noexcept;

 private:
  std::string key_of(int rank) const;
  void compare_probes(std::string (*fault)(int rank));
  void fill_probe(int writer, int reader, std::byte* probe) const;
  CUdeviceptr probe_address(int writer, int reader) const;

  const std::shared_ptr<const Context> context_;
  const Agreed agreed_;
  const int rank_;
  const std::string key_;
  const Layout layout_;
  const size_t bytes_;
  HostPage page_;
  Stream stream_;                                   // set-up
  Stream signals_;                                  // abort and left words, and nothing else
  std::vector<std::shared_ptr<Mapping>> mappings_;  // by rank
  bool brought_ = false;                            // the reaper's: page_->error.abort to the GPU
};

}  // namespace symm::cuda

#endif  // SYMM_CORE_CUDA_ARENA_H_
