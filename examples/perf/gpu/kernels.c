#include "kernels.h"

#include <string.h>

#include "../engine.h"

/* One module a kernel. griddepcontrol needs an H100 or newer; all else runs on every GPU that symm
 * does. Element sizes are given at run time and bytes are copied one by one: what these kernels
 * touch needs no alignment and is not timed. */
#define HEAD(target) ".version 7.8\n.target " target "\n.address_size 64\n"

/* %rd0 = this thread's index in the grid, %rd1 = threads of the grid. */
#define GRID_INDEX                         \
  "  mov.u32 %r0, %ctaid.x;\n"             \
  "  mov.u32 %r1, %ntid.x;\n"              \
  "  mov.u32 %r2, %tid.x;\n"               \
  "  mov.u32 %r3, %nctaid.x;\n"            \
  "  cvt.u64.u32 %rd2, %r2;\n"             \
  "  mad.wide.u32 %rd0, %r0, %r1, %rd2;\n" \
  "  mul.wide.u32 %rd1, %r3, %r1;\n"

/* Parameters of expand and compare: data, tile, count, period, shift, element bytes, and a mask or
 * a counter. The loop over elements: %rd11 = the element's address, %rd10 = its tile's. */
#define ELEMENT_PARAMETERS                                                         \
  "  .param .u64 data, .param .u64 tile, .param .u64 count, .param .u64 period,\n" \
  "  .param .u64 shift, .param .u32 size, "
#define ELEMENT_LOOP_BEGIN                  \
  "  .reg .pred %p<4>;\n"                   \
  "  .reg .b32 %r<12>;\n"                   \
  "  .reg .b64 %rd<16>;\n"                  \
  "  ld.param.u64 %rd3, [data];\n"          \
  "  ld.param.u64 %rd4, [tile];\n"          \
  "  ld.param.u64 %rd5, [count];\n"         \
  "  ld.param.u64 %rd6, [period];\n"        \
  "  ld.param.u64 %rd7, [shift];\n"         \
  "  ld.param.u32 %r4, [size];\n"           \
  "  cvt.u64.u32 %rd8, %r4;\n" GRID_INDEX   \
  "ELEMENT:\n"                              \
  "  setp.ge.u64 %p0, %rd0, %rd5;\n"        \
  "  @%p0 bra END;\n"                       \
  "  add.u64 %rd9, %rd0, %rd7;\n"           \
  "  rem.u64 %rd9, %rd9, %rd6;\n"           \
  "  mad.lo.u64 %rd10, %rd9, %rd8, %rd4;\n" \
  "  mad.lo.u64 %rd11, %rd0, %rd8, %rd3;\n" \
  "  mov.u32 %r6, 0;\n"
#define ELEMENT_LOOP_END          \
  "  add.u64 %rd0, %rd0, %rd1;\n" \
  "  bra ELEMENT;\n"              \
  "END:\n"

static const char expand_ptx[] = HEAD("sm_70") ".visible .entry expand(\n" ELEMENT_PARAMETERS
                                               ".param .u32 mask) {\n" ELEMENT_LOOP_BEGIN
                                               "  ld.param.u32 %r5, [mask];\n"
                                               "BYTE:\n"
                                               "  ld.global.u8 %r7, [%rd10];\n"
                                               "  xor.b32 %r7, %r7, %r5;\n"
                                               "  st.global.u8 [%rd11], %r7;\n"
                                               "  add.u64 %rd10, %rd10, 1;\n"
                                               "  add.u64 %rd11, %rd11, 1;\n"
                                               "  add.u32 %r6, %r6, 1;\n"
                                               "  setp.lt.u32 %p1, %r6, %r4;\n"
                                               "  @%p1 bra BYTE;\n" ELEMENT_LOOP_END
                                               "  ret;\n"
                                               "}\n";

/* %r8 gathers the bits in which an element differs; a thread adds its count once. */
static const char compare_ptx[] =
    HEAD("sm_70") ".visible .entry compare(\n" ELEMENT_PARAMETERS
                  ".param .u64 wrong) {\n"
                  "  .reg .b64 %wrong<3>;\n"
                  "  mov.u64 %wrong0, 0;\n" ELEMENT_LOOP_BEGIN
                  "  mov.u32 %r8, 0;\n"
                  "BYTE:\n"
                  "  ld.global.u8 %r7, [%rd10];\n"
                  "  ld.global.u8 %r9, [%rd11];\n"
                  "  xor.b32 %r7, %r7, %r9;\n"
                  "  or.b32 %r8, %r8, %r7;\n"
                  "  add.u64 %rd10, %rd10, 1;\n"
                  "  add.u64 %rd11, %rd11, 1;\n"
                  "  add.u32 %r6, %r6, 1;\n"
                  "  setp.lt.u32 %p1, %r6, %r4;\n"
                  "  @%p1 bra BYTE;\n"
                  "  setp.ne.u32 %p2, %r8, 0;\n"
                  "  selp.u64 %wrong1, 1, 0, %p2;\n"
                  "  add.u64 %wrong0, %wrong0, %wrong1;\n" ELEMENT_LOOP_END
                  "  setp.eq.u64 %p3, %wrong0, 0;\n"
                  "  @%p3 bra RIGHT;\n"
                  "  ld.param.u64 %wrong2, [wrong];\n"
                  "  red.global.add.u64 [%wrong2], %wrong0;\n"
                  "RIGHT:\n"
                  "  ret;\n"
                  "}\n";

/* 16 bytes a thread and step, the rest byte by byte; then every block waits until `cycles` have
 * passed since it began. */
static const char produce_ptx[] =
    HEAD("sm_70")
    ".visible .entry produce(.param .u64 out, .param .u64 from, .param .u64 bytes,\n"
    "                        .param .u64 cycles) {\n"
    "  .reg .pred %p<4>;\n"
    "  .reg .b32 %r<12>;\n"
    "  .reg .b64 %rd<20>;\n"
    "  mov.u64 %rd15, %clock64;\n"
    "  ld.param.u64 %rd3, [out];\n"
    "  ld.param.u64 %rd4, [from];\n"
    "  ld.param.u64 %rd5, [bytes];\n"
    "  ld.param.u64 %rd6, [cycles];\n" GRID_INDEX
    "  shr.u64 %rd7, %rd5, 4;\n"
    "  and.b64 %rd8, %rd5, -16;\n"
    "  add.u64 %rd8, %rd8, %rd0;\n"
    "  setp.ge.u64 %p0, %rd8, %rd5;\n"
    "  @%p0 bra VECTOR;\n"
    "  add.u64 %rd9, %rd4, %rd8;\n"
    "  add.u64 %rd10, %rd3, %rd8;\n"
    "  ld.global.u8 %r4, [%rd9];\n"
    "  st.global.u8 [%rd10], %r4;\n"
    "VECTOR:\n"
    "  setp.ge.u64 %p1, %rd0, %rd7;\n"
    "  @%p1 bra WAIT;\n"
    "  shl.b64 %rd11, %rd0, 4;\n"
    "  add.u64 %rd12, %rd4, %rd11;\n"
    "  add.u64 %rd13, %rd3, %rd11;\n"
    "  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd12];\n"
    "  st.global.v4.u32 [%rd13], {%r5, %r6, %r7, %r8};\n"
    "  add.u64 %rd0, %rd0, %rd1;\n"
    "  bra VECTOR;\n"
    "WAIT:\n"
    "  mov.u64 %rd16, %clock64;\n"
    "  sub.u64 %rd16, %rd16, %rd15;\n"
    "  setp.lt.u64 %p2, %rd16, %rd6;\n"
    "  @%p2 bra WAIT;\n"
    "  ret;\n"
    "}\n";

static const char empty_ptx[] =
    HEAD("sm_70")
    ".visible .entry empty() {\n"
    "  ret;\n"
    "}\n";

/* One thread. Relaxed loads and stores of the system's scope: the flag carries nothing but itself.
 */
static const char ping_pong_ptx[] =
    HEAD("sm_70")
    ".visible .entry ping_pong(.param .u64 mine, .param .u64 peers, .param .u32 first,\n"
    "                          .param .u32 start, .param .u32 turns, .param .u64 bound,\n"
    "                          .param .u64 result) {\n"
    "  .reg .pred %p<6>;\n"
    "  .reg .b32 %r<12>;\n"
    "  .reg .b64 %rd<12>;\n"
    "  ld.param.u64 %rd0, [mine];\n"
    "  ld.param.u64 %rd1, [peers];\n"
    "  ld.param.u32 %r0, [first];\n"
    "  ld.param.u32 %r1, [start];\n"
    "  ld.param.u32 %r2, [turns];\n"
    "  ld.param.u64 %rd2, [bound];\n"
    "  ld.param.u64 %rd3, [result];\n"
    "  mov.u64 %rd4, %globaltimer;\n" /* of the bound */
    "  mov.u64 %rd5, %rd4;\n"         /* of the result */
    "  mov.u64 %rd7, 0;\n"
    "  mov.u32 %r3, 1;\n" /* turn */
    "TURN:\n"
    "  setp.gt.u32 %p0, %r3, %r2;\n"
    "  @%p0 bra END;\n"
    "  add.u32 %r4, %r1, %r3;\n" /* the flag of this turn */
    "  and.b32 %r5, %r3, 1;\n"
    "  setp.ne.u32 %p1, %r5, %r0;\n"
    "  @%p1 bra POLL;\n"
    "  st.relaxed.sys.global.u32 [%rd1], %r4;\n"
    "  bra NEXT;\n"
    "POLL:\n"
    "  ld.relaxed.sys.global.u32 %r6, [%rd0];\n"
    "  setp.eq.u32 %p2, %r6, %r4;\n"
    "  @%p2 bra NEXT;\n"
    "  mov.u64 %rd6, %globaltimer;\n"
    "  sub.u64 %rd6, %rd6, %rd4;\n"
    "  setp.lt.u64 %p3, %rd6, %rd2;\n"
    "  @%p3 bra POLL;\n"
    "  bra STORE;\n"
    "NEXT:\n"
    "  setp.ne.u32 %p4, %r3, 10;\n"
    "  @%p4 bra SAME;\n"
    "  mov.u64 %rd5, %globaltimer;\n"
    "SAME:\n"
    "  add.u32 %r3, %r3, 1;\n"
    "  bra TURN;\n"
    "END:\n"
    "  mov.u64 %rd7, %globaltimer;\n"
    "  sub.u64 %rd7, %rd7, %rd5;\n"
    "STORE:\n"
    "  st.global.u64 [%rd3], %rd7;\n"
    "  ret;\n"
    "}\n";

static const char dependent_ptx[] =
    HEAD("sm_90")
    ".visible .entry dependent() {\n"
    "  griddepcontrol.wait;\n"
    "  griddepcontrol.launch_dependents;\n"
    "  ret;\n"
    "}\n";

static const struct {
  const char* name;
  const char* text;
} sources[GPU_KERNEL_COUNT] = {
    {"expand", expand_ptx}, {"compare", compare_ptx},     {"produce", produce_ptx},
    {"empty", empty_ptx},   {"ping_pong", ping_pong_ptx}, {"dependent", dependent_ptx},
};

void gpu_kernels_load(struct gpu_kernels* kernels, const struct gpu_driver* driver, int device) {
  int processors = 0, major = 0;
  memset(kernels, 0, sizeof *kernels);
  kernels->driver = driver;
  gpu_check(driver->device_attribute(&processors, GPU_PROCESSORS, device), "cuDeviceGetAttribute");
  gpu_check(driver->device_attribute(&major, GPU_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
  gpu_check(driver->device_attribute(&kernels->clock_khz, GPU_CLOCK_KHZ, device),
            "cuDeviceGetAttribute");
  kernels->processors = (unsigned)processors;
  for (int i = 0; i < GPU_KERNEL_COUNT; ++i) {
    if (i == GPU_DEPENDENT && major < 9) {
      continue;
    }
    gpu_check(driver->module_load(&kernels->modules[i], sources[i].text), "cuModuleLoadData");
    gpu_check(driver->module_function(&kernels->functions[i], kernels->modules[i], sources[i].name),
              "cuModuleGetFunction");
  }
}

void gpu_kernels_unload(struct gpu_kernels* kernels) {
  for (int i = 0; i < GPU_KERNEL_COUNT; ++i) {
    if (kernels->modules[i] != NULL) {
      kernels->driver->module_unload(kernels->modules[i]);
    }
  }
}

static void launch(const struct gpu_kernels* kernels, enum gpu_kernel kernel, gpu_stream stream,
                   unsigned blocks, unsigned threads, int programmatic, void** arguments) {
  struct gpu_launch_attribute attribute;
  struct gpu_launch_config config;
  memset(&attribute, 0, sizeof attribute);
  attribute.id = GPU_PROGRAMMATIC_LAUNCH;
  attribute.value.number = 1;
  memset(&config, 0, sizeof config);
  config.grid[0] = blocks;
  config.block[0] = threads;
  config.grid[1] = config.grid[2] = config.block[1] = config.block[2] = 1;
  config.stream = stream;
  config.attributes = &attribute;
  config.attribute_count = programmatic ? 1 : 0;
  gpu_check(kernels->driver->launch(&config, kernels->functions[kernel], arguments, NULL),
            "cuLaunchKernelEx");
}

/* Blocks of 256 threads for so many items, at most four a processor. */
static unsigned grid_of(const struct gpu_kernels* kernels, size_t items) {
  const size_t blocks = (items + 255) / 256;
  const size_t most = 4 * (size_t)kernels->processors;
  return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* The two kernels about a buffer and a tile, whose last parameters differ. */
static void launch_for_tile(const struct gpu_kernels* kernels, enum gpu_kernel which,
                            gpu_stream stream, gpu_address buffer, size_t count,
                            const struct gpu_tile* tile, void* last) {
  struct gpu_tile copy = *tile;
  uint64_t elements = count, period = copy.period, shift = copy.shift;
  void* arguments[] = {&buffer, &copy.elements,      &elements, &period,
                       &shift,  &copy.element_bytes, last};
  launch(kernels, which, stream, grid_of(kernels, count), 256, 0, arguments);
}

void gpu_expand(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address out, size_t count,
                const struct gpu_tile* tile, unsigned mask) {
  launch_for_tile(kernels, GPU_EXPAND, stream, out, count, tile, &mask);
}

void gpu_compare(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address in, size_t count,
                 const struct gpu_tile* tile, gpu_address wrong) {
  launch_for_tile(kernels, GPU_COMPARE, stream, in, count, tile, &wrong);
}

void gpu_produce(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address out,
                 gpu_address from, size_t bytes, double us) {
  uint64_t size = bytes;
  uint64_t cycles = (uint64_t)(us * 1e-3 * kernels->clock_khz);
  void* arguments[] = {&out, &from, &size, &cycles};
  launch(kernels, GPU_PRODUCE, stream, grid_of(kernels, bytes / 16), 256, 0, arguments);
}

void gpu_empty(const struct gpu_kernels* kernels, gpu_stream stream, int programmatic) {
  launch(kernels, programmatic ? GPU_DEPENDENT : GPU_EMPTY, stream, 1, 32, programmatic, NULL);
}

void gpu_ping_pong(const struct gpu_kernels* kernels, gpu_stream stream, gpu_address mine,
                   gpu_address peers, int first, unsigned start, unsigned turns, uint64_t bound_ns,
                   gpu_address result) {
  unsigned is_first = first != 0;
  void* arguments[] = {&mine, &peers, &is_first, &start, &turns, &bound_ns, &result};
  launch(kernels, GPU_PING_PONG, stream, 1, 1, 0, arguments);
}
