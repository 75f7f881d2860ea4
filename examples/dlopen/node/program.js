'use strict';
// What the two programs beside this file share: arguments, operands, the line that is printed.
const { SymmError } = require('./symm');

const COUNT = 1000;

function parse(argv) {
  if (argv.length !== 3) throw new SymmError('usage: node all_reduce.js ADDRESS RANK SIZE');
  const [rank, size] = argv.slice(1).map((text) => {
    // koffi would quietly keep the low 32 bits of anything larger.
    if (!/^-?[0-9]{1,9}$/.test(text)) {
      throw new SymmError(`all_reduce: '${text}' is not a rank or a size`);
    }
    return Number(text);
  });
  return { address: argv[0], rank, size };
}

function operand(rank) {
  return Float32Array.from({ length: COUNT }, (_, i) => 1 / (1 + i + 1000 * rank));
}

function bytes(floats) {
  return Buffer.from(floats.buffer, floats.byteOffset, floats.byteLength);
}

function fnv1a(data) {
  let digest = 14695981039346656037n;
  for (const byte of data) {
    digest = BigInt.asUintN(64, (digest ^ BigInt(byte)) * 1099511628211n);
  }
  return digest.toString(16).padStart(16, '0');
}

function report(rank, size, sum, again) {
  if (!bytes(sum).equals(bytes(again))) {
    throw new SymmError("all_reduce: the window's sum has other bits");
  }
  console.log(
    `rank ${rank} of ${size}: sum[0] = ${sum[0].toFixed(6)}, digest ${fnv1a(bytes(sum))}`);
}

module.exports = { COUNT, parse, operand, report };
