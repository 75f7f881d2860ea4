'use strict';
// Node.js hosts that load libsymm by koffi and unload it or end when that is least convenient. See
// unload_test.py.
//
// Usage: node host.js CASE ADDRESS RANK SIZE
const assert = require('node:assert');
const path = require('node:path');
const { SYMM_CPU, SYMM_FLOAT32, SYMM_SUM, load } =
  require(path.join(process.env.SYMM_NODE_CLIENT, 'symm'));

const [rank, size] = process.argv.slice(4).map(Number);
const value = Float32Array.of(rank);
const sum = new Float32Array(1);

function create(symm) {
  const out = [null];
  const status = symm.symm_comm_create(process.argv[3], rank, size, SYMM_CPU, null, out);
  assert.strictEqual(status, 0, symm.symm_last_error());
  return out[0];
}

function addsUp(symm, comm) {
  const status = symm.symm_all_reduce(comm, value, sum, 1, SYMM_FLOAT32, SYMM_SUM, null);
  assert.strictEqual(status, 0, symm.symm_last_error());
  assert.strictEqual(sum[0], size * (size - 1) / 2);
}

const cases = {
  unload() {
    let comm = null;
    for (let turn = 0; turn < 3; ++turn) {
      const symm = load();
      comm ??= create(symm);
      addsUp(symm, comm);
      symm.library.unload();
    }
    // Ends with a live communicator and no library.
  },

  // Rank 0 exits while a worker waits in a call that the others never make. Node.js waits for its
  // workers before it exits: the call must be ended first.
  'exit-in-wait'() {
    const symm = load();
    const comm = create(symm);
    addsUp(symm, comm);
    if (rank === 0) {
      symm.symm_all_reduce.async(comm, value, sum, 1, SYMM_FLOAT32, SYMM_SUM, null, () => {
        assert.fail('Node.js calls nothing back once it exits');
      });
      process.on('exit', () => symm.symm_comm_abort(comm));
    }
    setTimeout(() => process.exit(0), rank === 0 ? 300 : 4000);
  },
};
cases[process.argv[2]]();
