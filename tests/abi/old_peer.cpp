#include "tests/abi/old_peer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "tests/support/pace.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

constexpr int kWaitMs = 20000 * kSlowdown;

std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

uint64_t value_of(const std::string& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

bool readable(int fd) {
  pollfd one = {fd, POLLIN, 0};
  return poll(&one, 1, kWaitMs) == 1;
}

}  // namespace

std::string u8(unsigned value) { return little_endian(value, 1); }
std::string u32(uint32_t value) { return little_endian(value, 4); }
std::string i32(int32_t value) { return little_endian(static_cast<uint32_t>(value), 4); }
std::string u64(uint64_t value) { return little_endian(value, 8); }
std::string field(const std::string& bytes) {
  return u32(static_cast<uint32_t>(bytes.size())) + bytes;
}

std::string OldReader::take(size_t count) {
  EXPECT_LE(count, bytes_.size()) << "a message of today ends before its last field";
  const std::string taken = bytes_.substr(0, count);
  bytes_.erase(0, count);
  return taken;
}
uint32_t OldReader::u32() { return static_cast<uint32_t>(value_of(take(4))); }
uint64_t OldReader::u64() { return value_of(take(8)); }
std::string OldReader::field() { return take(u32()); }
void OldReader::end() const {
  EXPECT_TRUE(bytes_.empty()) << bytes_.size() << " bytes more than the message had in 0.1";
}

std::string bytes_of(const OldRank& rank) {
  return field(rank.host_id) + field(rank.host_name) + field(rank.process_id) + i32(rank.pid) +
         i32(rank.device);
}

OldRank read_rank(OldReader* reader) {
  OldRank rank;
  rank.host_id = reader->field();
  rank.host_name = reader->field();
  rank.process_id = reader->field();
  rank.pid = reader->i32();
  rank.device = reader->i32();
  return rank;
}

std::string bytes_of(const OldStar& star) {
  std::string bytes = field(star.uid) + u32(static_cast<uint32_t>(star.endpoints.size()));
  for (const OldEndpoint& endpoint : star.endpoints) {
    bytes += field(endpoint.unix_name) + field(endpoint.host) + u32(endpoint.port);
  }
  return bytes;
}

OldStar read_star(OldReader* reader) {
  OldStar star;
  star.uid = reader->field();
  const uint32_t count = reader->u32();
  EXPECT_LE(count, 32u) << "0.1 took no more endpoints";
  for (uint32_t i = 0; i < count && i < 32; ++i) {
    OldEndpoint endpoint;
    endpoint.unix_name = reader->field();
    endpoint.host = reader->field();
    endpoint.port = reader->u32();
    star.endpoints.push_back(endpoint);
  }
  return star;
}

std::string bytes_of(const OldFailure& failure) {
  return i32(failure.status) + i32(failure.rank) + field(failure.message);
}

OldFailure read_failure(OldReader* reader) {
  OldFailure failure;
  failure.status = reader->i32();
  failure.rank = reader->i32();
  failure.message = reader->field();
  return failure;
}

OldRank old_rank() {
  OldRank rank;
  rank.host_id = "00112233445566778899aabbccddeeff";
  rank.host_name = "the-past";
  rank.process_id = "process-of-the-past";
  rank.pid = 4711;
  return rank;
}

std::string hello_head(uint32_t protocol_min, uint32_t protocol_max, const std::string& version,
                       const std::string& token, int32_t rank, int32_t size) {
  const std::string name;
  return u32(protocol_min) + u32(protocol_max) + field(version) + field(token) + field(name) +
         i32(rank) + i32(size);
}

std::string hello_rest(const OldStar& star) {
  const uint64_t scratch_bytes = 128 << 20;
  const uint32_t flags = 0;
  return bytes_of(old_rank()) + u64(scratch_bytes) + i32(kOldTimeoutMs) + i32(kOldTimeoutMs) +
         u32(flags) + bytes_of(star) + bytes_of(OldFailure());
}

OldConnection::~OldConnection() { close(fd_); }

void OldConnection::send(uint32_t type, const std::string& payload) {
  const std::string frame = "SYM1" + u32(type) + field(payload);
  EXPECT_EQ(::send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(frame.size()))
      << "frame of type " << type << ": " << strerror(errno);
}

std::string OldConnection::read(size_t count) {
  std::string bytes;
  while (bytes.size() < count) {
    char buffer[4096];
    const size_t most = std::min(sizeof buffer, count - bytes.size());
    const ssize_t got = readable(fd_) ? recv(fd_, buffer, most, 0) : -1;
    if (got <= 0) {
      ADD_FAILURE() << (got == 0 ? "the connection ended" : "nothing came") << " after "
                    << bytes.size() << " of " << count << " bytes";
      bytes.resize(count);
      return bytes;
    }
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

OldMessage OldConnection::receive() {
  OldReader header(read(12));
  EXPECT_EQ(header.u32(), 0x314d5953u) << "not \"SYM1\"";
  OldMessage message;
  message.type = header.u32();
  const uint32_t length = header.u32();
  EXPECT_LT(length, 1u << 20);
  if (length < 1u << 20) message.payload = read(length);
  return message;
}

std::string OldConnection::receive(uint32_t type) {
  OldMessage message = receive();
  EXPECT_EQ(message.type, type) << "payload: " << message.payload;
  return message.payload;
}

int connect_until_served(int port) {
  const Stopwatch clock;
  for (;;) {
    const int fd = connect_to(port);
    if (fd >= 0 || clock.seconds() > kWaitMs / 1000.0) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int connect_unix(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  EXPECT_LT(name.size(), sizeof address.sun_path);
  memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), length), 0) << strerror(errno);
  return fd;
}

int accept_one(int listener) {
  if (!readable(listener)) {
    ADD_FAILURE() << "nobody connected";
    return -1;
  }
  return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
}

}  // namespace symm_test
