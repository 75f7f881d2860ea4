// How NCCL is found, and what is wrong with what was found. A process has one NCCL: each test is a
// process of its own.
#include "core/nccl/library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "tests/nccl/fake_nccl.h"

namespace symm::nccl {
namespace {

namespace fs = std::filesystem;

void in_child(const std::function<void()>& body) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    body();
    fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(0, status) << "the child says more";
}

::testing::AssertionResult fails(const std::string& path, symm_status status,
                                 const std::string& part) {
  try {
    library(path);
  } catch (const Error& e) {
    if (e.status() == status && std::string(e.what()).find(part) != std::string::npos) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << status_name(e.status()) << ": " << e.what();
  }
  return ::testing::AssertionFailure() << "it was found";
}

void set_version(const char* path, int version) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* get = reinterpret_cast<FakeNccl* (*)()>(dlsym(handle, "fake_nccl"));
  get()->version = version;
}

Environment environment_of(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

TEST(NcclLibrary, IsTheOneThatIsNamed) {
  in_child([] {
    const Library& found = library(FAKE_NCCL_FULL);
    EXPECT_EQ(FAKE_NCCL_FULL, found.path);
    EXPECT_EQ("options.nccl_path", found.how);
    EXPECT_EQ(22809, found.version);
    EXPECT_NE(nullptr, found.ncclCommWindowRegister);
    // Found once: the same for who names none.
    EXPECT_EQ(&found, &library(""));
    EXPECT_EQ(&found, &library(FAKE_NCCL_FULL));
  });
}

TEST(NcclLibrary, IsTheOneThatIsLoadedAlready) {
  in_child([] {
    ASSERT_NE(nullptr, dlopen(FAKE_NCCL_OLD, RTLD_NOW | RTLD_LOCAL));
    EXPECT_TRUE(fails(FAKE_NCCL_FULL, SYMM_INVALID_ARGUMENT, FAKE_NCCL_OLD));
    const Library& found = library("");
    EXPECT_EQ(FAKE_NCCL_OLD, found.path);
    EXPECT_EQ("already loaded", found.how);
    // By another name of the same file.
    const std::string roundabout =
        (fs::path(FAKE_NCCL_OLD).parent_path() / ".." / "old" / "libnccl.so.2").string();
    EXPECT_EQ(&found, &library(roundabout));
  });
}

TEST(NcclLibrary, ThatIsUsedIsNotExchangedForAnother) {
  in_child([] {
    library(FAKE_NCCL_FULL);
    EXPECT_TRUE(fails(FAKE_NCCL_OLD, SYMM_INVALID_ARGUMENT, "a process has one NCCL"));
  });
}

TEST(NcclLibrary, ThatCannotBeLoadedIsNamed) {
  in_child([] {
    EXPECT_TRUE(fails("/no/such/libnccl.so.2", SYMM_UNSUPPORTED, "/no/such/libnccl.so.2"));
    // Tried again: it may have been installed meanwhile.
    EXPECT_EQ(FAKE_NCCL_FULL, library(FAKE_NCCL_FULL).path);
  });
}

TEST(NcclLibrary, ThatLacksAFunctionIsRefusedByItsName) {
  in_child([] { EXPECT_TRUE(fails(FAKE_NCCL_BROKEN, SYMM_UNSUPPORTED, "no ncclAllReduce")); });
}

TEST(NcclLibrary, ThatIsNoNcclIsRefused) {
  in_child([] { EXPECT_TRUE(fails("libm.so.6", SYMM_UNSUPPORTED, "is no NCCL")); });
}

TEST(NcclLibrary, ThatIsTooOldIsRefusedWithTheVersionItNeeds) {
  in_child([] {
    set_version(FAKE_NCCL_FULL, 2708);
    EXPECT_TRUE(fails(FAKE_NCCL_FULL, SYMM_UNSUPPORTED, "is NCCL 2.7.8; 2.17.0 or newer"));
  });
}

TEST(NcclLibrary, WithoutWindowsSaysWhy) {
  in_child([] {
    const Library& found = library(FAKE_NCCL_OLD);
    const Environment none = environment_of({});
    EXPECT_EQ(nullptr, found.ncclCommWindowRegister);
    EXPECT_NE(std::string::npos, found.no_windows(none).find("no ncclCommWindowRegister"));
    Library other = found;
    other.version = 22605;
    EXPECT_EQ("NCCL 2.26.5 has none; 2.27.0 was the first that has", other.no_windows(none));
  });
  in_child([] {
    const Library& found = library(FAKE_NCCL_FULL);
    EXPECT_EQ("", found.no_windows(environment_of({})));
    EXPECT_EQ("", found.no_windows(environment_of({{"NCCL_WIN_ENABLE", "1"}})));
    EXPECT_EQ("NCCL_WIN_ENABLE=0 switches them off",
              found.no_windows(environment_of({{"NCCL_WIN_ENABLE", "0"}})));
    EXPECT_EQ("NCCL_CUMEM_ENABLE=0 switches them off",
              found.no_windows(environment_of({{"NCCL_CUMEM_ENABLE", "0"}})));
  });
}

TEST(NcclLibrary, VersionsAreWrittenAsNcclWritesThem) {
  EXPECT_EQ("2.28.9", version_text(22809));
  EXPECT_EQ("2.30.5", version_text(23005));
  EXPECT_EQ("2.8.4", version_text(2804));
}

TEST(NcclLibrary, IsLookedForBesideSymmInTheVirtualEnvironmentAndInTheSystem) {
  char folder[] = "/tmp/symm-nccl-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder));
  fs::create_directories(fs::path(folder) / "lib/python3.11/site-packages");
  fs::create_directories(fs::path(folder) / "lib/python3.12/site-packages");
  const std::vector<Place> places = usual_places(
      "/x/site-packages/symm", environment_of({{"VIRTUAL_ENV", folder}, {"CONDA_PREFIX", "/c"}}));
  std::vector<std::string> paths;
  for (const Place& place : places) paths.push_back(place.path);
  const std::string lib = std::string(folder) + "/lib/";
  const std::string wheel = "/site-packages/nvidia/nccl/lib/libnccl.so.2";
  EXPECT_EQ(
      (std::vector<std::string>{"/x" + wheel, lib + "python3.12" + wheel,
                                lib + "python3.11" + wheel, "/c/lib/libnccl.so.2", "libnccl.so.2"}),
      paths);
  EXPECT_EQ("Python package", places.front().how);
  EXPECT_EQ("system", places.back().how);
  fs::remove_all(folder);
}

TEST(NcclLibrary, IsNotLoadedForAReportThatMayNot) {
  in_child([] {
    JsonWriter json;
    describe(json, false);
    EXPECT_EQ("{\"available\":false,\"reason\":\"it has not been needed so far\"}", json.take());
    library(FAKE_NCCL_FULL);
    JsonWriter after;
    describe(after, false);
    const std::string text = after.take();
    EXPECT_NE(std::string::npos, text.find("\"version\":\"2.28.9\"")) << text;
    EXPECT_NE(std::string::npos, text.find("\"windows\":{\"available\":true}")) << text;
  });
}

// SYMM_TEST_NCCL names a real one; see nccl.sh. No GPU is needed to load it.
TEST(NcclLibrary, TheRealOneHasEverythingThatIsUsed) {
  const char* path = std::getenv("SYMM_TEST_NCCL");
  if (path == nullptr) GTEST_SKIP() << "SYMM_TEST_NCCL names no libnccl.so.2";
  in_child([path] {
    const Library& found = library(path);
    EXPECT_GE(found.version, 22700);
    EXPECT_EQ("", found.no_windows(environment_of({})));
    EXPECT_EQ("NCCL_WIN_ENABLE=0 switches them off",
              found.no_windows(environment_of({{"NCCL_WIN_ENABLE", "0"}})));
    EXPECT_STREQ("no error", found.ncclGetErrorString(kSuccess));
    EXPECT_NE(nullptr, found.ncclGetLastError(nullptr));
    fprintf(stderr, "NCCL %s, %s\n", version_text(found.version).c_str(), found.path.c_str());
  });
}

}  // namespace
}  // namespace symm::nccl
