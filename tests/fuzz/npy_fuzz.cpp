// The .npy reader of the examples: a file is taken whole or refused, and what was taken is written
// as a file that reads back the same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "examples/npy.h"
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::vector<uint8_t> bytes(data, data + size);
  std::FILE* in = fmemopen(bytes.data(), bytes.size(), "rb");
  if (in == nullptr) return 0;
  char error[NPY_ERROR_SIZE] = "";
  npy_array array;
  const int taken = npy_read(in, &array, error);
  std::fclose(in);
  if (taken != 0) {
    if (error[0] == '\0') std::abort();  // refused without a reason
    return 0;
  }
  std::FILE* file = std::tmpfile();
  if (file == nullptr) return 0;
  npy_array again;
  if (npy_write(file, &array, error) != 0) std::abort();
  std::rewind(file);
  if (npy_read(file, &again, error) != 0) std::abort();
  std::fclose(file);
  const size_t content = array.count * array.item_size;
  if (again.count != array.count || again.dtype != array.dtype ||
      (content > 0 && std::memcmp(again.data, array.data, content) != 0)) {
    std::abort();
  }
  npy_free(&again);
  npy_free(&array);
  return 0;
}
