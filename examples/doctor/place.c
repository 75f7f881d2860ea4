/* Who listens at MASTER_ADDR:MASTER_PORT: nobody, a PyTorch store, or something else. */
#define _GNU_SOURCE /* struct addrinfo, SOCK_CLOEXEC */

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "part.h"

static const char section[] = "Launcher (env://)";
static const char name[] = "meeting place";
/* Hands this process's rank to the part. */
static const char rank_variable[] = "SYMM_DOCTOR_RANK";

enum { connect_ms = 3000, answer_ms = 2000, most_addresses = 4, resolver_s = 10 };

enum listener {
  STORE,
  CLOSES, /* hangs up without a word, as a rank 0 of symm does to strangers */
  SPEAKS, /* says what no store says */
  MUTE,   /* accepts and says nothing */
  NOBODY, /* refused: the host is there, and nothing listens */
  UNREACHABLE
};

/* Only a resolver that does not answer takes so long. */
static struct checks too_slow;

static void on_alarm(int number) {
  (void)number;
  part_say_findings(&too_slow);
  _exit(0);
}

/* 0 or an errno. */
static int connect_within(int fd, const struct addrinfo* address) {
  struct pollfd one = {fd, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  fcntl(fd, F_SETFL, O_NONBLOCK);
  if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS) {
    return errno;
  }
  if (poll(&one, 1, connect_ms) <= 0) {
    return ETIMEDOUT;
  }
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

/* The kernel may choose the very port that nobody listens at as this end's own. */
static int is_connected_to_itself(int fd) {
  struct sockaddr_storage here, there;
  socklen_t here_size = sizeof here, there_size = sizeof there;
  memset(&here, 0, sizeof here);
  memset(&there, 0, sizeof there);
  return getsockname(fd, (struct sockaddr*)&here, &here_size) == 0 &&
         getpeername(fd, (struct sockaddr*)&there, &there_size) == 0 && here_size == there_size &&
         memcmp(&here, &there, here_size) == 0;
}

/* PyTorch's protocol: VALIDATE with its magic number, then CHECK of one key, which a store answers
 * by a byte, 0 (there) or 1 (not there). Numbers are in the host's order. */
static enum listener ask(int fd) {
  static const char key[] = "symm";
  const uint8_t validate = 0, check = 5;
  const uint32_t magic = 0x3C85F7CE;
  const uint64_t count = 1, length = sizeof key - 1;
  char request[64];
  size_t size = 0;
  const struct {
    const void* bytes;
    size_t size;
  } fields[] = {{&validate, sizeof validate}, {&magic, sizeof magic},   {&check, sizeof check},
                {&count, sizeof count},       {&length, sizeof length}, {key, sizeof key - 1}};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; ++i) {
    memcpy(request + size, fields[i].bytes, fields[i].size);
    size += fields[i].size;
  }
  struct pollfd one = {fd, POLLIN, 0};
  unsigned char answer;
  if (send(fd, request, size, MSG_NOSIGNAL) != (ssize_t)size) {
    return CLOSES;
  }
  if (poll(&one, 1, answer_ms) <= 0) {
    return MUTE;
  }
  return recv(fd, &answer, 1, 0) != 1 ? CLOSES : answer <= 1 ? STORE : SPEAKS;
}

static enum listener look(const struct addrinfo* addresses, int* error) {
  enum listener found = UNREACHABLE;
  int tried = 0;
  for (const struct addrinfo* at = addresses; at != NULL && tried < most_addresses;
       at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = fd < 0 ? errno : connect_within(fd, at);
    if (failed == 0 && is_connected_to_itself(fd)) {
      failed = ECONNREFUSED;
    }
    const enum listener here = failed == 0              ? ask(fd)
                               : failed == ECONNREFUSED ? NOBODY
                                                        : UNREACHABLE;
    if (fd >= 0) {
      close(fd);
    }
    if (tried++ == 0 || here < found) {
      found = here;
      *error = failed;
    }
    if (failed == 0) {
      break;
    }
  }
  return found;
}

/* Whether rank 0 can listen there: 0 or an errno. */
static int try_to_listen(const struct addrinfo* addresses) {
  int error = EADDRNOTAVAIL;
  const int on = 1;
  for (const struct addrinfo* at = addresses; at != NULL; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    error = errno;
    if (fd < 0) {
      continue;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    error = bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 1) == 0 ? 0 : errno;
    close(fd);
    if (error == 0) {
      break;
    }
  }
  return error;
}

static const char* description(enum listener found) {
  switch (found) {
    case CLOSES:
      return "what listens there hangs up when it is asked for a store";
    case SPEAKS:
      return "what listens there answers as no PyTorch store does";
    case MUTE:
      return "what listens there says nothing";
    default:
      return "";
  }
}

static void judge_agent(struct checks* checks, enum listener found, const char* at, int error) {
  static const char remedy[] =
      "is torchrun, whose agent keeps the store on MASTER_ADDR's host, still running, and are "
      "MASTER_ADDR and MASTER_PORT its own? Without torchrun unset TORCHELASTIC_USE_AGENT_STORE: "
      "rank 0 then serves there itself";
  if (found == STORE) {
    checks_add(checks, section, name, CHECK_OK, NULL, "an entry in torchrun's store at %s", at);
  } else if (found == NOBODY || found == UNREACHABLE) {
    checks_add(checks, section, name, CHECK_WARN, remedy,
               "TORCHELASTIC_USE_AGENT_STORE is True, but no store can be reached at %s: %s", at,
               strerror(error));
  } else {
    checks_add(checks, section, name, CHECK_WARN, remedy,
               "TORCHELASTIC_USE_AGENT_STORE is True, but there is no store at %s: %s", at,
               description(found));
  }
}

static void judge_free_port(struct checks* checks, const struct addrinfo* addresses, const char* at,
                            long rank) {
  if (rank > 0) {
    checks_add(checks, section, name, CHECK_NOTE,
               "rank 0 listens there while the ranks meet: if it is waiting for this one now, "
               "MASTER_ADDR or MASTER_PORT is another than rank 0's",
               "nobody listens at %s now (%s)", at, strerror(ECONNREFUSED));
    return;
  }
  const int error = try_to_listen(addresses);
  if (error == 0) {
    checks_add(checks, section, name, CHECK_OK, NULL,
               "%s: the port is free, rank 0 (this process) would serve there", at);
  } else {
    checks_add(checks, section, name, CHECK_WARN,
               error == EADDRNOTAVAIL ? "set MASTER_ADDR to a name or number of the host that rank "
                                        "0 runs on, or start rank 0 on that host"
               : error == EACCES      ? "set MASTER_PORT to a port of 1024 or above"
                                      : "set MASTER_PORT to a free port of rank 0's host",
               "rank 0 (this process) cannot serve at %s: %s%s", at, strerror(error),
               error == EADDRNOTAVAIL ? ": it is no address of this host" : "");
  }
}

static void judge(struct checks* checks, const struct addrinfo* addresses, const char* at) {
  const char* agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
  const char* rank_text = getenv(rank_variable);
  const long rank = rank_text != NULL ? atol(rank_text) : 0;
  int error = 0;
  const enum listener found = look(addresses, &error);
  if (agent != NULL && strcmp(agent, "True") == 0) {
    judge_agent(checks, found, at, error);
  } else if (found == STORE) {
    checks_add(checks, section, name, CHECK_OK, NULL,
               "a PyTorch store listens at %s: the ranks meet by an entry in it", at);
  } else if (found == NOBODY) {
    judge_free_port(checks, addresses, at, rank);
  } else if (found == UNREACHABLE) {
    checks_add(checks, section, name, CHECK_WARN,
               "is MASTER_ADDR rank 0's host, and does a firewall or network policy let TCP "
               "through from this one (ping, nc -vz)?",
               "%s cannot be reached from here: %s", at, strerror(error));
  } else if (rank > 0 && found == CLOSES) {
    checks_add(checks, section, name, CHECK_NOTE,
               "if the ranks do not meet, another program has the port: choose another",
               "%s: %s; a rank 0 that waits for its ranks does that too", at, description(found));
  } else {
    checks_add(checks, section, name, CHECK_WARN,
               "set MASTER_PORT to a port that no other program uses on rank 0's host (ss -tlnp)",
               "another program has %s: %s", at, description(found));
  }
}

int place_part(void) {
  static struct checks checks;
  char host[256], at[300];
  const char* written = getenv("MASTER_ADDR");
  const char* port = getenv("MASTER_PORT");
  if (written == NULL || port == NULL) {
    return 1;
  }
  snprintf(at, sizeof at, "%.255s:%.16s", written, port);
  snprintf(host, sizeof host, "%s", written);
  const size_t length = strlen(host);
  if (host[0] == '[' && host[length - 1] == ']') { /* an IPv6 number */
    memmove(host, host + 1, length - 2);
    host[length - 2] = '\0';
  }
  checks_add(&too_slow, section, name, CHECK_WARN,
             "let MASTER_ADDR be a number, or put the name into /etc/hosts",
             "MASTER_ADDR %s is not found: the resolver does not answer within %d s", written,
             (int)resolver_s);
  signal(SIGALRM, on_alarm);
  alarm(resolver_s);
  struct addrinfo hints, *found = NULL;
  memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host, port, &hints, &found);
  alarm(0); /* what follows has deadlines of its own */
  if (error != 0) {
    checks_add(&checks, section, name, CHECK_WARN,
               "set MASTER_ADDR to a name or number of rank 0's host that this host knows",
               "MASTER_ADDR %s is not known: %s", written, gai_strerror(error));
  } else {
    judge(&checks, found, at);
    freeaddrinfo(found);
  }
  return !part_say_findings(&checks);
}

void check_place(struct checks* checks, const struct claim* claim, int met) {
  char rank[24];
  if (met) {
    checks_add(checks, section, name, CHECK_OK, NULL, "%s:%s, and the ranks have met there",
               getenv("MASTER_ADDR"), getenv("MASTER_PORT"));
    return;
  }
  snprintf(rank, sizeof rank, "%ld", claim->rank);
  setenv(rank_variable, rank, 1);
  part_run_findings(checks, section, "place");
}
