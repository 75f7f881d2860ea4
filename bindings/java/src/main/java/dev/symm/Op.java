package dev.symm;

/**
 * How the ranks' elements become one. Operands are taken in rank order 0..N-1; floats of 8 and 16
 * bits accumulate in {@code float} and are rounded once; integers wrap.
 */
public enum Op {
  /** The sum. */
  SUM(capi.SYMM_SUM),
  /** The product. */
  PROD(capi.SYMM_PROD),
  /** The largest; NaN if any operand is NaN. */
  MAX(capi.SYMM_MAX),
  /** The smallest; NaN if any operand is NaN. */
  MIN(capi.SYMM_MIN),
  /** The sum divided by the number of ranks; of integers, towards zero. */
  AVG(capi.SYMM_AVG);

  final int code;

  Op(int code) {
    this.code = code;
  }
}
