'use strict';
// The same rank as all_reduce.js with koffi's .async calls: the event loop goes on while they wait.
//
// They run on worker threads, whose symm_last_error() the JavaScript cannot ask: on its own thread
// that function has the message of some other call, or none. So the status has to suffice, and the
// message comes from options.error (set-up) or from symm_report (a communicator that has failed).
// Workers are few (see koffi's documentation): two ranks of one process may wait for each other
// only while there is one for each. And process.exit() waits for them: a program that exits while a
// call waits ends that first, by symm_comm_abort in process.on('exit').
const { promisify } = require('node:util');
const koffi = require('koffi');
const { SYMM_OK, SYMM_CPU, SYMM_FLOAT32, SYMM_SUM, CommOptions, WindowOptions, SymmError, load } =
  require('./symm');
const { COUNT, parse, operand, report } = require('./program');

function fail(symm, status, message) {
  throw new SymmError(`${symm.symm_status_name(status)}: ${message}`);
}

// Why the communicator failed, if it has; null if it is well: then the call alone was refused.
function stickyError(symm, comm) {
  const needed = [0];
  symm.symm_report(comm, null, 0, needed);
  const text = Buffer.alloc(needed[0] + 1024); // it may have grown meanwhile
  if (symm.symm_report(comm, text, text.length, needed) !== SYMM_OK) return null;
  return JSON.parse(text.toString('utf8', 0, needed[0] - 1)).communicator.error;
}

function check(symm, comm, status) {
  if (status === SYMM_OK) return;
  const error = stickyError(symm, comm);
  fail(symm, status, error ? error.message : 'the call was refused');
}

async function main() {
  const { address, rank, size } = parse(process.argv.slice(2));
  const symm = load();
  const create = promisify(symm.symm_comm_create.async);
  const allocate = promisify(symm.symm_window_alloc.async);
  const allReduce = promisify(symm.symm_all_reduce.async);
  const windowAllReduce = promisify(symm.symm_window_all_reduce.async);

  // Room for a message, which the library fills if the call fails.
  const message = Buffer.alloc(1024);
  const checkSetUp = (status) => {
    if (status !== SYMM_OK) fail(symm, status, message.toString('utf8', 0, message.indexOf(0)));
  };

  const out = [null];
  checkSetUp(await create(address, rank, size, SYMM_CPU, {
    size: koffi.sizeof(CommOptions), timeout_ms: 60000, error: message, error_size: message.length,
  }, out));
  const comm = out[0];

  // Typed arrays stay where they are, but must be reachable until the call has ended.
  const x = operand(rank);
  const sum = new Float32Array(COUNT);
  check(symm, comm, await allReduce(comm, x, sum, COUNT, SYMM_FLOAT32, SYMM_SUM, null));

  const again = new Float32Array(COUNT);
  checkSetUp(await allocate(comm, x.byteLength, {
    size: koffi.sizeof(WindowOptions), error: message, error_size: message.length,
  }, out));
  const window = out[0];
  const status = symm.symm_window_data(window, rank, out); // a plain call, on this thread
  if (status !== SYMM_OK) fail(symm, status, symm.symm_last_error());
  new Float32Array(koffi.view(out[0], x.byteLength)).set(x);
  check(symm, comm, await windowAllReduce(window, 0, again, COUNT, SYMM_FLOAT32, SYMM_SUM, null));

  report(rank, size, sum, again);
  symm.symm_window_free(window);
  symm.symm_comm_free(comm);
}

module.exports = { stickyError };

if (require.main === module) main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
