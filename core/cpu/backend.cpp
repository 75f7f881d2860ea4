#include "core/cpu/backend.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/attempt.h"
#include "core/json.h"
#include "core/types.h"

namespace symm::cpu {
namespace {

constexpr char kCreate[] = "symm_comm_create";
constexpr size_t kArenaCommitBytes = 2 << 20;

// CPUs this thread may run on, as bits.
std::vector<unsigned long> affinity() {
  constexpr size_t kBits = sizeof(unsigned long) * 8;
  for (size_t cpus = 1024; cpus <= 65536; cpus *= 2) {
    std::vector<unsigned long> mask(cpus / kBits);
    // The raw call: it says how many bytes it wrote, and takes masks of any length.
    if (syscall(SYS_sched_getaffinity, 0, mask.size() * sizeof(unsigned long), mask.data()) > 0) {
      return mask;
    }
    if (errno != EINVAL) break;
  }
  return std::vector<unsigned long>{1};
}

// What a rank says of its CPUs.
struct CpuInfo {
  cpu::Level level = cpu::Level::kBaseline;
  std::vector<unsigned long> mask;
};

Bytes encode(const CpuInfo& info) {
  Writer w;
  w.u8(static_cast<uint8_t>(info.level));
  w.u32(static_cast<uint32_t>(info.mask.size()));
  for (const unsigned long bits : info.mask) w.u64(bits);
  return w.take();
}

CpuInfo decode_cpu_info(const Bytes& blob) {
  Reader r(blob);
  CpuInfo info;
  info.level = static_cast<cpu::Level>(r.u8());
  const uint32_t words = r.u32();
  for (uint32_t i = 0; i < words; ++i) info.mask.push_back(static_cast<unsigned long>(r.u64()));
  r.end();
  return info;
}

}  // namespace

// Three agreed steps: who has which CPUs, rank 0's arena, and that everyone has mapped it.
void CpuBackend::set_up(Deadline deadline) {
  if (comm_.size() == 1) {
    level_ = best_level();
    return;
  }
  CpuInfo own{best_level(), affinity()};
  Exchange::Contribution facts_of_own;
  facts_of_own.blob = encode(own);
  facts_of_own.failure = attempt([&] {
    if (comm_.one_host()) facts_of_own.fd = open_own_pidfd();
  });
  auto facts = comm_.gather(kCreate, std::move(facts_of_own), deadline);
  level_ = own.level;
  std::vector<unsigned long> everyones(own.mask.size());
  const Failure understood = attempt([&] {
    facts.check_fds();
    for (const Bytes& blob : facts.blobs) {
      const CpuInfo info = decode_cpu_info(blob);
      level_ = std::min(level_, info.level);
      everyones.resize(std::max(everyones.size(), info.mask.size()));
      for (size_t i = 0; i < info.mask.size(); ++i) everyones[i] |= info.mask[i];
    }
  });
  if (!comm_.one_host()) {
    comm_.agree(kCreate, understood, deadline);
    return;
  }
  size_t cpus = 0;
  for (const unsigned long bits : everyones) cpus += static_cast<size_t>(__builtin_popcountl(bits));
  oversubscribed_ = static_cast<size_t>(comm_.size()) > cpus;

  EngineOptions options;
  options.rank = comm_.rank();
  options.size = comm_.size();
  options.level = level_;
  options.oversubscribed = oversubscribed_;
  options.scratch_bytes = comm_.options().agreed.scratch_bytes;
  options.wait_timeout_ms = comm_.options().agreed.wait_timeout_ms;
  size_t bytes = 0;
  std::shared_ptr<Fd> arena;
  const std::string key = "arena " + comm_.id();
  const Failure made = attempt([&] {
    if (understood.status != SYMM_OK) throw Error(understood.status, understood.message);
    bytes = round_up(arena_bytes(options), page_size());
    if (comm_.rank() != 0) return;
    arena = create_memfd("symm-arena", bytes);
    arena_ = shared_mapping(key, *arena, 0, bytes);
  });
  auto shared = comm_.gather(kCreate, {made, {}, arena}, deadline);
  const Failure mapped = attempt([&] {
    shared.check_fds();
    if (comm_.rank() != 0) arena_ = shared_mapping(key, shared.fds[0], 0, bytes);
    // What every call touches exists before the first one does; the rest comes at first touch.
    if (comm_.rank() == 0) commit(*arena, 0, std::min(bytes, kArenaCommitBytes));
    engine_ = std::make_unique<Engine>(
        arena_->data(), options, comm_.fault_box().word(), [&comm = comm_] {
          const Failure failure = comm.fault_box().get();
          return Fault{failure.status, failure.rank, failure.message};
        });
    comm_.watch_peers(std::move(facts.fds));
  });
  comm_.agree(kCreate, mapped, deadline);
}

void CpuBackend::check_stream(void* stream) const {
  if (stream != nullptr) {
    throw Error(SYMM_INVALID_ARGUMENT, "stream is not NULL; a CPU communicator has no streams");
  }
}

void CpuBackend::all_reduce(const Call& call, const void* input, void* output, void*, Keepable&) {
  comm_.require_one_host("all-reduces");
  if (engine_) {
    engine_->all_reduce(call, input, output);
  } else if (input != output && call.count > 0) {
    std::memcpy(output, input, call.count * dtype_size(call.dtype));
  }
}

void CpuBackend::barrier(void*, Keepable&) {
  if (engine_) {
    engine_->barrier();
  } else if (comm_.size() > 1) {
    comm_.agree("symm_comm_barrier", {},
                Deadline::after_ms(comm_.options().agreed.wait_timeout_ms));
  }
}

void CpuBackend::begin_setup(const Call& call) {
  if (engine_) engine_->publish_setup(call);
}

void CpuBackend::raise(const Failure& failure) {
  if (engine_) engine_->raise({failure.status, failure.rank, failure.message});
}

std::optional<Failure> CpuBackend::fault() const {
  if (!engine_) return std::nullopt;
  const auto fault = engine_->fault();
  if (!fault) return std::nullopt;
  return Failure{fault->status, fault->rank, fault->message};
}

void CpuBackend::leave() {
  if (engine_) engine_->leave();
}

bool CpuBackend::has_left(int rank) const { return engine_->has_left(rank); }

CallPlan CpuBackend::plan(const Call& call) const {
  CallPlan plan;
  if (engine_) {
    Engine::Plan chosen = engine_->plan(call);
    plan.algorithm = std::move(chosen.algorithm);
    plan.reason = std::move(chosen.reason);
    for (auto& other : chosen.faster) {
      plan.faster.push_back({std::move(other.algorithm), std::move(other.why_not)});
    }
  } else if (comm_.size() == 1) {
    plan.algorithm = "copy";
    plan.reason = "the communicator has one rank";
  } else {
    plan.algorithm = "unsupported";
    plan.reason = "CPU ranks are on several hosts: all-reduces and windows are not supported there";
  }
  return plan;
}

std::vector<AlgorithmRow> CpuBackend::table() const {
  std::vector<AlgorithmRow> rows;
  if (!engine_) return rows;
  for (const auto& row : engine_->table()) rows.push_back({row.up_to_bytes, row.algorithm});
  return rows;
}

void CpuBackend::describe(JsonWriter& json) const {
  json.key("cpu_level").string(level_name(level_));
  json.key("oversubscribed").boolean(oversubscribed_);
}

}  // namespace symm::cpu
