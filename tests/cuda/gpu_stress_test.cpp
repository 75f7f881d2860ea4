// A hundred thousand all-reduces on GPUs, as random as their users may be: sizes, types,
// operations, alignments, private memory and windows, in place and not, eager calls on several
// streams and graphs between them, which are replayed with other data each time. Every result is
// compared, and every byte around it.
//
//   SYMM_STRESS_SEED=N         repeats a run: each prints its seed
//   SYMM_STRESS_OPERATIONS=N   all-reduces in all; 100000
//
// Memory of a rank: private memory and a window each begin with the homes of graphs, in which their
// calls work; then comes what a round of calls works on. A replay finds its data in the round's
// private memory: copies before and after the graph, on its stream, bring it home and back. Where
// ranks of a process share a GPU these copies are made before and after the round instead, and each
// graph is replayed once in it: a copy that waits for a kernel of one rank must not stand in a
// queue before another's that the kernel waits for.
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <sstream>

#include "tests/cuda/driver.h"
#include "tests/cuda/gpu.h"
#include "tests/support/stress.h"

namespace symm_test {
namespace {

using symm::cuda::testing::check;
using symm::cuda::testing::driver;

constexpr size_t kMi = 1 << 20;
constexpr int kMostGraphs = 3;
constexpr int kMostReplays = 3;  // of a graph in a round
constexpr Room kHome{3 * kMi, 3 * kMi};
constexpr Room kEager{40 * kMi, 24 * kMi};
constexpr size_t kHomes = kMostGraphs * kHome.own;  // of either memory
constexpr size_t kRound = kEager.own + kMostGraphs * kMostReplays * (kHome.own + kHome.window);

struct Job {
  uint64_t seed = 0;
  uint64_t operations = 0;
  bool shared = false;  // ranks of a process share a GPU
  bool sole = false;
};
std::string text_of(const Job& job) {
  std::ostringstream out;
  out << job.seed << " " << job.operations << " " << job.shared << " " << job.sole;
  return out.str();
}
Job job_of(const std::string& text) {
  Job job;
  std::istringstream(text) >> job.seed >> job.operations >> job.shared >> job.sole;
  return job;
}

// Pinned, so that copies are asynchronous. Never given back, as that may wait for kernels.
std::byte* pinned(size_t bytes) {
  void* memory = nullptr;
  check(driver()->host_alloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  return static_cast<std::byte*>(memory);
}

CUdeviceptr address(const std::byte* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

class Stress {
 public:
  // Everything that takes memory, before there is anything that may wait on the GPU.
  Stress(const Rank& rank, const Job& job);
  void run();

 private:
  struct Captured {
    Block block;
    Memory home;  // on the GPU
    size_t window_offset;
    std::unique_ptr<Graph> graph;
  };
  // A graph's replay in a round, or with no graph an eager call.
  struct Item {
    const Captured* graph = nullptr;
    size_t step = 0;       // of the eager block
    size_t at = 0;         // of the replay's data in the round's private memory
    uint64_t turn = 0;     // of the replay
    bool barrier = false;  // before it
  };

  void generation();
  void capture(Captured& captured);
  std::vector<Item> plan_round(const Block& eager, size_t* bytes);
  void round();
  void enqueue(const Block& eager, const Item& item);
  void bring_home(const Item& item, const GpuStream& stream);
  void take_back(const Item& item, const GpuStream& stream);
  void call(const Step& step, Memory memory, size_t window_offset, const GpuStream& stream);
  void barrier(const GpuStream& stream);
  void compare(const Block& block, Memory got, Memory expected, const std::string& what);
  void copy(std::byte* to, const std::byte* from, size_t bytes, const GpuStream& stream);
  // The stream for what comes next: any, and not the same on every rank. Eager calls are ordered by
  // the library, graphs by their caller.
  const GpuStream& next_stream(bool graph);
  std::string where() const;

  const Rank& rank_;
  const Job job_;
  const Patterns patterns_;
  std::mt19937_64 random_;  // equal on every rank
  std::mt19937_64 own_random_;
  Buffer private_;
  Memory image_, got_;  // of a round, on the host
  std::deque<GpuStream> streams_;
  GpuEvent event_;
  size_t last_stream_ = 0;
  bool last_was_graph_ = false;
  Comm comm_;
  Window window_;
  std::byte* window_data_ = nullptr;
  std::vector<Captured> graphs_;
  uint64_t operations_ = 0, bytes_ = 0, turns_ = 0, generations_ = 0, rounds_ = 0;
};

Stress::Stress(const Rank& rank, const Job& job)
    : rank_(rank),
      job_(job),
      patterns_(job.seed, rank.size),
      random_(job.seed),
      own_random_(job.seed * 64 + static_cast<uint64_t>(rank.rank)),
      private_(kHomes + kRound) {
  image_ = {pinned(kRound), pinned(kEager.window)};
  got_ = {pinned(kRound), pinned(kEager.window)};
  // CUDA deals streams out to few queues, in which ranks of one process that share a GPU must not
  // come to lie behind each other (gpu_graphs_test.cpp).
  for (int i = 0; i < (job.shared ? 2 : 4); ++i) streams_.emplace_back();
  // The first copy of each kind may load something.
  copy(private_.data(), private_.data() + kMi, kMi, streams_[0]);
  streams_[0].synchronize();
}

std::string Stress::where() const {
  return "seed " + std::to_string(job_.seed) + ", rank " + std::to_string(rank_.rank) +
         ", generation " + std::to_string(generations_) + ", round " + std::to_string(rounds_) +
         ", after " + std::to_string(operations_) + " operations";
}

void Stress::copy(std::byte* to, const std::byte* from, size_t bytes, const GpuStream& stream) {
  check(driver()->copy(address(to), address(from), bytes, stream.get()), "cuMemcpyDtoDAsync");
}

const GpuStream& Stress::next_stream(bool graph) {
  const size_t next = own_random_() % streams_.size();
  if (next != last_stream_ && (graph || last_was_graph_)) {
    event_.order(streams_[last_stream_], streams_[next]);
  }
  last_stream_ = next;
  last_was_graph_ = graph;
  return streams_[next];
}

void Stress::call(const Step& step, Memory memory, size_t window_offset, const GpuStream& stream) {
  std::byte* const output = (step.writes_window() ? memory.window : memory.own) + step.output;
  const symm_status status =
      step.reads_window() ? symm_window_all_reduce(window_.get(), window_offset + step.input,
                                                   output, step.count, step.dtype, step.op, stream)
                          : symm_all_reduce(comm_.get(), memory.own + step.input, output,
                                            step.count, step.dtype, step.op, stream);
  ASSERT_TRUE(ok(status)) << where() << ": " << step.text();
}

void Stress::barrier(const GpuStream& stream) {
  ASSERT_TRUE(ok(symm_comm_barrier(comm_.get(), stream))) << where();
}

// Over several streams where ranks do not share a GPU.
void Stress::capture(Captured& captured) {
  const size_t many = job_.shared ? 1 : 1 + own_random_() % streams_.size();
  // Barriers are calls too: at the same places on every rank.
  std::vector<bool> barriers;
  for (size_t i = 0; i < captured.block.steps().size(); ++i) barriers.push_back(random_() % 8 == 0);
  const std::deque<GpuEvent> events(2 * many);
  captured.graph = std::make_unique<Graph>(streams_[0], [&] {
    for (size_t i = 1; i < many; ++i) events[i].order(streams_[0], streams_[i]);
    for (size_t i = 0; i < captured.block.steps().size(); ++i) {
      const GpuStream& stream = streams_[own_random_() % many];
      if (barriers[i]) barrier(stream);
      call(captured.block.steps()[i], captured.home, captured.window_offset, stream);
      if (testing::Test::HasFatalFailure()) break;
    }
    for (size_t i = 1; i < many; ++i) events[many + i].order(streams_[i], streams_[0]);
  });
}

void Stress::bring_home(const Item& item, const GpuStream& stream) {
  const Room room = item.graph->block.room();
  const std::byte* const data = private_.data() + kHomes + item.at;
  copy(item.graph->home.own, data, room.own, stream);
  copy(item.graph->home.window, data + room.own, room.window, stream);
}

void Stress::take_back(const Item& item, const GpuStream& stream) {
  const Room room = item.graph->block.room();
  std::byte* const data = private_.data() + kHomes + item.at;
  copy(data, item.graph->home.own, room.own, stream);
  copy(data + room.own, item.graph->home.window, room.window, stream);
}

void Stress::enqueue(const Block& eager, const Item& item) {
  const GpuStream& stream = next_stream(item.graph != nullptr);
  if (item.graph != nullptr) {
    if (!job_.shared) bring_home(item, stream);
    item.graph->graph->launch(stream);
    if (!job_.shared) take_back(item, stream);
    return;
  }
  if (item.barrier) barrier(stream);
  call(eager.steps()[item.step], {private_.data() + kHomes, window_data_ + kHomes}, kHomes, stream);
}

// What happens in a round, in its order, and how many bytes of private memory it takes.
std::vector<Stress::Item> Stress::plan_round(const Block& eager, size_t* bytes) {
  std::vector<Item> items(eager.steps().size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].step = i;
    items[i].barrier = random_() % 32 == 0;
  }
  *bytes = eager.room().own;
  for (const Captured& captured : graphs_) {
    for (uint64_t i = job_.shared ? 1 : 1 + random_() % kMostReplays; i > 0; --i) {
      Item item;
      item.graph = &captured;
      item.at = *bytes;
      item.turn = turns_++;
      *bytes += captured.block.room().own + captured.block.room().window;
      items.insert(items.begin() + static_cast<ptrdiff_t>(random_() % (items.size() + 1)), item);
    }
  }
  return items;
}

void Stress::compare(const Block& block, Memory got, Memory expected, const std::string& what) {
  const std::string difference = block.difference(got, expected);
  ASSERT_EQ("", difference) << where() << ": " << what;
}

void Stress::round() {
  const Block eager(random_, rank_.rank, 8 + static_cast<int>(random_() % 40), kEager);
  const uint64_t turn = turns_++;
  size_t bytes = 0;
  const std::vector<Item> items = plan_round(eager, &bytes);
  const auto replayed = [](const Item& item, Memory memory) {
    std::byte* const data = memory.own + item.at;
    return Memory{data, data + item.graph->block.room().own};
  };

  eager.before(patterns_, turn, image_);
  for (const Item& item : items) {
    if (item.graph != nullptr) {
      item.graph->block.before(patterns_, item.turn, replayed(item, image_));
    }
  }
  std::byte* const data = private_.data() + kHomes;
  std::byte* const window = window_data_ + kHomes;
  const GpuStream& first = streams_[0];
  check(driver()->upload(address(data), image_.own, bytes, first.get()), "cuMemcpyHtoDAsync");
  check(driver()->upload(address(window), image_.window, eager.room().window, first.get()),
        "cuMemcpyHtoDAsync");
  for (const Item& item : items) {
    if (job_.shared && item.graph != nullptr) bring_home(item, first);
  }
  first.synchronize();

  for (const Item& item : items) {
    enqueue(eager, item);
    if (testing::Test::HasFatalFailure()) return;
  }

  // Meanwhile: what it has to become.
  eager.after(patterns_, turn, image_);
  for (const Item& item : items) {
    if (item.graph != nullptr) {
      item.graph->block.after(patterns_, item.turn, replayed(item, image_));
    }
  }
  for (const GpuStream& stream : streams_) stream.synchronize();
  ASSERT_TRUE(ok(symm_comm_check(comm_.get(), nullptr))) << where();
  for (const Item& item : items) {
    if (job_.shared && item.graph != nullptr) take_back(item, first);
  }
  check(driver()->download(got_.own, address(data), bytes, first.get()), "cuMemcpyDtoHAsync");
  check(driver()->download(got_.window, address(window), eager.room().window, first.get()),
        "cuMemcpyDtoHAsync");
  first.synchronize();
  compare(eager, got_, image_, "eager");
  operations_ += eager.steps().size();
  for (const Item& item : items) {
    if (item.graph == nullptr) continue;
    compare(item.graph->block, replayed(item, got_), replayed(item, image_),
            "graph " + std::to_string(item.graph - graphs_.data()));
    operations_ += item.graph->block.steps().size();
  }
  bytes_ += bytes + eager.room().window;
  ++rounds_;
}

// A window and graphs of its own, used for some rounds.
void Stress::generation() {
  rank_.at(where());
  window_ = alloc(comm_.get(), kHomes + kEager.window);
  ASSERT_TRUE(window_) << where();
  window_data_ = data_as<std::byte>(window_.get(), rank_.rank);
  graphs_.reserve(kMostGraphs);
  for (size_t i = random_() % (kMostGraphs + 1); i > 0; --i) {
    const int steps = 1 + static_cast<int>(random_() % 12);
    const size_t home = graphs_.size() * kHome.own;
    graphs_.push_back({Block(random_, rank_.rank, steps, kHome),
                       {private_.data() + home, window_data_ + home},
                       home,
                       nullptr});
    capture(graphs_.back());
    if (testing::Test::HasFatalFailure()) return;
  }
  // Nobody's kernel is to wait for a rank whose thread is still making graphs, which may wait for
  // kernels: a collective set-up call is a barrier of the hosts.
  ASSERT_TRUE(alloc(comm_.get(), 256)) << where();
  for (uint64_t i = 6 + random_() % 20; i > 0 && operations_ < job_.operations; --i) {
    round();
    if (testing::Test::HasFatalFailure()) return;
  }
  graphs_.clear();
  window_.reset();
  ++generations_;
}

void Stress::run() {
  symm_comm_options options = gpu_options(nullptr, 60000, 20000);
  options.scratch_bytes = 4 * kMi;  // messages of more than about 1 MiB go in parts
  if (job_.sole) options.flags |= SYMM_COMM_SOLE;
  comm_ = create_on_gpu(rank_, options);
  ASSERT_TRUE(comm_);
  while (operations_ < job_.operations && !testing::Test::HasFatalFailure()) generation();
  rank_.give(std::to_string(operations_));
  rank_.give(std::to_string(bytes_));
}

void stress(Rank& rank) {
  use_gpu(gpu_of(rank));
  Stress(rank, job_of(rank.argument)).run();
}

// Of a hundred operations in all, `part` are this test's.
void run_part(Layout layout, uint64_t part, bool sole) {
  Job job;
  job.seed = stress_seed();
  job.operations = stress_operations(100000) * part / 100;
  job.shared = layout.threads > 1;
  job.sole = sole;
  RunOptions options = gpu_run(std::max(110.0, static_cast<double>(job.operations) / 500));
  options.argument = text_of(job);
  alarm(static_cast<unsigned>(options.seconds) + 10);  // the watchdog's of each test is shorter
  SCOPED_TRACE("SYMM_STRESS_SEED=" + std::to_string(job.seed));
  printf("SYMM_STRESS_SEED=%" PRIu64 ", %d x %d ranks%s\n", job.seed, layout.processes,
         layout.threads, sole ? ", sole" : "");
  fflush(stdout);
  const Stopwatch clock;
  const auto given = run(layout, stress, options);
  for (const auto& of_rank : given) {
    ASSERT_EQ(2u, of_rank.size());
    EXPECT_EQ(of_rank[0], given[0][0]);
  }
  printf("  %s operations and %s bytes on each rank in %.1f s\n", given[0][0].c_str(),
         given[0][1].c_str(), clock.seconds());
}

TEST(GpuStress, ResultsOfAPairAreAllRight) {
  NEEDS_GPUS(1);
  const Layout layout = gpu_count() > 1 ? processes(2) : threads(2);
  NEEDS_LAUNCHES_OF(layout);
  run_part(layout, 60, false);
}

TEST(GpuStress, ResultsOfAPairAloneOnItsGpusAreAllRight) {
  NEEDS_GPUS(2);
  run_part(processes(2), 20, true);
}

TEST(GpuStress, ResultsOfRanksThatShareAreAllRight) {
  NEEDS_GPUS(1);
  NEEDS_LAUNCHES_OF(threads(4));
  run_part(threads(4), 20, false);
}

}  // namespace
}  // namespace symm_test
