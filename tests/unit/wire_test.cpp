#include "core/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <string>

namespace {
std::atomic<size_t> largest_allocation{0};
}

// Every allocation of this program passes here, so that a test sees what a promised length costs.
// Not inline, where GCC takes free() of what new returned for a mistake.
[[gnu::noinline]] void* operator new(size_t size) {
  if (size > largest_allocation) largest_allocation = size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace symm {
namespace {

Bytes bytes_of(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return Bytes(view.begin(), view.end());
}

Bytes with_header(uint32_t type, uint32_t length) {
  Writer writer;
  for (const char c : {'S', 'Y', 'M', '1'}) writer.u8(static_cast<uint8_t>(c));
  writer.u32(type);
  writer.u32(length);
  return writer.take();
}

TEST(Wire, FieldsComeBackAsWritten) {
  Writer writer;
  writer.u8(255);
  writer.u32(0xdeadbeef);
  writer.u64(std::numeric_limits<uint64_t>::max() - 1);
  writer.i32(std::numeric_limits<int32_t>::min());
  writer.i64(-2);
  writer.string(std::string("a\0b", 3));
  writer.blob(bytes_of("xyz"));
  const Bytes bytes = writer.take();
  Reader reader(bytes);
  EXPECT_EQ(reader.u8(), 255);
  EXPECT_EQ(reader.u32(), 0xdeadbeef);
  EXPECT_EQ(reader.u64(), std::numeric_limits<uint64_t>::max() - 1);
  EXPECT_EQ(reader.i32(), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(reader.i64(), -2);
  EXPECT_EQ(reader.string(3), std::string("a\0b", 3));
  EXPECT_EQ(reader.blob(3), bytes_of("xyz"));
  EXPECT_EQ(reader.left(), 0u);
  EXPECT_NO_THROW(reader.end());
}

TEST(Wire, NumbersAreLittleEndian) {
  Writer writer;
  writer.u32(0x01020304);
  EXPECT_EQ(writer.take(), bytes_of("\x04\x03\x02\x01"));
}

TEST(Wire, EveryTruncationOfAMessageIsRefused) {
  Writer writer;
  writer.u8(1);
  writer.u32(2);
  writer.u64(3);
  writer.i32(4);
  writer.i64(5);
  writer.string("six");
  writer.blob(bytes_of("seven"));
  const Bytes whole = writer.take();
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto part = std::span(whole).first(length);
    EXPECT_THROW(
        {
          Reader reader(part);
          reader.u8();
          reader.u32();
          reader.u64();
          reader.i32();
          reader.i64();
          reader.string(100);
          reader.blob(100);
        },
        WireError)
        << length;
  }
}

TEST(Wire, AStringLongerThanAllowedIsRefusedThoughItIsThere) {
  Writer writer;
  writer.string("four");
  const Bytes bytes = writer.take();
  EXPECT_THROW(Reader(bytes).string(3), WireError);
  EXPECT_THROW(Reader(bytes).blob(3), WireError);
  EXPECT_EQ(Reader(bytes).string(4), "four");
}

TEST(Wire, ALengthThatIsALieIsRefused) {
  Writer writer;
  writer.u32(0xffffffff);
  const Bytes bytes = writer.take();
  EXPECT_THROW(Reader(bytes).string(std::numeric_limits<size_t>::max()), WireError);
  EXPECT_THROW(Reader(bytes).blob(std::numeric_limits<size_t>::max()), WireError);
}

TEST(Wire, BytesAfterTheLastFieldAreRefused) {
  const Bytes bytes = bytes_of("ab");
  Reader reader(bytes);
  reader.u8();
  EXPECT_THROW(reader.end(), WireError);
}

TEST(FrameParser, FramesComeBackHoweverTheStreamIsCut) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<Frame> frames(1 + random() % 5);
    Bytes stream;
    for (Frame& frame : frames) {
      frame.type = static_cast<uint32_t>(random());
      frame.payload.resize(random() % 4 == 0 ? 0 : random() % 3000);
      for (std::byte& byte : frame.payload) byte = static_cast<std::byte>(random());
      const Bytes encoded = encode_frame(frame.type, frame.payload);
      stream.insert(stream.end(), encoded.begin(), encoded.end());
    }
    FrameParser parser(3000);
    std::vector<Frame> got;
    const size_t most_piece = round % 2 == 0 ? 7 : 5000;
    for (std::span<const std::byte> rest = stream; !rest.empty();) {
      const size_t piece = std::min<size_t>(rest.size(), 1 + random() % most_piece);
      parser.feed(rest.first(piece));
      rest = rest.subspan(piece);
      Frame frame;
      // Sometimes frames are left inside for later.
      while (random() % 4 != 0 && parser.next(&frame)) got.push_back(frame);
    }
    Frame frame;
    while (parser.next(&frame)) got.push_back(frame);
    EXPECT_TRUE(parser.empty());
    ASSERT_EQ(got.size(), frames.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(got[i].type, frames[i].type);
      EXPECT_EQ(got[i].payload, frames[i].payload);
    }
  }
}

TEST(FrameParser, AStrangersProtocolIsRefusedByItsFirstByte) {
  FrameParser parser(100);
  EXPECT_THROW(parser.feed(bytes_of("G")), WireError);
  FrameParser other(100);
  other.feed(bytes_of("SYM"));
  EXPECT_THROW(other.feed(bytes_of("2")), WireError);
}

TEST(FrameParser, ALengthAboveTheLimitIsRefusedBeforeItsPayloadComes) {
  FrameParser parser(100);
  EXPECT_THROW(parser.feed(with_header(1, 101)), WireError);
  FrameParser most(100);
  most.feed(with_header(1, 100));
  Frame frame;
  EXPECT_FALSE(most.next(&frame));
  most.feed(Bytes(100));
  EXPECT_TRUE(most.next(&frame));
  EXPECT_EQ(frame.payload.size(), 100u);
}

TEST(FrameParser, APromisedLengthCostsNoMemory) {
  FrameParser parser(1u << 30);
  const Bytes header = with_header(1, 1u << 30);
  largest_allocation = 0;
  parser.feed(header);
  EXPECT_LT(largest_allocation, 1024u);
}

TEST(FrameParser, AFrameInPiecesNeverNeedsMoreMemoryThanTheFrame) {
  constexpr size_t kPayload = 1000003;
  const Bytes encoded = encode_frame(1, Bytes(kPayload));
  FrameParser parser(kPayload);
  Frame frame;
  largest_allocation = 0;
  for (std::span<const std::byte> rest = encoded; !rest.empty();) {
    EXPECT_FALSE(parser.next(&frame));
    const size_t piece = std::min<size_t>(rest.size(), 4096);
    parser.feed(rest.first(piece));
    rest = rest.subspan(piece);
  }
  EXPECT_TRUE(parser.next(&frame));
  EXPECT_LE(largest_allocation, kFrameHeader + kPayload);
}

TEST(FrameParser, ABadFrameBehindAGoodOneLeavesTheGoodOne) {
  Bytes stream = encode_frame(7, bytes_of("good"));
  const Bytes bad = with_header(8, 1000);
  stream.insert(stream.end(), bad.begin(), bad.end());
  FrameParser parser(100);
  parser.feed(stream);
  Frame frame;
  ASSERT_TRUE(parser.next(&frame));
  EXPECT_EQ(frame.payload, bytes_of("good"));
  EXPECT_THROW(parser.next(&frame), WireError);
}

TEST(FrameParser, ARaisedLimitHoldsForTheNextFrameThoughItIsHereAlready) {
  Bytes stream = encode_frame(1, bytes_of("hello"));
  const Bytes large = encode_frame(2, Bytes(1000));
  stream.insert(stream.end(), large.begin(), large.end());
  FrameParser parser(10);
  parser.feed(stream);
  Frame frame;
  ASSERT_TRUE(parser.next(&frame));
  parser.set_limit(1000);
  ASSERT_TRUE(parser.next(&frame));
  EXPECT_EQ(frame.payload.size(), 1000u);
}

TEST(FrameParser, ALoweredLimitLeavesTheFrameThatHasBegun) {
  FrameParser parser(1000);
  parser.feed(with_header(1, 1000));
  parser.set_limit(10);
  parser.feed(Bytes(1000));
  Frame frame;
  ASSERT_TRUE(parser.next(&frame));
  EXPECT_THROW(parser.feed(with_header(2, 11)), WireError);
}

TEST(FrameParser, EmptySaysWhetherAnEndOfFileCutsAFrame) {
  FrameParser parser(100);
  EXPECT_TRUE(parser.empty());
  const Bytes frame_bytes = encode_frame(1, bytes_of("x"));
  parser.feed(std::span(frame_bytes).first(5));
  EXPECT_FALSE(parser.empty());
  parser.feed(std::span(frame_bytes).subspan(5));
  Frame frame;
  EXPECT_TRUE(parser.next(&frame));
  EXPECT_TRUE(parser.empty());
}

// Moving all that is left for every frame would move 480 GB.
TEST(FrameParser, ManySmallFramesInOneBufferTakeLinearTime) {
  const Bytes one = encode_frame(1, {});
  constexpr size_t kFrames = 200000;
  Bytes stream;
  for (size_t i = 0; i < kFrames; ++i) stream.insert(stream.end(), one.begin(), one.end());
  FrameParser parser(0);
  const auto start = std::chrono::steady_clock::now();
  parser.feed(stream);
  Frame frame;
  size_t got = 0;
  while (parser.next(&frame)) {
    ++got;
    // Feeding between reads is where a careless parser moves all that is left.
    parser.feed(one);
    if (got == kFrames) break;
  }
  EXPECT_EQ(got, kFrames);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(EncodeFrame, HasItsTypeLengthAndPayload) {
  Bytes expected = with_header(0x01020304, 2);
  expected.push_back(std::byte{'h'});
  expected.push_back(std::byte{'i'});
  EXPECT_EQ(encode_frame(0x01020304, bytes_of("hi")), expected);
}

}  // namespace
}  // namespace symm
