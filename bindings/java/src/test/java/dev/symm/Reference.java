package dev.symm;

import java.nio.ByteBuffer;
import java.util.Random;

/** What an all-reduce should give, element by element and in rank order. */
final class Reference {
  private Reference() {}

  private static Floats small(DType dtype) {
    switch (dtype) {
      case FLOAT16:
        return Floats.FLOAT16;
      case BFLOAT16:
        return Floats.BFLOAT16;
      case FLOAT8_E4M3:
        return Floats.FLOAT8_E4M3;
      case FLOAT8_E5M2:
        return Floats.FLOAT8_E5M2;
      default:
        return null;
    }
  }

  private static long bits(ByteBuffer buffer, int i, DType dtype) {
    switch (dtype.bytes()) {
      case 1:
        return buffer.get(i);
      case 2:
        return buffer.getShort(2 * i);
      case 4:
        return buffer.getInt(4 * i);
      default:
        return buffer.getLong(8 * i);
    }
  }

  private static void put(ByteBuffer buffer, int i, DType dtype, long bits) {
    switch (dtype.bytes()) {
      case 1:
        buffer.put(i, (byte) bits);
        break;
      case 2:
        buffer.putShort(2 * i, (short) bits);
        break;
      case 4:
        buffer.putInt(4 * i, (int) bits);
        break;
      default:
        buffer.putLong(8 * i, bits);
    }
  }

  /**
   * Numbers, among them zeros of both signs and those that overflow; no NaN, whose bits nobody
   * promises.
   */
  static void fill(ByteBuffer buffer, DType dtype, Random random) {
    for (int i = 0; i < buffer.capacity() / dtype.bytes(); ++i) {
      double value =
          random.nextInt(8) == 0 ? 0 : random.nextGaussian() * Math.pow(2, random.nextInt(10) - 4);
      if (random.nextInt(16) == 0) {
        value = -value;
      }
      Floats small = small(dtype);
      long bits;
      if (small != null) {
        bits = small.encode((float) value);
      } else if (dtype == DType.FLOAT32) {
        bits = Float.floatToIntBits((float) value);
      } else if (dtype == DType.FLOAT64) {
        bits = Double.doubleToLongBits(value);
      } else {
        bits = random.nextLong();
      }
      put(buffer, i, dtype, bits);
    }
  }

  static void reduce(ByteBuffer[] inputs, ByteBuffer output, DType dtype, Op op) {
    long[] operands = new long[inputs.length];
    for (int i = 0; i < output.capacity() / dtype.bytes(); ++i) {
      for (int rank = 0; rank < inputs.length; ++rank) {
        operands[rank] = bits(inputs[rank], i, dtype);
      }
      put(output, i, dtype, one(operands, dtype, op));
    }
  }

  private static long one(long[] operands, DType dtype, Op op) {
    Floats small = small(dtype);
    if (dtype == DType.FLOAT64) {
      double all = Double.longBitsToDouble(operands[0]);
      for (int rank = 1; rank < operands.length; ++rank) {
        all = of(all, Double.longBitsToDouble(operands[rank]), op);
      }
      return Double.doubleToRawLongBits(op == Op.AVG ? all / operands.length : all);
    }
    if (dtype == DType.FLOAT32 || small != null) {
      float all = value(operands[0], small);
      for (int rank = 1; rank < operands.length; ++rank) {
        all = (float) of(all, value(operands[rank], small), op);
      }
      if (op == Op.AVG) {
        all /= operands.length;
      }
      return small == null ? Float.floatToRawIntBits(all) : small.encode(all);
    }
    return integers(operands, dtype, op);
  }

  private static float value(long bits, Floats small) {
    return small == null ? Float.intBitsToFloat((int) bits) : small.decode((int) bits);
  }

  /** Two floats' sum or product in double, rounded to float, is the float one. */
  private static double of(double a, double b, Op op) {
    switch (op) {
      case PROD:
        return a * b;
      case MAX:
        return Math.max(a, b);
      case MIN:
        return Math.min(a, b);
      default:
        return a + b;
    }
  }

  private static long integers(long[] operands, DType dtype, Op op) {
    boolean unsigned = dtype == DType.UINT8 || dtype == DType.UINT32 || dtype == DType.UINT64;
    int unused = 64 - 8 * dtype.bytes();
    long all = widened(operands[0], unused, unsigned);
    for (int rank = 1; rank < operands.length; ++rank) {
      long next = widened(operands[rank], unused, unsigned);
      int order = unsigned ? Long.compareUnsigned(all, next) : Long.compare(all, next);
      switch (op) {
        case PROD:
          all *= next;
          break;
        case MAX:
          all = order < 0 ? next : all;
          break;
        case MIN:
          all = order > 0 ? next : all;
          break;
        default:
          all += next;
      }
      all = widened(all, unused, unsigned);
    }
    if (op == Op.AVG) {
      all = unsigned ? Long.divideUnsigned(all, operands.length) : all / operands.length;
    }
    return all;
  }

  private static long widened(long value, int unused, boolean unsigned) {
    return unsigned ? value << unused >>> unused : value << unused >> unused;
  }
}
