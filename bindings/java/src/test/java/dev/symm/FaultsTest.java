package dev.symm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What a rank gets to know when another one fails, and how processes end. */
class FaultsTest {
  private static SymmException assertFails(
      Status status, org.junit.jupiter.api.function.Executable call) {
    SymmException e = assertThrows(SymmException.class, call);
    assertEquals(status, e.status(), e.getMessage());
    return e;
  }

  /** Meets the others, and never comes back. */
  static final class Waits implements Rank.Body {
    @Override
    public void run(Rank rank) throws Exception {
      Comm comm = rank.comm();
      comm.barrier();
      Thread.sleep(1000L * Ranks.SECONDS);
    }
  }

  @Test
  void theDeathOfAProcessIsItsPeersException() throws Exception {
    String address = Symm.createAddress("127.0.0.1");
    Ranks.Child child = Ranks.start(Waits.class, address, 1, 2, "");
    try (Comm comm = new Rank(address, 0, 2, "").comm()) {
      comm.barrier();
      Thread killer =
          new Thread(
              () -> {
                Ranks.awaitInside("main");
                child.process.destroyForcibly();
              });
      killer.start();
      FloatBuffer one = AllReduceTest.direct(4).asFloatBuffer();
      long start = System.nanoTime();
      SymmException e = assertFails(Status.PEER, () -> comm.allReduce(one, one, Op.SUM));
      assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(30));
      assertEquals(1, e.rank());
      assertTrue(e.getMessage().contains("rank 1"), e.getMessage());
      killer.join();
      // For good, and of every call.
      assertTrue(e.status().sticky());
      assertEquals(1, assertFails(Status.PEER, comm::check).rank());
      assertEquals(1, assertFails(Status.PEER, comm::barrier).rank());
      assertEquals(1, assertFails(Status.PEER, () -> comm.window(8)).rank());
      assertTrue(comm.report().contains("SYMM_PEER"), comm.report());
    } finally {
      child.process.destroyForcibly();
    }
  }

  @Test
  void abortFromAnotherThreadEndsEveryRanksCalls() throws Exception {
    Ranks.threads(
        3,
        rank -> {
          try (Comm comm = rank.comm();
              Window window = comm.window(64)) {
            if (rank.rank == 2) {
              Thread.sleep(50);
              comm.abort();
            }
            FloatBuffer one = AllReduceTest.direct(4).asFloatBuffer();
            SymmException e =
                assertFails(
                    Status.ABORTED,
                    () -> {
                      if (rank.rank == 0) {
                        comm.allReduce(one, one, Op.SUM);
                      } else if (rank.rank == 2) {
                        comm.check();
                      } else {
                        Thread.sleep(200);
                        comm.allReduce(one, one, Op.SUM);
                      }
                    });
            assertEquals(2, e.rank());
            assertEquals(
                2, assertFails(Status.ABORTED, () -> window.allReduce(0, one, Op.SUM)).rank());
          }
        });
  }

  @Test
  void abortEndsTheCallThatThisRankIsInside() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm()) {
            if (rank.rank == 1) {
              assertFails(
                  Status.ABORTED,
                  () -> {
                    while (true) {
                      Thread.sleep(5);
                      comm.check();
                    }
                  });
              return;
            }
            Thread other =
                new Thread(
                    () -> {
                      Ranks.awaitInside("rank 0");
                      // None of these waits for that thread.
                      comm.check();
                      assertTrue(comm.report().contains("\"rank\":0"), comm.report());
                      comm.abort();
                    });
            other.start();
            assertEquals(0, assertFails(Status.ABORTED, comm::barrier).rank());
            other.join();
          }
        });
  }

  @Test
  void differentCallsAreAMismatchThatNamesBoth() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          try (Comm comm = rank.comm()) {
            FloatBuffer some = AllReduceTest.direct(4 * (2 + rank.rank)).asFloatBuffer();
            SymmException e =
                assertFails(Status.MISMATCH, () -> comm.allReduce(some, some, Op.SUM));
            assertTrue(
                e.getMessage().contains("2") && e.getMessage().contains("3"), e.getMessage());
          }
        });
  }

  @Test
  void waitsEndAtTheirDeadline() throws Exception {
    Ranks.threads(
        2,
        rank -> {
          CommOptions options = Rank.options().waitTimeout(Duration.ofMillis(300)).build();
          try (Comm comm = Comm.create(rank.address, rank.rank, 2, options)) {
            if (rank.rank == 0) {
              assertEquals(1, assertFails(Status.TIMEOUT, comm::barrier).rank());
            } else {
              assertFails(
                  Status.TIMEOUT,
                  () -> {
                    while (true) {
                      Thread.sleep(5);
                      comm.check();
                    }
                  });
            }
          }
        });
    SymmException e =
        assertFails(
            Status.TIMEOUT,
            () ->
                Comm.create(
                    Symm.createAddress("127.0.0.1"),
                    1,
                    2,
                    CommOptions.builder().timeout(Duration.ofMillis(200)).build()));
    assertTrue(e.getMessage().contains("0"), e.getMessage());
  }

  @Test
  void splitsAreCommunicatorsOfTheirOwn() throws Exception {
    Ranks.threads(
        3,
        rank -> {
          try (Comm comm = rank.comm()) {
            // Ranks 0 and 2, the other way round; rank 1 stays away.
            Comm part = comm.split(rank.rank == 1 ? Comm.NO_COLOR : 5, -rank.rank);
            if (rank.rank == 1) {
              assertNull(part);
              return;
            }
            assertNotNull(part);
            comm.close();
            assertEquals(2, part.size());
            assertEquals(rank.rank == 0 ? 1 : 0, part.rank());
            part.barrier();
            part.close();
          }
        });
  }

  /** Ends as its argument says, with a window and its buffers open. */
  static final class Ends implements Rank.Body {
    @Override
    public void run(Rank rank) throws Exception {
      Comm comm = rank.comm();
      Window window = comm.window(1 << 20);
      window.buffer(0).put(0, (byte) 1);
      comm.barrier();
      switch (rank.argument) {
        case "return":
          break;
        case "exit":
          System.exit(0);
          break;
        case "exit inside":
          Thread inside = new Thread(comm::barrier, "inside");
          inside.setDaemon(true);
          inside.start();
          Ranks.awaitInside("inside");
          System.exit(0);
          break;
        default:
          throw new AssertionError(rank.argument);
      }
    }
  }

  @Test
  void processesEndCleanlyWithEverythingOpen() throws Exception {
    for (String how : new String[] {"return", "exit", "exit inside"}) {
      String address = Symm.createAddress("127.0.0.1");
      Ranks.Child child = Ranks.start(Ends.class, address, 1, 2, how);
      try (Comm comm = new Rank(address, 0, 2, "").comm();
          Window window = comm.window(1 << 20)) {
        comm.barrier();
        child.assertExit(0);
        // It left, which this rank gets to know when it needs it.
        SymmException e = assertFails(Status.PEER, () -> window.comm().split(0, 0));
        assertEquals(1, e.rank(), e.getMessage());
      }
    }
  }

  /** A rank as launchers start it. */
  static final class Launched implements Rank.Body {
    @Override
    public void run(Rank rank) {
      try (Comm comm = Comm.fromEnvironment(Rank.options().build())) {
        if (comm.rank() != rank.rank || comm.size() != 2) {
          throw new AssertionError(comm);
        }
        comm.barrier();
      }
    }
  }

  @Test
  void launchersVariablesSayRankAndSize() throws Exception {
    int port;
    try (java.net.ServerSocket free = new java.net.ServerSocket(0)) {
      port = free.getLocalPort();
    }
    Ranks.Child[] children = new Ranks.Child[2];
    for (int rank = 0; rank < 2; ++rank) {
      ProcessBuilder machine =
          Ranks.machine(
              java.util.List.of(
                  Rank.class.getName(), Launched.class.getName(), "", "" + rank, "2", ""));
      machine.environment().put("RANK", "" + rank);
      machine.environment().put("WORLD_SIZE", "2");
      machine.environment().put("LOCAL_RANK", "" + rank);
      machine.environment().put("MASTER_ADDR", "127.0.0.1");
      machine.environment().put("MASTER_PORT", "" + port);
      children[rank] = new Ranks.Child(machine);
    }
    for (Ranks.Child child : children) {
      child.assertExit(0);
    }
    assertFails(Status.INVALID_ARGUMENT, Comm::fromEnvironment);
  }
}
