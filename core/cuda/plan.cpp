#include "core/cuda/plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "kernels/cuda/images.h"

namespace symm::cuda {
namespace {

constexpr uint64_t kKi = 1024;
constexpr uint64_t kMi = kKi * kKi;

constexpr uint64_t kLowLatencyBytes = 8;  // of data in a packet
constexpr uint64_t kPackedBytes = 16;
constexpr uint64_t kSlotBytes = 16;
constexpr uint64_t kLowLatencyArea = 8 * kKi;  // the largest message that its slots can hold

// ---- Sizes at which one algorithm gives way to another, as measured (2 ranks, bf16) or as others
// have measured (more ranks: what leaves a GPU grows with their number) ---------------------------

// The largest message of low latency. Between two ranks packed packets are as fast at 1 KiB
// already; with more, every rank sends its message to each other one, and twice the bytes count.
uint64_t low_latency_up_to(int size) { return size == 2 ? kKi / 2 : 8 * kKi; }

// The largest message that every rank sends to every other.
uint64_t one_shot_up_to(int size) {
  if (size == 2) return ~uint64_t{0};
  if (size <= 4) return 512 * kKi;
  return size <= 8 ? 256 * kKi : 128 * kKi;
}

// From this size on at most 6 blocks of 128 threads on a multiprocessor: more are slower, also
// behind a kernel that is still running.
constexpr uint64_t kFewBlocksFrom = 3 * kMi;
constexpr uint32_t kSharedForSixBlocks = 36 * kKi;

// ---- How large a grid may be
// ---------------------------------------------------------------------

constexpr uint64_t kThreadsOfMultiprocessor = 2048;
constexpr uint64_t kRegistersOfMultiprocessor = 65536;
constexpr uint32_t kBoundedThreads = 256;  // of a block of a bounded grid

// Registers of a thread at most: what all_reduce.cu's launch bounds allow.
uint64_t registers_of(int size) { return size == 2 ? 32 : 64; }

// Grids that may have to run at once on a GPU: those of all its ranks; the next kernel of each
// stream, which waits on the GPU already (dependent launch); and both again for a second
// communicator, unless there is none.
uint64_t grids_at_once(const Agreed& agreed) {
  return static_cast<uint64_t>(agreed.most_ranks_on_a_gpu) * (agreed.dependent_launch ? 2 : 1) *
         (agreed.sole ? 1 : 2);
}

// Threads of one grid such that they all fit. A kernel that waits for its peers keeps its place, so
// grids that did not fit together could wait for each other for ever.
uint64_t most_threads(const Agreed& agreed) {
  const uint64_t of_each =
      std::min(kThreadsOfMultiprocessor, kRegistersOfMultiprocessor / registers_of(agreed.size));
  return of_each * static_cast<uint64_t>(agreed.multiprocessors) / grids_at_once(agreed);
}

// Blocks of one grid. Where ranks of domains share a GPU, one's kernel waits for what another does
// after NCCL's kernel, whose blocks (one a channel, 32 as a rule) take nearly all registers of a
// multiprocessor each. A block goes where most room is: so half of the multiprocessors stay empty.
uint64_t most_blocks(const Agreed& agreed) {
  if (!agreed.beside_nccl) return ~uint64_t{0};
  const auto half = static_cast<uint64_t>(agreed.multiprocessors / 2);
  return std::max<uint64_t>(half / grids_at_once(agreed), 1);
}

// Alone on its GPU, and no other communicator: blocks start in the order of their numbers, on both
// sides, so that those that run are those whose peers run.
bool fits_any_grid(const Agreed& agreed) {
  return agreed.sole && agreed.most_ranks_on_a_gpu == 1 && !agreed.beside_nccl;
}

struct Grid {
  uint32_t blocks;
  uint32_t threads;
  uint32_t flags;
  uint64_t all() const { return uint64_t{blocks} * threads; }
};

Grid grid_of(uint64_t packets, uint32_t threads, bool eight_lanes) {
  const uint64_t in_a_block = eight_lanes ? threads / 4 : threads;
  const uint64_t blocks = std::max<uint64_t>((packets + in_a_block - 1) / in_a_block, 1);
  return {static_cast<uint32_t>(blocks), threads, eight_lanes ? kEightLanes : 0u};
}

// A thread a packet: block size and lanes by the number of packets. Eight lanes of a warp store
// 128 bytes; more warps with fewer lanes are faster while all fit easily.
Grid whole_grid(const Agreed& agreed, uint64_t packets) {
  const uint64_t most = most_threads(agreed);
  if (packets <= 256) {
    const auto threads = static_cast<uint32_t>(std::max<uint64_t>((packets + 31) / 32 * 32, 32));
    return grid_of(packets, threads, false);
  }
  const uint64_t bytes = packets * kSlotBytes;
  if (bytes <= 128 * kKi) {
    const uint32_t threads = bytes > 8 * kKi && bytes <= 16 * kKi ? 64 : 128;
    const Grid grid = grid_of(packets, threads, true);
    if (grid.all() <= most) return grid;
  }
  return grid_of(packets, bytes > kMi && bytes < kFewBlocksFrom ? 256 : 128, false);
}

bool is_whole_grid_allowed(const Agreed& agreed, uint64_t packets) {
  if (fits_any_grid(agreed)) return true;
  const Grid grid = whole_grid(agreed, packets);
  return grid.all() <= most_threads(agreed) && grid.blocks <= most_blocks(agreed);
}

uint64_t packets_of(uint64_t bytes, uint64_t in_a_packet) {
  return (bytes + in_a_packet - 1) / in_a_packet;
}

// ---- Names of kernels
// -----------------------------------------------------------------------------

// As in kernels/cuda/all_reduce.cu: families of dtypes, each an image for each world.
struct Type {
  symm_dtype dtype;
  const char* name;
  int family;
};
constexpr Type kSums[] = {
    {SYMM_FLOAT32, "float32", 0},
    {SYMM_FLOAT64, "float64", 0},
    {SYMM_FLOAT16, "float16", 1},
    {SYMM_BFLOAT16, "bfloat16", 1},
    {SYMM_FLOAT8_E4M3, "float8_e4m3", 2},
    {SYMM_FLOAT8_E5M2, "float8_e5m2", 2},
    {SYMM_UINT8, "uint8", 3},
    {SYMM_UINT32, "uint32", 3},
    {SYMM_UINT64, "uint64", 3},
};
constexpr Type kOthers[] = {
    {SYMM_FLOAT32, "float32", 0},
    {SYMM_FLOAT64, "float64", 0},
    {SYMM_FLOAT16, "float16", 1},
    {SYMM_BFLOAT16, "bfloat16", 1},
    {SYMM_FLOAT8_E4M3, "float8_e4m3", 2},
    {SYMM_FLOAT8_E5M2, "float8_e5m2", 2},
    {SYMM_INT8, "int8", 4},
    {SYMM_UINT8, "uint8", 4},
    {SYMM_INT32, "int32", 4},
    {SYMM_UINT32, "uint32", 4},
    {SYMM_INT64, "int64", 4},
    {SYMM_UINT64, "uint64", 4},
};
constexpr int kWorlds[] = {2, 4, 8, 0};
constexpr Algorithm kReductions[] = {Algorithm::kLowLatency, Algorithm::kPacked,
                                     Algorithm::kPackedRounds, Algorithm::kTwoShot};

// The images' order, which kernels/cuda/CMakeLists.txt keeps: the common kernels, then the families
// of each world. Worlds 4 and 8 have no family 4: their other operations are those of any world.
constexpr int kCommonImage = 0;
int image_of(int world, int family) {
  switch (world) {
    case 2:
      return 1 + family;
    case 4:
      return 6 + family;
    case 8:
      return 10 + family;
    default:
      return 14 + family;
  }
}
constexpr int kImages = 19;

struct Entry {
  Algorithm algorithm;
  symm_dtype dtype;
  bool is_sum;
  int world;
};

class Catalogue {
 public:
  Catalogue() {
    add({Algorithm::kBarrier, SYMM_DTYPE_NONE, false, 0}, "symm_barrier", kCommonImage);
    add({Algorithm::kCopy, SYMM_DTYPE_NONE, false, 0}, "symm_copy", kCommonImage);
    for (const int world : kWorlds) {
      for (const Type& type : kSums) add_reductions(type, true, world);
      if (world != 2 && world != 0) continue;
      for (const Type& type : kOthers) add_reductions(type, false, world);
    }
    for (size_t i = 0; i < kernels_.size(); ++i) kernels_[i].name = names_[i].c_str();
  }

  const std::vector<Kernel>& kernels() const { return kernels_; }

  int find(const Entry& wanted) const {
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      if (entry.algorithm == wanted.algorithm && entry.dtype == wanted.dtype &&
          entry.is_sum == wanted.is_sum && entry.world == wanted.world) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

 private:
  void add(const Entry& entry, std::string name, int image) {
    entries_.push_back(entry);
    names_.push_back(std::move(name));
    kernels_.push_back({nullptr, image, entry.world});
  }

  void add_reductions(const Type& type, bool is_sum, int world) {
    for (const Algorithm algorithm : kReductions) {
      if (algorithm == Algorithm::kTwoShot && world == 2) continue;
      add({algorithm, type.dtype, is_sum, world},
          text("symm_", algorithm_name(algorithm), "_", type.name, is_sum ? "_sum_" : "_other_",
               world),
          image_of(world, type.family));
    }
  }

  std::vector<Entry> entries_;
  std::vector<std::string> names_;
  std::vector<Kernel> kernels_;
};

const Catalogue& catalogue() {
  // Kept at exit: helper threads may still plan.
  static const Catalogue* const catalogue = new Catalogue;
  return *catalogue;
}

// By dtype, op, algorithm and world, as every call looks it up.
constexpr int kDtypes = SYMM_FLOAT8_E5M2 + 1;
constexpr int kAlgorithms = static_cast<int>(Algorithm::kCopy) + 1;
constexpr int kWorldKinds = 4;
using Index =
    std::array<std::array<std::array<std::array<int, kWorldKinds>, kAlgorithms>, 2>, kDtypes>;

symm_dtype summed_as(symm_dtype dtype) {
  switch (dtype) {
    case SYMM_INT8:
      return SYMM_UINT8;
    case SYMM_INT32:
      return SYMM_UINT32;
    case SYMM_INT64:
      return SYMM_UINT64;
    default:
      return dtype;
  }
}

Index make_index() {
  Index index{};
  for (int dtype = 0; dtype < kDtypes; ++dtype) {
    for (const bool is_sum : {false, true}) {
      for (const Algorithm algorithm : kReductions) {
        for (int w = 0; w < kWorldKinds; ++w) {
          Entry entry{algorithm, static_cast<symm_dtype>(dtype), is_sum, kWorlds[w]};
          if (is_sum) entry.dtype = summed_as(entry.dtype);
          int found = catalogue().find(entry);
          if (found < 0) {
            entry.world = 0;
            found = catalogue().find(entry);
          }
          index[dtype][is_sum][static_cast<int>(algorithm)][w] = found;
        }
      }
    }
  }
  return index;
}

int world_kind(int size) { return size == 2 ? 0 : size == 4 ? 1 : size == 8 ? 2 : 3; }

int kernel_of(Algorithm algorithm, int size, const Call& call) {
  if (algorithm == Algorithm::kBarrier) return 0;
  if (algorithm == Algorithm::kCopy) return 1;
  static const Index index = make_index();
  return index[call.dtype][call.op == SYMM_SUM][static_cast<int>(algorithm)][world_kind(size)];
}

uint64_t bytes_of(const Call& call, uint64_t count) { return count * dtype_size(call.dtype); }

// Elements of a part, so that `bytes` goes in as few parts of at most `limit` as there can be, all
// about equal, and each but the last whole packets.
void divide(Plan& plan, const Call& call, uint64_t limit) {
  const uint64_t element = dtype_size(call.dtype);
  const uint64_t bytes = bytes_of(call, call.count);
  plan.parts = std::max<uint64_t>((bytes + limit - 1) / limit, 1);
  const uint64_t packets = packets_of(bytes, kPackedBytes);
  const uint64_t in_a_part = (packets + plan.parts - 1) / plan.parts;
  plan.part_count = plan.parts == 1 ? call.count : in_a_part * kPackedBytes / element;
  // Rounding up may have made the last part superfluous.
  if (plan.part_count != 0) {
    plan.parts = std::max<uint64_t>((call.count + plan.part_count - 1) / plan.part_count, 1);
  }
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kBarrier:
      return "barrier";
    case Algorithm::kLowLatency:
      return "low_latency";
    case Algorithm::kPacked:
      return "packed";
    case Algorithm::kPackedRounds:
      return "packed_rounds";
    case Algorithm::kTwoShot:
      return "two_shot";
    case Algorithm::kCopy:
      return "copy";
  }
  return "unknown";
}

uint64_t least_scratch(int size) {
  // Two banks of four packets, three times, from each peer.
  return sizeof(Control) + 24 * kSlotBytes * static_cast<uint64_t>(std::max(size - 1, 1));
}

Layout layout_of(const Agreed& agreed) {
  const auto parts = static_cast<uint64_t>(2 * (agreed.size - 1));
  Layout layout{};
  layout.low_latency = sizeof(Control);
  layout.bytes = sizeof(Control);
  if (parts == 0) {
    layout.packed = layout.escape = layout.bytes;
    return layout;
  }
  const uint64_t room = agreed.scratch_bytes - std::min(agreed.scratch_bytes, layout.bytes);
  // A quarter of the room at most: little scratch is to serve large messages too.
  const uint64_t wanted = kLowLatencyArea / kLowLatencyBytes * kSlotBytes;
  layout.low_latency_part =
      std::min(wanted, room / 3 / parts / (2 * kSlotBytes) * (2 * kSlotBytes));
  // Slots are numbered with 32 bits, and a two-shot part is halved. 128-byte lines where they fit.
  const uint64_t unit = room / parts >= 64 * kKi ? 256 : 2 * kSlotBytes;
  const uint64_t each = (room / parts - layout.low_latency_part) / 2;
  layout.packed_part = std::min(each / unit * unit, uint64_t{1} << 35);
  layout.packed = layout.low_latency + parts / 2 * layout.low_latency_part;
  layout.packed_bytes = parts * layout.packed_part;
  layout.escape = layout.packed + layout.packed_bytes;
  const uint64_t second_bank = layout.escape + layout.packed_bytes;
  layout.low_latency_bank = second_bank - layout.low_latency;
  layout.bytes = second_bank + parts / 2 * layout.low_latency_part;
  return layout;
}

Plan plan(const Agreed& agreed, const Call& call) {
  Plan plan;
  plan.part_count = call.count;
  if (call.form != Form::kAllReduce && call.form != Form::kWindowAllReduce) {
    plan.algorithm = Algorithm::kBarrier;
    plan.part_count = 0;
    plan.reason = "it moves no data";
  } else if (agreed.size == 1) {
    plan.algorithm = Algorithm::kCopy;
    plan.reason = "one rank";
  } else {
    const Layout layout = layout_of(agreed);
    const uint64_t bytes = bytes_of(call, call.count);
    const uint64_t packets = packets_of(bytes, kPackedBytes);
    if (bytes <= low_latency_up_to(agreed.size) &&
        packets_of(bytes, kLowLatencyBytes) <= layout.low_latency_part / kSlotBytes &&
        is_whole_grid_allowed(agreed, packets_of(bytes, kLowLatencyBytes))) {
      plan.algorithm = Algorithm::kLowLatency;
      plan.reason = "small: a flag beside every 4 bytes saves the wait for anything else";
    } else if (bytes > one_shot_up_to(agreed.size)) {
      plan.algorithm = Algorithm::kTwoShot;
      plan.reason = "large, more than two ranks: less leaves each GPU when every rank owns a share";
      // The two halves of a part; shares are rounded up to whole packets.
      divide(
          plan, call,
          std::min(layout.packed_part / 2 * static_cast<uint64_t>(agreed.size), uint64_t{1} << 35));
    } else {
      divide(plan, call, layout.packed_part);
      const uint64_t in_a_part = std::min(packets, layout.packed_part / kPackedBytes);
      if (is_whole_grid_allowed(agreed, in_a_part)) {
        plan.algorithm = Algorithm::kPacked;
        plan.reason = "a thread a packet, as the grid fits the GPU";
      } else {
        plan.algorithm = Algorithm::kPackedRounds;
        plan.reason = "the grid is bounded, so that ranks and communicators fit the GPU together";
      }
    }
  }
  plan.faster = plan.algorithm;
  if (plan.algorithm == Algorithm::kPackedRounds) {
    plan.faster = Algorithm::kPacked;
    plan.why_not = agreed.most_ranks_on_a_gpu > 1
                       ? "ranks share a GPU, which must hold all their grids at once"
                       : "a grid of a thread a packet needs SYMM_COMM_SOLE at this size";
  }
  return plan;
}

Launch launch(const Agreed& agreed, const Plan& plan, const Call& call, uint64_t count) {
  Launch launch;
  launch.kernel = kernel_of(plan.algorithm, agreed.size, call);
  const auto bounded = [&](uint64_t items) {
    const uint64_t most = std::max<uint64_t>(most_threads(agreed), uint64_t{32});
    launch.threads =
        most >= kBoundedThreads ? kBoundedThreads : static_cast<uint32_t>(most / 32 * 32);
    const uint64_t at_most =
        std::min(std::max<uint64_t>(most / launch.threads, 1), most_blocks(agreed));
    // As many rounds as it takes, all about full.
    const uint64_t blocks = std::max<uint64_t>((items + launch.threads - 1) / launch.threads, 1);
    const uint64_t rounds = (blocks + at_most - 1) / at_most;
    launch.blocks = static_cast<uint32_t>((blocks + rounds - 1) / rounds);
  };
  switch (plan.algorithm) {
    case Algorithm::kBarrier:
      break;
    case Algorithm::kLowLatency:
    case Algorithm::kPacked: {
      const bool low_latency = plan.algorithm == Algorithm::kLowLatency;
      const uint64_t bytes = bytes_of(call, count);
      const uint64_t packets = packets_of(bytes, low_latency ? kLowLatencyBytes : kPackedBytes);
      const Grid grid = whole_grid(agreed, packets);
      launch.blocks = grid.blocks;
      launch.threads = grid.threads;
      launch.flags = grid.flags;
      if (!low_latency && bytes >= kFewBlocksFrom) launch.shared_bytes = kSharedForSixBlocks;
      break;
    }
    case Algorithm::kPackedRounds:
      bounded(packets_of(bytes_of(call, count), kPackedBytes));
      break;
    case Algorithm::kTwoShot:
      bounded(packets_of(packets_of(bytes_of(call, count), kPackedBytes),
                         static_cast<uint64_t>(agreed.size)));
      break;
    case Algorithm::kCopy:
      bounded(packets_of(bytes_of(call, count), kPackedBytes));
      break;
  }
  return launch;
}

CallRecord record_of(const Call& call, Algorithm algorithm) {
  CallRecord record{};
  record.kind = static_cast<uint64_t>(call.form) | static_cast<uint64_t>(algorithm) << 8 |
                static_cast<uint64_t>(static_cast<uint16_t>(call.dtype + 1)) << 16 |
                static_cast<uint64_t>(static_cast<uint32_t>(call.op + 1)) << 32;
  record.count = call.count;
  record.window = call.window;
  record.offset = call.offset;
  return record;
}

Call call_of(const CallRecord& record) {
  Call call;
  call.form = static_cast<Form>(record.kind & 0xff);
  call.dtype = static_cast<symm_dtype>(static_cast<int>(record.kind >> 16 & 0xffff) - 1);
  call.op = static_cast<symm_op>(static_cast<int>(record.kind >> 32) - 1);
  call.count = record.count;
  call.window = record.window;
  call.offset = record.offset;
  return call;
}

uint32_t hash_of(const CallRecord& record) {
  // Each step is a bijection of the state for a given field, so that records that differ in one
  // field only never meet until the last folding.
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (const uint64_t field : {record.kind, record.count, record.window, record.offset}) {
    h ^= field;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 32;
    h *= 0xc4ceb9fe1a85ec53u;
    h ^= h >> 29;
  }
  return static_cast<uint32_t>(h ^ h >> 32);
}

Kernels kernels() {
  if (images().count != kImages) return {nullptr, 0};
  const std::vector<Kernel>& all = catalogue().kernels();
  return {all.data(), static_cast<int>(all.size())};
}

bool needed(const Kernel& kernel, int size) {
  if (kernel.image == kCommonImage) return true;
  if (size == 1) return false;
  if (kernel.world == size) return true;
  // Worlds with kernels of their own take from the others only what they lack.
  if (kernel.world != 0 || size == 2) return false;
  if (size != 4 && size != 8) return true;
  return std::string_view(kernel.name).find("_other_") != std::string_view::npos;
}

}  // namespace symm::cuda
