'use strict';
// Prints what symm.js repeats of symm.h, as JSON. See facts_test.py.
const path = require('node:path');
const koffi = require('koffi');
const symm = require(path.join(process.env.SYMM_NODE_CLIENT, 'symm'));

function layout(type) {
  const members = Object.entries(koffi.type(type).members);
  return {
    size: koffi.sizeof(type),
    fields: Object.fromEntries(members.map(
      ([name, member]) => [name, [koffi.offsetof(type, name), koffi.sizeof(member.type)]])),
  };
}

console.log(JSON.stringify({
  constants: Object.fromEntries(Object.entries(symm).filter(([name]) => name.startsWith('SYMM_'))),
  structs: {
    symm_comm_options: layout(symm.CommOptions),
    symm_window_options: layout(symm.WindowOptions),
  },
}));
