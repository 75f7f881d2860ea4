package dev.symm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.Random;
import org.junit.jupiter.api.Test;

class AllReduceTest {
  static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  private static Buffer typed(ByteBuffer bytes, DType dtype) {
    switch (dtype) {
      case FLOAT32:
        return bytes.asFloatBuffer();
      case FLOAT64:
        return bytes.asDoubleBuffer();
      case INT32:
      case UINT32:
        return bytes.asIntBuffer();
      case INT64:
      case UINT64:
        return bytes.asLongBuffer();
      case FLOAT16:
      case BFLOAT16:
        return bytes.asShortBuffer();
      default:
        return bytes;
    }
  }

  private static void assertSame(ByteBuffer expected, ByteBuffer actual, String what) {
    if (!expected.equals(actual)) {
      assertEquals(-1, expected.mismatch(actual), what + ": the first byte that differs");
    }
  }

  /** Every type and operation in both forms, from buffers, typed buffers and addresses. */
  private static void everything(Rank rank, long seed, int count) {
    try (Comm comm = rank.comm();
        Window window = comm.window(count * 8L + 64)) {
      for (DType dtype : DType.values()) {
        for (Op op : Op.values()) {
          String what = dtype + " " + op + ", count " + count + ", seed " + seed;
          ByteBuffer[] inputs = new ByteBuffer[rank.size];
          for (int other = 0; other < rank.size; ++other) {
            inputs[other] = direct(count * dtype.bytes());
            Reference.fill(
                inputs[other], dtype, new Random(seed + 31L * other + 1009L * op.ordinal()));
          }
          ByteBuffer expected = direct(count * dtype.bytes());
          Reference.reduce(inputs, expected, dtype, op);
          ByteBuffer own = inputs[rank.rank];

          ByteBuffer output = direct(own.capacity());
          comm.allReduce(own, output, dtype, op);
          assertSame(expected, output, what);

          output = direct(own.capacity());
          comm.allReduce(typed(own, dtype), typed(output, dtype), dtype, op);
          assertSame(expected, output, what + ", typed");

          output = direct(own.capacity());
          comm.allReduce(
              capi.buffer_address(own), capi.buffer_address(output), count, dtype, op, 0);
          assertSame(expected, output, what + ", addresses");

          window.buffer(rank.rank).put(64, own, 0, own.capacity());
          output = direct(own.capacity());
          window.allReduce(64, output, dtype, op);
          assertSame(expected, output, what + ", window");

          output = direct(own.capacity());
          window.allReduce(64, capi.buffer_address(output), count, dtype, op, 0);
          assertSame(expected, output, what + ", window and address");

          ByteBuffer part = window.buffer(rank.rank, 64, own.capacity());
          window.allReduce(64, part, dtype, op);
          assertSame(expected, part, what + ", in the window itself");

          comm.allReduce(own, own, dtype, op);
          assertSame(expected, own, what + ", in place");
        }
      }
    }
  }

  @Test
  void everyTypeAndOperationGivesWhatJavaComputes() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed " + seed);
    for (int size = 1; size <= 3; ++size) {
      for (int count : new int[] {1, 37, 4099}) {
        Ranks.threads(size, rank -> everything(rank, seed, count));
      }
    }
  }

  static final class Everything implements Rank.Body {
    @Override
    public void run(Rank rank) {
      everything(rank, 7, 1000);
    }
  }

  @Test
  void processesComputeTheSame() throws Exception {
    Ranks.processes(2, Everything.class);
  }

  @Test
  void typedBuffersNeedNoType() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm();
              Window window = comm.window(64)) {
            ByteBuffer own = window.buffer(rank.rank);
            FloatBuffer floats = direct(8).asFloatBuffer().put(0, 1.5f).put(1, rank.rank);
            comm.allReduce(floats, floats, Op.SUM);
            assertEquals(3.0f, floats.get(0));
            assertEquals(1.0f, floats.get(1));
            own.putFloat(0, rank.rank + 0.25f);
            window.allReduce(0, floats, Op.MAX);
            assertEquals(1.25f, floats.get(0));

            DoubleBuffer doubles = direct(8).asDoubleBuffer().put(0, 1e-300 * (rank.rank + 1));
            comm.allReduce(doubles, doubles, Op.MIN);
            assertEquals(1e-300, doubles.get(0));
            own.putDouble(0, rank.rank);
            window.allReduce(0, doubles, Op.AVG);
            assertEquals(0.5, doubles.get(0));

            IntBuffer ints = direct(4).asIntBuffer().put(0, Integer.MAX_VALUE);
            comm.allReduce(ints, ints, Op.SUM);
            assertEquals(-2, ints.get(0));
            own.putInt(0, 3);
            window.allReduce(0, ints, Op.PROD);
            assertEquals(9, ints.get(0));

            LongBuffer longs = direct(8).asLongBuffer().put(0, 1L << 40);
            comm.allReduce(longs, longs, Op.SUM);
            assertEquals(1L << 41, longs.get(0));
            own.putLong(0, -1);
            window.allReduce(0, longs, Op.SUM);
            assertEquals(-2, longs.get(0));
          }
        });
  }

  @Test
  void onlyWhatIsBetweenPositionAndLimitIsReadAndWritten() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm()) {
            FloatBuffer input = direct(32).asFloatBuffer();
            FloatBuffer output = direct(32).asFloatBuffer();
            for (int i = 0; i < 8; ++i) {
              input.put(i, i + 1);
              output.put(i, -1);
            }
            input.position(2).limit(5);
            output.position(1);
            comm.allReduce(input, output, Op.SUM);
            assertEquals(2, input.position());
            assertEquals(5, input.limit());
            assertEquals(1, output.position());
            assertEquals(8, output.limit());
            float[] expected = {-1, 6, 8, 10, -1, -1, -1, -1};
            for (int i = 0; i < 8; ++i) {
              assertEquals(expected[i], output.get(i), "element " + i);
            }
            // A slice has an address of its own, and positions that count from there.
            output.position(1);
            FloatBuffer slice = output.slice();
            slice.position(1).limit(3);
            comm.allReduce(slice, slice, Op.SUM);
            assertEquals(6, output.get(1));
            assertEquals(16, output.get(2));
            assertEquals(20, output.get(3));
            assertEquals(-1, output.get(4));
          }
        });
  }

  @Test
  void noElementsAreACallLikeAnyOther() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm();
              Window window = comm.window(0)) {
            comm.allReduce(direct(0), direct(0), DType.FLOAT32, Op.SUM);
            window.allReduce(0, direct(0).asFloatBuffer(), Op.SUM);
            assertEquals(0, window.buffer(1 - rank.rank).capacity());
            assertEquals(0, window.address(0));
          }
        });
  }

  @Test
  void aReadOnlyInputIsReadable() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm()) {
            ByteBuffer input = direct(8);
            input.putDouble(0, 2);
            DoubleBuffer output = direct(8).asDoubleBuffer();
            comm.allReduce(
                input.asReadOnlyBuffer().order(ByteOrder.nativeOrder()).asDoubleBuffer(),
                output,
                Op.PROD);
            assertEquals(4, output.get(0));
          }
        });
  }
}
