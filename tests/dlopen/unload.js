'use strict';
// koffi: the library is unloaded under a live communicator and loaded again. See unload_test.py.
const assert = require('node:assert');
const path = require('node:path');
const { SYMM_CPU, SYMM_FLOAT32, SYMM_SUM, load } =
  require(path.join(process.env.SYMM_NODE_CLIENT, 'symm'));

const [address, rank, size] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const comm = [null];
for (let turn = 0; turn < 3; ++turn) {
  const symm = load();
  if (turn === 0) {
    const status = symm.symm_comm_create(address, rank, size, SYMM_CPU, null, comm);
    assert.strictEqual(status, 0, symm.symm_last_error());
  }
  const sum = new Float32Array(1);
  const status = symm.symm_all_reduce(
    comm[0], Float32Array.of(rank), sum, 1, SYMM_FLOAT32, SYMM_SUM, null);
  assert.strictEqual(status, 0, symm.symm_last_error());
  assert.strictEqual(sum[0], size * (size - 1) / 2);
  symm.library.unload();
}
// Ends with a live communicator and no library.
