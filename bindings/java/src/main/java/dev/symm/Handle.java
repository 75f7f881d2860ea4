package dev.symm;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A handle of the native library, and who still needs it: its owner until that is closed, every
 * call that is inside it, and whatever else holds on to it. The last to let go frees it, so that
 * neither a close in the middle of another thread's call nor any order of collection frees it under
 * anybody.
 *
 * <p>It is also what {@link Cleaner} runs once an owner that was not closed is unreachable, and so
 * refers to no owner.
 */
abstract class Handle implements Runnable {
  private static final Cleaner CLEANER = Cleaner.create();
  private static final int CLOSED = 1 << 31;

  final long pointer;
  private final String owner; // for messages: "Comm (rank 0 of 2)"
  private final AtomicInteger state = new AtomicInteger(1); // how many need it; and CLOSED

  Handle(long pointer, String owner) {
    this.pointer = pointer;
    this.owner = owner;
  }

  /** Frees the native handle. */
  abstract void free();

  /** Called once, before {@link #free()}, when the owner lets go. */
  void closing() {}

  /** Closes this when {@code object} has become unreachable, if nobody has before. */
  final Cleaner.Cleanable closeWith(Object object) {
    return CLEANER.register(object, this);
  }

  /** Keeps this until {@code object} is unreachable. */
  final void keepFor(Object object) {
    acquire();
    CLEANER.register(object, this::release);
  }

  /** Keeps this until {@link #release()}. Throws if it is closed. */
  final void acquire() {
    int seen;
    do {
      seen = state.get();
      if (seen < 0) {
        throw new IllegalStateException(owner + " is closed");
      }
    } while (!state.compareAndSet(seen, seen + 1));
  }

  /** The same if it is closed but still in use. False if it is gone. */
  final boolean acquireIfThere() {
    int seen;
    do {
      seen = state.get();
      if (seen == CLOSED) {
        return false;
      }
    } while (!state.compareAndSet(seen, seen + 1));
    return true;
  }

  final void release() {
    if (state.decrementAndGet() == CLOSED) {
      free();
    }
  }

  /** From now on {@link #acquire()} throws. False if that was so already. */
  final boolean close() {
    int seen;
    do {
      seen = state.get();
      if (seen < 0) {
        return false;
      }
    } while (!state.compareAndSet(seen, seen | CLOSED));
    closing();
    release();
    return true;
  }

  final boolean closed() {
    return state.get() < 0;
  }

  @Override
  public final void run() {
    close();
  }
}
