// Bytes of a stranger: frames cut anywhere, and messages read from their payloads.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/wire.h"

namespace {

using symm::Bytes;

constexpr size_t kMostPayload = 256;

struct Outcome {
  std::vector<symm::Frame> frames;
  bool refused = false;
};

// Feeds `stream` in pieces of at most `piece` bytes and takes every frame as soon as it is there.
Outcome parse(std::span<const std::byte> stream, size_t piece) {
  Outcome outcome;
  symm::FrameParser parser(kMostPayload);
  try {
    while (!stream.empty()) {
      const size_t length = std::min(piece, stream.size());
      parser.feed(stream.first(length));
      stream = stream.subspan(length);
      symm::Frame frame;
      while (parser.next(&frame)) outcome.frames.push_back(frame);
    }
  } catch (const symm::WireError&) {
    outcome.refused = true;
  }
  return outcome;
}

void require(bool holds) {
  if (!holds) std::abort();
}

// Reads fields of the kinds that `payload` itself names, until it is refused or used up.
void read_fields(const Bytes& payload) {
  symm::Reader reader(payload);
  try {
    while (reader.left() > 0) {
      const size_t before = reader.left();
      switch (reader.u8() % 7) {
        case 0:
          (void)reader.u8();
          break;
        case 1:
          (void)reader.u32();
          break;
        case 2:
          (void)reader.u64();
          break;
        case 3:
          (void)reader.i32();
          break;
        case 4:
          (void)reader.i64();
          break;
        case 5:
          require(reader.string(64).size() <= 64);
          break;
        default:
          require(reader.blob(SIZE_MAX).size() < before);
          break;
      }
    }
    reader.end();
  } catch (const symm::WireError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto stream = std::as_bytes(std::span(data, size)).subspan(1);
  const Outcome whole = parse(stream, SIZE_MAX);
  const Outcome pieces = parse(stream, 1u + data[0]);
  // However the stream is cut, the same frames come out of it, and the same end.
  require(whole.refused == pieces.refused && whole.frames.size() == pieces.frames.size());
  size_t offset = 0;
  for (size_t i = 0; i < whole.frames.size(); ++i) {
    const symm::Frame& frame = whole.frames[i];
    require(frame.type == pieces.frames[i].type && frame.payload == pieces.frames[i].payload);
    require(frame.payload.size() <= kMostPayload);
    const Bytes encoded = symm::encode_frame(frame.type, frame.payload);
    const auto original = stream.subspan(offset, encoded.size());
    require(Bytes(original.begin(), original.end()) == encoded);
    offset += encoded.size();
    read_fields(frame.payload);
  }
  return 0;
}
