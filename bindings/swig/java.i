/* Java: static functions on `long`, private to the package dev.symm, whose hand-written classes own
 * the handles. SWIG's proxies would bring finalizers. */
%module capi

%pragma(java) moduleclassmodifiers="final class"
%pragma(java) jniclassclassmodifiers="final class"
%pragma(java) constantsmodifiers="interface"
%pragma(java) jniclasscode=%{
  static {
    NativeLibrary.load();
  }
%}

%include "enumsimple.swg"
%javaconst(1);

/* Thrown when the wrapper returns; what follows in it until then frees, and calls no Java. */
%define SYMM_RAISE(status, message)
  glue_raise(jenv, status, message);
%enddef
%define SYMM_NOTHING
%enddef

/* By the functions' names: a typemap of symm_status itself would make its constants void too. */
%define SYMM_RETURNS_NOTHING(function)
%typemap(jni) symm_status function "void"
%typemap(jtype) symm_status function "void"
%typemap(jstype) symm_status function "void"
%typemap(javaout) symm_status function { $jnicall; }
%enddef
SYMM_RETURNS_NOTHING(symm_comm_abort)
SYMM_RETURNS_NOTHING(flat_comm_barrier)
SYMM_RETURNS_NOTHING(flat_comm_check)
SYMM_RETURNS_NOTHING(flat_all_reduce)
SYMM_RETURNS_NOTHING(flat_window_all_reduce)
SYMM_RETURNS_NOTHING(buffer_all_reduce)
SYMM_RETURNS_NOTHING(buffer_window_all_reduce)

%define SYMM_HANDLE(type)
%typemap(jni) type "jlong"
%typemap(jtype) type "long"
%typemap(jstype) type "long"
%typemap(javain) type "$javainput"
%typemap(javaout) type { return $jnicall; }
%typemap(in) type "$1 = ($1_ltype)(size_t)$input;"
%typemap(out) type "$result = (jlong)(size_t)$1;"
%enddef
SYMM_HANDLE(symm_comm *)
SYMM_HANDLE(const symm_comm *)
SYMM_HANDLE(symm_window *)
SYMM_HANDLE(const symm_window *)

%typemap(jni) const char *, char * "jbyteArray"
%typemap(jtype) const char *, char * "byte[]"
%typemap(jstype) const char *, char * "String"
%typemap(javain) const char *, char * "Utf8.bytes($javainput)"
%typemap(javaout) const char *, char * { return Utf8.text($jnicall); }
%typemap(in) const char *, char * {
  $1 = NULL;
  if ($input != NULL) {
    $1 = glue_text(jenv, $input);
    if ($1 == NULL) {
      $cleanup
      return $null;
    }
  }
}
%typemap(freearg) const char *, char * "free($1);"
%typemap(out) const char *, char * "$result = $1 == NULL ? NULL : glue_bytes(jenv, $1);"

%typemap(in, numinputs=0) JNIEnv *jenv "$1 = jenv;"
%typemap(jtype) jobject input, jobject output, jobject buffer "java.nio.Buffer"
%typemap(jstype) jobject input, jobject output, jobject buffer "java.nio.Buffer"
%typemap(jtype) jobject descriptor "java.io.FileDescriptor"
%typemap(jstype) jobject descriptor "java.io.FileDescriptor"
%typemap(jtype) jobject buffer_over "java.nio.ByteBuffer"
%typemap(jstype) jobject buffer_over "java.nio.ByteBuffer"

%{
#include "buffers.h"
%}

%include "symm.i"
%include "buffers.h"
