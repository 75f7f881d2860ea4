// What symm-doctor makes of machines and jobs that are not here: of texts as symm_report writes
// them, and of ranks' facts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "examples/doctor/check.h"
#include "examples/doctor/compare.h"
}

namespace {

struct Judged {
  checks all = {};

  const check* find(const std::string& name) const {
    for (int i = 0; i < all.count; ++i) {
      if (name == all.list[i].name) return &all.list[i];
    }
    return nullptr;
  }
};

testing::AssertionResult says(const Judged& judged, const std::string& name, check_status status,
                              const std::vector<std::string>& details,
                              const std::vector<std::string>& remedies = {}) {
  const check* found = judged.find(name);
  if (found == nullptr) return testing::AssertionFailure() << "nothing is said of " << name;
  std::string lacking = found->status == status ? "" : " another status;";
  for (const std::string& one : details) {
    if (strstr(found->detail, one.c_str()) == nullptr) lacking += " no '" + one + "';";
  }
  for (const std::string& one : remedies) {
    if (strstr(found->remedy, one.c_str()) == nullptr) lacking += " no '" + one + "' as remedy;";
  }
  if (lacking.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << name << lacking << " it is " << check_status_name(found->status) << ": "
         << found->detail << " -> " << found->remedy;
}

// ---- GPUs ----

constexpr gpu_signs kNoSigns = {nullptr, 0, 0};

Judged judge_gpus(const std::string& cuda, const gpu_signs& signs = kNoSigns) {
  Judged judged;
  check_gpus(&judged.all, ("{\"schema\":1,\"cuda\":" + cuda + "}").c_str(), &signs);
  return judged;
}

std::string without_gpus(const std::string& reason) {
  return R"({"available":false,"reason":")" + reason +
         R"(","compiled_version":"13.0","gpu_count":0,"peer_access_everywhere":true,"gpus":[]})";
}

std::string gpu(int ordinal, const std::string& peers, bool integrated = false,
                const std::string& name = "NVIDIA H200") {
  return R"({"ordinal":)" + std::to_string(ordinal) + R"(,"name":")" + name +
         R"(","uuid":"GPU-0000000)" + std::to_string(ordinal) +
         R"(","compute_capability":"9.0","multiprocessors":132,"integrated":)" +
         (integrated ? "true" : "false") + R"(,"peer_access":[)" + peers + "]}";
}

std::string with_gpus(const std::vector<std::string>& gpus, bool everywhere) {
  std::string list;
  for (const std::string& one : gpus) list += (list.empty() ? "" : ",") + one;
  return R"({"available":true,"version":"13.0","compiled_version":"13.0","gpu_count":)" +
         std::to_string(gpus.size()) + R"(,"peer_access_everywhere":)" +
         (everywhere ? "true" : "false") + R"(,"gpus":[)" + list + "]}";
}

const char kNoDriver[] =
    "there is no NVIDIA driver on this machine (libcuda.so.1: cannot open shared object file: No "
    "such file or directory); install one, or use SYMM_CPU";

TEST(DoctorGpus, NoDriverWhereThereIsNoGpuIsNoIllness) {
  const Judged judged = judge_gpus(without_gpus(kNoDriver));
  EXPECT_TRUE(says(judged, "CUDA", CHECK_NOTE, {"no NVIDIA driver"}, {"nothing is to be done"}));
  EXPECT_EQ(checks_count(&judged.all, CHECK_WARN) + checks_count(&judged.all, CHECK_FAIL), 0);
}

TEST(DoctorGpus, AGpuWithoutADriverNeedsOne) {
  EXPECT_TRUE(says(judge_gpus(without_gpus(kNoDriver), {nullptr, 4, 0}), "CUDA", CHECK_WARN,
                   {"no NVIDIA driver", "has 4 of NVIDIA's GPUs"}, {"install NVIDIA's driver"}));
}

TEST(DoctorGpus, AContainerWithoutTheDriversLibraryNeedsThat) {
  EXPECT_TRUE(says(judge_gpus(without_gpus(kNoDriver), {nullptr, 0, 1}), "CUDA", CHECK_WARN,
                   {"no NVIDIA driver"}, {"libcuda.so.1", "--gpus all"}));
}

TEST(DoctorGpus, ADriverThatIsTooOldMustBeUpdated) {
  for (const char* reason :
       {"the NVIDIA driver is for CUDA 12.4; this build of symm needs one for CUDA 13.0 or newer",
        "libcuda.so.1 has no cuMemExportToShareableHandle; install a driver for CUDA 13.0 or "
        "newer"}) {
    EXPECT_TRUE(says(judge_gpus(without_gpus(reason)), "CUDA", CHECK_WARN, {reason},
                     {"newer NVIDIA driver", "580"}));
  }
}

TEST(DoctorGpus, VisibleDevicesThatLeaveNoneAreToBeUnset) {
  for (const char* reason :
       {"no GPU is visible to this process",
        "cuInit: CUDA_ERROR_NO_DEVICE; is there a GPU, is its driver loaded (nvidia-smi), and does "
        "CUDA_VISIBLE_DEVICES leave one visible?"}) {
    EXPECT_TRUE(says(judge_gpus(without_gpus(reason), {"7", 2, 1}), "CUDA", CHECK_WARN,
                     {"CUDA_VISIBLE_DEVICES is '7', which leaves none"},
                     {"unset CUDA_VISIBLE_DEVICES"}));
    EXPECT_TRUE(says(judge_gpus(without_gpus(reason), {nullptr, 2, 1}), "CUDA", CHECK_WARN,
                     {"has 2 of NVIDIA's GPUs"}, {"nvidia-smi"}));
    EXPECT_TRUE(says(judge_gpus(without_gpus(reason)), "CUDA", CHECK_NOTE, {reason},
                     {"nothing is to be done"}));
  }
}

TEST(DoctorGpus, ADriverThatDoesNotStartIsToBeLookedAt) {
  EXPECT_TRUE(says(judge_gpus(without_gpus("cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; is there "
                                           "a GPU?")),
                   "CUDA", CHECK_WARN, {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {"nvidia-smi"}));
}

TEST(DoctorGpus, ABuildWithoutKernelsMattersWhereThereAreGpus) {
  for (const char* reason : {"this build of symm has no GPU kernels: no CUDA compiler was found",
                             "this build of symm has no support for it"}) {
    EXPECT_TRUE(says(judge_gpus(without_gpus(reason)), "CUDA", CHECK_NOTE, {reason}));
    EXPECT_TRUE(says(judge_gpus(without_gpus(reason), {nullptr, 1, 1}), "CUDA", CHECK_WARN,
                     {reason}, {"SYMM_CUDA=ON"}));
  }
}

TEST(DoctorGpus, GpusThatAllReachEachOtherAreInOrder) {
  const Judged judged = judge_gpus(with_gpus({gpu(0, "1,2"), gpu(1, "0,2"), gpu(2, "0,1")}, true));
  EXPECT_TRUE(says(judged, "CUDA", CHECK_OK, {"CUDA 13.0", "0 NVIDIA H200, 1 NVIDIA H200"}));
  EXPECT_TRUE(says(judged, "peer access", CHECK_OK, {"each GPU reaches every other"}));
  EXPECT_EQ(judged.find("integrated GPUs"), nullptr);
  EXPECT_TRUE(
      says(judge_gpus(with_gpus({gpu(0, "")}, true)), "peer access", CHECK_OK, {"one GPU"}));
}

TEST(DoctorGpus, PairsWithoutPeerAccessAreListed) {
  // Two islands, 0-1 and 2-3; 1 reaches 2, but not the other way round.
  const Judged judged =
      judge_gpus(with_gpus({gpu(0, "1"), gpu(1, "0,2"), gpu(2, "3"), gpu(3, "2")}, false));
  EXPECT_TRUE(says(judged, "peer access", CHECK_WARN, {"GPUs 0 and 2, 0 and 3, 1 and 2, 1 and 3;"},
                   {"split", "topo -p2p"}));
}

TEST(DoctorGpus, APairListThatIsTooLongIsCutWithoutHarm) {
  std::vector<std::string> gpus;
  for (int i = 0; i < 80; ++i) gpus.push_back(gpu(i, ""));
  EXPECT_TRUE(says(judge_gpus(with_gpus(gpus, false)), "peer access", CHECK_WARN,
                   {"0 and 1, 0 and 2", ", ...;"}, {"split"}));
}

TEST(DoctorGpus, IntegratedOnesCannotShareMemory) {
  const Judged judged =
      judge_gpus(with_gpus({gpu(0, "1"), gpu(1, "0", true, "NVIDIA Thor")}, true));
  EXPECT_TRUE(says(judged, "integrated GPUs", CHECK_WARN, {"GPU 1 (NVIDIA Thor)"}, {"SYMM_CPU"}));
  EXPECT_EQ(strstr(judged.find("integrated GPUs")->detail, "GPU 0"), nullptr);
}

TEST(DoctorGpus, AReportThatSaysNothingOrIsBrokenIsNotJudged) {
  Judged judged;
  for (const char* report : {"{}", "", "{\"cuda\":", "{\"cuda\":{\"available\"", "[1,2]"}) {
    check_gpus(&judged.all, report, &kNoSigns);
  }
  check_gpus(&judged.all, nullptr, &kNoSigns);
  EXPECT_EQ(judged.all.count, 0);
}

// ---- NCCL ----

constexpr nccl_signs kNoSwitches = {nullptr, nullptr};

Judged judge_nccl(const std::string& nccl, const nccl_signs& signs = kNoSwitches,
                  bool has_gpus = true) {
  Judged judged;
  const std::string report =
      "{\"cuda\":{\"available\":" + std::string(has_gpus ? "true" : "false") +
      "},\"nccl\":" + nccl + "}";
  check_nccl(&judged.all, report.c_str(), &signs);
  return judged;
}

std::string nccl(const std::string& version, const std::string& windows) {
  return R"({"available":true,"version":")" + version +
         R"(","path":"/venv/nvidia/nccl/lib/libnccl.so.2","how":"Python package","windows":)" +
         windows + "}";
}

std::string no_windows(const std::string& reason) {
  return R"({"available":false,"reason":")" + reason + "\"}";
}

std::string no_nccl(const std::string& reason) {
  return R"({"available":false,"reason":")" + reason + "\"}";
}

TEST(DoctorNccl, OneWithWindowsIsInOrder) {
  const Judged judged = judge_nccl(nccl("2.28.9", R"({"available":true})"));
  EXPECT_TRUE(says(judged, "NCCL", CHECK_OK,
                   {"2.28.9", "Python package", "/venv/nvidia/nccl/lib/libnccl.so.2"}));
  EXPECT_TRUE(says(judged, "NCCL windows", CHECK_OK, {"available"}));
}

TEST(DoctorNccl, NotHavingItIsANoteThatSaysWhatItCosts) {
  for (const bool has_gpus : {false, true}) {
    const Judged judged =
        judge_nccl(no_nccl("NCCL is not found (libnccl.so.2: cannot open shared object file)"),
                   kNoSwitches, has_gpus);
    EXPECT_TRUE(says(judged, "NCCL", CHECK_NOTE,
                     {"NCCL is not found", "several hosts", "nothing else is lost"},
                     {"nvidia-nccl-cu13", "options.nccl_path"}));
    EXPECT_EQ(judged.find("NCCL windows"), nullptr);
  }
}

TEST(DoctorNccl, OneThatIsOfNoUseIsNamedWithWhatToReplace) {
  const struct {
    const char* reason;
    const char* remedy;
  } cases[] = {
      {"/usr/lib/libnccl.so.2 is NCCL 2.8.3; 2.17.0 or newer is needed, and 2.27.0 for windows",
       "update"},
      {"/usr/lib/libnccl.so.2 is no NCCL: ncclGetVersion is missing or fails", "something else"},
      {"/usr/lib/libnccl.so.2 (NCCL 2.28.9) has no ncclCommInitRankConfig", "no whole NCCL"},
  };
  for (const auto& one : cases) {
    EXPECT_TRUE(says(judge_nccl(no_nccl(one.reason)), "NCCL", CHECK_WARN, {one.reason},
                     {one.remedy, "nvidia-nccl-cu13"}));
    EXPECT_TRUE(says(judge_nccl(no_nccl(one.reason), kNoSwitches, false), "NCCL", CHECK_NOTE,
                     {one.reason}, {one.remedy}));
  }
}

TEST(DoctorNccl, OneThatIsTooOldForWindowsIsToBeUpdated) {
  for (const char* version : {"2.26.5", "2.18.1", "1.99.0"}) {
    EXPECT_TRUE(says(judge_nccl(nccl(version, no_windows("NCCL " + std::string(version) +
                                                         " has none; 2.27.0 was the first"))),
                     "NCCL windows", CHECK_WARN, {version}, {"update NCCL to 2.27"}));
  }
  for (const char* version : {"2.27.3", "2.30.1", "3.0.0"}) {
    const Judged judged = judge_nccl(nccl(version, no_windows("for some reason")));
    EXPECT_EQ(strstr(judged.find("NCCL windows")->remedy, "update"), nullptr) << version;
  }
}

TEST(DoctorNccl, AWholeOneIsToReplaceOneWithoutTheFunctionsOfWindows) {
  EXPECT_TRUE(says(judge_nccl(nccl("2.28.9", no_windows("/x/libnccl.so.2 has no "
                                                        "ncclCommWindowRegister"))),
                   "NCCL windows", CHECK_WARN, {"ncclCommWindowRegister"}, {"no whole NCCL"}));
}

TEST(DoctorNccl, TheSwitchThatIsOffIsNamed) {
  const std::string off = nccl("2.28.9", no_windows("NCCL_WIN_ENABLE=0 switches them off"));
  EXPECT_TRUE(says(judge_nccl(off, {"0", nullptr}), "NCCL windows", CHECK_WARN,
                   {"NCCL_WIN_ENABLE=0"}, {"unset NCCL_WIN_ENABLE"}));
  EXPECT_TRUE(says(judge_nccl(off, {"0", "0"}), "NCCL windows", CHECK_WARN, {},
                   {"unset NCCL_WIN_ENABLE", "unset NCCL_CUMEM_ENABLE"}));
  EXPECT_TRUE(says(judge_nccl(off, {"1", nullptr}), "NCCL windows", CHECK_WARN, {},
                   {"NCCL_WIN_ENABLE=0 out of /etc/nccl.conf"}));
  EXPECT_TRUE(says(judge_nccl(off, {"0", nullptr}, false), "NCCL windows", CHECK_NOTE, {}));
  const Judged judged =
      judge_nccl(nccl("2.28.9", no_windows("NCCL_CUMEM_ENABLE=0 switches them off")), {"1", "0"});
  EXPECT_TRUE(says(judged, "NCCL windows", CHECK_WARN, {}, {"unset NCCL_CUMEM_ENABLE"}));
  EXPECT_EQ(strstr(judged.find("NCCL windows")->remedy, "NCCL_WIN_ENABLE"), nullptr);
}

// ---- Local ranks, beside the GPUs of the report ----

class DoctorLocalRank : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* one :
         {"RANK=1", "WORLD_SIZE=9", "MASTER_ADDR=localhost", "MASTER_PORT=1234"}) {
      const std::string text = one;
      const size_t at = text.find('=');
      setenv(text.substr(0, at).c_str(), text.substr(at + 1).c_str(), 1);
    }
    unsetenv("LOCAL_RANK");
  }
  void TearDown() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}) {
      unsetenv(name);
    }
  }
  static Judged judge(int gpus) {
    Judged judged;
    claim found;
    const std::string report = "{\"cuda\":{\"gpu_count\":" + std::to_string(gpus) + "}}";
    check_launcher(&judged.all, report.c_str(), &found);
    EXPECT_EQ(found.usable, 1);
    return judged;
  }
};

TEST_F(DoctorLocalRank, BeyondTheGpusIsNamed) {
  setenv("LOCAL_RANK", "5", 1);
  EXPECT_TRUE(says(judge(4), "local rank", CHECK_WARN, {"LOCAL_RANK is 5", "only 4 GPUs"},
                   {"SYMM_COMM_SHARE_GPU"}));
  for (const int gpus : {0, 1, 6}) EXPECT_TRUE(says(judge(gpus), "local rank", CHECK_OK, {"5"}));
}

TEST_F(DoctorLocalRank, IsMissedWhereThereAreSeveralGpus) {
  EXPECT_TRUE(says(judge(4), "local rank", CHECK_NOTE, {"LOCAL_RANK is not set", "4 GPUs"},
                   {"set LOCAL_RANK"}));
  EXPECT_EQ(judge(1).find("local rank"), nullptr);
}

// ---- Ranks of a job ----

rank_facts rank(int number, bool has_gpu, const std::string& uuid,
                const std::string& nccl = "2.28.9", const std::string& symm = "0.1.0") {
  rank_facts facts = {};
  facts.rank = number;
  facts.has_gpu = has_gpu;
  snprintf(facts.host, sizeof facts.host, "node7");
  snprintf(facts.device, sizeof facts.device, "%s",
           has_gpu ? "GPU 0 (NVIDIA H200)" : "no GPU is visible to this process");
  snprintf(facts.gpu, sizeof facts.gpu, "%s", uuid.c_str());
  snprintf(facts.symm, sizeof facts.symm, "%s", symm.c_str());
  snprintf(facts.nccl, sizeof facts.nccl, "%s", nccl.c_str());
  return facts;
}

Judged compare(const std::vector<rank_facts>& ranks) {
  Judged judged;
  compare_ranks(&judged.all, "Job", ranks.data(), static_cast<int>(ranks.size()), "every rank");
  return judged;
}

TEST(DoctorRanks, ThatUseTheSameAreInOrder) {
  const Judged judged = compare({rank(0, true, "GPU-a"), rank(1, true, "GPU-b")});
  EXPECT_TRUE(
      says(judged, "devices", CHECK_OK,
           {"every rank would use a GPU: rank 0 GPU 0 (NVIDIA H200), rank 1 GPU 0 (NVIDIA H200)"}));
  EXPECT_TRUE(says(judged, "symm of all ranks", CHECK_OK, {"every rank has 0.1.0"}));
  EXPECT_TRUE(says(judged, "NCCL of all ranks", CHECK_OK, {"every rank has 2.28.9"}));
  EXPECT_EQ(checks_count(&judged.all, CHECK_WARN), 0);
  EXPECT_TRUE(says(compare({rank(0, false, ""), rank(1, false, "")}), "devices", CHECK_OK,
                   {"every rank would use the CPU"}));
}

TEST(DoctorRanks, OnGpusAndCpusAreNamedWithTheReason) {
  EXPECT_TRUE(says(compare({rank(0, true, "GPU-a"), rank(1, false, ""), rank(2, false, ""),
                            rank(3, true, "GPU-b"), rank(4, false, "")}),
                   "devices", CHECK_WARN,
                   {"a GPU on ranks 0, 3; the CPU on ranks 1, 2, 4",
                    "rank 1 on node7 has no GPU: no GPU is visible"},
                   {"SYMM_CPU on every rank"}));
}

TEST(DoctorRanks, OnOneGpuAreNamed) {
  const Judged judged =
      compare({rank(0, true, "GPU-a"), rank(1, true, "GPU-b"), rank(2, true, "GPU-a")});
  EXPECT_TRUE(says(judged, "shared GPU", CHECK_WARN, {"ranks 0 and 2", "GPU 0 (NVIDIA H200)"},
                   {"SYMM_COMM_SHARE_GPU"}));
}

TEST(DoctorRanks, OfDifferentVersionsAreNamed) {
  const Judged judged =
      compare({rank(0, true, "GPU-a", "none"), rank(1, true, "GPU-b", "2.28.9"),
               rank(2, true, "GPU-c", "2.28.9"), rank(3, true, "GPU-d", "2.28.9", "0.2.0"),
               rank(4, true, "GPU-e", "2.28.9 without windows")});
  EXPECT_TRUE(says(judged, "NCCL of all ranks", CHECK_WARN,
                   {"none on rank 0; 2.28.9 on ranks 1-3; 2.28.9 without windows on rank 4"},
                   {"one version of NCCL"}));
  EXPECT_TRUE(says(judged, "symm of all ranks", CHECK_WARN,
                   {"0.1.0 on ranks 0-2, 4; 0.2.0 on rank 3"}, {"one version of symm"}));
}

TEST(DoctorRanks, OfManyAreListedAsFarAsThereIsRoom) {
  std::vector<rank_facts> ranks;
  for (int i = 0; i < 1024; ++i) {
    ranks.push_back(rank(i, i % 2 == 0, "GPU-" + std::to_string(i), std::to_string(i)));
  }
  const Judged judged = compare(ranks);
  EXPECT_TRUE(says(judged, "devices", CHECK_WARN, {"a GPU on ranks 0, 2, 4"}));
  EXPECT_TRUE(says(judged, "NCCL of all ranks", CHECK_WARN, {"0 on rank 0; 1 on rank 1", "; ..."}));
}

// ---- The list of findings ----

TEST(DoctorChecks, MoreThanThereIsRoomForAndLongOnesDoNoHarm) {
  Judged judged;
  const std::string longest(3 * CHECK_TEXT, 'x');
  for (int i = 0; i < CHECK_MOST + 5; ++i) {
    checks_add(&judged.all, "Section", longest.c_str(), CHECK_OK, longest.c_str(), "%s",
               longest.c_str());
  }
  EXPECT_EQ(judged.all.count, CHECK_MOST);
  EXPECT_EQ(strlen(judged.all.list[0].detail), CHECK_TEXT - 1);
  Judged more = judged;
  checks_append(&more.all, &judged.all);
  EXPECT_EQ(more.all.count, CHECK_MOST);
}

}  // namespace
