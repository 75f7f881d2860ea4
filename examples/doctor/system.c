#define _GNU_SOURCE /* memfd_create */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

static const char section[] = "System";

/* A memfd of a page with a mark in it; -1 with errno. */
static int make_memfd(void) {
  const int fd = memfd_create("symm-doctor", MFD_CLOEXEC);
  if (fd < 0) {
    return -1;
  }
  if (ftruncate(fd, 4096) == 0) {
    int* memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) {
      memory[0] = 4711;
      munmap(memory, 4096);
      return fd;
    }
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static void check_shared_memory(struct checks* checks) {
  const int fd = make_memfd();
  if (fd < 0) {
    checks_add(checks, section, "shared memory", CHECK_FAIL,
               "windows are memfds: let the container's seccomp profile allow memfd_create and "
               "shared maps",
               "memfd_create or mmap: %s", strerror(errno));
    return;
  }
  checks_add(checks, section, "shared memory", CHECK_OK, NULL,
             "memfd_create and shared maps work (/dev/shm is not used)");
  close(fd);
}

/* Sends `fd` from one socket to the other; the copy that arrives, or -1 with errno. */
static int pass_fd(int from, int to, int fd) {
  char byte = 0;
  struct iovec data = {&byte, 1};
  union {
    struct cmsghdr header; /* aligns the bytes */
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct msghdr message;
  memset(&control, 0, sizeof control);
  memset(&message, 0, sizeof message);
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(from, &message, 0) != 1) {
    return -1;
  }
  memset(&control, 0, sizeof control);
  message.msg_controllen = sizeof control.bytes;
  if (recvmsg(to, &message, MSG_CMSG_CLOEXEC) != 1) {
    return -1;
  }
  header = CMSG_FIRSTHDR(&message);
  if (header == NULL || header->cmsg_type != SCM_RIGHTS) {
    errno = EBADMSG;
    return -1;
  }
  int received;
  memcpy(&received, CMSG_DATA(header), sizeof received);
  return received;
}

static void check_fd_passing(struct checks* checks) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  /* A name that begins with NUL is in the abstract space, which no file system sees. */
  const int name_length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                                   "symm-doctor-%ld", (long)getpid());
  const socklen_t size =
      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name_length);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int memory = make_memfd();
  int server = -1, received = -1;
  struct stat sent_status, received_status;
  if (listener >= 0 && client >= 0 && memory >= 0 &&
      bind(listener, (const struct sockaddr*)&address, size) == 0 && listen(listener, 1) == 0 &&
      connect(client, (const struct sockaddr*)&address, size) == 0 &&
      (server = accept(listener, NULL, NULL)) >= 0) {
    received = pass_fd(client, server, memory);
  }
  const int error = errno;
  const int same = received >= 0 && fstat(memory, &sent_status) == 0 &&
                   fstat(received, &received_status) == 0 &&
                   sent_status.st_ino == received_status.st_ino;
  if (same) {
    checks_add(checks, section, "fd passing", CHECK_OK, NULL,
               "abstract unix sockets hand over memory");
  } else {
    checks_add(checks, section, "fd passing", CHECK_FAIL,
               "ranks of one host hand each other their memory so: let the container's security "
               "profile (seccomp, AppArmor, SELinux) allow unix sockets with SCM_RIGHTS",
               "abstract unix socket: %s", strerror(error));
  }
  const int fds[] = {listener, client, memory, server, received};
  for (int i = 0; i < 5; ++i) {
    if (fds[i] >= 0) {
      close(fds[i]);
    }
  }
}

static void check_loopback(struct checks* checks) {
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int works =
      listener >= 0 && client >= 0 && bind(listener, (const struct sockaddr*)&address, size) == 0 &&
      listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr*)&address, &size) == 0 &&
      connect(client, (const struct sockaddr*)&address, size) == 0;
  const int error = errno;
  checks_add(checks, section, "loopback", works ? CHECK_OK : CHECK_WARN,
             works ? NULL : "bring it up (ip link set lo up), or use file:// addresses only",
             works ? "a TCP port of 127.0.0.1 can be opened and reached%s"
                   : "no TCP connection to 127.0.0.1: %s",
             works ? "" : strerror(error));
  if (listener >= 0) {
    close(listener);
  }
  if (client >= 0) {
    close(client);
  }
}

static void check_pidfd(struct checks* checks) {
#ifdef SYS_pidfd_open
  const long fd = syscall(SYS_pidfd_open, (long)getpid(), 0l);
  if (fd >= 0) {
    checks_add(checks, section, "pidfd", CHECK_OK, NULL, "the death of a rank is seen at once");
    close((int)fd);
    return;
  }
  const int error = errno;
#else
  const int error = ENOSYS;
#endif
  checks_add(checks, section, "pidfd", CHECK_NOTE,
             "Linux 5.3 or newer, and a seccomp profile that allows pidfd_open",
             "%s: while forked children of a dead rank live its death may be seen late",
             strerror(error));
}

static void check_proc(struct checks* checks) {
  char boot_id[64];
  if (access("/proc/self/fd", R_OK) != 0) {
    checks_add(checks, section, "/proc", CHECK_WARN, "mount it: mount -t proc proc /proc",
               "not mounted: memory of the caller's can be registered with options->fd only");
  } else if (!line_of_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id)) {
    checks_add(checks, section, "/proc", CHECK_FAIL,
               "ranks know by it that they share a host: let the container see /proc/sys",
               "/proc/sys/kernel/random/boot_id: %s", strerror(errno));
  } else {
    checks_add(checks, section, "/proc", CHECK_OK, NULL, "boot id %s", boot_id);
  }
}

static void check_open_files(struct checks* checks) {
  struct rlimit limit;
  /* Rank 0's process serves the others: a connection and a pidfd a rank, and as much again while
   * windows are made. */
  enum { enough = 1024, least = 64 };
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return;
  }
  const unsigned long long soft = limit.rlim_cur, hard = limit.rlim_max;
  char remedy[128] =
      "raise the hard limit too: /etc/security/limits.conf, LimitNOFILE=, docker --ulimit nofile";
  if (hard >= enough) {
    snprintf(remedy, sizeof remedy, "ulimit -n %llu",
             hard < 65536 ? hard : (unsigned long long)65536);
  }
  checks_add(checks, section, "open files",
             soft < least    ? CHECK_FAIL
             : soft < enough ? CHECK_WARN
                             : CHECK_OK,
             soft < enough ? remedy : NULL, "at most %llu (up to %llu may be asked for)", soft,
             hard);
}

void check_system(struct checks* checks) {
  check_shared_memory(checks);
  check_fd_passing(checks);
  check_pidfd(checks);
  check_loopback(checks);
  check_proc(checks);
  check_open_files(checks);
}
