/* A host that loads libsymm by dlopen and unloads it, forks or ends when that is least convenient.
 *
 *   unload CASE LIBRARY ADDRESS RANK SIZE     SYMM_TEST_COPY: another copy of the library's file
 *
 * Ends with status 0 if all went as it should; else says on stderr what did not. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symm.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

static const char* path;
static const char* address;
static int32_t rank, size;

typedef struct {
  void* handle;
  __typeof__(symm_status_name)* status_name;
  __typeof__(symm_last_error)* last_error;
  __typeof__(symm_comm_create)* comm_create;
  __typeof__(symm_comm_rank)* comm_rank;
  __typeof__(symm_comm_check)* comm_check;
  __typeof__(symm_comm_free)* comm_free;
  __typeof__(symm_window_alloc)* window_alloc;
  __typeof__(symm_window_data)* window_data;
  __typeof__(symm_window_free)* window_free;
  __typeof__(symm_all_reduce)* all_reduce;
} library;

#define EXPECT(condition) expect(condition, #condition, __LINE__)

static void expect(int condition, const char* text, int line) {
  if (!condition) {
    fprintf(stderr, "unload.c:%d: rank %d: not so: %s\n", line, (int)rank, text);
    exit(1);
  }
}

static void* find(void* handle, const char* name) {
  void* symbol = dlsym(handle, name);
  expect(symbol != NULL, name, __LINE__);
  return symbol;
}

static library load_from(const char* file) {
  library symm;
  symm.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (symm.handle == NULL) {
    fprintf(stderr, "unload: %s\n", dlerror());
    exit(1);
  }
  *(void**)&symm.status_name = find(symm.handle, "symm_status_name");
  *(void**)&symm.last_error = find(symm.handle, "symm_last_error");
  *(void**)&symm.comm_create = find(symm.handle, "symm_comm_create");
  *(void**)&symm.comm_rank = find(symm.handle, "symm_comm_rank");
  *(void**)&symm.comm_check = find(symm.handle, "symm_comm_check");
  *(void**)&symm.comm_free = find(symm.handle, "symm_comm_free");
  *(void**)&symm.window_alloc = find(symm.handle, "symm_window_alloc");
  *(void**)&symm.window_data = find(symm.handle, "symm_window_data");
  *(void**)&symm.window_free = find(symm.handle, "symm_window_free");
  *(void**)&symm.all_reduce = find(symm.handle, "symm_all_reduce");
  return symm;
}

static library load(void) { return load_from(path); }

static void unload(library* symm) {
  EXPECT(dlclose(symm->handle) == 0);
  memset(symm, 0, sizeof *symm);
}

static void check(const library* symm, symm_status status) {
  if (status != SYMM_OK) {
    fprintf(stderr, "unload: rank %d: %s: %s\n", (int)rank, symm->status_name(status),
            symm->last_error());
    exit(1);
  }
}

static symm_comm* create_as(const library* symm, const char* name, int32_t mine, int32_t all) {
  const symm_comm_options options = {
      .size = sizeof options, .name = name, .timeout_ms = 30000, .wait_timeout_ms = 30000};
  symm_comm* comm;
  check(symm, symm->comm_create(address, mine, all, SYMM_CPU, &options, &comm));
  return comm;
}

static symm_comm* create(const library* symm, const char* name) {
  return create_as(symm, name, rank, size);
}

static symm_window* allocate(const library* symm, symm_comm* comm) {
  symm_window* window;
  check(symm, symm->window_alloc(comm, 4096, NULL, &window));
  return window;
}

static void adds_up_to(const library* symm, symm_comm* comm, int32_t mine, int32_t all) {
  enum { kCount = 3000 };
  int32_t values[kCount], sums[kCount];
  for (int32_t i = 0; i < kCount; ++i) values[i] = i + mine;
  check(symm, symm->all_reduce(comm, values, sums, kCount, SYMM_INT32, SYMM_SUM, NULL));
  for (int32_t i = 0; i < kCount; ++i) EXPECT(sums[i] == all * i + all * (all - 1) / 2);
}

static void adds_up(const library* symm, symm_comm* comm) { adds_up_to(symm, comm, rank, size); }

/* Leaves a message with the calling thread, to be destroyed when that thread ends. */
static void fail_here(const library* symm) {
  symm_comm* comm;
  EXPECT(symm->comm_create("nowhere", 0, 1, SYMM_CPU, NULL, &comm) == SYMM_INVALID_ARGUMENT);
  EXPECT(strstr(symm->last_error(), "nowhere") != NULL);
}

static void use(library* symm, const char* name) {
  symm_comm* comm = create(symm, name);
  symm_window* window = allocate(symm, comm);
  adds_up(symm, comm);
  fail_here(symm);
  symm->window_free(window);
  symm->comm_free(comm);
}

/* Entries of a folder of /proc that are named by numbers. */
static int entries(const char* folder) {
  DIR* directory = opendir(folder);
  int count = 0;
  EXPECT(directory != NULL);
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;) {
    count += entry->d_name[0] != '.';
  }
  closedir(directory);
  return count;
}

static int threads(void) { return entries("/proc/self/task"); }
static int descriptors(void) { return entries("/proc/self/fd"); }

static void ended_well(pid_t child) {
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) fprintf(stderr, "unload: the child: signal %d\n", WTERMSIG(status));
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- The cases ---- */

static void again_and_again(void) {
  int first_threads = 0, first_descriptors = 0;
  for (int round = 0; round < 10; ++round) {
    char name[16];
    snprintf(name, sizeof name, "round %d", round);
    library symm = load();
    use(&symm, name);
    unload(&symm);
    if (round == 1) {
      first_threads = threads();
      first_descriptors = descriptors();
    }
  }
  /* What is given back later, by a thread, may still be under way. */
  for (int wait = 0; wait < 500; ++wait) {
    if (threads() <= first_threads && descriptors() <= first_descriptors) break;
    usleep(10000);
  }
  EXPECT(threads() <= first_threads);
  EXPECT(descriptors() <= first_descriptors);
}

static void* whole_life(void* name) {
  library symm = load();
  use(&symm, name);
  unload(&symm);
  return NULL;
}

static void in_threads_that_end(void) {
  static const char* const names[] = {"first", "second", "third"};
  for (int round = 0; round < 3; ++round) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, whole_life, (void*)names[round]) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
  }
  whole_life("main");
}

static void with_a_live_communicator(void) {
  library symm = load();
  symm_comm* comm = create(&symm, "live");
  adds_up(&symm, comm);
  EXPECT(threads() > 1); /* the library's own, which must not lose the ground it stands on */
  unload(&symm);
  usleep(100000);
  symm = load();
  adds_up(&symm, comm);
  symm_window* window = allocate(&symm, comm);
  symm.window_free(window);
  symm.comm_free(comm);
  unload(&symm);
  usleep(100000);
}

static pthread_barrier_t both;

static void* fails_and_outlives(void* given) {
  fail_here(given);
  pthread_barrier_wait(&both);
  pthread_barrier_wait(&both); /* unloaded in between */
  return NULL;                 /* destroys this thread's message */
}

static void before_a_thread_that_used_it_ends(void) {
  library symm = load(), threads_own = symm;
  pthread_t thread;
  pthread_barrier_init(&both, NULL, 2);
  EXPECT(pthread_create(&thread, NULL, fails_and_outlives, &threads_own) == 0);
  pthread_barrier_wait(&both);
  unload(&symm);
  pthread_barrier_wait(&both);
  EXPECT(pthread_join(thread, NULL) == 0);
  whole_life("afterwards");
}

static void then_main_returns(void) {
  library symm = load();
  symm_comm* comm = create(&symm, "returns");
  allocate(&symm, comm);
  adds_up(&symm, comm);
  fail_here(&symm);
  unload(&symm);
}

static void* exits_soon(void* unused) {
  (void)unused;
  usleep(300000);
  exit(0);
}

/* Rank 0 exits while it waits in an all-reduce to which the last rank comes only after that. Its
 * operand had been sent by then, so the others may have the sum; else they are told who left. */
static void exit_while_a_call_waits(void) {
  library symm = load();
  symm_comm* comm = create(&symm, "exit");
  int32_t value = 1 << rank, sum = 0;
  adds_up(&symm, comm);
  if (rank == 0) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, exits_soon, NULL) == 0);
  }
  if (rank == size - 1) usleep(1000000);
  const symm_status status = symm.all_reduce(comm, &value, &sum, 1, SYMM_INT32, SYMM_SUM, NULL);
  EXPECT(rank != 0); /* it has ended inside the call */
  if (status == SYMM_OK) {
    EXPECT(sum == (1 << size) - 1);
  } else {
    EXPECT(status == SYMM_PEER && strstr(symm.last_error(), "rank 0") != NULL);
  }
}

static void first_in_a_forked_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    whole_life("child");
    exit(0);
  }
  ended_well(child);
}

static void in_a_forked_child_of_a_user(void) {
  library symm = load();
  symm_comm* comm = create(&symm, "parents");
  const pid_t child = fork();
  if (child == 0) {
    int32_t number;
    unload(&symm);
    symm = load();
    EXPECT(symm.comm_rank(comm, &number) == SYMM_INVALID_ARGUMENT); /* the parent's handle */
    symm_comm* own = create(&symm, "children");
    adds_up(&symm, own);
    unload(&symm);
    exit(0);
  }
  ended_well(child);
  adds_up(&symm, comm);
  unload(&symm);
  symm = load();
  adds_up(&symm, comm);
  symm.comm_free(comm);
}

static void descriptors_of_a_program_started_meanwhile(void) {
  char before[16];
  snprintf(before, sizeof before, "%d", descriptors());
  library symm = load();
  symm_comm* comm = create(&symm, "spawns");
  symm_window* window = allocate(&symm, comm);
  char* const command[] = {"/proc/self/exe", "few-descriptors", "", "", "0", before, NULL};
  /* posix_spawn runs no handlers of pthread_atfork; fork and exec do. */
  pid_t child;
  EXPECT(posix_spawn(&child, command[0], NULL, NULL, command, environ) == 0);
  ended_well(child);
  child = fork();
  if (child == 0) {
    execv(command[0], command);
    _exit(1);
  }
  ended_well(child);
  adds_up(&symm, comm);
  symm.window_free(window);
  symm.comm_free(comm);
}

/* The program that the case above starts: no more are open than before the library was loaded. */
static void few_descriptors(void) { EXPECT(descriptors() <= size); }

/* Rank 0 becomes another program: to the others it is gone, though its process lives. */
static void becomes_another_program(void) {
  library symm = load();
  symm_comm* comm = create(&symm, "exec");
  symm_window* window = allocate(&symm, comm);
  adds_up(&symm, comm);
  /* Not before the others have returned from the call above, which would fail too. */
  for (int32_t peer = 0; peer < size; ++peer) {
    void* word;
    check(&symm, symm.window_data(window, peer, &word));
    if (peer == rank) __atomic_store_n((int32_t*)word, 1, __ATOMIC_RELEASE);
    while (rank == 0 && __atomic_load_n((int32_t*)word, __ATOMIC_ACQUIRE) == 0) usleep(1000);
  }
  if (rank == 0) {
    execlp("sleep", "sleep", "2", (char*)NULL);
    _exit(1);
  }
  float value = 1, sum;
  EXPECT(symm.all_reduce(comm, &value, &sum, 1, SYMM_FLOAT32, SYMM_SUM, NULL) == SYMM_PEER);
  EXPECT(strstr(symm.last_error(), "rank 0") != NULL);
}

/* Loaded before the fork, used after it on both sides: twice as many ranks as processes at first.
 */
static void loaded_before_a_fork(void) {
  library symm = load();
  const pid_t child = fork();
  const int32_t mine = 2 * rank + (child == 0);
  symm_comm* comm = create_as(&symm, "both", mine, 2 * size);
  adds_up_to(&symm, comm, mine, 2 * size);
  if (child == 0) exit(0);
  ended_well(child);
}

/* As where a package brings its own copy and the program has another: every process has two ranks,
 * one in each copy. */
static const char* copy;

static void* other_copys_rank(void* given) {
  const library* symm = given;
  symm_comm* comm = create_as(symm, "copies", 2 * rank + 1, 2 * size);
  adds_up_to(symm, comm, 2 * rank + 1, 2 * size);
  return comm;
}

static void two_copies(void) {
  library first = load(), second = load_from(copy);
  EXPECT(first.comm_create != second.comm_create);
  pthread_t thread;
  void* others;
  EXPECT(pthread_create(&thread, NULL, other_copys_rank, &second) == 0);
  symm_comm* comm = create_as(&first, "copies", 2 * rank, 2 * size);
  adds_up_to(&first, comm, 2 * rank, 2 * size);
  EXPECT(pthread_join(thread, &others) == 0);
  fail_here(&second);
  EXPECT(strcmp(first.last_error(), "") == 0); /* the other copy's failures are not this one's */
  const pid_t child = fork();                  /* the handlers of both copies run */
  if (child == 0) {
    int32_t number;
    EXPECT(first.comm_rank(comm, &number) == SYMM_INVALID_ARGUMENT);
    EXPECT(second.comm_rank(others, &number) == SYMM_INVALID_ARGUMENT);
    exit(0);
  }
  ended_well(child);
  second.comm_free(others);
  unload(&second);
  symm_comm* alone = create(&first, "first copies");
  adds_up(&first, alone);
  first.comm_free(alone);
  first.comm_free(comm);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {
      {"again-and-again", again_and_again},
      {"in-threads-that-end", in_threads_that_end},
      {"with-a-live-communicator", with_a_live_communicator},
      {"before-a-thread-that-used-it-ends", before_a_thread_that_used_it_ends},
      {"then-main-returns", then_main_returns},
      {"exit-while-a-call-waits", exit_while_a_call_waits},
      {"first-in-a-forked-child", first_in_a_forked_child},
      {"in-a-forked-child-of-a-user", in_a_forked_child_of_a_user},
      {"descriptors", descriptors_of_a_program_started_meanwhile},
      {"few-descriptors", few_descriptors},
      {"becomes-another-program", becomes_another_program},
      {"loaded-before-a-fork", loaded_before_a_fork},
      {"two-copies", two_copies},
  };
  if (argc != 6) {
    fputs("usage: unload CASE LIBRARY ADDRESS RANK SIZE\n", stderr);
    return 2;
  }
  path = argv[2];
  address = argv[3];
  rank = atoi(argv[4]);
  size = atoi(argv[5]);
  copy = getenv("SYMM_TEST_COPY");
  alarm(60);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  }
  fprintf(stderr, "unload: no case '%s'\n", argv[1]);
  return 2;
}
