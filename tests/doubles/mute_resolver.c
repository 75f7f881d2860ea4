/* Before libc: a resolver that never answers. */
#define _POSIX_C_SOURCE 200809L

#include <netdb.h>
#include <unistd.h>

int getaddrinfo(const char* node, const char* service, const struct addrinfo* hints,
                struct addrinfo** found) {
  (void)node;
  (void)service;
  (void)hints;
  (void)found;
  for (;;) {
    pause();
  }
}
