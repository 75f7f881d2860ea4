#include "core/nccl/library.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>

#include "core/error.h"
#include "core/json.h"

namespace symm::nccl {
namespace {

constexpr char kName[] = "libnccl.so.2";
constexpr char kRemedy[] =
    "; install it (pip install nvidia-nccl-cu13, or the package libnccl2), or name the file in "
    "options.nccl_path";
// Of ncclCommInitRankConfig with the fields of Config; windows came later.
constexpr int kFirst = 21700;
constexpr int kFirstWindows = 22700;

std::string last_dl_error() {
  const char* why = dlerror();
  return why == nullptr ? "unknown error" : why;
}

// The file that a handle of dlopen() is.
std::string path_of(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return kName;
  return map->l_name;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat of_a {};
  struct stat of_b {};
  return stat(a.c_str(), &of_a) == 0 && stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

std::unique_ptr<Library> read(void* handle, const std::string& how) {
  auto library = std::make_unique<Library>();
  library->path = path_of(handle);
  library->how = how;
  // The version first: what is too old lacks functions, and its age is the better message.
  library->ncclGetVersion =
      reinterpret_cast<decltype(library->ncclGetVersion)>(dlsym(handle, "ncclGetVersion"));
  if (library->ncclGetVersion == nullptr ||
      library->ncclGetVersion(&library->version) != kSuccess) {
    throw Error(SYMM_UNSUPPORTED,
                text(library->path, " is no NCCL: ncclGetVersion is missing or fails", kRemedy));
  }
  if (library->version < kFirst) {
    throw Error(SYMM_UNSUPPORTED, text(library->path, " is NCCL ", version_text(library->version),
                                       "; ", version_text(kFirst), " or newer is needed, and ",
                                       version_text(kFirstWindows), " for windows", kRemedy));
  }
#define SYMM_NCCL_FIND(name, ...) \
  library->name = reinterpret_cast<decltype(library->name)>(dlsym(handle, #name));
#define SYMM_NCCL_REQUIRE(name, ...)                                                             \
  SYMM_NCCL_FIND(name)                                                                           \
  if (library->name == nullptr) {                                                                \
    throw Error(SYMM_UNSUPPORTED, text(library->path, " (NCCL ", version_text(library->version), \
                                       ") has no " #name, kRemedy));                             \
  }
  SYMM_NCCL_ENTRY_POINTS(SYMM_NCCL_REQUIRE)
  SYMM_NCCL_OPTIONAL_ENTRY_POINTS(SYMM_NCCL_FIND)
#undef SYMM_NCCL_REQUIRE
#undef SYMM_NCCL_FIND
  return library;
}

std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&version_text), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

// Never closed: NCCL has threads and exit handlers of its own.
std::unique_ptr<Library> load(const std::string& path) {
  // Loaded by whom- and however: NCCL's name inside its file is what the loader goes by.
  void* handle = dlopen(kName, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) {
    const std::string loaded = path_of(handle);
    if (!path.empty() && !same_file(path, loaded)) {
      throw Error(SYMM_INVALID_ARGUMENT,
                  text("options.nccl_path is ", path, ", but this process has loaded ", loaded,
                       ", and two copies of NCCL in one process do not know each other; leave "
                       "nccl_path NULL, or load that file first"));
    }
    return read(handle, "already loaded");
  }
  if (!path.empty()) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      throw Error(SYMM_UNSUPPORTED, text("options.nccl_path cannot be loaded: ", last_dl_error()));
    }
    return read(handle, "options.nccl_path");
  }
  std::string tried;
  for (const Place& place : usual_places(own_folder(), process_environment())) {
    const bool has_folder = place.path.find('/') != std::string::npos;
    if (has_folder && access(place.path.c_str(), F_OK) != 0) continue;
    handle = dlopen(place.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return read(handle, place.how);
    tried += text(tried.empty() ? "" : "; ", last_dl_error());
  }
  throw Error(SYMM_UNSUPPORTED, text("NCCL is not found (", tried, ")", kRemedy));
}

constinit std::mutex mutex;
// Kept for ever once found. Looked for again until then: it may be installed or loaded meanwhile.
const Library* found = nullptr;

const Library& library_locked(const std::string& path) {
  if (found == nullptr) found = load(path).release();
  if (!path.empty() && !same_file(path, found->path)) {
    throw Error(SYMM_INVALID_ARGUMENT,
                text("options.nccl_path is ", path, ", but this process uses ", found->path, " (",
                     found->how, "); a process has one NCCL"));
  }
  return *found;
}

}  // namespace

std::string version_text(int version) {
  // Up to 2.8 a digit less.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return text(major, '.', minor, '.', version % 100);
}

std::string Library::no_windows(const Environment& environment) const {
  if (version < kFirstWindows) {
    return text("NCCL ", version_text(version), " has none; ", version_text(kFirstWindows),
                " was the first that has");
  }
  if (ncclCommWindowRegister == nullptr || ncclCommWindowDeregister == nullptr) {
    return text(path, " has no ncclCommWindowRegister");
  }
  for (const char* name : {"NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"}) {
    if (environment(name).value_or("") == "0") return text(name, "=0 switches them off");
  }
  return "";
}

std::vector<Place> usual_places(const std::string& own, const Environment& environment) {
  namespace fs = std::filesystem;
  constexpr char kWheel[] = "nvidia/nccl/lib/libnccl.so.2";
  std::vector<Place> places;
  const auto add = [&](const fs::path& folder) {
    places.push_back({(folder / kWheel).string(), "Python package"});
  };
  // symm's own package lies beside NVIDIA's.
  if (!own.empty()) add(fs::path(own).parent_path());
  if (const auto environment_folder = environment("VIRTUAL_ENV")) {
    std::vector<fs::path> versions;
    std::error_code ignored;
    for (const auto& entry :
         fs::directory_iterator(fs::path(*environment_folder) / "lib", ignored)) {
      if (entry.path().filename().string().rfind("python3", 0) == 0) {
        versions.push_back(entry.path());
      }
    }
    std::sort(versions.rbegin(), versions.rend());
    for (const fs::path& version : versions) add(version / "site-packages");
  }
  if (const auto conda = environment("CONDA_PREFIX")) {
    places.push_back({(fs::path(*conda) / "lib" / kName).string(), "conda"});
  }
  places.push_back({kName, "system"});
  return places;
}

const Library& library(const std::string& path) {
  std::lock_guard lock(mutex);
  return library_locked(path);
}

void describe(JsonWriter& json, bool may_load) {
  const Library* library = nullptr;
  std::string reason;
  try {
    std::lock_guard lock(mutex);
    if (found != nullptr || may_load || dlopen(kName, RTLD_NOW | RTLD_NOLOAD) != nullptr) {
      library = &library_locked("");
    } else {
      reason = "it has not been needed so far";
    }
  } catch (const Error& e) {
    reason = e.what();
  }
  json.begin_object();
  json.key("available").boolean(library != nullptr);
  if (library == nullptr) {
    json.key("reason").string(reason);
    json.end_object();
    return;
  }
  json.key("version").string(version_text(library->version));
  json.key("path").string(library->path);
  json.key("how").string(library->how);
  // For whoever wants to see that another user of NCCL in this process has the same copy.
  json.key("ncclGetVersion").string(text(reinterpret_cast<const void*>(library->ncclGetVersion)));
  json.key("windows").begin_object();
  const std::string lacks = library->no_windows(process_environment());
  json.key("available").boolean(lacks.empty());
  if (!lacks.empty()) json.key("reason").string(lacks);
  json.end_object();
  json.end_object();
}

}  // namespace symm::nccl
