package dev.symm;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;

/** What the library has to be told of a buffer, and what would make it unfit. */
final class Buffers {
  private Buffers() {}

  /** Where the remaining elements begin: bytes from the buffer's own address. */
  static long begin(Buffer buffer) {
    return (long) buffer.position() << shift(buffer);
  }

  /**
   * Where they end. Callers look at both once and count on what they have seen: another thread may
   * move position and limit, and both are within the buffer whatever it does.
   */
  static long end(Buffer buffer) {
    return (long) buffer.limit() << shift(buffer);
  }

  /** How many elements of {@code dtype} the remaining {@code bytes} of a buffer are. */
  static long count(Comm comm, String call, String name, long bytes, DType dtype) {
    if (bytes < 0 || (bytes & (dtype.bytes() - 1)) != 0) {
      throw refusal(
          comm,
          call,
          name
              + " has "
              + bytes
              + " bytes left, which is no whole number of "
              + dtype
              + " ("
              + dtype.bytes()
              + " bytes)");
    }
    return bytes / dtype.bytes();
  }

  static void checkOutput(Comm comm, String call, Buffer output, DType dtype) {
    check(comm, call, "output", output, dtype);
    if (output.isReadOnly()) {
      throw refusal(comm, call, "output is a read-only buffer");
    }
  }

  static void checkInput(Comm comm, String call, Buffer input, DType dtype) {
    check(comm, call, "input", input, dtype);
  }

  private static void check(Comm comm, String call, String name, Buffer buffer, DType dtype) {
    if (!buffer.isDirect()) {
      throw refusal(comm, call, name + " " + HEAP);
    }
    if (!holds(buffer, dtype)) {
      throw refusal(
          comm,
          call,
          name
              + " is a "
              + kind(buffer)
              + ", which cannot hold "
              + dtype
              + "; a ByteBuffer holds every type");
    }
    if (dtype.bytes() > 1 && order(buffer) != ByteOrder.nativeOrder()) {
      throw refusal(
          comm,
          call,
          name
              + " is "
              + order(buffer)
              + ", as a new ByteBuffer is, and this machine "
              + ByteOrder.nativeOrder()
              + ": call order(ByteOrder.nativeOrder()) before its elements are written and before"
              + " it is viewed as another kind of buffer");
    }
  }

  static final String HEAP =
      "is a heap buffer, which the garbage collector moves: use a direct one, such as"
          + " ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder()) or"
          + " window.buffer(rank)";

  static IllegalArgumentException refusal(Comm comm, String call, String what) {
    return new IllegalArgumentException(comm.where(call) + ": " + what);
  }

  /** The logarithm of an element's size. */
  private static int shift(Buffer buffer) {
    if (buffer instanceof ByteBuffer) {
      return 0;
    }
    if (buffer instanceof FloatBuffer || buffer instanceof IntBuffer) {
      return 2;
    }
    return buffer instanceof DoubleBuffer || buffer instanceof LongBuffer ? 3 : 1;
  }

  private static boolean holds(Buffer buffer, DType dtype) {
    if (buffer instanceof ByteBuffer) {
      return true;
    }
    switch (dtype) {
      case FLOAT32:
        return buffer instanceof FloatBuffer;
      case FLOAT64:
        return buffer instanceof DoubleBuffer;
      case INT32:
      case UINT32:
        return buffer instanceof IntBuffer;
      case INT64:
      case UINT64:
        return buffer instanceof LongBuffer;
      case FLOAT16:
      case BFLOAT16:
        return buffer instanceof ShortBuffer;
      default:
        return false;
    }
  }

  private static ByteOrder order(Buffer buffer) {
    if (buffer instanceof ByteBuffer) {
      return ((ByteBuffer) buffer).order();
    }
    if (buffer instanceof FloatBuffer) {
      return ((FloatBuffer) buffer).order();
    }
    if (buffer instanceof IntBuffer) {
      return ((IntBuffer) buffer).order();
    }
    if (buffer instanceof DoubleBuffer) {
      return ((DoubleBuffer) buffer).order();
    }
    if (buffer instanceof LongBuffer) {
      return ((LongBuffer) buffer).order();
    }
    return ((ShortBuffer) buffer).order();
  }

  private static String kind(Buffer buffer) {
    if (buffer instanceof CharBuffer) {
      return "CharBuffer";
    }
    if (buffer instanceof ShortBuffer) {
      return "ShortBuffer";
    }
    if (buffer instanceof FloatBuffer) {
      return "FloatBuffer";
    }
    if (buffer instanceof IntBuffer) {
      return "IntBuffer";
    }
    return buffer instanceof DoubleBuffer ? "DoubleBuffer" : "LongBuffer";
  }
}
