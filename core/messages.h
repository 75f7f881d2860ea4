// The messages of a rendezvous and of a communicator's star: their fields and their encoding.
//
// A meeting:   caller -> server  HELLO, then perhaps EXPIRED; after WELCOME, GOODBYE once it is in
//                                the star or FAULT if it gives up
//              server -> caller  RECEIVED, then WELCOME or REFUSED; REFUSED after WELCOME is the
//                                loss of a rank that was not in the star yet
// A star:      member -> hub     JOIN, then GATHER..., EXPIRED, FAULT, GOODBYE
//              hub -> member     JOINED or REFUSED, then DOOMED and RESULT..., FAULT, GOODBYE
//
// Decoders throw WireError on anything that is not exactly one such message; they see bytes of
// whoever connects. HELLO and REFUSED keep their layout up to the protocol range for ever, so that
// two builds of different protocol can refuse each other by name.
#ifndef SYMM_CORE_MESSAGES_H_
#define SYMM_CORE_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/socket.h"
#include "core/wire.h"

namespace symm {

// Protocols this build speaks. Ranks use the highest that all of them know.
constexpr uint32_t kProtocolMin = 1;
constexpr uint32_t kProtocolMax = 1;

constexpr int kMostRanks = 1024;

enum MessageType : uint32_t {
  kHello = 1,
  kReceived = 2,
  kWelcome = 3,
  kRefused = 4,
  kExpired = 5,
  kJoin = 6,
  kJoined = 7,
  kGather = 8,
  kResult = 9,
  kFault = 10,
  kGoodbye = 11,
  kDoomed = 12,
};

// Bounds on payloads: before a peer has shown that it belongs here, and after.
constexpr size_t kMostHandshakePayload = 16 * 1024;
constexpr size_t kMostBlob = 64 * 1024;
constexpr size_t kMostText = 2048;
constexpr size_t kMostWelcomePayload = size_t{kMostRanks} * kMostHandshakePayload;
constexpr size_t kMostStarPayload = size_t{kMostRanks} * kMostBlob;

// A failure on its way to other ranks. SYMM_OK means none.
struct Failure {
  symm_status status = SYMM_OK;
  int rank = kNoRank;
  std::string message;
};

// Who a rank is: what others need to find it and to say where it runs.
struct RankInfo {
  std::string host_id;  // host_identity()
  std::string host_name;
  std::string process_id;  // process_identity()
  int32_t pid = 0;         // in its own pid name space; for messages only
  int32_t device = SYMM_CPU;
};

// Where a star is served: a secret that names it, and the ways to its hub, best first.
struct StarAddress {
  std::string uid;
  std::vector<Endpoint> endpoints;
};

// A flag that no caller sets: the communicator is a peer domain's inside another one of ranks that
// share GPUs, and NCCL's kernels between the domains need room on them meanwhile.
constexpr uint32_t kBesideNccl = uint32_t{1} << 31;

// Options that must be equal on every rank.
struct AgreedOptions {
  uint64_t scratch_bytes = 0;
  int32_t timeout_ms = 0;
  int32_t wait_timeout_ms = 0;
  uint32_t flags = 0;
  bool operator==(const AgreedOptions&) const = default;
};

// The first option in which two ranks differ.
struct OptionsDifference {
  const char* field;
  uint64_t mine;
  uint64_t theirs;
};
std::optional<OptionsDifference> difference(const AgreedOptions& mine, const AgreedOptions& theirs);

struct Hello {
  uint32_t protocol_min = kProtocolMin;
  uint32_t protocol_max = kProtocolMax;
  std::string version;  // of the library, for messages
  std::string token;
  std::string name;
  int32_t rank = 0;
  int32_t size = 0;
  RankInfo info;
  AgreedOptions options;
  StarAddress star;  // of rank 0
  Failure failure;   // this rank's call is wrong: the meeting is to fail everywhere
};

struct Welcome {
  uint32_t protocol = 0;
  StarAddress star;
  std::vector<RankInfo> roster;  // by rank
};

struct Join {
  std::string uid;
  int32_t rank = 0;
  std::string process_id;
};

// One rank's part in a step. `kind` must be the same on every rank.
struct Gather {
  uint64_t step = 0;
  std::string kind;
  Failure failure;
  Bytes blob;
  bool has_fd = false;
};

struct Result {
  uint64_t step = 0;
  Failure failure;                // the step failed everywhere; the communicator works on
  std::vector<Bytes> blobs;       // by rank
  std::vector<int32_t> fd_ranks;  // whose fds come with this frame, in order
};

struct Expired {
  uint64_t step = 0;
};

Bytes encode(const StarAddress& star);
Bytes encode(const Hello& hello);
Bytes encode(const Welcome& welcome);
Bytes encode(const Failure& failure);  // REFUSED, FAULT and DOOMED
Bytes encode(const Join& join);
Bytes encode(const Gather& gather);
Bytes encode(const Result& result);
Bytes encode(const Expired& expired);

StarAddress decode_star_address(const Bytes& payload);
Hello decode_hello(const Bytes& payload);
Welcome decode_welcome(const Bytes& payload);
Failure decode_failure(const Bytes& payload);
Join decode_join(const Bytes& payload);
Gather decode_gather(const Bytes& payload);
Result decode_result(const Bytes& payload);
Expired decode_expired(const Bytes& payload);

}  // namespace symm

#endif  // SYMM_CORE_MESSAGES_H_
