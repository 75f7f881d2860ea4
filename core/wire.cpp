#include "core/wire.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"

namespace symm {
namespace {

constexpr std::array<std::byte, 4> kMagic = {std::byte{'S'}, std::byte{'Y'}, std::byte{'M'},
                                             std::byte{'1'}};

// A drained parser gives back a buffer larger than this: rank 0 keeps one parser for every rank.
constexpr size_t kKeptCapacity = 64 * 1024;

// Shifts instead of memcpy: the bytes are little-endian on every machine.
template <class Unsigned>
void put(Bytes* bytes, Unsigned value) {
  for (size_t i = 0; i < sizeof(Unsigned); ++i) {
    bytes->push_back(static_cast<std::byte>(value >> (8 * i)));
  }
}

template <class Unsigned>
Unsigned get(std::span<const std::byte> bytes) {
  Unsigned value = 0;
  for (size_t i = 0; i < sizeof(Unsigned); ++i) {
    value = static_cast<Unsigned>(value | static_cast<Unsigned>(bytes[i]) << (8 * i));
  }
  return value;
}

uint32_t checked_length(size_t size) {
  if (size > std::numeric_limits<uint32_t>::max()) {
    throw WireError(text("a field of ", size, " bytes is too long for a message"));
  }
  return static_cast<uint32_t>(size);
}

}  // namespace

void Writer::u8(uint8_t value) { put(&bytes_, value); }
void Writer::u32(uint32_t value) { put(&bytes_, value); }
void Writer::u64(uint64_t value) { put(&bytes_, value); }
void Writer::i32(int32_t value) { put(&bytes_, static_cast<uint32_t>(value)); }
void Writer::i64(int64_t value) { put(&bytes_, static_cast<uint64_t>(value)); }

void Writer::string(const std::string& value) { blob(std::as_bytes(std::span(value))); }

void Writer::blob(std::span<const std::byte> value) {
  u32(checked_length(value.size()));
  bytes_.insert(bytes_.end(), value.begin(), value.end());
}

std::span<const std::byte> Reader::take(size_t n) {
  if (n > bytes_.size()) {
    throw WireError(text("a message ends early: ", n, " bytes expected, ", bytes_.size(), " left"));
  }
  const auto taken = bytes_.first(n);
  bytes_ = bytes_.subspan(n);
  return taken;
}

uint8_t Reader::u8() { return get<uint8_t>(take(1)); }
uint32_t Reader::u32() { return get<uint32_t>(take(4)); }
uint64_t Reader::u64() { return get<uint64_t>(take(8)); }
int32_t Reader::i32() { return static_cast<int32_t>(u32()); }
int64_t Reader::i64() { return static_cast<int64_t>(u64()); }

std::span<const std::byte> Reader::take_field(size_t most) {
  const uint32_t length = u32();
  if (length > most) {
    throw WireError(text("a field of ", length, " bytes, at most ", most, " are allowed"));
  }
  return take(length);
}

std::string Reader::string(size_t most) {
  const auto field = take_field(most);
  return std::string(reinterpret_cast<const char*>(field.data()), field.size());
}

Bytes Reader::blob(size_t most) {
  const auto field = take_field(most);
  return Bytes(field.begin(), field.end());
}

void Reader::end() const {
  if (!bytes_.empty()) {
    throw WireError(text("a message has ", bytes_.size(), " bytes too many"));
  }
}

Bytes encode_frame(uint32_t type, std::span<const std::byte> payload) {
  Bytes frame;
  frame.reserve(kFrameHeader + payload.size());
  frame.assign(kMagic.begin(), kMagic.end());
  put(&frame, type);
  put(&frame, checked_length(payload.size()));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

std::span<const std::byte> FrameParser::unread() const {
  return std::span(buffer_).subspan(start_);
}

// Looks at the first unread frame's header as far as it is here: a stranger that talks another
// protocol is recognised by its first byte, before it has sent a header's worth.
void FrameParser::check_header() {
  if (header_checked_) return;
  const auto bytes = unread();
  const size_t known = std::min(bytes.size(), kMagic.size());
  if (!std::equal(kMagic.begin(), kMagic.begin() + known, bytes.begin())) {
    throw WireError("not a message of symm: it does not start with \"SYM1\"");
  }
  if (bytes.size() < kFrameHeader) return;
  const uint32_t length = get<uint32_t>(bytes.subspan(8));
  if (length > most_payload_) {
    throw WireError(
        text("a message of ", length, " bytes, at most ", most_payload_, " are allowed here"));
  }
  payload_length_ = length;
  header_checked_ = true;
}

void FrameParser::feed(std::span<const std::byte> bytes) {
  // Moving the unread bytes to the front costs no more than the bytes read since the last move, so
  // that every byte is moved O(1) times.
  if (start_ >= buffer_.size() - start_) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(start_));
    start_ = 0;
  }
  const size_t needed = buffer_.size() + bytes.size();
  if (needed > buffer_.capacity()) {
    // Grows by doubling with what has come, not with what a header promises, and never past the end
    // of the frame being collected.
    const size_t frame_end =
        header_checked_ ? start_ + kFrameHeader + payload_length_ : 2 * buffer_.capacity();
    buffer_.reserve(std::max(needed, std::min(2 * buffer_.capacity(), frame_end)));
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  check_header();
}

bool FrameParser::next(Frame* frame) {
  check_header();
  if (!header_checked_ || unread().size() < kFrameHeader + payload_length_) return false;
  const auto bytes = unread();
  const auto payload = bytes.subspan(kFrameHeader, payload_length_);
  frame->type = get<uint32_t>(bytes.subspan(4));
  frame->payload.assign(payload.begin(), payload.end());
  start_ += kFrameHeader + payload_length_;
  header_checked_ = false;
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
    if (buffer_.capacity() > kKeptCapacity) buffer_.shrink_to_fit();
  }
  return true;
}

}  // namespace symm
