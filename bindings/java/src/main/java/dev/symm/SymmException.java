package dev.symm;

/**
 * A call of the library failed. The message says which call, on which rank, which argument and
 * value, and what to do.
 *
 * <p>Misuse that these classes see before the library is called is an {@link
 * IllegalArgumentException} or, of something closed, an {@link IllegalStateException}.
 */
public final class SymmException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The number of the library's status. */
  private final int code;

  /** The rank to blame, or -1. */
  private int rank = -1;

  /** Called by the native library; {@code message} is UTF-8. */
  SymmException(int code, byte[] message) {
    super(Utf8.text(message));
    this.code = code;
  }

  /**
   * The kind of failure.
   *
   * @return never null
   */
  public Status status() {
    return Status.of(code);
  }

  /**
   * The number of the status, as in the library's header, also where it is {@link Status#UNKNOWN}.
   *
   * @return a negative number
   */
  public int code() {
    return code;
  }

  /**
   * The rank that is to blame for an error that ended the communicator: the one that died, called
   * something else, aborted.
   *
   * @return a rank of the communicator that failed, or -1: not one rank, not known, or no such
   *     error
   */
  public int rank() {
    return rank;
  }

  SymmException blame(int rank) {
    this.rank = rank;
    return this;
  }
}
