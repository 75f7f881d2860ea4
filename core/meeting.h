// Meetings: how the ranks of a communicator find each other. The server's side, in the helper
// thread.
//
// A meeting is named by token and name and gathers one HELLO a rank. It ends in one of two ways,
// the same one for every rank: all have come and agree (WELCOME), or something is wrong (REFUSED),
// and then at once. A failed meeting stays known for a while, so that a rank that comes late is
// told instead of waiting for others that have given up.
//
// After WELCOME the ranks join their star, whose hub cannot miss a rank that it never saw, and goes
// away if rank 0 gives up. So the server stays the lifeline until every rank has said GOODBYE, and
// tells the others of the first loss. A rank that gives up says why (FAULT) before its connection
// ends: it gives up because of another's death, as a rule, and must not be blamed for it.
#ifndef SYMM_CORE_MEETING_H_
#define SYMM_CORE_MEETING_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/listener.h"

namespace symm {

// What a server says to a caller with another token; callers compare.
inline constexpr char kAnotherJob[] = "another job is served at this address (its token differs)";

class Meetings {
 public:
  // Of the running helper thread; only there.
  static Meetings& of(Reactor& reactor);

  void arrive(const std::shared_ptr<Listener>& listener,
              const std::shared_ptr<Connection>& connection, Hello hello);
  // A failed meeting of that token and name still waits for ranks to tell.
  bool has_untold(const std::string& token, const std::string& name) const;

 private:
  struct Seat {
    Hello hello;
    std::shared_ptr<Connection> connection;
  };
  struct Meeting {
    std::set<std::shared_ptr<Listener>> listeners;  // kept open as long as somebody is to come
    std::shared_ptr<Reactor> reactor;               // kept until all are in their star
    std::map<int, Seat> seats;
    bool lost = false;  // a rank, after WELCOME
  };
  // A failed meeting: who has been told.
  struct Tombstone {
    std::set<std::shared_ptr<Listener>> listeners;
    Failure failure;
    std::set<int> told;
    int size = 0;
    Reactor::Timer timer;
  };

  explicit Meetings(Reactor& reactor) : reactor_(reactor) {}
  static std::optional<Failure> conflict(const Meeting& meeting, const Hello& hello);
  void frame(const std::string& key, int rank, const Frame& frame);
  void gone(const std::string& key, int rank, const std::string& reason);
  void complete(const std::string& key);
  void fail(const std::string& key, Failure failure, const Hello* latest,
            const std::shared_ptr<Connection>& latest_connection);
  void settle(uint64_t number, int rank, const Frame* last);
  static std::vector<int> missing_ranks(const Meeting& meeting);
  static std::string missing(const Meeting& meeting);

  Reactor& reactor_;
  std::map<std::string, Meeting> meetings_;
  std::map<uint64_t, Meeting> settling_;  // complete; ranks are removed as they join their star
  uint64_t next_number_ = 0;
  std::map<std::string, Tombstone> tombstones_;
};

}  // namespace symm

#endif  // SYMM_CORE_MEETING_H_
