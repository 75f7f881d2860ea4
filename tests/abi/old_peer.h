// A rank as symm 0.1 was on the wire, protocol 1, written out byte by byte: it shares no code with
// core/. Once v0.1.0 is tagged nothing here may change: a test that fails then says that today's
// ranks do not understand those that are in use.
#ifndef SYMM_TESTS_ABI_OLD_PEER_H_
#define SYMM_TESTS_ABI_OLD_PEER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace symm_test {

// Numbers of frames.
enum OldFrame : uint32_t {
  kOldHello = 1,
  kOldReceived = 2,
  kOldWelcome = 3,
  kOldRefused = 4,
  kOldJoin = 6,
  kOldJoined = 7,
  kOldGather = 8,
  kOldResult = 9,
  kOldGoodbye = 11,
  kOldDoomed = 12,
};

// Fields, little-endian, as they follow each other in a payload.
std::string u8(unsigned value);
std::string u32(uint32_t value);
std::string i32(int32_t value);
std::string u64(uint64_t value);
std::string field(const std::string& bytes);  // u32 length, bytes

// Takes fields off a payload; what is not there, or left at the end, is a failure of the test.
class OldReader {
 public:
  explicit OldReader(std::string bytes) : bytes_(std::move(bytes)) {}
  uint32_t u32();
  int32_t i32() { return static_cast<int32_t>(u32()); }
  uint64_t u64();
  std::string field();
  void end() const;

 private:
  std::string take(size_t count);
  std::string bytes_;
};

// What 0.1 said of a rank, where its star was, and how it told failures.
struct OldRank {
  std::string host_id, host_name, process_id;
  int32_t pid = 0, device = -1;
};
struct OldEndpoint {
  std::string unix_name, host;
  uint32_t port = 0;
};
struct OldStar {
  std::string uid;
  std::vector<OldEndpoint> endpoints;
};
struct OldFailure {
  int32_t status = 0, rank = -1;
  std::string message;
};
std::string bytes_of(const OldRank& rank);
std::string bytes_of(const OldStar& star);
std::string bytes_of(const OldFailure& failure);
OldRank read_rank(OldReader* reader);
OldStar read_star(OldReader* reader);
OldFailure read_failure(OldReader* reader);

// The rank that the old peer is: on a host of its own, so that all goes over the wire.
OldRank old_rank();

// A HELLO of it: the part that every version keeps, and the rest as protocol 1 has it. Its options
// are the defaults with both deadlines at kOldTimeoutMs.
constexpr int32_t kOldTimeoutMs = 60000;
std::string hello_head(uint32_t protocol_min, uint32_t protocol_max, const std::string& version,
                       const std::string& token, int32_t rank, int32_t size);
std::string hello_rest(const OldStar& star);

struct OldMessage {
  uint32_t type = 0;
  std::string payload;
};

// One connection, blocking, every wait bounded.
class OldConnection {
 public:
  explicit OldConnection(int fd) : fd_(fd) {}
  ~OldConnection();
  OldConnection(const OldConnection&) = delete;
  OldConnection& operator=(const OldConnection&) = delete;

  void send(uint32_t type, const std::string& payload);
  // The next frame, which must be of that type.
  std::string receive(uint32_t type);
  OldMessage receive();

 private:
  std::string read(size_t count);
  int fd_;
};

// Tries until the port, or the abstract unix socket, is served.
int connect_until_served(int port);
int connect_unix(const std::string& name);
// The next connection of a listener.
int accept_one(int listener);

}  // namespace symm_test

#endif  // SYMM_TESTS_ABI_OLD_PEER_H_
