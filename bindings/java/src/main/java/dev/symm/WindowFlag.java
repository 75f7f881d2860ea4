package dev.symm;

/** What a window shall be beyond the usual. */
public enum WindowFlag {
  /** Make it an NCCL window as well. */
  NCCL(capi.SYMM_WINDOW_NCCL);

  final int bit;

  WindowFlag(int bit) {
    this.bit = bit;
  }

  static int bits(WindowFlag... flags) {
    int bits = 0;
    for (WindowFlag flag : flags) {
      bits |= flag.bit;
    }
    return bits;
  }
}
