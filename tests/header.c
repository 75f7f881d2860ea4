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
CHECK(SYMM_STATUS_MAX_ == 0x7fffffff);

CHECK(SYMM_DTYPE_NONE == -1);
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
CHECK(SYMM_DTYPE_MAX_ == 0x7fffffff);

CHECK(SYMM_OP_NONE == -1);
CHECK(SYMM_SUM == 0);
CHECK(SYMM_PROD == 1);
CHECK(SYMM_MAX == 2);
CHECK(SYMM_MIN == 3);
CHECK(SYMM_AVG == 4);
CHECK(SYMM_OP_MAX_ == 0x7fffffff);

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

/* A pointer to another type is an error here, as everywhere in C++. */
#define FIELD(type, Struct, name)                         \
  type* CHECK_CONCAT_(Struct##_, name)(Struct * options); \
  type* CHECK_CONCAT_(Struct##_, name)(Struct * options) { return &options->name; }

FIELD(size_t, symm_comm_options, size)
FIELD(const char*, symm_comm_options, name)
FIELD(const char*, symm_comm_options, nccl_path)
FIELD(char*, symm_comm_options, error)
FIELD(size_t, symm_comm_options, error_size)
FIELD(size_t, symm_comm_options, scratch_bytes)
FIELD(int32_t, symm_comm_options, timeout_ms)
FIELD(int32_t, symm_comm_options, wait_timeout_ms)
FIELD(uint32_t, symm_comm_options, flags)
FIELD(uint32_t, symm_comm_options, reserved)
FIELD(size_t, symm_window_options, size)
FIELD(char*, symm_window_options, error)
FIELD(size_t, symm_window_options, error_size)
FIELD(size_t, symm_window_options, fd_offset)
FIELD(int32_t, symm_window_options, fd)
FIELD(uint32_t, symm_window_options, flags)

/* Declared again: another type is an error in C. */
int32_t symm_version(void);
const char* symm_status_name(int32_t);
const char* symm_last_error(void);
symm_status symm_report(const symm_comm*, char*, size_t, size_t*);
symm_status symm_plan(const symm_comm*, const symm_window*, size_t, symm_dtype, symm_op, char*,
                      size_t, size_t*);
symm_status symm_address_create(const char*, char*, size_t, size_t*);
symm_status symm_comm_create(const char*, int32_t, int32_t, int32_t, const symm_comm_options*,
                             symm_comm**);
symm_status symm_comm_split(symm_comm*, int32_t, int32_t, const symm_comm_options*, symm_comm**);
symm_status symm_comm_rank(const symm_comm*, int32_t*);
symm_status symm_comm_size(const symm_comm*, int32_t*);
symm_status symm_comm_device(const symm_comm*, int32_t*);
symm_status symm_comm_barrier(symm_comm*, void*);
symm_status symm_comm_check(const symm_comm*, int32_t*);
symm_status symm_comm_abort(symm_comm*);
void symm_comm_free(symm_comm*);
symm_status symm_comm_nccl(const symm_comm*, void**);
symm_status symm_window_alloc(symm_comm*, size_t, const symm_window_options*, symm_window**);
symm_status symm_window_register(symm_comm*, void*, size_t, const symm_window_options*,
                                 symm_window**);
symm_status symm_window_size(const symm_window*, size_t*);
symm_status symm_window_data(const symm_window*, int32_t, void**);
void symm_window_free(symm_window*);
symm_status symm_all_reduce(symm_comm*, const void*, void*, size_t, symm_dtype, symm_op, void*);
symm_status symm_window_all_reduce(symm_window*, size_t, void*, size_t, symm_dtype, symm_op, void*);

/* The library that is found at run time is the header's. */
int main(void) {
  return symm_version() ==
                 SYMM_VERSION_MAJOR * 1000000 + SYMM_VERSION_MINOR * 1000 + SYMM_VERSION_PATCH
             ? 0
             : 1;
}
