#include "tests/cuda/operation.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "core/error.h"
#include "core/types.h"
#include "kernels/cpu/reduce.h"
#include "tests/support/formats.h"

namespace symm::cuda::testing {
namespace {

constexpr std::byte kUntouched{0x5a};

// Mostly numbers near 1, some of any bits, zeros, subnormals, infinities and NaNs among them.
uint64_t number(symm_dtype dtype, uint64_t any) {
  // Of integers any bits will do.
  const int mantissa = symm_test::mantissa_bits(dtype);
  if (mantissa == 0 || any % 8 == 0) return any >> 3;
  const uint64_t sign = uint64_t{1} << (8 * dtype_size(dtype) - 1);
  const uint64_t unit = uint64_t{1} << mantissa;
  const uint64_t bits = any >> 3;
  if (any % 8 == 1) {
    const uint64_t top = (sign - 1) & ~(unit - 1);
    const uint64_t special[] = {0, 1, unit - 1, top - 1, top, sign - 1, unit, top + 1};
    return special[bits % 8] | (bits & 8 ? sign : 0);
  }
  const uint64_t bias = sign / unit / 2 - 1;
  return ((bits >> 4) & (sign | (unit - 1))) | (bias - 2 + bits % 4) * unit;
}

void fill(std::byte* to, const Case& c, std::mt19937_64& random) {
  const size_t element = dtype_size(c.dtype);
  const size_t bytes = c.count * element;
  if (c.data == Case::Data::kPoison) {
    // Words around the poison, at any alignment of the packets.
    for (size_t i = 0; i < bytes; i += 4) {
      const uint64_t any = random();
      const uint32_t words[] = {kPoison, kPoison + 1, kPoison - 1, kPoison + 2,
                                static_cast<uint32_t>(any >> 32)};
      std::memcpy(to + i, &words[any % 5], std::min<size_t>(4, bytes - i));
    }
    return;
  }
  for (size_t i = 0; i < c.count; ++i) {
    const uint64_t bits = number(c.dtype, random());
    std::memcpy(to + i * element, &bits, element);
  }
}

}  // namespace

Call Case::call() const {
  Call call;
  call.form = Form::kAllReduce;
  call.dtype = dtype;
  call.op = op;
  call.count = count;
  return call;
}

std::string Case::text() const {
  return symm::text(dtype_name(dtype), " ", op_name(op), " count ", count,
                    in_place ? " in place" : "", " shifts ", input_shift, " ", output_shift,
                    data == Data::kPoison ? " poison" : "");
}

bool plan_with(const World& world, const Case& c, Algorithm algorithm, Plan& out) {
  out = plan(world.agreed(), c.call());
  if (algorithm == out.algorithm) return true;
  if (world.size() == 1 || c.count == 0) return false;
  const Layout& layout = world.layout();
  const uint64_t bytes = c.count * dtype_size(c.dtype);
  out.algorithm = algorithm;
  out.parts = 1;
  out.part_count = c.count;
  switch (algorithm) {
    case Algorithm::kLowLatency:
      return bytes <= layout.low_latency_part / 2;
    case Algorithm::kPacked: {
      // All ranks' grids, and those that wait behind them, must fit at 64 registers a thread.
      const Agreed& agreed = world.agreed();
      const Launch whole = launch(agreed, out, c.call(), c.count);
      return bytes <= layout.packed_part &&
             uint64_t{whole.blocks} * whole.threads * 2 * agreed.most_ranks_on_a_gpu <=
                 uint64_t{1024} * agreed.multiprocessors;
    }
    case Algorithm::kPackedRounds:
      return bytes <= layout.packed_part;
    case Algorithm::kTwoShot:
      return world.size() > 2 && bytes <= layout.packed_part;
    default:
      return false;
  }
}

Operation::Operation(World& world, size_t most_bytes)
    : world_(world), room_(most_bytes + 4 * kGuard), buffers_(world.size()) {
  for (int r = 0; r < world.size(); ++r) {
    Buffers& b = buffers_[r];
    b.input = world.alloc(r, room_);
    b.output = world.alloc(r, room_);
    void* memory = nullptr;
    check(driver()->host_alloc(&memory, room_, 0), "cuMemHostAlloc");
    b.sent = static_cast<std::byte*>(memory);
    check(driver()->host_alloc(&memory, room_, 0), "cuMemHostAlloc");
    b.received = static_cast<std::byte*>(memory);
  }
}

Operation::~Operation() {
  world_.synchronize();
  for (int r = 0; r < world_.size(); ++r) {
    world_.use(r);
    driver()->host_free(buffers_[r].sent);
    driver()->host_free(buffers_[r].received);
  }
}

size_t Operation::input_at() const { return kGuard + case_.input_shift * dtype_size(case_.dtype); }
size_t Operation::output_at() const {
  return case_.in_place ? input_at() : kGuard + case_.output_shift * dtype_size(case_.dtype);
}

void Operation::prepare(const Case& c, std::mt19937_64& random) {
  case_ = c;
  const size_t used = c.count * dtype_size(c.dtype) + 4 * kGuard;
  if (used > room_) throw std::runtime_error("Operation: too small for " + c.text());
  for (int r = 0; r < world_.size(); ++r) {
    Buffers& b = buffers_[r];
    std::memset(b.sent, static_cast<int>(kUntouched), used);
    fill(b.sent + input_at(), c, random);
    world_.use(r);
    check(driver()->upload(b.input, b.sent, used, world_.stream(r)), "cuMemcpyHtoDAsync");
    // The guard is what `received` holds now.
    std::memset(b.received, static_cast<int>(kUntouched), used);
    check(driver()->upload(b.output, b.received, used, world_.stream(r)), "cuMemcpyHtoDAsync");
  }
}

void Operation::enqueue(int rank, const Plan& plan) {
  const Buffers& b = buffers_[rank];
  const CUdeviceptr output = case_.in_place ? b.input : b.output;
  world_.enqueue(rank, plan, case_.call(), b.input + input_at(), output + output_at());
}

void Operation::finish() {
  const size_t used = case_.count * dtype_size(case_.dtype) + 4 * kGuard;
  for (int r = 0; r < world_.size(); ++r) {
    const Buffers& b = buffers_[r];
    world_.use(r);
    check(
        driver()->download(b.received, case_.in_place ? b.input : b.output, used, world_.stream(r)),
        "cuMemcpyDtoHAsync");
  }
  world_.synchronize();
}

std::string Operation::difference() const {
  const size_t element = dtype_size(case_.dtype);
  const size_t bytes = case_.count * element;
  const size_t used = bytes + 4 * kGuard;
  std::vector<const void*> sources;
  for (const Buffers& b : buffers_) sources.push_back(b.sent + input_at());
  std::vector<std::byte> expected(used, kUntouched);
  cpu::reduce_function(cpu::best_level(), case_.dtype, case_.op)(
      expected.data() + output_at(), nullptr, sources.data(), world_.size(), case_.count,
      cpu::Store::kCached);
  for (int r = 0; r < world_.size(); ++r) {
    if (world_.error(r).valid != 0) {
      return text("rank ", r, " failed with status -", world_.error(r).status, " peer ",
                  world_.error(r).peer, " epoch ", world_.error(r).epoch);
    }
    const std::byte* received = buffers_[r].received;
    if (std::memcmp(received, expected.data(), used) == 0) continue;
    size_t at = 0;
    while (received[at] == expected[at]) ++at;
    std::ostringstream message;
    message << "rank " << r << ": ";
    if (at < output_at() || at >= output_at() + bytes) {
      message << "guard byte " << at << " of " << used << " was touched";
      return message.str();
    }
    const size_t i = (at - output_at()) / element;
    const auto show = [&](const std::byte* from) {
      uint64_t bits = 0;
      std::memcpy(&bits, from, element);
      message << std::hex << bits << std::dec << " ";
    };
    message << "element " << i << " is ";
    show(received + output_at() + i * element);
    message << "instead of ";
    show(expected.data() + output_at() + i * element);
    message << "from ";
    for (const void* source : sources) show(static_cast<const std::byte*>(source) + i * element);
    return message.str();
  }
  return "";
}

std::string Operation::run(const Case& c, const Plan& plan, std::mt19937_64& random) {
  prepare(c, random);
  for (int r = 0; r < world_.size(); ++r) enqueue(r, plan);
  finish();
  return difference();
}

}  // namespace symm::cuda::testing
