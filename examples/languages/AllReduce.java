import dev.symm.Comm;
import dev.symm.CommOptions;
import dev.symm.Op;
import dev.symm.SymmException;
import dev.symm.Window;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.Locale;

/**
 * Ranks sum an array each, once from memory of their own and once from a window.
 *
 * <pre>
 *   java -cp symm.jar AllReduce.java tcp://127.0.0.1:29500 0 2 &amp;
 *   java -cp symm.jar AllReduce.java tcp://127.0.0.1:29500 1 2
 * </pre>
 */
public final class AllReduce {
  private static final int COUNT = 1000;

  private AllReduce() {}

  private static ByteBuffer floats(int count) {
    return ByteBuffer.allocateDirect(count * Float.BYTES).order(ByteOrder.nativeOrder());
  }

  /** FNV-1a of 64 bits. */
  private static long digest(ByteBuffer bytes) {
    long hash = 0xcbf29ce484222325L;
    for (int i = 0; i < bytes.capacity(); ++i) {
      hash = (hash ^ (bytes.get(i) & 0xff)) * 0x100000001b3L;
    }
    return hash;
  }

  private static void run(String address, int rank, int size) {
    CommOptions options = CommOptions.builder().timeout(Duration.ofSeconds(60)).build();
    try (Comm comm = Comm.create(address, rank, size, options)) {
      FloatBuffer x = floats(COUNT).asFloatBuffer();
      for (int i = 0; i < COUNT; ++i) {
        x.put(i, 1.0f / (1 + i + 1000 * rank));
      }

      ByteBuffer sum = floats(COUNT);
      comm.allReduce(x, sum.asFloatBuffer(), Op.SUM);

      try (Window window = comm.window(COUNT * Float.BYTES)) {
        window.buffer(rank).asFloatBuffer().put(0, x, 0, COUNT);
        ByteBuffer again = floats(COUNT);
        window.allReduce(0, again.asFloatBuffer(), Op.SUM);
        if (!again.equals(sum)) {
          throw new IllegalStateException("the window's sum is another than the array's");
        }
      }

      System.out.println(
          String.format(
              Locale.ROOT,
              "rank %d of %d: sum[0] = %.6f, digest %016x",
              rank,
              size,
              sum.getFloat(0),
              digest(sum)));
    }
  }

  /**
   * Runs one rank.
   *
   * @param arguments ADDRESS RANK SIZE
   */
  public static void main(String[] arguments) {
    if (arguments.length != 3) {
      System.err.println("usage: AllReduce ADDRESS RANK SIZE");
      System.exit(2);
    }
    try {
      run(arguments[0], Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]));
    } catch (SymmException | IllegalArgumentException | IllegalStateException e) {
      System.err.println("AllReduce: " + e.getMessage());
      System.exit(1);
    }
  }
}
