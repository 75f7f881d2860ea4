// The protocol between ranks: today's library beside a frozen rank of symm 0.1, and beside builds
// whose protocols it does not speak.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/abi/old_peer.h"
#include "tests/support/calls.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

symm_comm_options agreed_options() {
  symm_comm_options options = {};
  options.size = sizeof options;
  options.timeout_ms = kOldTimeoutMs;
  options.wait_timeout_ms = kOldTimeoutMs;
  return options;
}

std::string today() {
  const int32_t version = symm_version();
  return std::to_string(version / 1000000) + "." + std::to_string(version / 1000 % 1000) + "." +
         std::to_string(version % 1000);
}

// A rank of today's library: creates, passes a barrier, frees. Its number is argument's, if given.
void lives(Rank& rank) {
  if (!rank.argument.empty()) rank.rank = std::stoi(rank.argument);
  const Comm comm = create(rank, agreed_options());
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(size_of(comm.get()), rank.size);
  EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
}

// The same where creation is to fail: gives status and message, and the seconds it took.
void fails_to_create(Rank& rank) {
  if (!rank.argument.empty()) rank.rank = std::stoi(rank.argument);
  rank.at("creating");
  const Stopwatch clock;
  const symm_comm_options options = agreed_options();
  symm_comm* comm = nullptr;
  const symm_status status =
      symm_comm_create(rank.address.c_str(), rank.rank, rank.size, SYMM_CPU, &options, &comm);
  EXPECT_EQ(comm, nullptr);
  rank.give(symm_status_name(status));
  rank.give(symm_last_error());
  EXPECT_LT(clock.seconds(), 10 * kSlowdown) << "a refusal known at once must be told at once";
}

std::string gather_of(uint64_t step, const std::string& kind, const std::string& blob,
                      const OldFailure& failure = {}) {
  const unsigned has_fd = 0;
  return u64(step) + field(kind) + bytes_of(failure) + field(blob) + u8(has_fd);
}

// What 0.1 said of its CPUs: no vector instructions, and CPU 0 of a mask of 64.
std::string cpus() { return u8(0) + u32(1) + u64(1); }

RunOptions two_ranks(int port, const std::string& number) {
  RunOptions options;
  options.address = "tcp://127.0.0.1:" + std::to_string(port);
  options.size = 2;
  options.argument = number;
  return options;
}

// A rank 1 of 0.1, or of a version that knows later protocols as well, under a rank 0 of today.
struct OldMember {
  OldMember(Body body, uint32_t protocol_max)
      : port(free_port()),
        ranks(processes(1), body, two_ranks(port, "0")),
        meeting(connect_until_served(port)),
        hub(connect_unix(meet(protocol_max))) {
    hub.send(kOldJoin, field(star.uid) + i32(1) + field(old_rank().process_id));
    EXPECT_EQ(hub.receive(kOldJoined), "");
  }

  // From HELLO to WELCOME; the hub's unix socket.
  std::string meet(uint32_t protocol_max) {
    meeting.send(kOldHello, hello_head(1, protocol_max, "0.1.0", "", 1, 2) + hello_rest(OldStar()));
    EXPECT_EQ(meeting.receive(kOldReceived), "");
    OldReader welcome(meeting.receive(kOldWelcome));
    EXPECT_EQ(welcome.u32(), 1u) << "the protocol that all ranks know";
    star = read_star(&welcome);
    EXPECT_EQ(welcome.u32(), 2u);
    EXPECT_EQ(read_rank(&welcome).pid, ranks.pid(0));
    EXPECT_EQ(bytes_of(read_rank(&welcome)), bytes_of(old_rank()));
    welcome.end();
    EXPECT_FALSE(star.endpoints.empty() || star.endpoints[0].unix_name.empty());
    return star.endpoints.empty() ? "" : star.endpoints[0].unix_name;
  }

  const int port;
  Ranks ranks;
  OldConnection meeting;
  OldStar star;
  OldConnection hub;
};

void live_as_rank_1(uint32_t protocol_max) {
  OldMember member(lives, protocol_max);
  const std::string kinds[] = {"symm_comm_create", "symm_comm_create", "symm_comm_barrier"};
  for (uint64_t step = 0; step < 3; ++step) {
    if (step == 2) member.meeting.send(kOldGoodbye, "");
    const std::string mine = step == 0 ? cpus() : "";
    member.hub.send(kOldGather, gather_of(step, kinds[step], mine));
    OldReader result(member.hub.receive(kOldResult));
    EXPECT_EQ(result.u64(), step);
    EXPECT_EQ(bytes_of(read_failure(&result)), bytes_of(OldFailure()));
    ASSERT_EQ(result.u32(), 2u);
    const std::string theirs = result.field();
    EXPECT_EQ(theirs.size() > 5, step == 0);
    EXPECT_EQ(result.field(), mine);
    EXPECT_EQ(result.u32(), 0u) << "descriptors, to a rank of another host";
    result.end();
  }
  // Rank 0 frees its communicator, and may be gone before an answer would reach it.
  EXPECT_EQ(member.hub.receive(kOldGoodbye), "");
  member.ranks.finish();
}

TEST(OldPeer, ARankOf01LivesAmongRanksOfToday) { live_as_rank_1(1); }

TEST(OldPeer, ARankOfALaterVersionThatKnowsProtocol1Does) { live_as_rank_1(9); }

TEST(OldPeer, AFailureOfARankOf01IsToldOnBothSides) {
  OldMember member(fails_to_create, 1);
  const OldFailure failure = {SYMM_OUT_OF_MEMORY, -1, "no memory in the past"};
  member.hub.send(kOldGather, gather_of(0, "symm_comm_create", "", failure));
  OldReader doomed(member.hub.receive(kOldDoomed));
  EXPECT_EQ(bytes_of(read_failure(&doomed)),
            bytes_of({SYMM_OUT_OF_MEMORY, 1, "no memory in the past"}));
  doomed.end();
  OldReader result(member.hub.receive(kOldResult));
  EXPECT_EQ(result.u64(), 0u);
  EXPECT_EQ(bytes_of(read_failure(&result)),
            bytes_of({SYMM_OUT_OF_MEMORY, 1, "no memory in the past"}));
  EXPECT_EQ(result.u32(), 0u) << "blobs";
  EXPECT_EQ(result.u32(), 0u) << "descriptors";
  result.end();
  member.ranks.finish();
  EXPECT_EQ(member.ranks.given(0, 0), "SYMM_OUT_OF_MEMORY");
  EXPECT_TRUE(mentions_all(member.ranks.given(0, 1), {"rank 1 failed", "no memory in the past"}));
}

// The old peer as rank 0, which serves; today's as rank 1.
struct OldServer {
  explicit OldServer(Body body)
      : listener(listen_on(&port)), ranks(processes(1), body, two_ranks(port, "1")) {}
  ~OldServer() { close(listener); }
  int accept() { return accept_one(listener); }

  int port = 0;
  int listener;
  Ranks ranks;
};

TEST(OldPeer, ARankOfTodayLivesUnderARankZeroOf01) {
  OldServer server(lives);
  OldConnection meeting(server.accept());
  OldReader hello(meeting.receive(kOldHello));
  const uint32_t lowest = hello.u32();
  const uint32_t highest = hello.u32();
  EXPECT_TRUE(lowest <= 1 && highest >= 1) << "today's library no longer speaks protocol 1";
  EXPECT_EQ(hello.field(), today());
  EXPECT_EQ(hello.field(), "") << "token";
  EXPECT_EQ(hello.field(), "") << "name";
  EXPECT_EQ(hello.i32(), 1);
  EXPECT_EQ(hello.i32(), 2);
  const OldRank theirs = read_rank(&hello);
  EXPECT_EQ(theirs.device, -1);
  EXPECT_EQ(theirs.pid, server.ranks.pid(0));
  EXPECT_EQ(hello.u64(), 128u << 20) << "scratch_bytes";
  EXPECT_EQ(hello.i32(), kOldTimeoutMs);
  EXPECT_EQ(hello.i32(), kOldTimeoutMs);
  EXPECT_EQ(hello.u32(), 0u) << "flags";
  EXPECT_EQ(bytes_of(read_star(&hello)), bytes_of(OldStar()));
  EXPECT_EQ(bytes_of(read_failure(&hello)), bytes_of(OldFailure()));
  hello.end();

  OldStar star;
  star.uid = "a-star-of-the-past";
  star.endpoints.push_back({"", "127.0.0.1", static_cast<uint32_t>(server.port)});
  meeting.send(kOldReceived, "");
  meeting.send(kOldWelcome,
               u32(1) + bytes_of(star) + u32(2) + bytes_of(old_rank()) + bytes_of(theirs));

  OldConnection member(server.accept());
  OldReader join(member.receive(kOldJoin));
  EXPECT_EQ(join.field(), star.uid);
  EXPECT_EQ(join.i32(), 1);
  EXPECT_EQ(join.field(), theirs.process_id);
  join.end();
  member.send(kOldJoined, "");
  for (uint64_t step = 0; step < 3; ++step) {
    if (step == 2) {
      EXPECT_EQ(meeting.receive(kOldGoodbye), "");
    }
    OldReader gather(member.receive(kOldGather));
    EXPECT_EQ(gather.u64(), step);
    EXPECT_EQ(gather.field(), step < 2 ? "symm_comm_create" : "symm_comm_barrier");
    EXPECT_EQ(bytes_of(read_failure(&gather)), bytes_of(OldFailure()));
    const std::string blob = gather.field();
    member.send(kOldResult, u64(step) + bytes_of(OldFailure()) + u32(2) +
                                field(step == 0 ? cpus() : "") + field(blob) + u32(0));
  }
  EXPECT_EQ(member.receive(kOldGoodbye), "");
  server.ranks.finish();
}

TEST(OldPeer, TheRefusalOfAServerOfAnyVersionIsTold) {
  OldServer server(fails_to_create);
  OldConnection meeting(server.accept());
  OldReader hello(meeting.receive(kOldHello));
  // All that a server of another protocol reads.
  hello.u32();
  hello.u32();
  EXPECT_EQ(hello.field(), today());
  meeting.send(kOldReceived, "");
  meeting.send(kOldRefused, bytes_of({SYMM_UNSUPPORTED, 1, "said by a server of protocol 77"}));
  server.ranks.finish();
  EXPECT_EQ(server.ranks.given(0, 0), "SYMM_UNSUPPORTED");
  EXPECT_TRUE(mentions_all(server.ranks.given(0, 1),
                           {"symm_comm_create", "said by a server of protocol 77"}));
}

// ---- Builds that have no protocol in common ----

struct Range {
  uint32_t min, max;
};
// One from before the first protocol, one of a far future.
constexpr Range kForeign[] = {{0, 0}, {1000, 1007}};

// A rank 2 of 3 that speaks only those; what follows the head of its HELLO is none of ours.
void speak(OldConnection* connection, Range range, const std::string& token) {
  connection->send(kOldHello, hello_head(range.min, range.max, "9.8.7", token, 2, 3) +
                                  std::string("\xff\0 of another kind", 18));
}

std::vector<std::string> what_must_be_said(Range range) {
  return {"rank 2",
          "9.8.7",
          std::to_string(range.min) + ".." + std::to_string(range.max),
          "rank that serves has symm " + today(),
          "which speaks 1..",
          "install the same version"};
}

void expect_refusal(OldConnection* connection, Range range) {
  EXPECT_EQ(connection->receive(kOldReceived), "");
  OldReader refused(connection->receive(kOldRefused));
  const OldFailure failure = read_failure(&refused);
  refused.end();
  EXPECT_EQ(failure.status, SYMM_UNSUPPORTED);
  EXPECT_EQ(failure.rank, 2);
  for (const std::string& text : what_must_be_said(range)) {
    EXPECT_TRUE(mentions_all(failure.message, {text}));
  }
}

void expect_refused_ranks(const Ranks& ranks, Range range) {
  for (int rank : {0, 1}) {
    EXPECT_EQ(ranks.given(rank, 0), "SYMM_UNSUPPORTED");
    for (const std::string& text : what_must_be_said(range)) {
      EXPECT_TRUE(mentions_all(ranks.given(rank, 1), {text}));
    }
  }
}

RunOptions three_ranks(const std::string& address) {
  RunOptions options;
  options.address = address;
  options.size = 3;
  return options;
}

TEST(OldPeer, ABuildOfOtherProtocolsIsRefusedOnEveryRankWithBothVersions) {
  for (const Range range : kForeign) {
    const int port = free_port();
    Ranks ranks(processes(2), fails_to_create,
                three_ranks("tcp://127.0.0.1:" + std::to_string(port)));
    ranks.wait_for_all("creating");
    std::this_thread::sleep_for(std::chrono::milliseconds(300 * kSlowdown));  // until they wait
    OldConnection stranger(connect_until_served(port));
    speak(&stranger, range, "");
    expect_refusal(&stranger, range);
    ranks.finish();
    expect_refused_ranks(ranks, range);
  }
}

// Nobody of the job has told the server its deadline yet.
TEST(OldPeer, ABuildOfOtherProtocolsThatComesFirstIsRefusedOnEveryRankToo) {
  for (const Range range : kForeign) {
    // symm://<token>@<host>:<port>/...
    const std::string address = served_address();
    const size_t at = address.find('@');
    const std::string token = address.substr(7, at - 7);
    const int port = std::stoi(address.substr(address.find(':', at) + 1));
    OldConnection stranger(connect_until_served(port));
    speak(&stranger, range, token);
    expect_refusal(&stranger, range);
    Ranks ranks(processes(2), fails_to_create, three_ranks(address));
    ranks.finish();
    expect_refused_ranks(ranks, range);
  }
}

}  // namespace
}  // namespace symm_test
