#include "core/messages.h"

#include <algorithm>

namespace symm {
namespace {

constexpr size_t kMostName = 4096;
constexpr size_t kMostToken = 512;
constexpr size_t kMostShort = 512;  // ids, host names, kinds
constexpr size_t kMostEndpoints = 32;

void write(Writer& w, const Failure& failure) {
  w.i32(failure.status);
  w.i32(failure.rank);
  w.string(failure.message.substr(0, kMostText));
}

Failure read_failure(Reader& r) {
  Failure failure;
  failure.status = static_cast<symm_status>(r.i32());
  failure.rank = r.i32();
  failure.message = r.string(kMostText);
  return failure;
}

void write(Writer& w, const RankInfo& info) {
  w.string(info.host_id);
  w.string(info.host_name.substr(0, kMostShort));
  w.string(info.process_id);
  w.i32(info.pid);
  w.i32(info.device);
}

RankInfo read_rank_info(Reader& r) {
  RankInfo info;
  info.host_id = r.string(kMostShort);
  info.host_name = r.string(kMostShort);
  info.process_id = r.string(kMostShort);
  info.pid = r.i32();
  info.device = r.i32();
  return info;
}

void write(Writer& w, const StarAddress& star) {
  w.string(star.uid);
  const size_t n = std::min(star.endpoints.size(), kMostEndpoints);
  w.u32(static_cast<uint32_t>(n));
  for (size_t i = 0; i < n; ++i) {
    w.string(star.endpoints[i].unix_name);
    w.string(star.endpoints[i].host);
    w.u32(star.endpoints[i].port);
  }
}

StarAddress read_star_address(Reader& r) {
  StarAddress star;
  star.uid = r.string(kMostShort);
  const uint32_t n = r.u32();
  if (n > kMostEndpoints) throw WireError("too many endpoints");
  for (uint32_t i = 0; i < n; ++i) {
    Endpoint endpoint;
    endpoint.unix_name = r.string(kMostShort);
    endpoint.host = r.string(kMostShort);
    const uint32_t port = r.u32();
    if (port > 65535) throw WireError("a port above 65535");
    endpoint.port = static_cast<uint16_t>(port);
    star.endpoints.push_back(std::move(endpoint));
  }
  return star;
}

// The only status a message may carry; a future one of a newer peer is still a failure here.
void check_status(const Failure& failure) {
  if (failure.status > 0) throw WireError("a positive status");
}

}  // namespace

std::optional<OptionsDifference> difference(const AgreedOptions& mine,
                                            const AgreedOptions& theirs) {
  const OptionsDifference fields[] = {
      {"scratch_bytes", mine.scratch_bytes, theirs.scratch_bytes},
      {"timeout_ms", static_cast<uint64_t>(mine.timeout_ms),
       static_cast<uint64_t>(theirs.timeout_ms)},
      {"wait_timeout_ms", static_cast<uint64_t>(mine.wait_timeout_ms),
       static_cast<uint64_t>(theirs.wait_timeout_ms)},
      {"flags", mine.flags, theirs.flags},
  };
  for (const OptionsDifference& field : fields) {
    if (field.mine != field.theirs) return field;
  }
  return std::nullopt;
}

Bytes encode(const StarAddress& star) {
  Writer w;
  write(w, star);
  return w.take();
}

StarAddress decode_star_address(const Bytes& payload) {
  Reader r(payload);
  StarAddress star = read_star_address(r);
  r.end();
  return star;
}

Bytes encode(const Hello& hello) {
  Writer w;
  w.u32(hello.protocol_min);
  w.u32(hello.protocol_max);
  w.string(hello.version);
  w.string(hello.token);
  w.string(hello.name);
  w.i32(hello.rank);
  w.i32(hello.size);
  write(w, hello.info);
  w.u64(hello.options.scratch_bytes);
  w.i32(hello.options.timeout_ms);
  w.i32(hello.options.wait_timeout_ms);
  w.u32(hello.options.flags);
  write(w, hello.star);
  write(w, hello.failure);
  return w.take();
}

Hello decode_hello(const Bytes& payload) {
  Reader r(payload);
  Hello hello;
  hello.protocol_min = r.u32();
  hello.protocol_max = r.u32();
  hello.version = r.string(kMostShort);
  hello.token = r.string(kMostToken);
  hello.name = r.string(kMostName);
  hello.rank = r.i32();
  hello.size = r.i32();
  // What follows may look different in another protocol; only who it is was needed to refuse it.
  if (hello.protocol_min > kProtocolMax || hello.protocol_max < kProtocolMin) return hello;
  hello.info = read_rank_info(r);
  hello.options.scratch_bytes = r.u64();
  hello.options.timeout_ms = r.i32();
  hello.options.wait_timeout_ms = r.i32();
  hello.options.flags = r.u32();
  hello.star = read_star_address(r);
  hello.failure = read_failure(r);
  check_status(hello.failure);
  r.end();
  return hello;
}

Bytes encode(const Welcome& welcome) {
  Writer w;
  w.u32(welcome.protocol);
  write(w, welcome.star);
  w.u32(static_cast<uint32_t>(welcome.roster.size()));
  for (const RankInfo& info : welcome.roster) write(w, info);
  return w.take();
}

Welcome decode_welcome(const Bytes& payload) {
  Reader r(payload);
  Welcome welcome;
  welcome.protocol = r.u32();
  welcome.star = read_star_address(r);
  const uint32_t n = r.u32();
  if (n > kMostRanks) throw WireError("too many ranks");
  for (uint32_t i = 0; i < n; ++i) welcome.roster.push_back(read_rank_info(r));
  r.end();
  return welcome;
}

Bytes encode(const Failure& failure) {
  Writer w;
  write(w, failure);
  return w.take();
}

Failure decode_failure(const Bytes& payload) {
  Reader r(payload);
  Failure failure = read_failure(r);
  check_status(failure);
  if (failure.status == SYMM_OK) throw WireError("a failure without a status");
  r.end();
  return failure;
}

Bytes encode(const Join& join) {
  Writer w;
  w.string(join.uid);
  w.i32(join.rank);
  w.string(join.process_id);
  return w.take();
}

Join decode_join(const Bytes& payload) {
  Reader r(payload);
  Join join;
  join.uid = r.string(kMostShort);
  join.rank = r.i32();
  join.process_id = r.string(kMostShort);
  r.end();
  return join;
}

Bytes encode(const Gather& gather) {
  Writer w;
  w.u64(gather.step);
  w.string(gather.kind);
  write(w, gather.failure);
  w.blob(gather.blob);
  w.u8(gather.has_fd ? 1 : 0);
  return w.take();
}

Gather decode_gather(const Bytes& payload) {
  Reader r(payload);
  Gather gather;
  gather.step = r.u64();
  gather.kind = r.string(kMostShort);
  gather.failure = read_failure(r);
  check_status(gather.failure);
  gather.blob = r.blob(kMostBlob);
  gather.has_fd = r.u8() != 0;
  r.end();
  return gather;
}

Bytes encode(const Result& result) {
  Writer w;
  w.u64(result.step);
  write(w, result.failure);
  w.u32(static_cast<uint32_t>(result.blobs.size()));
  for (const Bytes& blob : result.blobs) w.blob(blob);
  w.u32(static_cast<uint32_t>(result.fd_ranks.size()));
  for (const int32_t rank : result.fd_ranks) w.i32(rank);
  return w.take();
}

Result decode_result(const Bytes& payload) {
  Reader r(payload);
  Result result;
  result.step = r.u64();
  result.failure = read_failure(r);
  check_status(result.failure);
  const uint32_t blobs = r.u32();
  if (blobs > kMostRanks) throw WireError("too many blobs");
  for (uint32_t i = 0; i < blobs; ++i) result.blobs.push_back(r.blob(kMostBlob));
  const uint32_t fds = r.u32();
  if (fds > blobs) throw WireError("more file descriptors than ranks");
  for (uint32_t i = 0; i < fds; ++i) {
    const int32_t rank = r.i32();
    if (rank < 0 || rank >= static_cast<int32_t>(blobs)) throw WireError("a rank out of range");
    result.fd_ranks.push_back(rank);
  }
  r.end();
  return result;
}

Bytes encode(const Expired& expired) {
  Writer w;
  w.u64(expired.step);
  return w.take();
}

Expired decode_expired(const Bytes& payload) {
  Reader r(payload);
  Expired expired;
  expired.step = r.u64();
  r.end();
  return expired;
}

}  // namespace symm
