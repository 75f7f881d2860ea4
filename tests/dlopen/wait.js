'use strict';
// koffi's .async: a wait that ends at its deadline. Prints what JavaScript can know of it, as JSON.
// See clients_test.py.
const path = require('node:path');
const koffi = require('koffi');
const client = process.env.SYMM_NODE_CLIENT;
const { SYMM_CPU, SYMM_FLOAT32, SYMM_SUM, CommOptions, load } = require(path.join(client, 'symm'));
const { stickyError } = require(path.join(client, 'all_reduce_async'));

const [wait, address, rank, size] = process.argv.slice(2);
const symm = load();
const comm = [null];
symm.symm_comm_create(address, Number(rank), Number(size), SYMM_CPU, {
  size: koffi.sizeof(CommOptions), timeout_ms: 60000, wait_timeout_ms: Number(wait),
}, comm);

let ticks = 0;
const clock = setInterval(() => ++ticks, 10);
const x = new Float32Array(10);
symm.symm_all_reduce.async(comm[0], x, x, 10, SYMM_FLOAT32, SYMM_SUM, null, (error, status) => {
  clearInterval(clock);
  console.log(JSON.stringify({
    thrown: error, status: symm.symm_status_name(status), ticks,
    sticky: stickyError(symm, comm[0]), last_error: symm.symm_last_error(),
  }));
  symm.symm_comm_free(comm[0]);
});
