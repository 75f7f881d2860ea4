// How communicators come to be: symm_comm_create and symm_comm_split.
#include <algorithm>
#include <map>

#include "core/address.h"
#include "core/attempt.h"
#include "core/comm.h"
#include "core/launcher.h"
#include "core/serving.h"
#include "core/text.h"

namespace symm {
namespace {

constexpr char kSplit[] = "symm_comm_split";
// How long a rank that has lost rank 0 waits for the reason.
constexpr int kVerdictMs = 500;

// A rank's wish in a split.
struct SplitWish {
  int32_t color = 0;
  int32_t key = 0;
  CommOptions options;
};

Bytes encode(const SplitWish& wish) {
  Writer w;
  w.i32(wish.color);
  w.i32(wish.key);
  w.string(wish.options.name);
  w.u64(wish.options.agreed.scratch_bytes);
  w.i32(wish.options.agreed.timeout_ms);
  w.i32(wish.options.agreed.wait_timeout_ms);
  w.u32(wish.options.agreed.flags);
  return w.take();
}

SplitWish decode_split_wish(const Bytes& blob) {
  Reader r(blob);
  SplitWish wish;
  wish.color = r.i32();
  wish.key = r.i32();
  wish.options.name = r.string(kMostBlob);
  wish.options.agreed.scratch_bytes = r.u64();
  wish.options.agreed.timeout_ms = r.i32();
  wish.options.agreed.wait_timeout_ms = r.i32();
  wish.options.agreed.flags = r.u32();
  r.end();
  return wish;
}

// Members of each color, ranked by key, then by old rank.
std::map<int32_t, std::vector<int>> groups_of(const std::vector<SplitWish>& wishes) {
  std::map<int32_t, std::vector<int>> groups;
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color != SYMM_NO_COLOR)
      groups[wishes[rank].color].push_back(static_cast<int>(rank));
  }
  for (auto& [color, members] : groups) {
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
    });
  }
  return groups;
}

// Every rank has the same wishes before it, so every rank comes to the same verdict.
void check_options(const std::vector<SplitWish>& wishes,
                   const std::map<int32_t, std::vector<int>>& groups) {
  for (const auto& [color, members] : groups) {
    const auto& first = wishes[static_cast<size_t>(members[0])].options;
    for (const int rank : members) {
      const auto& other = wishes[static_cast<size_t>(rank)].options;
      const auto fail = [&, color = color](const std::string& what) {
        throw Error(SYMM_INVALID_ARGUMENT,
                    text(what, "; they are both in color ", color, " and must agree"), rank);
      };
      if (other.name != first.name) {
        fail(text("options.name differs: rank ", rank, " has \"", other.name, "\", rank ",
                  members[0], " \"", first.name, "\""));
      }
      if (const auto differs = difference(other.agreed, first.agreed)) {
        fail(text("options.", differs->field, " differs: rank ", rank, " has ", differs->mine,
                  ", rank ", members[0], " has ", differs->theirs));
      }
    }
  }
}

// Throws why the communicator could not be made, once the others have been told.
[[noreturn]] void give_up(Failure failure, int rank, Attendance& attendance) {
  if (failure.status == SYMM_PEER && failure.rank != rank) {
    // That a rank is gone does not say why: it may have given up, because of another's death, and
    // have ended before this rank came to look. It then has told the meeting's server why, or the
    // server has seen who ended first.
    failure = attendance.loss(Deadline::after_ms(kVerdictMs)).value_or(failure);
  }
  Failure told = failure;
  if (told.rank == kNoRank) {
    told.rank = rank;
    told.message = text("rank ", rank, " failed: ", told.message);
  }
  attendance.abandon(told);
  throw Error(failure.status, failure.message, failure.rank);
}

}  // namespace

std::shared_ptr<Comm> Comm::create(const std::string& address, int32_t rank, int32_t size,
                                   int32_t device, const CommOptions& options,
                                   const Failure& failure) {
  const Deadline deadline = Deadline::after_ms(options.agreed.timeout_ms);
  Address where;
  if (is_env_address(address)) {
    Launcher launcher = read_launcher(process_environment());
    if (rank == SYMM_FROM_ADDRESS) rank = launcher.rank;
    if (size == SYMM_FROM_ADDRESS) size = launcher.size;
    where = std::move(launcher.address);
  } else {
    where = parse_address(address, process_environment());
  }
  Hello hello;
  hello.version = library_version();
  hello.token = where.token;
  hello.name = options.name;
  hello.rank = rank;
  hello.size = size;
  hello.info = own_rank_info(device);
  hello.options = options.agreed;
  hello.failure = failure;
  const bool in_range = size >= 1 && size <= kMostRanks && rank >= 0 && rank < size;
  if (!in_range && failure.status == SYMM_OK) {
    hello.failure = {
        SYMM_INVALID_ARGUMENT, rank,
        rank == SYMM_FROM_ADDRESS || size == SYMM_FROM_ADDRESS
            ? text("rank ", rank, ", size ", size,
                   ": only env:// knows them; give both with address \"", address, "\"")
            : text("rank ", rank, " of size ", size, ": size must be in 1..", kMostRanks,
                   " and rank in 0..size-1")};
  }
  // A rank that is wrong about itself tells the others, if there can be any.
  if (size <= 1 || size > kMostRanks || rank < 0) {
    if (hello.failure.status != SYMM_OK) {
      throw Error(hello.failure.status, hello.failure.message, hello.failure.rank);
    }
    const std::shared_ptr<Comm> alone(new Comm(0, {hello.info}, options));
    alone->id_ = random_hex(16);
    alone->backend_->set_up(deadline);
    add_exit_listener(alone);
    return alone;
  }
  install_process_handlers();
  Meeting meeting = [&] {
    try {
      return meet(where, address, hello, deadline);
    } catch (const Error& e) {
      // A rank whose own call is wrong says that, whatever became of the meeting.
      if (hello.failure.status == SYMM_OK) throw;
      throw Error(hello.failure.status, hello.failure.message, hello.failure.rank);
    }
  }();
  const std::shared_ptr<Comm> comm(new Comm(rank, std::move(meeting.roster), options));
  const Failure failed = attempt([&] {
    comm->connect(meeting.star, meeting.hub, nullptr, meeting.attendance.get(), deadline);
  });
  if (failed.status != SYMM_OK) give_up(failed, rank, *meeting.attendance);
  comm->complete(deadline);
  add_exit_listener(comm);
  return comm;
}

void Comm::on_star_fault(const Failure& failure) {
  if (!fault_.set(failure)) return;
  backend_->raise(failure);
  end_child(failure);
}

void Comm::connect(const StarAddress& star, const std::shared_ptr<StarHub>& hub, Comm* parent,
                   Attendance* attendance, Deadline deadline) {
  id_ = star.uid;
  exchange_ = Exchange::open(star, hub, rank_, roster_.front().host_id, deadline);
  if (parent != nullptr) {
    {
      std::lock_guard lock(parent->child_mutex_);
      parent->child_ = exchange_;
    }
    // A fault of the parent that came before it knew its child.
    if (parent->fault_.is_set()) parent->end_child(parent->fault_.get());
    parent->exchange_->set_on_doomed([weak = parent->weak_from_this()](const Failure& failure) {
      if (const auto self = weak.lock()) self->end_child(failure);
    });
  }
  if (attendance != nullptr) {
    attendance->on_lost([weak = std::weak_ptr<Exchange>(exchange_)](const Failure& failure) {
      if (const auto exchange = weak.lock()) {
        exchange->send_fault(failure);
        exchange->end_with(failure);
      }
    });
  }
  exchange_->wait_until_joined(deadline);
  backend_->set_up(deadline);
  exchange_->set_on_fault([weak = weak_from_this()](const Failure& failure) {
    if (const auto self = weak.lock()) self->on_star_fault(failure);
  });
  if (attendance != nullptr) attendance->settled();
}

void Comm::complete(Deadline deadline) {
  const auto domain = backend_->domain();
  if (!domain) return;
  CommOptions options = options_;
  options.agreed.flags &= ~static_cast<uint32_t>(SYMM_COMM_NCCL | SYMM_COMM_STRICT);
  if (domain->shares_gpus) {
    // Other domains' ranks may be on the same GPU.
    options.agreed.flags &= ~static_cast<uint32_t>(SYMM_COMM_SOLE);
    options.agreed.flags |= kBesideNccl;
  }
  const auto below = split(domain->number, rank_, options, {}, deadline);
  run([&] { agree(kSplit, attempt([&] { backend_->use_domain(below); }), deadline); });
}

std::shared_ptr<Comm> Comm::split(int32_t color, int32_t key, const CommOptions& options,
                                  const Failure& failure, Deadline deadline) {
  std::shared_ptr<Comm> child;
  run([&] {
    Call call;
    call.form = Form::kSplit;
    backend_->begin_setup(call);
    const auto said =
        gather(kSplit, {failure, encode(SplitWish{color, key, options}), nullptr}, deadline);
    std::vector<SplitWish> wishes;
    const Failure understood = attempt([&] {
      for (const Bytes& blob : said.blobs) wishes.push_back(decode_split_wish(blob));
    });
    if (understood.status != SYMM_OK) throw Error(understood.status, understood.message);
    const auto groups = groups_of(wishes);
    check_options(wishes, groups);

    // The leaders open their stars before anyone may join them.
    const std::vector<int> members = color == SYMM_NO_COLOR ? std::vector<int>{} : groups.at(color);
    const bool leads = members.size() > 1 && members[0] == rank_;
    std::shared_ptr<StarHub> hub;
    std::vector<std::shared_ptr<Listener>> listeners;
    StarAddress star;
    const Failure opened = attempt([&] {
      if (!leads) return;
      hub = StarHub::open(static_cast<int>(members.size()));
      star = open_star(*hub, one_host_ ? std::vector<std::string>{} : interface_addresses(),
                       &listeners);
    });
    const auto stars = gather(kSplit, {opened, symm::encode(star), nullptr}, deadline);

    Failure built = attempt([&] {
      if (members.empty()) return;
      std::vector<RankInfo> roster;
      for (const int member : members) roster.push_back(roster_[static_cast<size_t>(member)]);
      const auto own = std::find(members.begin(), members.end(), rank_) - members.begin();
      child.reset(new Comm(static_cast<int>(own), std::move(roster), options));
      if (members.size() == 1) {
        child->id_ = random_hex(16);
        child->backend_->set_up(deadline);
        return;
      }
      const Bytes& blob = stars.blobs[static_cast<size_t>(members[0])];
      child->connect(decode_star_address(blob), hub, this, nullptr, deadline);
      child->complete(deadline);
    });
    Failure ended;
    if (exchange_) exchange_->set_on_doomed(nullptr);
    {
      // From here on the two owe each other nothing.
      std::lock_guard lock(child_mutex_);
      child_.reset();
      ended = std::exchange(child_end_, {});
    }
    if (built.status != SYMM_OK && ended.status != SYMM_OK) {
      // Its author tells it in this same step; an echo might be taken for the cause.
      built = {};
    } else if (built.rank != kNoRank && !members.empty()) {
      // The rank to blame is told in the numbers of the communicator that lives on; the message has
      // those of the new one.
      const int there = built.rank;
      built.rank = members[static_cast<size_t>(there)];
      if (built.rank != rank_) {
        built.message = text("in the new communicator of color ", color, ", whose rank ", there,
                             " is rank ", built.rank, " of this one: ", built.message);
      }
    }
    // Groups that failed say so here; that takes them up to the deadline and the hub's grace.
    agree(kSplit, built, Deadline(deadline.when() + std::chrono::seconds(5)));
    if (ended.status != SYMM_OK) throw Error(ended.status, ended.message, ended.rank);
    if (child) add_exit_listener(child);
  });
  return child;
}

}  // namespace symm
