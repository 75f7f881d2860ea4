/* symm.h alone, as C99 and (by header.cpp) as C++, with every warning an error; and what programs
 * compiled against it rely on: a change here breaks them. */
#include <symm.h>

#define CHECK_CONCAT_(a, b) a##b
#define CHECK_NAME_(line) CHECK_CONCAT_(check_, line)
#define CHECK(condition) typedef char CHECK_NAME_(__LINE__)[(condition) ? 1 : -1]

CHECK(sizeof(symm_status) == 4);
CHECK(sizeof(symm_dtype) == 4);
CHECK(sizeof(symm_op) == 4);

CHECK(SYMM_OK == 0);
CHECK(SYMM_INVALID_ARGUMENT == -1);
CHECK(SYMM_OUT_OF_MEMORY == -2);
CHECK(SYMM_UNSUPPORTED == -3);
CHECK(SYMM_SYSTEM == -4);
CHECK(SYMM_CUDA == -5);
CHECK(SYMM_NCCL == -6);
CHECK(SYMM_TIMEOUT == -7);
CHECK(SYMM_PEER == -8);
CHECK(SYMM_MISMATCH == -9);
CHECK(SYMM_ABORTED == -10);
CHECK(SYMM_INTERNAL == -11);

CHECK(SYMM_INT8 == 0);
CHECK(SYMM_UINT8 == 1);
CHECK(SYMM_INT32 == 2);
CHECK(SYMM_UINT32 == 3);
CHECK(SYMM_INT64 == 4);
CHECK(SYMM_UINT64 == 5);
CHECK(SYMM_FLOAT16 == 6);
CHECK(SYMM_FLOAT32 == 7);
CHECK(SYMM_FLOAT64 == 8);
CHECK(SYMM_BFLOAT16 == 9);
CHECK(SYMM_FLOAT8_E4M3 == 10);
CHECK(SYMM_FLOAT8_E5M2 == 11);

CHECK(SYMM_SUM == 0);
CHECK(SYMM_PROD == 1);
CHECK(SYMM_MAX == 2);
CHECK(SYMM_MIN == 3);
CHECK(SYMM_AVG == 4);

CHECK(SYMM_CPU == -1);
CHECK(SYMM_LOCAL_GPU == -2);
CHECK(SYMM_CURRENT_GPU == -3);
CHECK(SYMM_FROM_ADDRESS == -1);
CHECK(SYMM_NO_COLOR == -1);
CHECK(SYMM_ADDRESS_SIZE == 512);
CHECK(SYMM_COMM_SHARE_GPU == 1);
CHECK(SYMM_COMM_NCCL == 2);
CHECK(SYMM_COMM_STRICT == 4);
CHECK(SYMM_COMM_SOLE == 8);
CHECK(SYMM_WINDOW_NCCL == 1);
CHECK(SYMM_WINDOW_FD == 2);

/* Options grow at their end, by whole 8 bytes, and what is there stays where it is. */
CHECK(offsetof(symm_comm_options, size) == 0);
CHECK(offsetof(symm_comm_options, name) == 8);
CHECK(offsetof(symm_comm_options, nccl_path) == 16);
CHECK(offsetof(symm_comm_options, error) == 24);
CHECK(offsetof(symm_comm_options, error_size) == 32);
CHECK(offsetof(symm_comm_options, scratch_bytes) == 40);
CHECK(offsetof(symm_comm_options, timeout_ms) == 48);
CHECK(offsetof(symm_comm_options, wait_timeout_ms) == 52);
CHECK(offsetof(symm_comm_options, flags) == 56);
CHECK(offsetof(symm_comm_options, reserved) == 60);
CHECK(sizeof(symm_comm_options) >= 64 && sizeof(symm_comm_options) % 8 == 0);
CHECK(offsetof(symm_window_options, size) == 0);
CHECK(offsetof(symm_window_options, error) == 8);
CHECK(offsetof(symm_window_options, error_size) == 16);
CHECK(offsetof(symm_window_options, fd_offset) == 24);
CHECK(offsetof(symm_window_options, fd) == 32);
CHECK(offsetof(symm_window_options, flags) == 36);
CHECK(sizeof(symm_window_options) >= 40 && sizeof(symm_window_options) % 8 == 0);

/* The library that is found at run time is the header's. */
int main(void) {
  return symm_version() ==
                 SYMM_VERSION_MAJOR * 1000000 + SYMM_VERSION_MINOR * 1000 + SYMM_VERSION_PATCH
             ? 0
             : 1;
}
