package dev.symm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.FloatBuffer;
import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Wrong arguments of calls that are local in what they refuse. */
class ArgumentsTest {
  private Comm comm;
  private Window window;

  @BeforeEach
  void open() {
    comm = Comm.create(Symm.createAddress("127.0.0.1"), 0, 1);
    window = comm.window(64);
  }

  @AfterEach
  void close() {
    // Whatever was refused, nothing has broken.
    FloatBuffer one = direct(4).asFloatBuffer().put(0, 5);
    comm.allReduce(one, one, Op.SUM);
    assertEquals(5, one.get(0));
    window.close();
    comm.close();
  }

  private static ByteBuffer direct(int bytes) {
    return AllReduceTest.direct(bytes);
  }

  private static void assertRefused(String message, Executable call) {
    String said = assertThrows(IllegalArgumentException.class, call).getMessage();
    assertTrue(said.contains(message), said);
    assertTrue(said.startsWith("allReduce (rank 0 of 1): "), said);
  }

  private static void assertInvalid(String message, Executable call) {
    SymmException e = assertThrows(SymmException.class, call);
    assertEquals(Status.INVALID_ARGUMENT, e.status(), e.getMessage());
    assertTrue(e.getMessage().contains(message), e.getMessage());
    assertEquals(-1, e.rank());
  }

  @Test
  void heapBuffersAreRefused() {
    FloatBuffer fine = direct(8).asFloatBuffer();
    FloatBuffer heap = FloatBuffer.wrap(new float[2]);
    assertRefused("input is a heap buffer", () -> comm.allReduce(heap, fine, Op.SUM));
    assertRefused("output is a heap buffer", () -> comm.allReduce(fine, heap, Op.SUM));
    assertRefused(
        "allocateDirect",
        () -> comm.allReduce(ByteBuffer.allocate(8), fine, DType.FLOAT32, Op.SUM));
    assertRefused("output is a heap buffer", () -> window.allReduce(0, heap, Op.SUM));
    assertRefused(
        "output is a heap buffer", () -> window.allReduce(0, heap.asReadOnlyBuffer(), Op.SUM));
  }

  @Test
  void aReadOnlyOutputIsRefused() {
    FloatBuffer fine = direct(8).asFloatBuffer();
    assertRefused("read-only", () -> comm.allReduce(fine, fine.asReadOnlyBuffer(), Op.SUM));
    assertRefused("read-only", () -> window.allReduce(0, fine.asReadOnlyBuffer(), Op.SUM));
  }

  @Test
  void foreignByteOrderIsRefusedWhereItMatters() {
    ByteBuffer fine = direct(8);
    ByteBuffer foreign =
        ByteBuffer.allocateDirect(8)
            .order(
                ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN
                    ? ByteOrder.LITTLE_ENDIAN
                    : ByteOrder.BIG_ENDIAN);
    String order = foreign.order().toString();
    assertRefused("input is " + order, () -> comm.allReduce(foreign, fine, DType.FLOAT16, Op.SUM));
    assertRefused("output is " + order, () -> comm.allReduce(fine, foreign, DType.FLOAT16, Op.SUM));
    assertRefused(
        order, () -> comm.allReduce(foreign.asFloatBuffer(), fine.asFloatBuffer(), Op.SUM));
    assertRefused(
        order, () -> comm.allReduce(foreign.asDoubleBuffer(), fine.asDoubleBuffer(), Op.SUM));
    assertRefused(order, () -> comm.allReduce(foreign.asIntBuffer(), fine.asIntBuffer(), Op.SUM));
    assertRefused(order, () -> comm.allReduce(foreign.asLongBuffer(), fine.asLongBuffer(), Op.SUM));
    assertRefused(
        order,
        () ->
            comm.allReduce(foreign.asShortBuffer(), fine.asShortBuffer(), DType.BFLOAT16, Op.SUM));
    assertRefused(order, () -> window.allReduce(0, foreign.asFloatBuffer(), Op.SUM));
    foreign.put(3, (byte) 7);
    comm.allReduce(foreign, fine, DType.UINT8, Op.SUM);
    assertEquals(7, fine.get(3));
  }

  @Test
  void anOutputThatIsTooSmallIsRefusedAndALargerOneIsNot() {
    ByteBuffer input = direct(16);
    ByteBuffer output = direct(16).position(8);
    assertRefused(
        "output has 8 bytes left, and input 16",
        () -> comm.allReduce(input.asFloatBuffer(), output.asFloatBuffer().slice(), Op.SUM));
    assertRefused(
        "output has 12 bytes left, and input 16",
        () -> comm.allReduce(input.asFloatBuffer(), direct(12).asFloatBuffer(), Op.SUM));
    comm.allReduce(input.asFloatBuffer(), direct(20).asFloatBuffer(), Op.SUM);
  }

  @Test
  void partsOfElementsAreRefused() {
    assertRefused(
        "input has 7 bytes left, which is no whole number of FLOAT16 (2 bytes)",
        () -> comm.allReduce(direct(7), direct(8), DType.FLOAT16, Op.SUM));
    assertRefused(
        "output has 12 bytes", () -> window.allReduce(0, direct(12), DType.FLOAT64, Op.SUM));
  }

  @Test
  void buffersOfAnotherTypeAreRefused() {
    ByteBuffer bytes = direct(8);
    assertRefused(
        "input is a IntBuffer",
        () -> comm.allReduce(bytes.asIntBuffer(), bytes, DType.FLOAT32, Op.SUM));
    assertRefused(
        "output is a FloatBuffer",
        () -> comm.allReduce(bytes, bytes.asFloatBuffer(), DType.FLOAT64, Op.SUM));
    assertRefused(
        "DoubleBuffer", () -> comm.allReduce(bytes.asDoubleBuffer(), bytes, DType.INT64, Op.SUM));
    assertRefused(
        "LongBuffer", () -> comm.allReduce(bytes.asLongBuffer(), bytes, DType.FLOAT64, Op.SUM));
    assertRefused(
        "ShortBuffer", () -> comm.allReduce(bytes.asShortBuffer(), bytes, DType.INT8, Op.SUM));
    CharBuffer chars = bytes.asCharBuffer();
    assertRefused("CharBuffer", () -> comm.allReduce(chars, bytes, DType.FLOAT16, Op.SUM));
  }

  @Test
  void unalignedElementsAreRefused() {
    ByteBuffer bytes = direct(16);
    assertInvalid(
        "aligned",
        () ->
            comm.allReduce(
                bytes.slice(1, 4).order(ByteOrder.nativeOrder()),
                direct(4),
                DType.FLOAT32,
                Op.SUM));
    assertInvalid(
        "aligned",
        () -> comm.allReduce(bytes.position(2).limit(6), direct(4), DType.FLOAT32, Op.SUM));
    assertInvalid("offset", () -> window.allReduce(2, direct(4).asFloatBuffer(), Op.SUM));
  }

  @Test
  void overlapIsRefused() {
    ByteBuffer bytes = direct(24);
    ByteBuffer first = bytes.slice(0, 16).order(ByteOrder.nativeOrder());
    ByteBuffer second = bytes.slice(8, 16).order(ByteOrder.nativeOrder());
    assertInvalid(
        "overlap", () -> comm.allReduce(first.asFloatBuffer(), second.asFloatBuffer(), Op.SUM));
    assertInvalid(
        "overlap", () -> window.allReduce(0, window.buffer(0, 8, 16).asFloatBuffer(), Op.SUM));
  }

  @Test
  void partsOutsideAWindowAreRefused() {
    assertInvalid("64", () -> window.allReduce(64, direct(4).asFloatBuffer(), Op.SUM));
    assertInvalid("64", () -> window.allReduce(-4, direct(4).asFloatBuffer(), Op.SUM));
    assertInvalid("64", () -> window.allReduce(32, direct(36).asFloatBuffer(), Op.SUM));
    for (long[] part :
        new long[][] {{-1, 4}, {0, 65}, {65, 0}, {61, 4}, {4, -1}, {Long.MAX_VALUE, 4}}) {
      String said =
          assertThrows(
                  IndexOutOfBoundsException.class, () -> window.buffer(0, part[0], (int) part[1]))
              .getMessage();
      assertTrue(said.contains("offset " + part[0]) && said.contains("64 bytes"), said);
    }
    assertEquals(0, window.buffer(0, 64, 0).capacity());
  }

  @Test
  void ranksThatAreNoneAreRefused() {
    for (int rank : new int[] {-1, 1, Integer.MAX_VALUE}) {
      assertInvalid("rank " + rank, () -> window.buffer(rank));
      assertInvalid("rank " + rank, () -> window.buffer(rank, 0, 8));
      assertInvalid("rank " + rank, () -> window.address(rank));
    }
  }

  @Test
  void addressesAreChecked() {
    long address = window.address(0);
    assertInvalid("input is NULL", () -> comm.allReduce(0, address, 1, DType.FLOAT32, Op.SUM, 0));
    assertInvalid("output is NULL", () -> window.allReduce(0, 0L, 1, DType.FLOAT32, Op.SUM, 0));
    assertInvalid("stream", () -> comm.allReduce(address, address, 1, DType.FLOAT32, Op.SUM, 1));
    assertInvalid("stream", () -> window.allReduce(0, address, 1, DType.FLOAT32, Op.SUM, 1));
    assertInvalid("stream", () -> comm.barrier(1));
    assertInvalid("count", () -> comm.allReduce(address, address, -1, DType.FLOAT32, Op.SUM, 0));
  }

  @Test
  void nothingIsWrittenByACallThatIsRefused() {
    FloatBuffer output = direct(8).asFloatBuffer().put(0, 3);
    assertThrows(
        IllegalArgumentException.class,
        () -> comm.allReduce(direct(12).asFloatBuffer(), output, Op.SUM));
    assertEquals(3, output.get(0));
  }

  @Test
  void nullsAreRefused() {
    FloatBuffer fine = direct(4).asFloatBuffer();
    assertThrows(
        NullPointerException.class, () -> comm.allReduce((FloatBuffer) null, fine, Op.SUM));
    assertThrows(NullPointerException.class, () -> comm.allReduce(fine, null, Op.SUM));
    assertThrows(NullPointerException.class, () -> comm.allReduce(fine, fine, null));
    assertThrows(NullPointerException.class, () -> comm.allReduce(fine, fine, null, Op.SUM));
    assertThrows(NullPointerException.class, () -> window.allReduce(0, (FloatBuffer) null, Op.SUM));
    assertThrows(NullPointerException.class, () -> window.allReduce(0, fine, null));
    assertThrows(NullPointerException.class, () -> comm.plan(1, null, Op.SUM));
    assertInvalid("address is NULL", () -> Comm.create(null, 0, 1));
  }

  @Test
  void aMessageSaysCallAddressAndRemedy() {
    assertInvalid("address \"nowhere\": its form is unknown", () -> Comm.create("nowhere", 0, 1));
    assertInvalid("rank", () -> Comm.create(Symm.createAddress("127.0.0.1"), 3, 2, soon().build()));
    assertInvalid("color", () -> comm.split(-7, 0));
  }

  private static CommOptions.Builder soon() {
    return CommOptions.builder().timeout(Duration.ofMillis(500));
  }

  @Test
  void optionsAreCheckedByTheLibrary() {
    String address = Symm.createAddress("127.0.0.1");
    assertInvalid(
        "timeout_ms",
        () ->
            Comm.create(
                address, 0, 1, CommOptions.builder().timeout(Duration.ofNanos(-1)).build()));
    assertInvalid(
        "wait_timeout_ms",
        () ->
            Comm.create(
                address, 0, 1, CommOptions.builder().waitTimeout(Duration.ofDays(-1)).build()));
    assertInvalid(
        "name has 1025",
        () -> Comm.create(address, 0, 1, CommOptions.builder().name("x".repeat(1025)).build()));
    SymmException e =
        assertThrows(
            SymmException.class,
            () -> Comm.create(address, 0, 1, CommOptions.builder().device(70000).build()));
    assertEquals(Status.UNSUPPORTED, e.status());
    assertEquals(capi.SYMM_UNSUPPORTED, e.code());
    e =
        assertThrows(
            SymmException.class,
            () -> Comm.create(address, 0, 1, CommOptions.builder().flags(CommFlag.NCCL).build()));
    assertEquals(Status.UNSUPPORTED, e.status());
    assertThrows(IllegalArgumentException.class, () -> CommOptions.builder().scratchBytes(-1));
  }

  @Test
  void durationsBecomeMillisecondsThatNeverMeanTheDefault() {
    assertEquals(1, CommOptions.builder().timeout(Duration.ofNanos(1)).build().timeoutMs);
    assertEquals(2, CommOptions.builder().timeout(Duration.ofNanos(1_000_001)).build().timeoutMs);
    assertEquals(0, CommOptions.builder().timeout(Duration.ZERO).build().timeoutMs);
    assertEquals(
        1500, CommOptions.builder().waitTimeout(Duration.ofMillis(1500)).build().waitTimeoutMs);
    assertEquals(
        Integer.MAX_VALUE,
        CommOptions.builder()
            .waitTimeout(Duration.ofSeconds(Long.MAX_VALUE))
            .build()
            .waitTimeoutMs);
    assertEquals(
        -1, CommOptions.builder().timeout(Duration.ofSeconds(Long.MIN_VALUE)).build().timeoutMs);
  }

  @Test
  void everyOptionReachesTheLibrary() {
    CommOptions options =
        CommOptions.builder()
            .name("all of them")
            .timeout(Duration.ofSeconds(41))
            .waitTimeout(Duration.ofSeconds(42))
            .scratchBytes(43 << 20)
            .flags(CommFlag.STRICT, CommFlag.SOLE)
            .build();
    try (Comm other = Comm.create(Symm.createAddress("127.0.0.1"), 0, 1, options)) {
      String report = other.report();
      for (String value : new String[] {"\"all of them\"", ":41000", ":42000", ":" + (43 << 20)}) {
        assertTrue(report.contains(value), value + " is not in " + report);
      }
      try (Comm child = other.split(0, 0)) {
        assertTrue(child.report().contains(":41000"), child.report());
      }
    }
  }

  @Test
  void textIsUtf8AndEndsWhereItEnds() {
    // A plane that Java's own encoding for native code writes in another way than everybody else.
    String name = "größer \ud83d\ude00";
    try (Comm other =
        Comm.create(
            Symm.createAddress("127.0.0.1"), 0, 1, CommOptions.builder().name(name).build())) {
      assertTrue(other.report().contains(name), other.report());
    }
    assertThrows(IllegalArgumentException.class, () -> CommOptions.builder().name("a\0b"));
    assertThrows(IllegalArgumentException.class, () -> Comm.create("tcp://\0", 0, 1));
    assertThrows(IllegalArgumentException.class, () -> CommOptions.builder().ncclPath("\0"));
  }

  @Test
  void statusesThatTheseClassesDoNotKnowKeepTheirNumber() {
    SymmException e =
        new SymmException(-77, "new\0".getBytes(java.nio.charset.StandardCharsets.UTF_8));
    assertSame(Status.UNKNOWN, e.status());
    assertEquals(-77, e.code());
    for (Status status : Status.values()) {
      if (status != Status.UNKNOWN) {
        int code = codeOf(status);
        assertEquals("SYMM_" + status, capi.symm_status_name(code));
        assertSame(status, new SymmException(code, new byte[0]).status());
      }
    }
    assertEquals("SYMM_UNKNOWN", capi.symm_status_name(codeOf(Status.INTERNAL) - 1));
  }

  private static int codeOf(Status status) {
    int code = -1;
    while (Status.of(code) != status) {
      --code;
    }
    return code;
  }

  @Test
  void plansAndReportsAreJson() {
    assertTrue(Symm.report().startsWith("{\"schema\":"), Symm.report());
    assertTrue(comm.report().contains("\"version\":\"" + Symm.version() + "\""), comm.report());
    assertTrue(comm.plan(1000, DType.FLOAT32, Op.SUM).startsWith("{\"algorithm\":"));
    assertTrue(window.plan(16, DType.FLOAT32, Op.SUM).startsWith("{\"algorithm\":"));
    assertInvalid("the window has 64", () -> window.plan(17, DType.FLOAT32, Op.SUM));
    SymmException e = assertThrows(SymmException.class, comm::nccl);
    assertEquals(Status.UNSUPPORTED, e.status());
  }

  @Test
  void theVersionIsTheProjects() {
    assertEquals(System.getProperty("symm.test.version"), Symm.version());
  }
}
