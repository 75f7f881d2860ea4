// Ties arena, waits, algorithms and their table together. Why algorithms may be mixed call by call:
// each has memory and a step counter of its own, and its proof uses only the order of its own steps
// in every rank's program. All ranks count alike because a call returns on a rank only after words
// (or, for set-up calls, the exchange's agreement) have shown that every other rank entered the
// same call: so ranks are at most one call apart, and what the next call does is decided by
// arguments known equal.
#include "core/cpu/engine.h"

#include <bit>
#include <fstream>
#include <utility>

#include "core/cpu/arena.h"
#include "core/cpu/boxes.h"
#include "core/cpu/fault_block.h"
#include "core/cpu/lines.h"
#include "core/cpu/record.h"
#include "core/cpu/reduction.h"
#include "core/cpu/slots.h"
#include "core/cpu/table.h"
#include "core/cpu/wait.h"
#include "core/types.h"

namespace symm::cpu {
namespace {

// Of the cache that the ranks of a host share. Not sysconf(), which gives some CPUs' sum over all
// their caches.
size_t last_level_cache_bytes() {
  constexpr size_t kGuess = size_t{32} << 20;
  for (int index = 4; index >= 2; --index) {
    std::ifstream file(text("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    size_t amount = 0;
    char unit = 0;
    if (file >> amount && amount != 0) {
      file >> unit;
      return amount << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
    }
  }
  return kGuess;
}

}  // namespace

class Engine::State {
 public:
  State(std::byte* base, const EngineOptions& options, const std::atomic<int32_t>& local_fault,
        std::function<Fault()> describe)
      : options_(options),
        arena_(base, arena_layout(options)),
        table_(options.size, options.oversubscribed, arena_.layout().areas),
        streaming_from_(last_level_cache_bytes() / (2 * static_cast<size_t>(options.size))),
        waiter_(arena_, options, local_fault, std::move(describe)),
        boxes_(arena_, options.first_epoch, waiter_),
        lines_(arena_, options.first_epoch, waiter_),
        slots_(arena_, options.first_epoch, waiter_) {
    for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
      shifts_[dtype] = std::countr_zero(dtype_size(static_cast<symm_dtype>(dtype)));
      for (int op = 0; op < kOpCount; ++op) {
        functions_[dtype][op] = reduce_function(options.level, static_cast<symm_dtype>(dtype),
                                                static_cast<symm_op>(op));
      }
    }
  }

  void run(const Call& call, const void* input, void* output) {
    waiter_.begin(call);
    Reduction reduction{CallWord(call)};
    reduction.level = options_.level;
    if (call.count != 0) {
      reduction.input = static_cast<const std::byte*>(input);
      reduction.output = static_cast<std::byte*>(output);
      reduction.element_shift = shifts_[call.dtype];
      reduction.bytes = static_cast<size_t>(call.count) << reduction.element_shift;
      reduction.function = functions_[call.dtype][call.op];
    }
    switch (table_.choose(reduction.bytes, call.dtype)) {
      case Algorithm::kCopy:
        waiter_.publish();
        if (call.count != 0) {
          reduction.store = store_for(reduction);
          reduction.reduce(reduction.output, nullptr, &input, 1, reduction.bytes);
        }
        return;
      case Algorithm::kBoxInline:
        return boxes_.one_shot_inline(reduction);
      case Algorithm::kBoxOneShot:
        return boxes_.one_shot(reduction);
      case Algorithm::kBoxReduceScatter:
        reduction.store = store_for(reduction);
        return boxes_.reduce_scatter(reduction);
      case Algorithm::kLineInline:
      case Algorithm::kLineOneShot:
        return lines_.one_shot(reduction);
      case Algorithm::kSlotReduceScatter:
        reduction.store = store_for(reduction);
        return slots_.reduce_scatter(reduction);
    }
  }

  Plan plan(const Call& call) const;
  std::vector<TableRow> table() const;

  const Arena& arena() const { return arena_; }
  Waiter& waiter() { return waiter_; }

 private:
  // Non-temporal stores spare the output's way through the cache where it would not stay there
  // anyway: all ranks' inputs and outputs together exceed it. In place never, the lines are there.
  Store store_for(const Reduction& reduction) const {
    const bool fits = reduction.bytes < streaming_from_;
    return fits || reduction.input == reduction.output ? Store::kCached : Store::kStreaming;
  }

  const EngineOptions options_;
  const Arena arena_;
  const Table table_;
  const size_t streaming_from_;  // bytes
  Waiter waiter_;
  Boxes boxes_;
  Lines lines_;
  Slots slots_;
  int shifts_[kDtypeCount];  // log2 of an element's size
  ReduceFunction functions_[kDtypeCount][kOpCount];
};

Engine::Plan Engine::State::plan(const Call& call) const {
  const bool reduces = call.form == Form::kAllReduce || call.form == Form::kWindowAllReduce;
  const size_t bytes = reduces ? static_cast<size_t>(call.count) * dtype_size(call.dtype) : 0;
  const Algorithm algorithm = table_.choose(bytes, call.dtype);
  Plan plan;
  plan.algorithm = algorithm_name(algorithm);
  plan.reason = text(bytes, " bytes among ", options_.size, options_.size == 1 ? " rank" : " ranks",
                     options_.oversubscribed ? " that outnumber their CPUs" : "");
  switch (algorithm) {
    case Algorithm::kCopy:
      plan.reason += ": there is nobody to exchange with";
      break;
    case Algorithm::kBoxInline:
    case Algorithm::kLineInline:
      plan.reason += text(": at most ", kInlineBytes, " bytes go in the word's own cache line");
      break;
    case Algorithm::kBoxOneShot:
    case Algorithm::kLineOneShot:
      plan.reason += ": one step; each rank reduces everything";
      break;
    case Algorithm::kBoxReduceScatter:
    case Algorithm::kSlotReduceScatter:
      plan.reason += ": each rank reduces its share and passes on the result";
      break;
  }
  const ArenaAreas wanted = wanted_areas(options_.size, options_.oversubscribed);
  const Algorithm roomy =
      Table(options_.size, options_.oversubscribed, wanted).choose(bytes, call.dtype);
  if (roomy != algorithm) {
    plan.faster.push_back({algorithm_name(roomy),
                           text("scratch_bytes ", options_.scratch_bytes, " leaves it no room")});
  }
  if (options_.oversubscribed) {
    const Algorithm other =
        Table(options_.size, false, arena_.layout().areas).choose(bytes, call.dtype);
    plan.faster.push_back({text(algorithm_name(other), ", spinning"),
                           text(options_.size,
                                " ranks outnumber the CPUs they may run on; a spinning "
                                "rank would keep the awaited one from running")});
  }
  return plan;
}

std::vector<Engine::TableRow> Engine::State::table() const {
  std::vector<TableRow> rows;
  for (const Table::Row& row : table_.rows(SYMM_FLOAT32)) {
    rows.push_back({row.up_to_bytes, algorithm_name(row.algorithm)});
  }
  return rows;
}

Engine::Engine(std::byte* arena, const EngineOptions& options,
               const std::atomic<int32_t>& local_fault, std::function<Fault()> describe)
    : state_(std::make_unique<State>(arena, options, local_fault, std::move(describe))) {}

Engine::~Engine() = default;

void Engine::all_reduce(const Call& call, const void* input, void* output) {
  state_->run(call, input, output);
}

void Engine::barrier() { state_->run(Call{}, nullptr, nullptr); }

void Engine::publish_setup(const Call& call) {
  state_->waiter().begin(call);
  state_->waiter().publish();
}

void Engine::check_setup(const Call& call) { state_->waiter().check_all(call); }

void Engine::raise(const Fault& fault) { state_->waiter().raise(fault); }

std::optional<Fault> Engine::fault() const { return read(state_->arena().fault()); }

void Engine::leave() { state_->waiter().leave(); }

bool Engine::has_left(int rank) const {
  return state_->arena().record(rank).left.load(std::memory_order_acquire) != 0;
}

Engine::Plan Engine::plan(const Call& call) const { return state_->plan(call); }

std::vector<Engine::TableRow> Engine::table() const { return state_->table(); }

}  // namespace symm::cpu
