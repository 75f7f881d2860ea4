package dev.symm;

import java.time.Duration;

/** One rank of a test, and where the ranks meet. */
final class Rank {
  final String address;
  final int rank;
  final int size;
  final String argument;

  Rank(String address, int rank, int size, String argument) {
    this.address = address;
    this.rank = rank;
    this.size = size;
    this.argument = argument;
  }

  /**
   * What a rank does; of the ranks that are processes, a class with a constructor of no arguments.
   */
  interface Body {
    void run(Rank rank) throws Exception;
  }

  /** Short deadlines: a test that hangs shall say where. */
  static CommOptions.Builder options() {
    return CommOptions.builder()
        .timeout(Duration.ofSeconds(60))
        .waitTimeout(Duration.ofSeconds(30));
  }

  Comm comm() {
    return comm("");
  }

  Comm comm(String name) {
    return Comm.create(address, rank, size, options().name(name).build());
  }

  /** The program of a rank that is a process: CLASS ADDRESS RANK SIZE ARGUMENT. */
  public static void main(String[] arguments) throws Exception {
    var constructor = Class.forName(arguments[0]).asSubclass(Body.class).getDeclaredConstructor();
    Rank rank =
        new Rank(
            arguments[1],
            Integer.parseInt(arguments[2]),
            Integer.parseInt(arguments[3]),
            arguments[4]);
    constructor.newInstance().run(rank);
  }
}
