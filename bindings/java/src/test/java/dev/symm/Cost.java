package dev.symm;

import java.nio.DoubleBuffer;
import java.util.Arrays;
import java.util.function.IntConsumer;

/**
 * What an all-reduce of 8 bytes costs a communicator of one rank, in nanoseconds a call: the median
 * of batches, as native/cost.c takes it. Prints two numbers: with buffers, with addresses.
 */
final class Cost {
  private static final int BATCHES = 101;
  private static final int CALLS = 20_000;

  private Cost() {}

  private static double median(IntConsumer calls) {
    double[] batches = new double[BATCHES];
    // The first batches compile it.
    for (int batch = -50; batch < BATCHES; ++batch) {
      long start = System.nanoTime();
      calls.accept(CALLS);
      if (batch >= 0) {
        batches[batch] = (double) (System.nanoTime() - start) / CALLS;
      }
    }
    Arrays.sort(batches);
    return batches[BATCHES / 2];
  }

  public static void main(String[] arguments) {
    try (Comm comm = Comm.create(Symm.createAddress("127.0.0.1"), 0, 1)) {
      DoubleBuffer input = AllReduceTest.direct(8).asDoubleBuffer().put(0, 1);
      DoubleBuffer output = AllReduceTest.direct(8).asDoubleBuffer();
      double buffers =
          median(
              calls -> {
                for (int i = 0; i < calls; ++i) {
                  comm.allReduce(input, output, Op.SUM);
                }
              });
      long from = capi.buffer_address(input);
      long to = capi.buffer_address(output);
      double addresses =
          median(
              calls -> {
                for (int i = 0; i < calls; ++i) {
                  comm.allReduce(from, to, 1, DType.FLOAT64, Op.SUM, 0);
                }
              });
      if (output.get(0) != 1) {
        throw new AssertionError(output.get(0));
      }
      System.out.printf(java.util.Locale.ROOT, "%.1f %.1f%n", buffers, addresses);
    }
  }
}
