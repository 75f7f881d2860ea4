package dev.symm;

/** The type of an element. Types that Java lacks travel in buffers of their size. */
public enum DType {
  /** {@code byte}. */
  INT8(capi.SYMM_INT8, 1),
  /** Unsigned, one byte. */
  UINT8(capi.SYMM_UINT8, 1),
  /** {@code int}. */
  INT32(capi.SYMM_INT32, 4),
  /** Unsigned, four bytes. */
  UINT32(capi.SYMM_UINT32, 4),
  /** {@code long}. */
  INT64(capi.SYMM_INT64, 8),
  /** Unsigned, eight bytes. */
  UINT64(capi.SYMM_UINT64, 8),
  /** IEEE binary16. */
  FLOAT16(capi.SYMM_FLOAT16, 2),
  /** {@code float}. */
  FLOAT32(capi.SYMM_FLOAT32, 4),
  /** {@code double}. */
  FLOAT64(capi.SYMM_FLOAT64, 8),
  /** The upper half of a {@code float}. */
  BFLOAT16(capi.SYMM_BFLOAT16, 2),
  /** OCP FP8 E4M3: no infinities, up to 448. */
  FLOAT8_E4M3(capi.SYMM_FLOAT8_E4M3, 1),
  /** OCP FP8 E5M2, up to 57344. */
  FLOAT8_E5M2(capi.SYMM_FLOAT8_E5M2, 1);

  final int code;
  private final int bytes;

  DType(int code, int bytes) {
    this.code = code;
    this.bytes = bytes;
  }

  /**
   * The size of an element.
   *
   * @return bytes: 1, 2, 4 or 8
   */
  public int bytes() {
    return bytes;
  }
}
