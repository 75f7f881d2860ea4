'use strict';
// One rank of an all-reduce, by Node.js and koffi; the calls block the event loop. See
// all_reduce_async.js for calls that do not.
//
//   npm ci --ignore-scripts
//   node all_reduce.js tcp://127.0.0.1:29500 0 2 & node all_reduce.js tcp://127.0.0.1:29500 1 2
const koffi = require('koffi');
const { SYMM_OK, SYMM_CPU, SYMM_FLOAT32, SYMM_SUM, CommOptions, SymmError, load } =
  require('./symm');
const { COUNT, parse, operand, report } = require('./program');

function main() {
  const { address, rank, size } = parse(process.argv.slice(2));
  const symm = load();
  // A plain call runs on the thread of the JavaScript, and so does the question for its message.
  const check = (status) => {
    if (status !== SYMM_OK) {
      throw new SymmError(`${symm.symm_status_name(status)}: ${symm.symm_last_error()}`);
    }
  };

  const options = { size: koffi.sizeof(CommOptions), timeout_ms: 60000 };
  const out = [null];
  check(symm.symm_comm_create(address, rank, size, SYMM_CPU, options, out));
  const comm = out[0];

  const x = operand(rank);
  const sum = new Float32Array(COUNT);
  check(symm.symm_all_reduce(comm, x, sum, COUNT, SYMM_FLOAT32, SYMM_SUM, null));

  // The same from a window, memory that every rank sees: no copy on the way in.
  const again = new Float32Array(COUNT);
  check(symm.symm_window_alloc(comm, x.byteLength, null, out));
  const window = out[0];
  check(symm.symm_window_data(window, rank, out));
  // A view keeps nothing alive: it must not be used once the window is freed.
  const own = new Float32Array(koffi.view(out[0], x.byteLength));
  own.set(x);
  check(symm.symm_window_all_reduce(window, 0, again, COUNT, SYMM_FLOAT32, SYMM_SUM, null));

  report(rank, size, sum, again);
  symm.symm_window_free(window);
  symm.symm_comm_free(comm);
}

try {
  main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
