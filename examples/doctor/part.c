#define _POSIX_C_SOURCE 200809L

#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* By the environment: an address holds a secret, which arguments show to all. */
static const char part_variable[] = "SYMM_DOCTOR_PART";
static const char address_variable[] = "SYMM_DOCTOR_ADDRESS";
static const char pipe_variable[] = "SYMM_DOCTOR_PIPE";

enum { most_parts = 8 };

double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

const char* part_of_this_process(const char** address) {
  *address = getenv(address_variable);
  return *address != NULL && getenv(pipe_variable) != NULL ? getenv(part_variable) : NULL;
}

/* With its NUL, in one write: what several say at once stays apart. */
int part_say(const char* text) {
  const size_t size = strlen(text) + 1;
  const char* pipe_end = getenv(pipe_variable);
  return pipe_end != NULL && write(atoi(pipe_end), text, size) == (ssize_t)size;
}

int part_say_findings(const struct checks* checks) {
  char status[2] = "0";
  int said = 1;
  for (int i = 0; i < checks->count && said; ++i) {
    const struct check* check = &checks->list[i];
    status[0] = (char)('0' + check->status);
    said = part_say(status) && part_say(check->name) && part_say(check->detail) &&
           part_say(check->remedy);
  }
  return said;
}

/* This program again; -1 with errno. */
static pid_t start(const char* part, const char* address, int pipe_end) {
  char number[16];
  snprintf(number, sizeof number, "%d", pipe_end);
  const pid_t child = fork();
  if (child != 0) {
    return child;
  }
  if (setenv(part_variable, part, 1) == 0 && setenv(address_variable, address, 1) == 0 &&
      setenv(pipe_variable, number, 1) == 0) {
    execl("/proc/self/exe", "symm-doctor", (char*)NULL);
  }
  _exit(127);
}

static void describe_end(int status, char* failure) {
  if (failure[0] != '\0' || status == 0) {
    return;
  }
  if (WIFSIGNALED(status)) {
    snprintf(failure, CHECK_TEXT, "a process was ended by signal %d%s", WTERMSIG(status),
             WTERMSIG(status) == SIGALRM ? ": it hung" : "");
  } else {
    snprintf(failure, CHECK_TEXT, "a process ended with status %d", WEXITSTATUS(status));
  }
}

/* Until everybody who could say something has ended. Texts that are missing or cut off at the end
 * are read as empty ones: there are NULs enough for a finding behind it. */
static void hear(int from, char* said) {
  const size_t most = PART_SAID - 8;
  size_t length = 0;
  ssize_t got;
  do {
    got = read(from, said + length, most - length);
    length += got > 0 ? (size_t)got : 0;
  } while ((got > 0 && length < most) || (got < 0 && errno == EINTR));
}

char* parts_run(const char* const* parts, int count, const char* address, char* failure) {
  int ends[2];
  pid_t children[most_parts];
  int started = 0;
  failure[0] = '\0';
  char* said = calloc(PART_SAID, 1);
  if (said == NULL || pipe(ends) != 0) {
    snprintf(failure, CHECK_TEXT, "no process can be started: %s", strerror(errno));
    free(said);
    return NULL;
  }
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  for (; started < count; ++started) {
    children[started] = start(parts[started], address, ends[1]);
    if (children[started] < 0) {
      snprintf(failure, CHECK_TEXT, "fork: %s", strerror(errno));
      break;
    }
  }
  close(ends[1]);
  hear(ends[0], said);
  for (int i = 0; i < started; ++i) {
    int status = 0;
    while (waitpid(children[i], &status, 0) < 0 && errno == EINTR) {
    }
    describe_end(status, failure);
  }
  close(ends[0]);
  return said;
}

/* The text behind this one. */
static const char* next(const char* text) { return text + strlen(text) + 1; }

void part_run_findings(struct checks* checks, const char* section, const char* part) {
  char failure[CHECK_TEXT];
  char* said = parts_run(&part, 1, "-", failure);
  const char* at = said;
  while (at != NULL && at[0] >= '0' && at[0] <= '3' && at[1] == '\0') {
    const char* name = next(at);
    const char* detail = next(name);
    const char* remedy = next(detail);
    checks_add(checks, section, name, (enum check_status)(at[0] - '0'),
               remedy[0] != '\0' ? remedy : NULL, "%s", detail);
    at = next(remedy);
  }
  if (failure[0] != '\0') {
    checks_add(checks, section, part, CHECK_FAIL,
               "put right what failed above first; without this part: --no-trials", "%s", failure);
  }
  free(said);
}
