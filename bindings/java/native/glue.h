/* What the generated wrappers need of the Java side: strings, exceptions, direct buffers. Included
 * by them alone. */
#ifndef SYMM_BINDINGS_JAVA_GLUE_H_
#define SYMM_BINDINGS_JAVA_GLUE_H_

#include <jni.h>
#include <stdlib.h>
#include <string.h>

#include "flat.h"

/* Found once, while the loader of dev.symm's classes is the one that FindClass asks. Weak, since a
 * global reference would keep that loader, and so itself, for ever; in a call the class is there,
 * because the caller's class has the same loader. */
static jweak glue_exception;
static jmethodID glue_exception_init;
static jfieldID glue_descriptor_number;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void* reserved) {
  (void)reserved;
  JNIEnv* env = NULL;
  if ((*vm)->GetEnv(vm, (void**)&env, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  const jclass found = (*env)->FindClass(env, "dev/symm/SymmException");
  if (found == NULL) return JNI_ERR;
  glue_exception = (*env)->NewWeakGlobalRef(env, found);
  if (glue_exception == NULL) return JNI_ERR;
  glue_exception_init = (*env)->GetMethodID(env, found, "<init>", "(I[B)V");
  if (glue_exception_init == NULL) return JNI_ERR;
  const jclass descriptor = (*env)->FindClass(env, "java/io/FileDescriptor");
  if (descriptor == NULL) return JNI_ERR;
  glue_descriptor_number = (*env)->GetFieldID(env, descriptor, "fd", "I");
  return glue_descriptor_number == NULL ? JNI_ERR : JNI_VERSION_1_8;
}

JNIEXPORT void JNICALL JNI_OnUnload(JavaVM* vm, void* reserved) {
  (void)reserved;
  JNIEnv* env = NULL;
  if ((*vm)->GetEnv(vm, (void**)&env, JNI_VERSION_1_8) == JNI_OK) {
    (*env)->DeleteWeakGlobalRef(env, glue_exception);
  }
}

/* Text crosses as UTF-8 in a byte[]: JNI's own strings are "modified" UTF-8, in which a name would
 * not be the bytes that ranks in other languages send. NULL, with an exception pending, without
 * memory. */
static inline jbyteArray glue_bytes(JNIEnv* env, const char* text) {
  const jsize length = (jsize)strlen(text);
  const jbyteArray bytes = (*env)->NewByteArray(env, length);
  if (bytes != NULL) (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte*)text);
  return bytes;
}

/* The same the other way: `bytes` ends with a NUL. The result is the caller's to free(). */
static inline char* glue_text(JNIEnv* env, jbyteArray bytes) {
  const jsize length = (*env)->GetArrayLength(env, bytes);
  char* text = (char*)malloc((size_t)length + 1);
  if (text == NULL) {
    const jclass error = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
    if (error != NULL) (*env)->ThrowNew(env, error, "no memory for the text of an argument");
    return NULL;
  }
  (*env)->GetByteArrayRegion(env, bytes, 0, length, (jbyte*)text);
  text[length] = '\0';
  return text;
}

/* Makes a SymmException pending; if there is no memory for it, the OutOfMemoryError is. */
static inline void glue_raise(JNIEnv* env, symm_status status, const char* message) {
  const jbyteArray bytes = glue_bytes(env, message);
  if (bytes == NULL) return;
  const jclass exception_class = (jclass)(*env)->NewLocalRef(env, glue_exception);
  if (exception_class == NULL) return;
  const jthrowable exception =
      (jthrowable)(*env)->NewObject(env, exception_class, glue_exception_init, (jint)status, bytes);
  if (exception != NULL) (*env)->Throw(env, exception);
}

#endif /* SYMM_BINDINGS_JAVA_GLUE_H_ */
