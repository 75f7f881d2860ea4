// Connections that are not of the job, while the job meets: they cost nobody anything.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "capi/symm.h"
#include "tests/support/calls.h"
#include "tests/support/places.h"

namespace symm_test {
namespace {

class Strangers : public testing::Test {
 protected:
  // Three ranks; the last comes only after `disturb`.
  void meet_while(const std::function<void()>& disturb) {
    RunOptions options;
    options.address = "tcp://127.0.0.1:" + std::to_string(port);
    Ranks ranks(
        processes(3),
        [](Rank& rank) {
          if (rank.rank == 2) rank.hear();
          rank.at("creating");
          const Stopwatch clock;
          const Comm comm = create(rank);
          ASSERT_NE(comm, nullptr);
          if (rank.rank == 2) {
            EXPECT_LT(clock.seconds(), 3 * kSlowdown) << "the strangers kept the last rank waiting";
          }
          EXPECT_TRUE(adds_up(comm.get()));
          EXPECT_TRUE(ok(symm_comm_barrier(comm.get(), nullptr)));
        },
        options);
    ranks.wait_for(0, "creating");
    ranks.wait_for(1, "creating");
    for (int attempt = 0; attempt < 500; ++attempt) {
      const int fd = connect_to(port);
      if (fd >= 0) {
        close(fd);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    disturb();
    ranks.tell(2, "come");
    ranks.finish();
    for (int fd : open) close(fd);
    open.clear();
  }

  // A connection that stays open, with these bytes sent.
  void send_bytes(const std::string& bytes) {
    const int fd = connect_to(port);
    ASSERT_GE(fd, 0);
    open.push_back(fd);
    (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  const int port = free_port();
  std::vector<int> open;
};

// What a frame of symm looks like from outside: magic, type, length.
std::string header(uint32_t type, uint32_t length) {
  std::string bytes = "SYM1";
  for (uint32_t word : {type, length}) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(word >> shift);
  }
  return bytes;
}

TEST_F(Strangers, RandomBytesDisturbNobody) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  meet_while([&] {
    for (int i = 0; i < 200; ++i) {
      std::string bytes(random() % 5000, '\0');
      std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
      send_bytes(bytes);
    }
  });
}

TEST_F(Strangers, AWebBrowserDisturbsNobody) {
  meet_while([&] {
    send_bytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    send_bytes("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    send_bytes("SSH-2.0-OpenSSH_9.2p1\r\n");
  });
}

TEST_F(Strangers, HalfAFrameAndThenSilenceDisturbsNobody) {
  meet_while([&] {
    send_bytes("S");
    send_bytes("SYM1");
    send_bytes(header(1, 100));
    send_bytes(header(1, 100) + std::string(99, 'x'));
    send_bytes("");
  });
}

TEST_F(Strangers, LengthsBeyondAllMeasureDisturbNobody) {
  meet_while([&] {
    for (uint32_t length : {0xffffffffu, 0x80000000u, 0x7fffffffu, 0x01000000u, 16385u}) {
      for (uint32_t type = 0; type < 14; ++type)
        send_bytes(header(type, length) + std::string(64, '\xff'));
    }
  });
}

TEST_F(Strangers, FramesWithNonsenseInsideDisturbNobody) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  meet_while([&] {
    for (uint32_t type = 0; type < 14; ++type) {
      for (uint32_t length : {0u, 1u, 4u, 40u, 400u, 16384u}) {
        std::string payload(length, '\0');
        std::generate(payload.begin(), payload.end(),
                      [&] { return static_cast<char>(random() % 3); });
        send_bytes(header(type, length) + payload);
      }
    }
    send_bytes(header(0xffffffff, 0));
  });
}

TEST_F(Strangers, ThousandsOfIdleConnectionsDisturbNobody) {
  const int connections = 3000 / kSlowdown;
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 4096) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  meet_while([&] {
    for (int i = 0; i < connections; ++i) send_bytes("");
  });
}

TEST_F(Strangers, ConnectionsThatComeAndGoDisturbNobody) {
  meet_while([&] {
    for (int i = 0; i < 2000 / kSlowdown; ++i) {
      send_bytes(i % 2 == 0 ? "" : "SYM1");
      close(open.back());
      open.pop_back();
    }
  });
}

TEST_F(Strangers, AHelloCutShortTakesNoRanksPlace) {
  // A well-formed frame of the right type whose fields end too soon.
  meet_while([&] { send_bytes(header(1, 12) + std::string("\1\0\0\0\1\0\0\0\0\0\0\0", 12)); });
}

}  // namespace
}  // namespace symm_test
