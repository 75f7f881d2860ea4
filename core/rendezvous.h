// A rank's side of meeting the others: serve or find the meeting, say HELLO, get the roster.
#ifndef SYMM_CORE_RENDEZVOUS_H_
#define SYMM_CORE_RENDEZVOUS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/deadline.h"
#include "core/listener.h"
#include "core/messages.h"
#include "core/star.h"

namespace symm {

// A rank's line to the meeting's server, until it is in its star.
class Attendance {
 public:
  virtual ~Attendance() = default;
  // Called in the helper thread, once, if a rank is lost that is not in the star yet, or gave up.
  virtual void on_lost(std::function<void(const Failure&)> callback) = 0;
  // What on_lost() tells, waited for until the deadline at most; none if the server is gone.
  virtual std::optional<Failure> loss(Deadline deadline) = 0;
  // This rank is in its star. Without it the end of this object is the loss of this rank.
  virtual void settled() = 0;
  // This rank gives up for that reason, which is then what the others are told. Returns once the
  // server has told them, or soon.
  virtual void abandon(const Failure& reason) = 0;
};

// What came of a meeting: who is where, and the star to join.
struct Meeting {
  std::vector<RankInfo> roster;  // by rank
  StarAddress star;
  std::shared_ptr<StarHub> hub;  // rank 0's own
  std::unique_ptr<Attendance> attendance;
  // Kept until every rank has joined the star.
  std::vector<std::shared_ptr<Listener>> listeners;
};

// Blocks until all `hello.size` ranks of that token and name are there. hello.star is filled in
// here. Throws TIMEOUT naming who is missing, PEER, or whatever the ranks disagree about; the same
// on every rank that came.
Meeting meet(Address address, const std::string& address_text, Hello hello, Deadline deadline);

// This process as a rank of a communicator on `device`.
RankInfo own_rank_info(int32_t device);

}  // namespace symm

#endif  // SYMM_CORE_RENDEZVOUS_H_
