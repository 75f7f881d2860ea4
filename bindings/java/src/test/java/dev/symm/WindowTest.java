package dev.symm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

class WindowTest {
  private static void everyoneSeesEveryone(Rank rank) {
    try (Comm comm = rank.comm();
        Window window = comm.window(4096)) {
      assertEquals(4096, window.bytes());
      ByteBuffer own = window.buffer(rank.rank);
      assertEquals(4096, own.capacity());
      assertEquals(ByteOrder.nativeOrder(), own.order());
      assertFalse(own.isReadOnly());
      for (int i = 0; i < 4096; i += 8) {
        assertEquals(0, own.getLong(i), "new memory is zeroed");
      }
      comm.barrier();
      for (int other = 0; other < rank.size; ++other) {
        window.buffer(other).putLong(8 * rank.rank, 1000L * rank.rank + other);
      }
      comm.barrier();
      for (int other = 0; other < rank.size; ++other) {
        assertEquals(1000L * other + rank.rank, own.getLong(8 * other));
        assertEquals(1000L * rank.rank + other, window.buffer(other, 8L * rank.rank, 8).getLong(0));
        assertEquals(window.address(other), capi.buffer_address(window.buffer(other)));
      }
      comm.barrier();
    }
  }

  static final class Sees implements Rank.Body {
    @Override
    public void run(Rank rank) {
      everyoneSeesEveryone(rank);
    }
  }

  @Test
  void threadsSeeEachOthersCopies() throws Exception {
    Ranks.threads(3, WindowTest::everyoneSeesEveryone);
  }

  @Test
  void processesSeeEachOthersCopies() throws Exception {
    Ranks.processes(2, Sees.class);
  }

  @Test
  void buffersOfOneCopyHavePositionsOfTheirOwn() throws Exception {
    try (Comm comm = Comm.create(Symm.createAddress("127.0.0.1"), 0, 1);
        Window window = comm.window(16)) {
      ByteBuffer first = window.buffer(0);
      ByteBuffer second = window.buffer(0);
      first.position(4).limit(8);
      assertEquals(0, second.position());
      assertEquals(16, second.limit());
      first.putInt(77);
      assertEquals(77, second.getInt(4));
    }
  }

  @Test
  void windowsPastTwoGibibytesAreReadAndReducedInParts() throws Exception {
    long bytes = (2L << 30) + (1 << 20);
    assumeTrue(availableMemory() > bytes + (bytes >> 1), "this machine has no 3 GiB free");
    try (Comm comm = Comm.create(Symm.createAddress("127.0.0.1"), 0, 1);
        Window window = comm.window(bytes)) {
      assertEquals(bytes, window.bytes());
      UnsupportedOperationException e =
          assertThrows(UnsupportedOperationException.class, () -> window.buffer(0));
      assertTrue(e.getMessage().contains("buffer(rank, offset, length)"), e.getMessage());

      long offset = bytes - 4096;
      ByteBuffer end = window.buffer(0, offset, 4096);
      end.asFloatBuffer().put(1023, 2.5f);
      assertEquals(window.address(0) + offset, capi.buffer_address(end));
      assertEquals(2.5f, window.buffer(0, bytes - 4, 4).getFloat(0));
      ByteBuffer most = window.buffer(0, bytes - Integer.MAX_VALUE, Integer.MAX_VALUE);
      assertEquals(2.5f, most.getFloat(Integer.MAX_VALUE - 4));
      assertThrows(IndexOutOfBoundsException.class, () -> window.buffer(0, bytes - 4095, 4096));

      FloatBuffer sum = AllReduceTest.direct(4096).asFloatBuffer();
      window.allReduce(offset, sum, Op.SUM);
      assertEquals(2.5f, sum.get(1023));
      // The whole of it, by address: a count whose bytes do not fit an int.
      window.allReduce(0, window.address(0), bytes / 4, DType.FLOAT32, Op.SUM, 0);
      assertEquals(2.5f, end.getFloat(4092));
    }
  }

  private static long availableMemory() throws Exception {
    for (String line : Files.readAllLines(Path.of("/proc/meminfo"))) {
      if (line.startsWith("MemAvailable:")) {
        return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
      }
    }
    return 0;
  }

  @Test
  void partOfAWindowMayBeRegistered() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm();
              Window outer = comm.window(4096)) {
            // Anywhere inside, elsewhere on each rank.
            ByteBuffer part =
                outer
                    .buffer(rank.rank)
                    .position(256 * (rank.rank + 1))
                    .limit(256 * (rank.rank + 2));
            try (Window inner = comm.register(part)) {
              assertEquals(256, inner.bytes());
              inner.buffer(rank.rank).putFloat(4, rank.rank + 1);
              assertEquals(rank.rank + 1, part.getFloat(part.position() + 4));
              FloatBuffer sum = AllReduceTest.direct(8).asFloatBuffer();
              inner.allReduce(0, sum, Op.SUM);
              assertEquals(3, sum.get(1));
              assertEquals(2 - rank.rank, inner.buffer(1 - rank.rank).getFloat(4));
              comm.barrier();
            }
            try (Window again = comm.register(outer.address(rank.rank), 4096)) {
              assertEquals(
                  rank.rank + 1, again.buffer(rank.rank).getFloat(256 * (rank.rank + 1) + 4));
              comm.barrier();
            }
            try (Window typed =
                comm.register(outer.buffer(rank.rank).asDoubleBuffer().position(2))) {
              assertEquals(4096 - 16, typed.bytes());
              comm.barrier();
            }
          }
        });
  }

  @Test
  void aFileMappingMayBeRegistered() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          Path path = Files.createTempFile(Path.of("/dev/shm"), "symm-java", ".test");
          try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw");
              Comm comm = rank.comm()) {
            file.setLength(1 << 20);
            MappedByteBuffer mapped =
                file.getChannel().map(FileChannel.MapMode.READ_WRITE, 8192, 65536);
            mapped.order(ByteOrder.nativeOrder()).position(512);
            Window named = comm.register(mapped, file.getFD(), 8192 + 512);
            Window found = comm.register(mapped);
            // Neither the file nor its name is needed any more.
            Files.delete(path);
            file.close();
            named.buffer(rank.rank).putInt(0, rank.rank + 10);
            assertEquals(rank.rank + 10, mapped.getInt(512));
            comm.barrier();
            assertEquals(11 - rank.rank, found.buffer(1 - rank.rank).getInt(0));
            comm.barrier();
            found.close();
            named.close();
          } finally {
            Files.deleteIfExists(path);
          }
        });
  }

  @Test
  void aWrongFileIsRefusedOnEveryRank() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          Path path = Files.createTempFile(Path.of("/dev/shm"), "symm-java", ".test");
          try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw");
              RandomAccessFile closed = new RandomAccessFile(path.toFile(), "rw");
              Comm comm = rank.comm()) {
            file.setLength(65536);
            closed.close();
            MappedByteBuffer mapped =
                file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 65536);
            // Rank 1 names another place, a closed file, none.
            for (int kind = 0; kind < 3; ++kind) {
              boolean wrong = rank.rank == 1;
              var given = wrong && kind > 0 ? (kind == 1 ? closed.getFD() : null) : file.getFD();
              long offset = wrong && kind == 0 ? 4096 : 0;
              SymmException e =
                  assertThrows(SymmException.class, () -> comm.register(mapped, given, offset));
              assertEquals(Status.INVALID_ARGUMENT, e.status(), e.getMessage());
              assertTrue(e.getMessage().contains("rank 1"), e.getMessage());
            }
            comm.barrier();
          } finally {
            Files.deleteIfExists(path);
          }
        });
  }

  @Test
  void aRefusalOfOneRankIsEveryRanks() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm();
              Window window = comm.window(64)) {
            ByteBuffer fine = window.buffer(rank.rank);
            ByteBuffer[] wrong = {
              ByteBuffer.allocate(64), ByteBuffer.allocate(0), fine.asReadOnlyBuffer(), null
            };
            for (ByteBuffer buffer : wrong) {
              if (rank.rank == 0) {
                assertThrows(SymmException.class, () -> comm.register(fine));
              } else {
                String said =
                    assertThrows(IllegalArgumentException.class, () -> comm.register(buffer))
                        .getMessage();
                assertTrue(said.startsWith("register (rank 1 of 2): buffer is "), said);
              }
            }
            ByteBuffer priv = AllReduceTest.direct(64);
            SymmException e =
                assertThrows(
                    SymmException.class, () -> comm.register(rank.rank == 0 ? fine : priv));
            assertEquals(Status.UNSUPPORTED, e.status(), e.getMessage());
            e = assertThrows(SymmException.class, () -> comm.window(rank.rank == 0 ? 64 : 128));
            assertEquals(Status.INVALID_ARGUMENT, e.status(), e.getMessage());
            e = assertThrows(SymmException.class, () -> comm.window(-1));
            assertTrue(e.getMessage().contains("bytes"), e.getMessage());
            e =
                assertThrows(
                    SymmException.class,
                    () ->
                        comm.window(
                            64,
                            rank.rank == 0
                                ? new WindowFlag[0]
                                : new WindowFlag[] {WindowFlag.NCCL}));
            assertEquals(Status.UNSUPPORTED, e.status(), e.getMessage());
            // None of that has ended anything.
            comm.check();
            FloatBuffer one = AllReduceTest.direct(4).asFloatBuffer().put(0, 1);
            comm.allReduce(one, one, Op.SUM);
            assertEquals(2, one.get(0));
          }
        });
  }
}
