package dev.symm;

import java.lang.ref.Cleaner;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A window: one rank's handle on memory that every rank of a communicator sees, a copy for each.
 * From {@link Comm#window} and {@link Comm#register}.
 *
 * <p><b>Lifetime.</b> {@link #close()} ends the window for calls. Its memory stays mapped for as
 * long as any buffer that {@link #buffer} gave, or a view of one, is reachable: such a buffer never
 * points to memory that is gone. It goes when the last of them is collected; until then this rank
 * is a member of the communicator. Where closed windows hold much memory by such buffers, {@link
 * Comm#window} asks the garbage collector to look. {@link #address} gives no such guarantee: an
 * address is good until the window is closed.
 *
 * <p>What other ranks store becomes visible here, and what is stored here there, by the
 * communicator's {@link Comm#barrier()} and all-reduces. Threads: see {@link Comm}.
 */
public final class Window implements AutoCloseable {
  /**
   * The garbage collector does not feel the memory behind a buffer. Where closed windows hold more
   * than this, by buffers that may be garbage, a new window asks it to look.
   */
  private static final long MOST_LEFT_OVER = 256L << 20;

  /** Bytes of windows that are closed and not yet freed. */
  private static final AtomicLong leftOver = new AtomicLong();

  private static final class WindowHandle extends Handle {
    private final Handle comm;
    private final long bytes;
    private Buffer kept; // what a registered window lies in

    WindowHandle(long pointer, String owner, Handle comm, long bytes, Buffer kept) {
      super(pointer, owner);
      this.comm = comm;
      this.bytes = bytes;
      this.kept = kept;
      comm.acquireIfThere(); // it is: the caller is inside it, though it may be closed by now
    }

    @Override
    void closing() {
      leftOver.addAndGet(bytes);
    }

    @Override
    void free() {
      capi.symm_window_free(pointer);
      kept = null;
      comm.release();
      leftOver.addAndGet(-bytes);
    }
  }

  private final Comm comm;
  private final Handle handle;
  private final Cleaner.Cleanable net;
  private final long bytes;
  private final ByteBuffer[] whole; // by rank, made when asked for; its own lock

  private Window(Comm comm, Handle handle, long bytes) {
    this.comm = comm;
    this.handle = handle;
    this.bytes = bytes;
    whole = new ByteBuffer[comm.size()];
    net = handle.closeWith(this);
  }

  static Window of(Comm comm, long pointer, Buffer kept) {
    long bytes = capi.flat_window_size(pointer);
    Handle handle = new WindowHandle(pointer, comm.where("Window"), comm.handle(), bytes, kept);
    try {
      return new Window(comm, handle, bytes);
    } catch (Throwable e) {
      handle.close();
      throw e;
    }
  }

  static void collectLeftovers() {
    if (leftOver.get() > MOST_LEFT_OVER) {
      System.gc();
    }
  }

  /**
   * The communicator whose ranks have a copy each.
   *
   * @return the one that made this window
   */
  public Comm comm() {
    return comm;
  }

  /**
   * The size of each rank's copy, also after {@link #close()}.
   *
   * @return bytes
   */
  public long bytes() {
    return bytes;
  }

  /**
   * A rank's copy, all of it. Of a CPU window of less than 2 GiB.
   *
   * @param rank whose copy; {@code comm().rank()} is this rank's own
   * @return a direct buffer in native byte order, independent of others in position and limit
   * @throws UnsupportedOperationException if the window is larger, or on a GPU
   */
  public ByteBuffer buffer(int rank) {
    if (bytes > Integer.MAX_VALUE) {
      throw new UnsupportedOperationException(
          comm.where("buffer")
              + ": the window has "
              + bytes
              + " bytes, more than a ByteBuffer can have: use"
              + " buffer(rank, offset, length)");
    }
    handle.acquire();
    try {
      long address = hostAddress(rank);
      synchronized (whole) {
        // One buffer to watch a rank, however often it is asked for.
        ByteBuffer buffer = whole[rank];
        if (buffer == null) {
          buffer = view(address, (int) bytes);
          if (!handle.closed()) { // close() comes by later, and empties this
            whole[rank] = buffer;
          }
        }
        return buffer.duplicate().order(ByteOrder.nativeOrder());
      }
    } finally {
      handle.release();
    }
  }

  /**
   * A part of a rank's copy. Of a CPU window.
   *
   * @param rank whose copy
   * @param offset where the part begins, in bytes; a multiple of the element size, to be reduced
   * @param length its size in bytes
   * @return a direct buffer in native byte order
   * @throws IndexOutOfBoundsException if the copy has no such part
   * @throws UnsupportedOperationException if the window is on a GPU
   */
  public ByteBuffer buffer(int rank, long offset, int length) {
    if (offset < 0 || length < 0 || offset > bytes - length) {
      throw new IndexOutOfBoundsException(
          comm.where("buffer")
              + ": offset "
              + offset
              + " and length "
              + length
              + " are not within the window's "
              + bytes
              + " bytes");
    }
    handle.acquire();
    try {
      return view(hostAddress(rank) + offset, length);
    } finally {
      handle.release();
    }
  }

  private long hostAddress(int rank) {
    if (comm.device() != Device.CPU) {
      throw new UnsupportedOperationException(
          comm.where("buffer")
              + ": the memory is a GPU's, which Java cannot touch: use address(rank)");
    }
    return data(rank);
  }

  private ByteBuffer view(long address, int length) {
    if (length == 0) {
      return ByteBuffer.allocateDirect(0).order(ByteOrder.nativeOrder());
    }
    ByteBuffer buffer = capi.buffer_over(address, length);
    // Slices, duplicates and views of other types refer to the buffer that they were made from.
    handle.keepFor(buffer);
    return buffer.order(ByteOrder.nativeOrder());
  }

  private long data(int rank) {
    try {
      return capi.flat_window_data(handle.pointer, rank);
    } catch (SymmException e) {
      throw comm.blamed(e);
    }
  }

  /**
   * Where this process sees a rank's copy: on a GPU, an address for kernels and for {@link
   * #allReduce(long, long, long, DType, Op, long)}. Good until {@link #close()}.
   *
   * @param rank whose copy
   * @return the address; 0 for a window of 0 bytes
   */
  public long address(int rank) {
    handle.acquire();
    try {
      return data(rank);
    } finally {
      handle.release();
    }
  }

  /**
   * Which path {@link #allReduce} would take. Local.
   *
   * @param count elements
   * @param dtype their type
   * @param op the operation
   * @return JSON, as of {@link Comm#plan}
   */
  public String plan(long count, DType dtype, Op op) {
    handle.acquire();
    try {
      return capi.flat_plan(comm.handle().pointer, handle.pointer, count, dtype.code, op.code);
    } finally {
      handle.release();
    }
  }

  /**
   * {@code output} becomes the reduction of every rank's window from {@code offset} on, as many
   * elements as remain in it. Collective, blocks. No position or limit moves. The output is that
   * very part of this rank's copy, or does not overlap it.
   *
   * @param offset bytes, equal on every rank
   * @param output a direct buffer in native byte order
   * @param op the operation
   */
  public void allReduce(long offset, FloatBuffer output, Op op) {
    allReduce(offset, output, DType.FLOAT32, op);
  }

  /**
   * The same for doubles.
   *
   * @param offset bytes, equal on every rank
   * @param output a direct buffer in native byte order
   * @param op the operation
   */
  public void allReduce(long offset, DoubleBuffer output, Op op) {
    allReduce(offset, output, DType.FLOAT64, op);
  }

  /**
   * The same for ints.
   *
   * @param offset bytes, equal on every rank
   * @param output a direct buffer in native byte order
   * @param op the operation
   */
  public void allReduce(long offset, IntBuffer output, Op op) {
    allReduce(offset, output, DType.INT32, op);
  }

  /**
   * The same for longs.
   *
   * @param offset bytes, equal on every rank
   * @param output a direct buffer in native byte order
   * @param op the operation
   */
  public void allReduce(long offset, LongBuffer output, Op op) {
    allReduce(offset, output, DType.INT64, op);
  }

  /**
   * The same for every type.
   *
   * @param offset bytes, equal on every rank
   * @param output a direct buffer in native byte order: a ByteBuffer, or one whose elements are of
   *     the type
   * @param dtype the type of the elements; the output has a whole number of them
   * @param op the operation
   */
  public void allReduce(long offset, Buffer output, DType dtype, Op op) {
    Buffers.checkOutput(comm, "allReduce", output, dtype);
    long to = Buffers.begin(output);
    long count = Buffers.count(comm, "allReduce", "output", Buffers.end(output) - to, dtype);
    handle.acquire();
    try {
      capi.buffer_window_all_reduce(handle.pointer, offset, output, to, count, dtype.code, op.code);
    } catch (SymmException e) {
      throw comm.blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * The same with an output at an address, which must outlive what is enqueued. Collective,
   * stream-ordered. The window may be written again once this has run on this rank's stream.
   *
   * @param offset bytes, equal on every rank
   * @param output in memory of the communicator's device
   * @param count elements
   * @param dtype their type
   * @param op the operation
   * @param stream a {@code cudaStream_t}, 0 for the legacy default stream; 0 on a CPU
   */
  public void allReduce(long offset, long output, long count, DType dtype, Op op, long stream) {
    handle.acquire();
    try {
      capi.flat_window_all_reduce(
          handle.pointer, offset, output, count, dtype.code, op.code, stream);
    } catch (SymmException e) {
      throw comm.blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * Gives the handle back; a second time does nothing. Local, waits for nobody; calls that other
   * threads are inside go on to their end. What happens to the memory is said above. Before or
   * after the communicator's own close.
   */
  @Override
  public void close() {
    net.clean();
    synchronized (whole) {
      Arrays.fill(whole, null);
    }
  }

  @Override
  public String toString() {
    return comm.where("Window") + " of " + bytes + " bytes" + (handle.closed() ? " (closed)" : "");
  }
}
