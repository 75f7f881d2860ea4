'use strict';
// What of symm.h the programs beside this file use, for koffi.
//
// SYMM_LIBRARY: which library to load ("libsymm.so.0").
const koffi = require('koffi');

// koffi reads declarations, but no header and no enums.
const SYMM_OK = 0;
const SYMM_CPU = -1;
const SYMM_FLOAT32 = 7;
const SYMM_SUM = 0;

koffi.opaque('symm_comm');
koffi.opaque('symm_window');

// Fields that an object lacks are zero, which is every field's default: only `size` must be there.
const CommOptions = koffi.struct('symm_comm_options', {
  size: 'size_t',
  name: 'const char *',
  nccl_path: 'const char *',
  error: 'void *', // a Buffer
  error_size: 'size_t',
  scratch_bytes: 'size_t',
  timeout_ms: 'int32_t',
  wait_timeout_ms: 'int32_t',
  flags: 'uint32_t',
  reserved: 'uint32_t',
});

const WindowOptions = koffi.struct('symm_window_options', {
  size: 'size_t',
  error: 'void *',
  error_size: 'size_t',
  fd_offset: 'size_t',
  fd: 'int32_t',
  flags: 'uint32_t',
});

// As the header has them, but for _Out_, which makes koffi fill an array of one with the pointer.
function load(path = process.env.SYMM_LIBRARY || 'libsymm.so.0') {
  let library;
  try {
    library = koffi.load(path);
  } catch (error) {
    throw new SymmError(`${path}: ${error.message}`);
  }
  const symm = {};
  for (const declaration of [
    'const char *symm_status_name(int32_t status)',
    'const char *symm_last_error(void)',
    'int symm_report(const symm_comm *comm, void *buffer, size_t size, _Out_ size_t *needed)',
    'int symm_comm_create(const char *address, int32_t rank, int32_t size, int32_t device, ' +
      'const symm_comm_options *options, _Out_ symm_comm **comm)',
    'int symm_comm_abort(symm_comm *comm)',
    'void symm_comm_free(symm_comm *comm)',
    'int symm_window_alloc(symm_comm *comm, size_t bytes, const symm_window_options *options, ' +
      '_Out_ symm_window **window)',
    'int symm_window_data(const symm_window *window, int32_t rank, _Out_ void **pointer)',
    'void symm_window_free(symm_window *window)',
    'int symm_all_reduce(symm_comm *comm, const void *input, void *output, size_t count, ' +
      'int dtype, int op, void *stream)',
    'int symm_window_all_reduce(symm_window *window, size_t offset, void *output, size_t count, ' +
      'int dtype, int op, void *stream)',
  ]) {
    symm[/symm_\w+(?=\()/.exec(declaration)[0]] = library.func(declaration);
  }
  return { library, ...symm };
}

class SymmError extends Error {}

module.exports = {
  SYMM_OK, SYMM_CPU, SYMM_FLOAT32, SYMM_SUM, CommOptions, WindowOptions, SymmError, load,
};
