#include "core/comm.h"

#include <sys/epoll.h>

#include <algorithm>

#include "core/cpu/backend.h"
#include "core/cuda/support.h"
#include "core/text.h"

namespace symm {

namespace {

std::unique_ptr<Backend> make_backend(Comm& comm) {
  if (comm.device() == SYMM_CPU) return std::make_unique<cpu::CpuBackend>(comm);
  return cuda::make_backend(comm);
}

}  // namespace

Comm::Comm(int rank, std::vector<RankInfo> roster, CommOptions options)
    : rank_(rank),
      roster_(std::move(roster)),
      options_(std::move(options)),
      backend_(make_backend(*this)) {
  one_host_ = std::all_of(roster_.begin(), roster_.end(), [&](const RankInfo& info) {
    return info.host_id == roster_.front().host_id;
  });
}

Comm::~Comm() {
  if (generation_ != process_generation()) return;
  // A rank whose call has failed does not leave as if nothing were: the others may have results.
  tell_untold();
  leave();
}

void Comm::tell_untold() noexcept {
  try {
    if (fault_.is_set()) return;
    if (const auto untold = backend_->untold_fault()) fail(*untold);
  } catch (const std::exception&) {
    // Short of memory: peers find out by their deadlines.
  }
}

void Comm::leave() noexcept {
  if (left_.exchange(true, std::memory_order_relaxed)) return;
  try {
    backend_->leave();
    if (exchange_) exchange_->leave();
    if (watched_) {
      reactor_->post([reactor = reactor_.get(), watched = watched_] {
        for (const Watched& one : *watched) {
          if (one.fd) reactor->unwatch(one.fd.get());
        }
        watched->clear();
      });
    }
  } catch (const std::exception&) {
    // Only memory can be short here. The goodbye is then lost, and peers that still need this rank
    // take its end for a death.
  }
}

void Comm::process_exits() noexcept {
  if (generation_ != process_generation()) return;
  backend_->finish();
  leave();
}

Failure Comm::sticky() const {
  if (fault_.is_set()) return fault_.get();
  if (const auto fault = backend_->fault()) return *fault;
  return {};
}

void Comm::throw_if_failed() const {
  if (!fault_.is_set()) return;
  const Failure failure = fault_.get();
  throw Error(failure.status, text("the communicator has failed: ", failure.message), failure.rank);
}

void Comm::fail(const Failure& failure) {
  if (!fault_.set(failure)) return;
  backend_->raise(failure);
  if (exchange_) exchange_->send_fault(failure);
  end_child(failure);
}

void Comm::end_child(const Failure& failure) {
  std::shared_ptr<Exchange> child;
  {
    std::lock_guard lock(child_mutex_);
    child = child_.lock();
    if (child && child_end_.status == SYMM_OK) child_end_ = failure;
  }
  if (child) child->end_with(failure);
}

Exchange::Gathered Comm::gather(const std::string& kind, Exchange::Contribution contribution,
                                Deadline deadline) {
  if (exchange_) {
    try {
      return exchange_->gather(kind, std::move(contribution), deadline);
    } catch (const Error& e) {
      // Whoever found a mismatch raised it in the arena before it left; the star may know only of
      // the leaving.
      if (!is_sticky(e.status())) throw;
      const auto fault = backend_->fault();
      if (!fault) throw;
      throw Error(fault->status, fault->message, fault->rank);
    }
  }
  if (contribution.failure.status != SYMM_OK) {
    throw Error(contribution.failure.status, contribution.failure.message);
  }
  Exchange::Gathered alone;
  alone.blobs.push_back(std::move(contribution.blob));
  alone.fds.emplace_back();
  return alone;
}

bool Comm::is_doomed() const { return fault_.is_set() || (exchange_ && exchange_->is_doomed()); }

void Comm::agree(const std::string& kind, const Failure& failure, Deadline deadline) {
  gather(kind, {failure, {}, nullptr}, deadline);
}

void Comm::require_one_host(const char* what) const {
  if (one_host_) return;
  const auto other = std::find_if(roster_.begin(), roster_.end(), [&](const RankInfo& info) {
    return info.host_id != roster_.front().host_id;
  });
  throw Error(
      SYMM_UNSUPPORTED,
      text(what, " of CPU ranks on several hosts (rank 0 is on ", roster_.front().host_name,
           ", rank ", other - roster_.begin(), " on ", other->host_name,
           ", or in network name spaces of their own) are not supported; split the communicator "
           "by host"));
}

void Comm::barrier(void* stream) {
  run([&] { backend_->barrier(stream, *this); });
}

void Comm::all_reduce(const Call& call, const void* input, void* output, void* stream,
                      Keepable& owner) {
  run([&] { backend_->all_reduce(call, input, output, stream, owner); });
}

void Comm::abort() { fail({SYMM_ABORTED, rank_, text("rank ", rank_, " called symm_comm_abort")}); }

void Comm::watch_peers(std::vector<Fd> pidfds) {
  reactor_ = Reactor::acquire();
  watched_ = std::make_shared<std::vector<Watched>>();
  for (size_t rank = 0; rank < pidfds.size(); ++rank) {
    if (!pidfds[rank]) continue;
    const std::string& process = roster_[rank].process_id;
    const bool known = std::any_of(watched_->begin(), watched_->end(),
                                   [&](const Watched& w) { return w.process_id == process; });
    if (!known) watched_->push_back({std::move(pidfds[rank]), process});
  }
  reactor_->run_and_wait([this] {
    for (Watched& one : *watched_) {
      const int fd = one.fd.get();
      reactor_->watch(
          fd, EPOLLIN,
          [weak = weak_from_this(), watched = watched_, reactor = reactor_.get(), fd](uint32_t) {
            reactor->unwatch(fd);
            std::string process_id;
            for (Watched& w : *watched) {
              if (w.fd.get() != fd) continue;
              process_id = w.process_id;
              w.fd.reset();
            }
            if (const auto self = weak.lock()) self->peer_process_ended(process_id);
          });
    }
  });
}

void Comm::peer_process_ended(const std::string& process_id) {
  for (int rank = 0; rank < size(); ++rank) {
    const RankInfo& info = roster_[static_cast<size_t>(rank)];
    if (info.process_id != process_id || backend_->has_left(rank)) continue;
    fail({SYMM_PEER, rank,
          text("rank ", rank, " (pid ", info.pid, " on ", info.host_name,
               ") died without a goodbye")});
    return;
  }
}

}  // namespace symm
