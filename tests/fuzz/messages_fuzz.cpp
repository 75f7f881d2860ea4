// Every message of the protocol, from whoever connects: decoding refuses or understands, and what
// it understands it can say again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/messages.h"

namespace {

using symm::Bytes;

// Decodes, encodes and decodes again: the two encodings must be the same bytes.
template <class Decode>
void there_and_back(const Bytes& payload, Decode decode) {
  try {
    const Bytes once = symm::encode(decode(payload));
    if (symm::encode(decode(once)) != once) std::abort();
  } catch (const symm::WireError&) {
    // Refused, as most bytes are.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const Bytes payload(bytes + 1, bytes + size);
  switch (data[0] % 8) {
    case 0:
      // Of another protocol only the head is read, so only its own kind can be said again.
      try {
        const symm::Hello hello = symm::decode_hello(payload);
        if (hello.protocol_min > symm::kProtocolMax || hello.protocol_max < symm::kProtocolMin) {
          return 0;
        }
      } catch (const symm::WireError&) {
        return 0;
      }
      there_and_back(payload, symm::decode_hello);
      break;
    case 1:
      there_and_back(payload, symm::decode_welcome);
      break;
    case 2:
      there_and_back(payload, symm::decode_failure);
      break;
    case 3:
      there_and_back(payload, symm::decode_join);
      break;
    case 4:
      there_and_back(payload, symm::decode_gather);
      break;
    case 5:
      there_and_back(payload, symm::decode_result);
      break;
    case 6:
      there_and_back(payload, symm::decode_expired);
      break;
    default:
      there_and_back(payload, symm::decode_star_address);
      break;
  }
  return 0;
}
