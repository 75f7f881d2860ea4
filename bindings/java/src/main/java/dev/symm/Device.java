package dev.symm;

/**
 * Where a communicator works. 0 and up is a CUDA ordinal of this process; these are the other
 * numbers.
 */
public final class Device {
  private Device() {}

  /** Memory and arithmetic of the host. */
  public static final int CPU = capi.SYMM_CPU;

  /** The only visible GPU, or else the one numbered by the launcher's local rank. */
  public static final int LOCAL_GPU = capi.SYMM_LOCAL_GPU;

  /** The CUDA runtime's current device of the calling thread. */
  public static final int CURRENT_GPU = capi.SYMM_CURRENT_GPU;
}
