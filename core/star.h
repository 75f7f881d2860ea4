// The hub of a communicator's star: it lives in rank 0's process, in the helper thread, and every
// rank, rank 0 too, has one connection to it.
//
// The hub makes the outcome of a step one for all ranks. A step is complete when every rank's
// GATHER is here, and then every rank gets the same RESULT. What ends a communicator (a death, a
// deadline, an abort, ranks in different steps) becomes one FAULT, the first, told to every rank; a
// step that was not complete by then never will be. So no two ranks see different ends of one step.
// That a step will fail because of one rank is told at once (DOOMED), as a hint: the step still
// ends with every rank's part in it.
#ifndef SYMM_CORE_STAR_H_
#define SYMM_CORE_STAR_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/connection.h"
#include "core/messages.h"

namespace symm {

class StarHub : public std::enable_shared_from_this<StarHub> {
 public:
  // Any thread. Known under a fresh uid from now on; the reference's end forgets it.
  static std::shared_ptr<StarHub> open(int size);
  const std::string& uid() const { return uid_; }
  // Any thread: rank 0's own connection, one end of a socketpair.
  void add_local(Fd fd, const Join& join);
  // Any thread. It stays until it has read rank 0's goodbye, then says goodbye to everyone, sends
  // what is queued, and is gone.
  void outlive_references();

  // Helper thread: gives the connection to the hub of that uid; false if there is none.
  static bool admit(const Join& join, const std::shared_ptr<Connection>& connection);

 private:
  struct Member {
    std::shared_ptr<Connection> connection;  // null until it joined and after it is gone
    std::string process_id;
    bool joined = false;
    bool left = false;
    std::optional<Gather> gather;
    std::shared_ptr<Fd> fd;
  };

  explicit StarHub(int size);
  void join(const Join& join, const std::shared_ptr<Connection>& connection);
  void frame(int rank, const Frame& frame);
  void gather(int rank, Gather gather);
  void complete_step();
  void expired(uint64_t step, int by);
  void gone(int rank, const std::string& reason);
  void fault(Failure failure);
  void look_for_leavers();
  void leave();
  template <class Message>
  void broadcast(uint32_t type, const Message& message);

  std::shared_ptr<Reactor> reactor_;
  const std::string uid_;
  std::vector<Member> members_;
  uint64_t step_ = 0;
  std::optional<Failure> fault_;
  bool fds_lost_ = false;  // of this step, for want of room in this process
  bool leaving_ = false;
  std::shared_ptr<StarHub> self_;  // see outlive_references()
};

}  // namespace symm

#endif  // SYMM_CORE_STAR_H_
