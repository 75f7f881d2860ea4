package dev.symm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs a body on every rank: threads of this process, or processes of their own. Bounded in time.
 */
final class Ranks {
  static final int SECONDS = 90;

  private Ranks() {}

  /** Ranks that are threads. The first failure is the test's. */
  static void threads(int size, Rank.Body body) throws Exception {
    String address = Symm.createAddress("127.0.0.1");
    ExecutorService threads =
        Executors.newFixedThreadPool(
            size,
            task -> {
              Thread thread = new Thread(task);
              thread.setDaemon(true);
              return thread;
            });
    List<Future<?>> ranks = new ArrayList<>();
    for (int rank = 0; rank < size; ++rank) {
      Rank own = new Rank(address, rank, size, "");
      ranks.add(
          threads.submit(
              () -> {
                Thread.currentThread().setName("rank " + own.rank);
                body.run(own);
                return null;
              }));
    }
    Throwable failure = null;
    for (int rank = 0; rank < size; ++rank) {
      try {
        ranks.get(rank).get(SECONDS, TimeUnit.SECONDS);
      } catch (ExecutionException e) {
        if (failure == null) {
          failure = e.getCause();
        } else {
          failure.addSuppressed(e.getCause());
        }
      } catch (TimeoutException e) {
        failure = new AssertionError("rank " + rank + " hangs", failure);
      }
    }
    threads.shutdownNow();
    if (failure instanceof Error) {
      throw (Error) failure;
    }
    if (failure != null) {
      throw (Exception) failure;
    }
  }

  /** A virtual machine that was started, and what it prints. */
  static final class Child {
    final Process process;
    private final Path output;

    Child(ProcessBuilder builder) throws IOException {
      output = Files.createTempFile("symm-test", ".out");
      process = builder.redirectErrorStream(true).redirectOutput(output.toFile()).start();
    }

    String output() throws IOException {
      return Files.readString(output);
    }

    int exitStatus() throws Exception {
      if (!process.waitFor(SECONDS, TimeUnit.SECONDS)) {
        process.destroyForcibly().waitFor();
        throw new AssertionError("a process hangs; it printed: " + output());
      }
      return process.exitValue();
    }

    void assertExit(int expected) throws Exception {
      int status = exitStatus();
      assertEquals(expected, status, output());
      Files.delete(output);
    }
  }

  /** A virtual machine with the classes and checks of this one. */
  static ProcessBuilder machine(List<String> arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(
        List.of(
            "-Xcheck:jni",
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:+LogVMOutput",
            "-XX:LogFile=" + System.getProperty("symm.test.vm.logs") + "/%p.log",
            "-cp",
            System.getProperty("java.class.path")));
    command.addAll(arguments);
    return new ProcessBuilder(command);
  }

  static Child start(
      Class<? extends Rank.Body> body, String address, int rank, int size, String argument)
      throws IOException {
    return new Child(
        machine(
            List.of(
                Rank.class.getName(),
                body.getName(),
                address,
                Integer.toString(rank),
                Integer.toString(size),
                argument)));
  }

  /** Ranks that are processes; each must end with status 0. */
  static void processes(int size, Class<? extends Rank.Body> body) throws Exception {
    String address = Symm.createAddress("127.0.0.1");
    List<Child> children = new ArrayList<>();
    for (int rank = 0; rank < size; ++rank) {
      children.add(start(body, address, rank, size, ""));
    }
    try {
      for (Child child : children) {
        child.assertExit(0);
      }
    } finally {
      for (Child child : children) {
        child.process.destroyForcibly();
      }
    }
  }

  /** Waits until the thread of that name is inside a call of the library. */
  static void awaitInside(String name) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
    while (System.nanoTime() < end) {
      for (var entry : Thread.getAllStackTraces().entrySet()) {
        StackTraceElement[] frames = entry.getValue();
        if (entry.getKey().getName().equals(name)
            && frames.length > 0
            && frames[0].getClassName().equals("dev.symm.capiJNI")) {
          return;
        }
      }
    }
    throw new AssertionError("no thread '" + name + "' ever got into a call");
  }
}
