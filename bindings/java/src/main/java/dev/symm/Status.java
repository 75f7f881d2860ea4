package dev.symm;

/**
 * What a failed call of the library failed of. A {@link #sticky()} one ends its communicator.
 *
 * <p>A library newer than these classes may have statuses that they do not know: those are {@link
 * #UNKNOWN}, and {@link SymmException#code()} has the number.
 */
public enum Status {
  /** This rank's call, or in a collective call another rank's, is wrong. */
  INVALID_ARGUMENT(capi.SYMM_INVALID_ARGUMENT, false),
  /** Host or device memory, or descriptors for it, ran out. */
  OUT_OF_MEMORY(capi.SYMM_OUT_OF_MEMORY, false),
  /** Not with this device, driver, build or version of the library. */
  UNSUPPORTED(capi.SYMM_UNSUPPORTED, false),
  /** A system call failed: sockets, files, memory maps. */
  SYSTEM(capi.SYMM_SYSTEM, false),
  /** A call of the CUDA driver failed. */
  CUDA(capi.SYMM_CUDA, true),
  /** A call of NCCL failed. */
  NCCL(capi.SYMM_NCCL, true),
  /** Some ranks did not arrive before the deadline. */
  TIMEOUT(capi.SYMM_TIMEOUT, true),
  /** A rank died, or left while it was still needed. */
  PEER(capi.SYMM_PEER, true),
  /** The ranks called different things. */
  MISMATCH(capi.SYMM_MISMATCH, true),
  /** Some rank called {@link Comm#abort()}. */
  ABORTED(capi.SYMM_ABORTED, true),
  /** A bug of symm. */
  INTERNAL(capi.SYMM_INTERNAL, true),
  /** A number that these classes do not know. */
  UNKNOWN(0, false);

  private final int code;
  private final boolean sticky;

  Status(int code, boolean sticky) {
    this.code = code;
    this.sticky = sticky;
  }

  /**
   * Whether an error of this kind ends the communicator, if one was there to end: every later call
   * on it and on its windows fails in the same way, and it can only be closed.
   *
   * @return false for {@link #UNKNOWN}: ask {@link Comm#check()}
   */
  public boolean sticky() {
    return sticky;
  }

  static Status of(int code) {
    for (Status status : values()) {
      if (status.code == code && status != UNKNOWN) {
        return status;
      }
    }
    return UNKNOWN;
  }
}
