package dev.symm;

/** What a communicator may or shall do beyond the usual. Equal on every rank. */
public enum CommFlag {
  /** Several ranks may use one GPU. */
  SHARE_GPU(capi.SYMM_COMM_SHARE_GPU),
  /** Create the NCCL communicator even where it is not needed. */
  NCCL(capi.SYMM_COMM_NCCL),
  /** Fail rather than use a path (NCCL) whose order of operands is not 0..N-1. */
  STRICT(capi.SYMM_COMM_STRICT),
  /** No other communicator works on these GPUs meanwhile: larger grids, faster from 4 MiB up. */
  SOLE(capi.SYMM_COMM_SOLE);

  final int bit;

  CommFlag(int bit) {
    this.bit = bit;
  }
}
