/* What the wrappers of every language have in common. Not given to SWIG itself: a language's own
 * file (java.i, python.i)
 *  1. names the module, which is `capi` everywhere (a leading underscore breaks Python's proxies),
 *  2. defines the macros SYMM_RAISE(status, message): makes that the pending exception and sees to
 *     it that the wrapper returns with nothing leaked; and SYMM_NOTHING: the result of a call that
 *     has none,
 *  3. says how it wants handles, texts and features,
 *  4. includes this file.
 * The result is private to a hand-written package, which is why names stay those of C. C only: SWIG
 * without -c++. */

%{
#include <symm.h>
#include "flat.h"
%}

%include <stdint.i>

/* A failure becomes an exception in the wrapper that saw it: symm_last_error() is per thread. */
%typemap(out) symm_status {
  if ($1 != SYMM_OK) {
    SYMM_RAISE($1, symm_last_error())
  }
  SYMM_NOTHING
}
%typemap(in, numinputs=0, noblock=1) flat_failure *failure (flat_failure failure) {
  failure.status = SYMM_OK;
  failure.message = "";
  $1 = &failure;
}
%typemap(argout) flat_failure *failure {
  if ($1->status != SYMM_OK) {
    SYMM_RAISE($1->status, $1->message)
  }
}

/* Texts of flat.h come from malloc. */
%typemap(newfree) char * "free($1);"
%newobject flat_report;
%newobject flat_plan;
%newobject flat_address_create;

/* A handle is opaque and has no constructor or destructor of SWIG's. */
%nodefaultctor;
%nodefaultdtor;

/* The sentinels and what has a flat form. Statuses are raised, never returned. */
%rename("$ignore", regextarget=1, %$isenumitem) "_MAX_$";
%ignore SYMM_ADDRESS_SIZE;
%ignore symm_comm_options;
%ignore symm_window_options;
%ignore flat_failure;
%ignore symm_last_error;
%ignore symm_report;
%ignore symm_plan;
%ignore symm_address_create;
%ignore symm_comm_create;
%ignore symm_comm_split;
%ignore symm_comm_rank;
%ignore symm_comm_size;
%ignore symm_comm_device;
%ignore symm_comm_barrier;
%ignore symm_comm_check;
%ignore symm_comm_nccl;
%ignore symm_window_alloc;
%ignore symm_window_register;
%ignore symm_window_size;
%ignore symm_window_data;
%ignore symm_all_reduce;
%ignore symm_window_all_reduce;

%include "symm.h"
%include "flat.h"
