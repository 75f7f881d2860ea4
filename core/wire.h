// Bytes between ranks: little-endian fields, every length checked before it is read. No message
// can make a reader allocate more than the frame that carried it.
#ifndef SYMM_CORE_WIRE_H_
#define SYMM_CORE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace symm {

using Bytes = std::vector<std::byte>;

class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  void u8(uint8_t value);
  void u32(uint32_t value);
  void u64(uint64_t value);
  void i32(int32_t value);
  void i64(int64_t value);
  void string(const std::string& value);        // u32 length + bytes
  void blob(std::span<const std::byte> value);  // u32 length + bytes
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  int32_t i32();
  int64_t i64();
  std::string string(size_t most);  // throws WireError beyond `most` bytes
  Bytes blob(size_t most);
  void end() const;  // throws WireError if bytes are left
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> take(size_t n);
  std::span<const std::byte> take_field(size_t most);
  std::span<const std::byte> bytes_;
};

// A frame: u32 magic "SYM1", u32 type, u32 payload length, payload.
struct Frame {
  uint32_t type = 0;
  Bytes payload;
};
constexpr size_t kFrameHeader = 12;
Bytes encode_frame(uint32_t type, std::span<const std::byte> payload);

// Collects frames from a byte stream in linear time. feed() and next() throw WireError on a wrong
// magic or a length above `most_payload`, before anything of that length is reserved; the stream is
// then of no further use. A header is looked at once, when all frames before it have been taken:
// set_limit() between two next() holds for the second frame, even where its bytes are already here.
// Holds what was fed and not yet taken, and memory for no more than that or the frame being
// collected.
class FrameParser {
 public:
  explicit FrameParser(size_t most_payload) : most_payload_(most_payload) {}
  void feed(std::span<const std::byte> bytes);
  bool next(Frame* frame);  // false: more bytes are needed
  void set_limit(size_t most_payload) { most_payload_ = most_payload; }
  // No byte of a frame has come that was not taken: an end of file here cuts nothing off.
  bool empty() const { return start_ == buffer_.size(); }

 private:
  std::span<const std::byte> unread() const;
  void check_header();

  size_t most_payload_;
  Bytes buffer_;
  size_t start_ = 0;  // of the first unread byte in buffer_
  size_t payload_length_ = 0;
  bool header_checked_ = false;  // payload_length_ is that of the frame at start_
};

}  // namespace symm

#endif  // SYMM_CORE_WIRE_H_
