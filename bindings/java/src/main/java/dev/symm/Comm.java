package dev.symm;

import java.io.FileDescriptor;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;

/**
 * A communicator: one rank's handle on a group of ranks, which are processes, threads of one
 * process, or both.
 *
 * <p><b>Collective</b> calls are made by every rank of the communicator, in the same order. If one
 * fails on one rank it fails on every rank. <b>Stream-ordered</b> calls enqueue on a CUDA stream
 * and return; on a CPU communicator they block until the result is there. A thread that waits in a
 * call does not notice {@link Thread#interrupt()}; {@link #abort()} and the deadlines of {@link
 * CommOptions} end every wait.
 *
 * <p><b>Errors</b> of the library are {@link SymmException}s. Some end the communicator and its
 * windows ({@link Status#sticky()}): create another one then. An {@link IllegalArgumentException}
 * is local, nothing was sent, and the call may be made again; the other ranks are still in it. Only
 * {@link #register(Buffer) register} tells them first, so that it fails on all.
 *
 * <p><b>Threads.</b> Any thread may call anything at any time. Calls on one communicator and its
 * windows run one after the other; their order, the same on every rank, is the caller's business.
 * Different communicators work at once. {@link #abort()}, {@link #check()}, {@link #report()}, the
 * getters and {@link #close()} wait for nobody.
 */
public final class Comm implements AutoCloseable {
  /** Rank and size: take them from the launcher's variables. For the address {@code env://}. */
  public static final int FROM_ADDRESS = capi.SYMM_FROM_ADDRESS;

  /** {@link #split}: join no group. */
  public static final int NO_COLOR = capi.SYMM_NO_COLOR;

  private static final WindowFlag[] NO_FLAGS = {};

  private static final class CommHandle extends Handle {
    CommHandle(long pointer, String owner) {
      super(pointer, owner);
    }

    @Override
    void free() {
      capi.symm_comm_free(pointer);
    }
  }

  private final Handle handle;
  private final Cleaner.Cleanable net;
  private final int rank;
  private final int size;
  private final int device;

  /** Takes the native handle over, or frees it. */
  private Comm(long pointer) {
    try {
      rank = capi.flat_comm_rank(pointer);
      size = capi.flat_comm_size(pointer);
      device = capi.flat_comm_device(pointer);
      handle = new CommHandle(pointer, where("Comm"));
      net = handle.closeWith(this);
    } catch (Throwable e) {
      capi.symm_comm_free(pointer);
      throw e;
    }
  }

  /**
   * Creates a CPU communicator with default options: see {@link #create(String, int, int,
   * CommOptions)}.
   *
   * @param address where the ranks meet
   * @param rank this rank
   * @param size the number of ranks
   * @return the communicator
   */
  public static Comm create(String address, int rank, int size) {
    return create(address, rank, size, CommOptions.DEFAULTS);
  }

  /**
   * Creates a communicator. Collective over {@code size} callers with one address and one name, and
   * blocks until all of them are here. May repeat with the same address; two at once, or one after
   * a rank was restarted, need names of their own.
   *
   * @param address from {@link Symm#createAddress}; or {@code tcp://host:port} (rank 0 serves),
   *     {@code file:///path}, {@code env://}
   * @param rank this rank, 0 and up, or {@link #FROM_ADDRESS}
   * @param size the number of ranks, or {@link #FROM_ADDRESS}
   * @param options null is the defaults
   * @return the communicator
   * @throws SymmException on every rank, with every rank's complaint, if anything is wrong on one
   */
  public static Comm create(String address, int rank, int size, CommOptions options) {
    CommOptions o = options == null ? CommOptions.DEFAULTS : options;
    return new Comm(
        capi.flat_comm_create(
            address,
            rank,
            size,
            o.device,
            o.name,
            o.ncclPath,
            o.scratchBytes,
            o.timeoutMs,
            o.waitTimeoutMs,
            o.flags));
  }

  /**
   * Creates a CPU communicator of the ranks that a launcher has started: torchrun, mpirun, srun, or
   * whoever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
   *
   * @return the communicator
   */
  public static Comm fromEnvironment() {
    return fromEnvironment(CommOptions.DEFAULTS);
  }

  /**
   * Creates a communicator of the ranks that a launcher has started.
   *
   * @param options null is the defaults; with {@link Device#LOCAL_GPU} each rank takes its own GPU
   * @return the communicator
   */
  public static Comm fromEnvironment(CommOptions options) {
    return create("env://", FROM_ADDRESS, FROM_ADDRESS, options);
  }

  /**
   * Splits with the parent's options: see {@link #split(int, int, CommOptions)}.
   *
   * @param color which group to join
   * @param key the order within the group
   * @return the group's communicator, or null for {@link #NO_COLOR}
   */
  public Comm split(int color, int key) {
    return split(color, key, CommOptions.DEFAULTS);
  }

  /**
   * One communicator for each color. Collective. The new one owes nothing to this one: either may
   * be closed, aborted or fail without the other.
   *
   * @param color which group to join, 0 and up, or {@link #NO_COLOR}
   * @param key ranks of a group are numbered by key, then by their rank here
   * @param options what shall differ from this communicator's; null is nothing
   * @return the group's communicator, or null for {@link #NO_COLOR}
   */
  public Comm split(int color, int key, CommOptions options) {
    CommOptions o = options == null ? CommOptions.DEFAULTS : options;
    handle.acquire();
    try {
      long pointer =
          capi.flat_comm_split(
              handle.pointer,
              color,
              key,
              o.name,
              o.ncclPath,
              o.scratchBytes,
              o.timeoutMs,
              o.waitTimeoutMs,
              o.flags);
      return pointer == 0 ? null : new Comm(pointer);
    } catch (SymmException e) {
      throw blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * This rank, also after {@link #close()}.
   *
   * @return 0 and up
   */
  public int rank() {
    return rank;
  }

  /**
   * The number of ranks, also after {@link #close()}.
   *
   * @return 1 and up
   */
  public int size() {
    return size;
  }

  /**
   * Where this communicator works, also after {@link #close()}.
   *
   * @return a CUDA ordinal or {@link Device#CPU}
   */
  public int device() {
    return device;
  }

  /** Waits until every rank is here. Collective. On a GPU: on the legacy default stream. */
  public void barrier() {
    barrier(0);
  }

  /**
   * What follows on {@code stream} runs after everything that was enqueued before it on every rank,
   * and sees their stores to windows. Collective, stream-ordered.
   *
   * @param stream a {@code cudaStream_t} of this communicator's device, 0 for the legacy default
   *     stream; 0 on a CPU
   */
  public void barrier(long stream) {
    handle.acquire();
    try {
      capi.flat_comm_barrier(handle.pointer, stream);
    } catch (SymmException e) {
      throw blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * Throws the error that ended this communicator, if one has. Local, does not block: of an
   * enqueued operation it knows once that has run.
   *
   * @throws SymmException with the rank to blame, if there is one
   */
  public void check() {
    handle.acquire();
    try {
      capi.flat_comm_check(handle.pointer);
    } catch (SymmException e) {
      throw blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * Ends every wait of this communicator on every rank, now and later, with {@link Status#ABORTED}.
   * Its windows end too; its parent, children and siblings do not. Local, from any thread, does not
   * block. After {@link #close()} it still ends the calls that other threads are inside, and the
   * windows that are still open; once nothing is left it does nothing.
   */
  public void abort() {
    if (!handle.acquireIfThere()) {
      return;
    }
    try {
      capi.symm_comm_abort(handle.pointer);
    } finally {
      handle.release();
    }
  }

  /**
   * What there is to know: library, device, driver, how each peer is reached, the error that ended
   * this communicator, the table of algorithms. Local, allowed after a failure.
   *
   * @return JSON; keys are only ever added
   */
  public String report() {
    handle.acquire();
    try {
      return capi.flat_report(handle.pointer);
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
   * @return JSON: algorithm, blocks, threads, reason, and what would be faster but cannot be
   */
  public String plan(long count, DType dtype, Op op) {
    handle.acquire();
    try {
      return capi.flat_plan(handle.pointer, 0, count, dtype.code, op.code);
    } finally {
      handle.release();
    }
  }

  /**
   * The NCCL communicator inside, which stays symm's.
   *
   * @return the address of the {@code ncclComm_t}, valid while this is open
   * @throws SymmException UNSUPPORTED if there is none
   */
  public long nccl() {
    handle.acquire();
    try {
      return capi.flat_comm_nccl(handle.pointer);
    } finally {
      handle.release();
    }
  }

  // ---- Windows ----

  /**
   * A window of zeroed memory that every rank sees. Collective.
   *
   * @param bytes the size of each rank's copy, equal on every rank; 0 is a window with no memory
   * @param flags this rank's own wishes
   * @return the window, aligned to 256 bytes
   */
  public Window window(long bytes, WindowFlag... flags) {
    handle.acquire();
    try {
      Window.collectLeftovers();
      return Window.of(
          this, capi.flat_window_alloc(handle.pointer, bytes, WindowFlag.bits(flags)), null);
    } catch (SymmException e) {
      throw blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * A window over memory that is there already: the buffer's bytes from position to limit.
   * Collective; {@code bytes} must be equal on every rank. The memory is another window's, or a
   * file mapping ({@code FileChannel.map}, in {@code /dev/shm} for example) whose channel is still
   * open. The buffer is kept until this window is closed.
   *
   * @param buffer a direct buffer that is not read-only
   * @return the window
   */
  public Window register(Buffer buffer) {
    return register(buffer, 0, 0, 0);
  }

  /**
   * The same over a file mapping, whose file is named.
   *
   * @param buffer from {@code FileChannel.map} with {@code MapMode.READ_WRITE}, or a part of that
   * @param file the mapped file, as {@code RandomAccessFile.getFD()} gives it; stays the caller's,
   *     who may close it after this call
   * @param fileOffset where in the file the buffer's position is, in bytes
   * @return the window
   */
  public Window register(Buffer buffer, FileDescriptor file, long fileOffset) {
    // A closed or missing file is -1, which every rank gets to hear about.
    int number = file == null ? -1 : capi.descriptor_number(file);
    try {
      return register(buffer, capi.SYMM_WINDOW_FD, number, fileOffset);
    } finally {
      Reference.reachabilityFence(file);
    }
  }

  private Window register(Buffer buffer, int flags, int file, long fileOffset) {
    String refusal =
        buffer == null
            ? "buffer is null"
            : !buffer.isDirect()
                ? "buffer " + Buffers.HEAP
                : buffer.isReadOnly() ? "buffer is read-only" : null;
    if (refusal != null) {
      // The other ranks are in the call by now, and have to hear that this one is not.
      IllegalArgumentException exception = Buffers.refusal(this, "register", refusal);
      try {
        register(0, -1, 0, 0, 0, null).close();
      } catch (SymmException e) {
        exception.addSuppressed(e);
      }
      throw exception;
    }
    long begin = Buffers.begin(buffer);
    long bytes = Buffers.end(buffer) - begin;
    return register(capi.buffer_address(buffer) + begin, bytes, flags, file, fileOffset, buffer);
  }

  /**
   * A window over memory at an address: a GPU's, from any allocator, or shared memory of the host.
   * Collective. The memory must outlive the window on every rank: close the window, {@link
   * #barrier()}, then release the memory.
   *
   * @param address of this rank's memory
   * @param bytes its size, equal on every rank
   * @param flags this rank's own wishes
   * @return the window
   */
  public Window register(long address, long bytes, WindowFlag... flags) {
    return register(address, bytes, WindowFlag.bits(flags), 0, 0, null);
  }

  private Window register(
      long address, long bytes, int flags, int file, long fileOffset, Buffer kept) {
    handle.acquire();
    try {
      return Window.of(
          this,
          capi.flat_window_register(handle.pointer, address, bytes, flags, file, fileOffset),
          kept);
    } catch (SymmException e) {
      throw blamed(e);
    } finally {
      Reference.reachabilityFence(kept);
      handle.release();
    }
  }

  // ---- All-reduce ----

  /**
   * {@code output[i]} becomes the reduction of every rank's {@code input[i]}. Collective, blocks.
   * Reads the input from position to limit and writes as much from the output's position on; no
   * position or limit moves. Both may be the same buffer; otherwise they must not overlap.
   *
   * @param input a direct buffer in native byte order
   * @param output a direct buffer in native byte order with at least as many elements remaining
   * @param op the operation
   */
  public void allReduce(FloatBuffer input, FloatBuffer output, Op op) {
    allReduce(input, output, DType.FLOAT32, op);
  }

  /**
   * The same for doubles.
   *
   * @param input a direct buffer in native byte order
   * @param output a direct buffer in native byte order with at least as many elements remaining
   * @param op the operation
   */
  public void allReduce(DoubleBuffer input, DoubleBuffer output, Op op) {
    allReduce(input, output, DType.FLOAT64, op);
  }

  /**
   * The same for ints.
   *
   * @param input a direct buffer in native byte order
   * @param output a direct buffer in native byte order with at least as many elements remaining
   * @param op the operation
   */
  public void allReduce(IntBuffer input, IntBuffer output, Op op) {
    allReduce(input, output, DType.INT32, op);
  }

  /**
   * The same for longs.
   *
   * @param input a direct buffer in native byte order
   * @param output a direct buffer in native byte order with at least as many elements remaining
   * @param op the operation
   */
  public void allReduce(LongBuffer input, LongBuffer output, Op op) {
    allReduce(input, output, DType.INT64, op);
  }

  /**
   * The same for every type.
   *
   * @param input a direct buffer in native byte order: a ByteBuffer, or one whose elements are of
   *     the type (a ShortBuffer for the floats of 16 bits)
   * @param output the like, with at least as many bytes remaining
   * @param dtype the type of the elements; the input has a whole number of them
   * @param op the operation
   */
  public void allReduce(Buffer input, Buffer output, DType dtype, Op op) {
    Buffers.checkInput(this, "allReduce", input, dtype);
    Buffers.checkOutput(this, "allReduce", output, dtype);
    long from = Buffers.begin(input);
    long bytes = Buffers.end(input) - from;
    long count = Buffers.count(this, "allReduce", "input", bytes, dtype);
    long to = Buffers.begin(output);
    long room = Buffers.end(output) - to;
    if (room < bytes) {
      throw Buffers.refusal(
          this, "allReduce", "output has " + room + " bytes left, and input " + bytes);
    }
    handle.acquire();
    try {
      capi.buffer_all_reduce(handle.pointer, input, from, output, to, count, dtype.code, op.code);
    } catch (SymmException e) {
      throw blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * The same for memory at addresses, which must outlive what is enqueued. Collective,
   * stream-ordered.
   *
   * @param input address of the elements, in memory of this communicator's device
   * @param output address of the result: the input itself, or no overlap
   * @param count elements
   * @param dtype their type
   * @param op the operation
   * @param stream a {@code cudaStream_t}, 0 for the legacy default stream; 0 on a CPU
   */
  public void allReduce(long input, long output, long count, DType dtype, Op op, long stream) {
    handle.acquire();
    try {
      capi.flat_all_reduce(handle.pointer, input, output, count, dtype.code, op.code, stream);
    } catch (SymmException e) {
      throw blamed(e);
    } finally {
      handle.release();
    }
  }

  /**
   * Gives the handle back; a second time does nothing. Local, waits for nobody. The rank stays a
   * member until its windows are closed as well, and the buffers of those collected; it then leaves
   * cleanly, which is an error only for ranks that still need it. A call that another thread is
   * inside goes on to its end: {@link #abort()} first if it shall not.
   */
  @Override
  public void close() {
    net.clean();
  }

  @Override
  public String toString() {
    return where("Comm") + (handle.closed() ? " (closed)" : "");
  }

  /** "call (rank 0 of 2)", as the library's own messages begin. */
  String where(String call) {
    return call + " (rank " + rank + " of " + size + ")";
  }

  Handle handle() {
    return handle;
  }

  /** For somebody who holds the handle. */
  SymmException blamed(SymmException e) {
    return e.blame(capi.flat_comm_failed_rank(handle.pointer));
  }
}
