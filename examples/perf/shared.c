#define _POSIX_C_SOURCE 200809L

#include "shared.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A rank's slice of the window; each line has one writer at a time. */
struct slice {
  uint64_t arrived; /* the last barrier this rank came to */
  char line0[56];
  uint64_t values[2]; /* by parity of the epoch: a rank is never two barriers ahead of a reader */
  char line1[48];
  uint64_t turn; /* of the ping-pong; in the lower rank of a pair */
  char line2[56];
  unsigned char part[]; /* of the reference */
};

enum { ping_pong_turns = 300, spins_before_yield = 2000 };

static struct slice* slice_of(const struct shared* shared, int rank) {
  return (struct slice*)(void*)shared->slices[rank];
}

size_t shared_window_bytes(size_t part_bytes) { return sizeof(struct slice) + part_bytes; }

unsigned char* shared_part(struct shared* shared, int rank) { return slice_of(shared, rank)->part; }

double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Whatever the other rank does, the watchdog ends this wait. */
static void wait_until(const uint64_t* word, uint64_t least, int crowded) {
  for (int i = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) < least; ++i) {
    if (crowded || i > spins_before_yield) {
      sched_yield();
    } else {
      pause_cpu();
    }
  }
}

void shared_barrier(struct shared* shared) {
  const uint64_t epoch = ++shared->epoch;
  /* Release: what this rank wrote before is seen by those who see it here. */
  __atomic_store_n(&slice_of(shared, shared->rank)->arrived, epoch, __ATOMIC_RELEASE);
  for (int rank = 0; rank < shared->size; ++rank) {
    wait_until(&slice_of(shared, rank)->arrived, epoch, shared->crowded);
  }
}

/* Posts this rank's value for the next barrier and waits there; the values are then in
 * values[returned]. */
static int exchange(struct shared* shared, uint64_t mine) {
  const int bank = (int)((shared->epoch + 1) & 1);
  slice_of(shared, shared->rank)->values[bank] = mine;
  shared_barrier(shared);
  return bank;
}

double shared_max(struct shared* shared, double mine) {
  uint64_t bits;
  memcpy(&bits, &mine, sizeof bits);
  const int bank = exchange(shared, bits);
  double most = mine;
  for (int rank = 0; rank < shared->size; ++rank) {
    double other;
    memcpy(&other, &slice_of(shared, rank)->values[bank], sizeof other);
    most = other > most ? other : most;
  }
  return most;
}

uint64_t shared_sum(struct shared* shared, uint64_t mine) {
  const int bank = exchange(shared, mine);
  uint64_t sum = 0;
  for (int rank = 0; rank < shared->size; ++rank) {
    sum += slice_of(shared, rank)->values[bank];
  }
  return sum;
}

double shared_ping_pong(struct shared* shared) {
  if (shared->crowded || shared->size == 1) {
    return 0;
  }
  const int partner = shared->rank ^ 1;
  double one_way_ns = 0;
  if (partner < shared->size) {
    const int lower = shared->rank < partner ? shared->rank : partner;
    uint64_t* turn = &slice_of(shared, lower)->turn;
    /* Turns go on from one ping-pong to the next, an even number in each, so nobody resets the
     * line. */
    const uint64_t start = __atomic_load_n(turn, __ATOMIC_RELAXED);
    shared_barrier(shared);
    const double begin = now_us();
    for (uint64_t i = shared->rank == lower ? 0 : 1; i < ping_pong_turns; i += 2) {
      wait_until(turn, start + i, 0);
      __atomic_store_n(turn, start + i + 1, __ATOMIC_RELEASE);
    }
    wait_until(turn, start + ping_pong_turns, 0);
    one_way_ns = (now_us() - begin) * 1e3 / ping_pong_turns;
  } else {
    shared_barrier(shared);
  }
  return shared_max(shared, one_way_ns);
}

static void bark(int signal_number) {
  static const char message[] = "symm-perf: no progress within --timeout; ended\n";
  (void)signal_number;
  const ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
  (void)ignored;
  _exit(1);
}

void watchdog_feed(int seconds) {
  static int installed;
  if (seconds == 0) {
    return;
  }
  if (!installed) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = bark;
    sigaction(SIGALRM, &action, NULL);
    installed = 1;
  }
  alarm((unsigned)seconds);
}
