package dev.symm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Who keeps what alive, and what closed things do. */
class LifetimeTest {
  private static Comm alone() {
    return Comm.create(Symm.createAddress("127.0.0.1"), 0, 1, Rank.options().build());
  }

  private static FloatBuffer floats(int count) {
    return AllReduceTest.direct(4 * count).asFloatBuffer();
  }

  private static void assertClosed(String what, Executable... calls) {
    for (Executable call : calls) {
      String said = assertThrows(IllegalStateException.class, call).getMessage();
      assertTrue(said.startsWith(what + " (rank ") && said.endsWith(") is closed"), said);
    }
  }

  /** Collects until it is so. */
  private static void collectUntil(BooleanSupplier so) throws InterruptedException {
    for (int i = 0; i < 500 && !so.getAsBoolean(); ++i) {
      System.gc();
      Thread.sleep(10);
    }
    assertTrue(so.getAsBoolean(), "garbage is not collected");
  }

  /** Whether the memory at an address is mapped from a window's file. */
  private static boolean mapped(long address) {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
        String[] range = line.split(" ", 2)[0].split("-");
        if (Long.compareUnsigned(address, Long.parseUnsignedLong(range[0], 16)) >= 0
            && Long.compareUnsigned(address, Long.parseUnsignedLong(range[1], 16)) < 0) {
          return line.contains("symm-window");
        }
      }
      return false;
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Test
  void closedThingsRefuseEveryCall() {
    Comm comm = alone();
    Window window = comm.window(64);
    FloatBuffer one = floats(1);
    ByteBuffer memory = window.buffer(0);
    window.close();
    window.close();
    assertClosed(
        "Window",
        () -> window.buffer(0),
        () -> window.buffer(0, 0, 8),
        () -> window.address(0),
        () -> window.allReduce(0, one, Op.SUM),
        () -> window.allReduce(0, 0L, 0, DType.INT8, Op.SUM, 0),
        () -> window.plan(1, DType.INT8, Op.SUM));
    comm.close();
    comm.close();
    assertClosed(
        "Comm",
        comm::barrier,
        comm::check,
        comm::report,
        comm::nccl,
        () -> comm.barrier(0),
        () -> comm.split(0, 0),
        () -> comm.window(8),
        () -> comm.register(memory),
        () -> comm.register(0, 0),
        () -> comm.plan(1, DType.INT8, Op.SUM),
        () -> comm.allReduce(one, one, Op.SUM),
        () -> comm.allReduce(0, 0, 0, DType.INT8, Op.SUM, 0));
    comm.abort(); // nothing is left to end
    assertEquals(0, comm.rank());
    assertEquals(1, comm.size());
    assertEquals(Device.CPU, comm.device());
    assertEquals(64, window.bytes());
    assertEquals("Comm (rank 0 of 1) (closed)", comm.toString());
    assertEquals("Window (rank 0 of 1) of 64 bytes (closed)", window.toString());
  }

  @Test
  void aWindowOutlivesItsCommunicator() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          Comm comm = rank.comm();
          Window window = comm.window(64);
          comm.close();
          window.buffer(rank.rank).putFloat(0, 1);
          FloatBuffer sum = floats(1);
          window.allReduce(0, sum, Op.SUM);
          assertEquals(2, sum.get(0));
          window.allReduce(0, sum, Op.SUM);
          window.close();
        });
  }

  @Test
  void aBufferKeepsItsMemoryAfterClose() throws Exception {
    Comm comm = alone();
    Window window = comm.window(1 << 20);
    long address = window.address(0);
    FloatBuffer view = window.buffer(0).position(4096).slice().asFloatBuffer().duplicate();
    ByteBuffer part = window.buffer(0, 1 << 19, 4096).asReadOnlyBuffer();
    window.close();
    comm.close();
    for (int i = 0; i < 5; ++i) {
      System.gc();
      Thread.sleep(10);
      view.put(7, i);
      assertEquals(i, view.get(7));
      assertEquals(0, part.get(4095));
    }
    assertTrue(mapped(address));
    java.lang.ref.Reference.reachabilityFence(view);
    view = null;
    // The part alone is enough.
    for (int i = 0; i < 5; ++i) {
      System.gc();
      Thread.sleep(10);
      assertEquals(0, part.get(0));
    }
    assertTrue(mapped(address));
    java.lang.ref.Reference.reachabilityFence(part);
    part = null;
    collectUntil(() -> !mapped(address));
  }

  @Test
  void withoutBuffersCloseFreesAtOnce() {
    try (Comm comm = alone()) {
      Window window = comm.window(1 << 20);
      long address = window.address(0);
      assertTrue(mapped(address));
      window.close();
      assertFalse(mapped(address));
    }
  }

  @Test
  void whatIsForgottenIsFreed() throws Exception {
    long[] address = new long[1];
    WeakReference<Comm> forgotten = forget(address);
    collectUntil(() -> !mapped(address[0]));
    assertNull(forgotten.get());
  }

  private static WeakReference<Comm> forget(long[] address) {
    Comm comm = alone();
    Window window = comm.window(1 << 20);
    address[0] = window.address(0);
    window.buffer(0).asDoubleBuffer().put(0, 1);
    return new WeakReference<>(comm);
  }

  @Test
  void aForgottenRankLeavesAndItsPeerIsTold() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          Comm comm = rank.comm();
          comm.barrier();
          if (rank.rank == 1) {
            WeakReference<Comm> forgotten = new WeakReference<>(comm);
            comm = null;
            collectUntil(() -> forgotten.get() == null);
            return;
          }
          SymmException e = assertThrows(SymmException.class, comm::barrier);
          assertEquals(Status.PEER, e.status(), e.getMessage());
          assertEquals(1, e.rank());
          comm.close();
        });
  }

  @Test
  void memoryOfManyClosedWindowsDoesNotPileUp() {
    // Each window leaves a buffer behind, and the heap never feels it.
    long most = 0;
    try (Comm comm = alone()) {
      for (int i = 0; i < 100; ++i) {
        try (Window window = comm.window(32 << 20)) {
          window.buffer(0).put(i, (byte) 1);
        }
        most = Math.max(most, windowsMapped());
      }
    }
    assertTrue(most < 50, "up to " + most + " of 100 windows were mapped at once");
  }

  private static long windowsMapped() {
    try {
      return Files.readAllLines(Path.of("/proc/self/maps")).stream()
          .filter(line -> line.contains("symm-window"))
          .count();
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Test
  void closingInTheMiddleOfACallLetsItEnd() throws Exception {
    CountDownLatch closed = new CountDownLatch(1);
    Ranks.threads(
        2,
        rank -> {
          Comm comm = rank.comm();
          Window window = comm.window(64);
          if (rank.rank == 0) {
            FloatBuffer sum = floats(2);
            Thread closer =
                new Thread(
                    () -> {
                      Ranks.awaitInside("rank 0");
                      comm.close();
                      window.close();
                      closed.countDown();
                    });
            closer.start();
            window.allReduce(0, sum, Op.SUM);
            assertEquals(3, sum.get(0));
            closer.join();
            assertClosed("Comm", comm::barrier);
            assertClosed("Window", () -> window.address(0));
          } else {
            closed.await();
            window.buffer(1).putFloat(0, 3);
            window.allReduce(0, floats(2), Op.SUM);
            window.close();
            comm.close();
          }
        });
  }

  @Test
  void abortEndsACallOfAClosedCommunicator() throws Exception {
    CountDownLatch ended = new CountDownLatch(1);
    Ranks.threads(
        2,
        rank -> {
          Comm comm = rank.comm();
          if (rank.rank == 0) {
            Thread closer =
                new Thread(
                    () -> {
                      Ranks.awaitInside("rank 0");
                      comm.close();
                      comm.abort();
                    });
            closer.start();
            SymmException e = assertThrows(SymmException.class, comm::barrier);
            assertEquals(Status.ABORTED, e.status());
            assertEquals(0, e.rank());
            closer.join();
            comm.abort();
            ended.countDown();
          } else {
            ended.await();
            SymmException e = assertThrows(SymmException.class, comm::check);
            assertEquals(Status.ABORTED, e.status());
            comm.close();
          }
        });
  }

  @Test
  void anyOrderOfCollectionIsSafe() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed " + seed);
    AtomicInteger wrong = new AtomicInteger();
    Ranks.threads(
        2,
        rank -> {
          Random shared = new Random(seed); // what is collective
          Random own = new Random(seed + 1 + rank.rank);
          List<Object> held = new ArrayList<>();
          List<FloatBuffer> views = new ArrayList<>();
          Comm comm = rank.comm();
          for (int turn = 0; turn < 300; ++turn) {
            Window window = comm.window(4096 * (1 + shared.nextInt(20)));
            window.buffer(rank.rank).putFloat(0, 1);
            FloatBuffer sum = floats(1);
            window.allReduce(0, sum, Op.SUM);
            if (sum.get(0) != 2) {
              wrong.incrementAndGet();
            }
            if (shared.nextInt(4) == 0) {
              Window inner = comm.register(window.buffer(rank.rank).limit(1024));
              views.add(inner.buffer(rank.rank).asFloatBuffer());
              held.add(inner);
            }
            views.add(window.buffer(own.nextInt(2)).asFloatBuffer());
            views.add(window.buffer(rank.rank, 16, 64).slice().asFloatBuffer());
            held.add(window);
            if (shared.nextInt(20) == 0) {
              held.add(comm);
              comm = comm.split(0, rank.rank);
            }
            // Forgets and closes in any order, and uses what is left.
            while (held.size() > 8) {
              Object last = held.remove(own.nextInt(held.size()));
              if (own.nextInt(3) == 0 && last instanceof Window) {
                ((Window) last).close();
              } else if (own.nextInt(3) == 0 && last instanceof Comm) {
                ((Comm) last).close();
              }
            }
            while (views.size() > 12) {
              views.remove(own.nextInt(views.size()));
            }
            if (own.nextInt(10) == 0) {
              System.gc();
            }
            for (FloatBuffer view : views) {
              view.put(view.capacity() - 1, turn);
            }
          }
          comm.close();
        });
    assertEquals(0, wrong.get());
  }

  @Test
  void buffersThatAreGarbageDuringACallStayUntilItIsOver() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm()) {
            for (int i = 0; i < 50; ++i) {
              if (rank.rank == 0) {
                Thread.sleep(2);
                System.gc();
              }
              // Nobody holds these but the call.
              comm.allReduce((Buffer) floats(1 << 16), floats(1 << 16), DType.FLOAT32, Op.SUM);
            }
          }
        });
  }

  @Test
  void closingAtAnyMomentIsSafe() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    for (int turn = 0; turn < 200; ++turn) {
      Comm comm = alone();
      Window window = comm.window(4096);
      FloatBuffer one = floats(1).put(0, 1);
      AtomicReference<Throwable> failure = new AtomicReference<>();
      Thread[] users = new Thread[2];
      for (int i = 0; i < 2; ++i) {
        boolean first = i == 0;
        users[i] =
            new Thread(
                () -> {
                  try {
                    for (int call = 0; true; ++call) {
                      if (first) {
                        comm.allReduce(one, one, Op.SUM);
                      } else {
                        window.buffer(0).putInt(0, call);
                        window.allReduce(0, floats(1), Op.SUM);
                      }
                    }
                  } catch (IllegalStateException e) {
                    // closed, as it should be
                  } catch (Throwable e) {
                    failure.set(e);
                  }
                });
        users[i].setDaemon(true);
        users[i].start();
      }
      Thread.sleep(0, random.nextInt(400_000));
      if (random.nextBoolean()) {
        comm.close();
        window.close();
      } else {
        window.close();
        comm.close();
      }
      for (Thread user : users) {
        user.join(TimeUnit.SECONDS.toMillis(Ranks.SECONDS));
        assertFalse(user.isAlive(), "turn " + turn + ": a call never ends");
      }
      assertNull(failure.get(), "turn " + turn);
    }
  }

  @Test
  void threadsMayShareACommunicator() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm()) {
            // All calls are alike, so that their order does not matter.
            Rank.Body calls =
                user -> {
                  FloatBuffer input = floats(64);
                  FloatBuffer output = floats(64);
                  for (int call = 0; call < 300; ++call) {
                    input.put(5, 2);
                    comm.allReduce(input, output, Op.SUM);
                    assertEquals(4, output.get(5));
                  }
                };
            Ranks.threads(4, calls);
          }
        });
  }

  @Test
  void aBufferWhosePositionMovesMeanwhileIsNeverLeft() throws Exception {
    try (Comm comm = alone();
        Window window = comm.window(4096)) {
      // What lies behind the buffer in the window shows what is written outside it.
      ByteBuffer all = window.buffer(0);
      ByteBuffer output = window.buffer(0, 0, 2048);
      ByteBuffer input = AllReduceTest.direct(2048);
      for (int i = 0; i < 2048; ++i) {
        input.put(i, (byte) 1);
      }
      AtomicBoolean over = new AtomicBoolean();
      Thread mover =
          new Thread(
              () -> {
                for (int position = 0; !over.get(); position = 2047 - position) {
                  output.position(position);
                }
              });
      mover.start();
      for (int call = 0; call < 100_000; ++call) {
        try {
          comm.allReduce(input, output, DType.INT8, Op.SUM);
        } catch (IllegalArgumentException e) {
          // it looked too small
        }
      }
      over.set(true);
      mover.join();
      assertEquals(1, all.get(2047));
      for (int i = 2048; i < 4096; ++i) {
        assertEquals(0, all.get(i), "byte " + i);
      }
    }
  }

  private static final class CountedHandle extends Handle {
    final AtomicInteger frees = new AtomicInteger();

    CountedHandle() {
      super(0, "Handle (rank 0 of 1)");
    }

    @Override
    void free() {
      frees.incrementAndGet();
    }
  }

  @Test
  void aHandleIsFreedOnceByWhoeverLetsGoLast() throws Exception {
    for (int turn = 0; turn < 2000; ++turn) {
      CountedHandle handle = new CountedHandle();
      AtomicInteger early = new AtomicInteger();
      CountDownLatch busy = new CountDownLatch(2);
      Thread[] users = new Thread[2];
      for (int i = 0; i < 2; ++i) {
        users[i] =
            new Thread(
                () -> {
                  try {
                    while (true) {
                      handle.acquire();
                      early.addAndGet(handle.frees.get());
                      handle.release();
                      busy.countDown();
                    }
                  } catch (IllegalStateException e) {
                    // closed, as it should be
                  }
                });
        users[i].setDaemon(true);
        users[i].start();
      }
      busy.await();
      handle.close();
      handle.close();
      for (Thread user : users) {
        user.join(TimeUnit.SECONDS.toMillis(Ranks.SECONDS));
        assertFalse(user.isAlive(), "turn " + turn + ": a call never ends");
      }
      assertEquals(1, handle.frees.get(), "turn " + turn);
      assertEquals(0, early.get(), "turn " + turn);
      assertFalse(handle.acquireIfThere());
    }
  }
}
