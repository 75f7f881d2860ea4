// libnccl.so.2, found at run time: symm links no NCCL and needs no header of it.
//
// Types and numbers here are those that NCCL has kept since the version named beside them; nothing
// whose size differs between versions is shared with it.
#ifndef SYMM_CORE_NCCL_LIBRARY_H_
#define SYMM_CORE_NCCL_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/environment.h"

namespace symm {
class JsonWriter;
}

namespace symm::nccl {

using Comm = void*;    // ncclComm_t
using Window = void*;  // ncclWindow_t

// ncclResult_t, as far as anything depends on it.
constexpr int kSuccess = 0;
constexpr int kInProgress = 7;

constexpr unsigned kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC

struct UniqueId {
  char bytes[128];
};

// The beginning of ncclConfig_t, of which 2.17 has all but the last line: `size` tells every later
// version where it ends, and `version` that the rest is to be the default.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = 1;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  static constexpr int kUndefined = INT32_MIN;
};

// Present in every version that is used at all.
#define SYMM_NCCL_ENTRY_POINTS(X)                                          \
  X(ncclAllReduce, int, const void*, void*, size_t, int, int, Comm, void*) \
  X(ncclCommAbort, int, Comm)                                              \
  X(ncclCommDestroy, int, Comm)                                            \
  X(ncclCommGetAsyncError, int, Comm, int*)                                \
  X(ncclCommInitRankConfig, int, Comm*, int, UniqueId, int, Config*)       \
  X(ncclGetErrorString, const char*, int)                                  \
  X(ncclGetLastError, const char*, Comm)                                   \
  X(ncclGetUniqueId, int, UniqueId*)                                       \
  X(ncclGetVersion, int, int*)

// Null where the version has none.
#define SYMM_NCCL_OPTIONAL_ENTRY_POINTS(X)       \
  X(ncclCommRevoke, int, Comm, int)              \
  X(ncclCommWindowDeregister, int, Comm, Window) \
  X(ncclCommWindowRegister, int, Comm, void*, size_t, Window*, int)

struct Library {
#define SYMM_NCCL_MEMBER(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  SYMM_NCCL_ENTRY_POINTS(SYMM_NCCL_MEMBER)
  SYMM_NCCL_OPTIONAL_ENTRY_POINTS(SYMM_NCCL_MEMBER)
#undef SYMM_NCCL_MEMBER
  int version = 0;  // 22809 for 2.28.9
  std::string path;
  std::string how;  // it was found: "already loaded", "options.nccl_path", ...

  // Why it can make no windows; "" if it can, as far as the library itself knows.
  std::string no_windows(const Environment& environment) const;
};

// "2.28.9".
std::string version_text(int version);

// The library that this process uses: one that is loaded already, whoever loaded it, since two
// copies of NCCL do not know each other; else `path`; else the places where it usually is. Found
// once, then kept. Throws UNSUPPORTED, with what was tried and the remedy; INVALID_ARGUMENT where
// `path` is not the one that is loaded. Any thread.
const Library& library(const std::string& path);

// Where it is looked for if it is neither loaded nor named, best first; the last is left to the
// loader. `own` is the folder of this library.
struct Place {
  std::string path;
  std::string how;
};
std::vector<Place> usual_places(const std::string& own, const Environment& environment);

// The object "nccl" of symm_report. Unless `may_load`, only one that is loaded is looked at.
void describe(JsonWriter& json, bool may_load);

}  // namespace symm::nccl

#endif  // SYMM_CORE_NCCL_LIBRARY_H_
