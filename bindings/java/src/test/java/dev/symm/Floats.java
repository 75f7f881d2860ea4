package dev.symm;

/** Small floats in Java: a format of exponent and mantissa bits, to nearest even. */
final class Floats {
  private final int exponentBits;
  private final int mantissaBits;
  private final boolean infinities; // E4M3 has none, and one NaN
  private final boolean saturates;

  static final Floats FLOAT16 = new Floats(5, 10, true, false);
  static final Floats BFLOAT16 = new Floats(8, 7, true, false);
  static final Floats FLOAT8_E4M3 = new Floats(4, 3, false, true);
  static final Floats FLOAT8_E5M2 = new Floats(5, 2, true, true);

  private Floats(int exponentBits, int mantissaBits, boolean infinities, boolean saturates) {
    this.exponentBits = exponentBits;
    this.mantissaBits = mantissaBits;
    this.infinities = infinities;
    this.saturates = saturates;
  }

  private int bias() {
    return (1 << (exponentBits - 1)) - 1;
  }

  float decode(int bits) {
    int top = (1 << exponentBits) - 1;
    int exponent = bits >> mantissaBits & top;
    int mantissa = bits & ((1 << mantissaBits) - 1);
    float sign = (bits >> (exponentBits + mantissaBits) & 1) == 0 ? 1 : -1;
    if (exponent == top && infinities) {
      return mantissa == 0 ? sign * Float.POSITIVE_INFINITY : Float.NaN;
    }
    if (exponent == top && mantissa == (1 << mantissaBits) - 1) {
      return Float.NaN;
    }
    double value =
        exponent == 0
            ? Math.scalb((double) mantissa, 1 - bias() - mantissaBits)
            : Math.scalb(
                (double) (mantissa + (1 << mantissaBits)), exponent - bias() - mantissaBits);
    return sign * (float) value;
  }

  /** The largest finite number, as bits. */
  private int largest() {
    int top = ((1 << exponentBits) - 1) << mantissaBits;
    return infinities ? top - 1 : top + (1 << mantissaBits) - 2;
  }

  int encode(float value) {
    int sign = Float.floatToRawIntBits(value) >>> 31 << (exponentBits + mantissaBits);
    if (Float.isNaN(value)) {
      return sign | ((1 << (exponentBits + mantissaBits)) - 1);
    }
    float size = Math.abs(value);
    int infinity = ((1 << exponentBits) - 1) << mantissaBits;
    if (Float.isInfinite(size)) {
      return sign | (saturates ? largest() : infinity);
    }
    // In units of the last place, which does not shrink below the smallest normal number.
    int exponent = Math.max(size == 0 ? 1 - bias() : Math.getExponent(size), 1 - bias());
    double units = Math.rint(Math.scalb((double) size, mantissaBits - exponent));
    // A carry goes on into the exponent by itself.
    int bits = (int) units + (exponent - 1 + bias() << mantissaBits);
    if (bits > largest()) {
      return sign | (saturates ? largest() : infinity);
    }
    return sign | bits;
  }
}
