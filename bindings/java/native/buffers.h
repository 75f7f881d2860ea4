/* Direct buffers as arguments and results: wrapped beside flat.h. Offsets are in bytes from a
 * buffer's address, which is that of its element 0 whatever its position. The Java side has checked
 * that buffers are direct and long enough. */
#ifndef SYMM_BINDINGS_JAVA_BUFFERS_H_
#define SYMM_BINDINGS_JAVA_BUFFERS_H_

#include "glue.h"

/* The memory at `address` as a ByteBuffer that does not own it. */
static inline jobject buffer_over(JNIEnv* jenv, size_t address, size_t bytes) {
  return (*jenv)->NewDirectByteBuffer(jenv, flat_pointer(address), (jlong)bytes);
}

static inline size_t buffer_address(JNIEnv* jenv, jobject buffer) {
  return (size_t)(*jenv)->GetDirectBufferAddress(jenv, buffer);
}

/* One crossing a call, which is most of its cost. */
static inline symm_status buffer_all_reduce(JNIEnv* jenv, symm_comm* comm, jobject input,
                                            size_t input_offset, jobject output,
                                            size_t output_offset, size_t count, int32_t dtype,
                                            int32_t op) {
  return flat_all_reduce(comm, buffer_address(jenv, input) + input_offset,
                         buffer_address(jenv, output) + output_offset, count, dtype, op, 0);
}

static inline symm_status buffer_window_all_reduce(JNIEnv* jenv, symm_window* window, size_t offset,
                                                   jobject output, size_t output_offset,
                                                   size_t count, int32_t dtype, int32_t op) {
  return flat_window_all_reduce(window, offset, buffer_address(jenv, output) + output_offset, count,
                                dtype, op, 0);
}

/* The number inside a java.io.FileDescriptor, -1 if that is closed. */
static inline int32_t descriptor_number(JNIEnv* jenv, jobject descriptor) {
  return (*jenv)->GetIntField(jenv, descriptor, glue_descriptor_number);
}

#endif /* SYMM_BINDINGS_JAVA_BUFFERS_H_ */
