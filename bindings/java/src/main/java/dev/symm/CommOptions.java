package dev.symm;

import java.time.Duration;

/**
 * Options of {@link Comm#create} and {@link Comm#split}. What is not set is the library's default,
 * in a split the parent's. Name, timeouts, scratch bytes and flags must be equal on every rank; the
 * device and the path of NCCL are each rank's own.
 *
 * <p>The library looks at values in the call that they are for, together with every other rank's: a
 * wrong one fails it on all of them instead of leaving the others to wait.
 */
public final class CommOptions {
  static final CommOptions DEFAULTS = builder().build();

  final int device;
  final String name;
  final String ncclPath;
  final long scratchBytes;
  final int timeoutMs;
  final int waitTimeoutMs;
  final int flags;

  private CommOptions(Builder from) {
    device = from.device;
    name = from.name;
    ncclPath = from.ncclPath;
    scratchBytes = from.scratchBytes;
    timeoutMs = from.timeoutMs;
    waitTimeoutMs = from.waitTimeoutMs;
    flags = from.flags;
  }

  /**
   * Options with nothing set.
   *
   * @return a builder, for one thread
   */
  public static Builder builder() {
    return new Builder();
  }

  /** Collects options. */
  public static final class Builder {
    private int device = Device.CPU;
    private String name;
    private String ncclPath;
    private long scratchBytes;
    private int timeoutMs;
    private int waitTimeoutMs;
    private int flags;

    private Builder() {}

    /**
     * Where the communicator works. A split is always where its parent is.
     *
     * @param device a CUDA ordinal or one of {@link Device}; the default is {@link Device#CPU}
     * @return this
     */
    public Builder device(int device) {
      this.device = device;
      return this;
    }

    /**
     * Tells apart communicators that are created over one address.
     *
     * @param name any text of at most 1024 bytes without a NUL; the default is ""
     * @return this
     */
    public Builder name(String name) {
      Utf8.bytes(name);
      this.name = name;
      return this;
    }

    /**
     * The deadline of collective set-up: create, split, windows.
     *
     * @param timeout zero is the default, 300 s; parts of a millisecond count as a whole one, and
     *     more than {@link Integer#MAX_VALUE} ms as that
     * @return this
     */
    public Builder timeout(Duration timeout) {
      this.timeoutMs = milliseconds(timeout);
      return this;
    }

    /**
     * The deadline of waits inside all-reduces and barriers.
     *
     * @param timeout zero is the default, 600 s; rounded as in {@link #timeout}
     * @return this
     */
    public Builder waitTimeout(Duration timeout) {
      this.waitTimeoutMs = milliseconds(timeout);
      return this;
    }

    /**
     * The most memory for scratch on each rank; larger messages go in pieces.
     *
     * @param bytes 0 is the default, 128 MiB
     * @return this
     * @throws IllegalArgumentException if negative
     */
    public Builder scratchBytes(long bytes) {
      if (bytes < 0) {
        throw new IllegalArgumentException("scratchBytes is " + bytes + "; it is not negative");
      }
      this.scratchBytes = bytes;
      return this;
    }

    /**
     * What the communicator may or shall do.
     *
     * @param flags all of them: they replace those of an earlier call
     * @return this
     */
    public Builder flags(CommFlag... flags) {
      int bits = 0;
      for (CommFlag flag : flags) {
        bits |= flag.bit;
      }
      this.flags = bits;
      return this;
    }

    /**
     * Where NCCL is.
     *
     * @param path of libnccl.so; the default is one that is loaded already, else the usual places
     * @return this
     */
    public Builder ncclPath(String path) {
      Utf8.bytes(path);
      this.ncclPath = path;
      return this;
    }

    /**
     * The options so far.
     *
     * @return independent of what becomes of this builder
     */
    public CommOptions build() {
      return new CommOptions(this);
    }

    /** A negative one stays so, for the library to refuse on every rank. */
    private static int milliseconds(Duration timeout) {
      if (timeout.isNegative()) {
        return -1;
      }
      // Neither may a short wait round to 0, the default, nor a long one overflow.
      if (timeout.compareTo(Duration.ofMillis(Integer.MAX_VALUE)) >= 0) {
        return Integer.MAX_VALUE;
      }
      return (int) timeout.plusNanos(999_999).toMillis();
    }
  }
}
