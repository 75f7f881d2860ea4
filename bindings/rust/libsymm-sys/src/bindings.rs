// By bindgen.sh, from capi/symm.h. Do not edit.

impl symm_header_version {
    pub const SYMM_VERSION_MAJOR: symm_header_version = symm_header_version(0);
    pub const SYMM_VERSION_MINOR: symm_header_version = symm_header_version(1);
    pub const SYMM_VERSION_PATCH: symm_header_version = symm_header_version(0);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_header_version(pub ::core::ffi::c_uint);
impl symm_status {
    pub const SYMM_OK: symm_status = symm_status(0);
    pub const SYMM_INVALID_ARGUMENT: symm_status = symm_status(-1);
    pub const SYMM_OUT_OF_MEMORY: symm_status = symm_status(-2);
    pub const SYMM_UNSUPPORTED: symm_status = symm_status(-3);
    pub const SYMM_SYSTEM: symm_status = symm_status(-4);
    pub const SYMM_CUDA: symm_status = symm_status(-5);
    pub const SYMM_NCCL: symm_status = symm_status(-6);
    pub const SYMM_TIMEOUT: symm_status = symm_status(-7);
    pub const SYMM_PEER: symm_status = symm_status(-8);
    pub const SYMM_MISMATCH: symm_status = symm_status(-9);
    pub const SYMM_ABORTED: symm_status = symm_status(-10);
    pub const SYMM_INTERNAL: symm_status = symm_status(-11);
    pub const SYMM_STATUS_MAX_: symm_status = symm_status(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_status(pub ::core::ffi::c_int);
impl symm_dtype {
    pub const SYMM_DTYPE_NONE: symm_dtype = symm_dtype(-1);
    pub const SYMM_INT8: symm_dtype = symm_dtype(0);
    pub const SYMM_UINT8: symm_dtype = symm_dtype(1);
    pub const SYMM_INT32: symm_dtype = symm_dtype(2);
    pub const SYMM_UINT32: symm_dtype = symm_dtype(3);
    pub const SYMM_INT64: symm_dtype = symm_dtype(4);
    pub const SYMM_UINT64: symm_dtype = symm_dtype(5);
    pub const SYMM_FLOAT16: symm_dtype = symm_dtype(6);
    pub const SYMM_FLOAT32: symm_dtype = symm_dtype(7);
    pub const SYMM_FLOAT64: symm_dtype = symm_dtype(8);
    pub const SYMM_BFLOAT16: symm_dtype = symm_dtype(9);
    pub const SYMM_FLOAT8_E4M3: symm_dtype = symm_dtype(10);
    pub const SYMM_FLOAT8_E5M2: symm_dtype = symm_dtype(11);
    pub const SYMM_DTYPE_MAX_: symm_dtype = symm_dtype(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_dtype(pub ::core::ffi::c_int);
impl symm_op {
    pub const SYMM_OP_NONE: symm_op = symm_op(-1);
    pub const SYMM_SUM: symm_op = symm_op(0);
    pub const SYMM_PROD: symm_op = symm_op(1);
    pub const SYMM_MAX: symm_op = symm_op(2);
    pub const SYMM_MIN: symm_op = symm_op(3);
    pub const SYMM_AVG: symm_op = symm_op(4);
    pub const SYMM_OP_MAX_: symm_op = symm_op(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_op(pub ::core::ffi::c_int);
impl symm_device {
    pub const SYMM_CPU: symm_device = symm_device(-1);
    pub const SYMM_LOCAL_GPU: symm_device = symm_device(-2);
    pub const SYMM_CURRENT_GPU: symm_device = symm_device(-3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_device(pub ::core::ffi::c_int);
impl symm_limits {
    pub const SYMM_FROM_ADDRESS: symm_limits = symm_limits(-1);
    pub const SYMM_NO_COLOR: symm_limits = symm_limits(-1);
    pub const SYMM_ADDRESS_SIZE: symm_limits = symm_limits(512);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_limits(pub ::core::ffi::c_int);
impl symm_comm_flags {
    pub const SYMM_COMM_SHARE_GPU: symm_comm_flags = symm_comm_flags(1);
    pub const SYMM_COMM_NCCL: symm_comm_flags = symm_comm_flags(2);
    pub const SYMM_COMM_STRICT: symm_comm_flags = symm_comm_flags(4);
    pub const SYMM_COMM_SOLE: symm_comm_flags = symm_comm_flags(8);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_comm_flags(pub ::core::ffi::c_uint);
impl symm_window_flags {
    pub const SYMM_WINDOW_NCCL: symm_window_flags = symm_window_flags(1);
    pub const SYMM_WINDOW_FD: symm_window_flags = symm_window_flags(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct symm_window_flags(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug)]
pub struct symm_comm {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct symm_window {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct symm_comm_options {
    pub size: usize,
    pub name: *const ::core::ffi::c_char,
    pub nccl_path: *const ::core::ffi::c_char,
    pub error: *mut ::core::ffi::c_char,
    pub error_size: usize,
    pub scratch_bytes: usize,
    pub timeout_ms: i32,
    pub wait_timeout_ms: i32,
    pub flags: u32,
    pub reserved: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct symm_window_options {
    pub size: usize,
    pub error: *mut ::core::ffi::c_char,
    pub error_size: usize,
    pub fd_offset: usize,
    pub fd: i32,
    pub flags: u32,
}
extern "C" {
    pub fn symm_version() -> i32;
}
extern "C" {
    pub fn symm_status_name(status: i32) -> *const ::core::ffi::c_char;
}
extern "C" {
    pub fn symm_last_error() -> *const ::core::ffi::c_char;
}
extern "C" {
    pub fn symm_report(
        comm: *const symm_comm,
        buffer: *mut ::core::ffi::c_char,
        size: usize,
        needed: *mut usize,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_plan(
        comm: *const symm_comm,
        window_or_null: *const symm_window,
        count: usize,
        dtype: symm_dtype,
        op: symm_op,
        buffer: *mut ::core::ffi::c_char,
        size: usize,
        needed: *mut usize,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_address_create(
        host: *const ::core::ffi::c_char,
        buffer: *mut ::core::ffi::c_char,
        size: usize,
        needed: *mut usize,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_comm_create(
        address: *const ::core::ffi::c_char,
        rank: i32,
        size: i32,
        device: i32,
        options: *const symm_comm_options,
        comm: *mut *mut symm_comm,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_comm_split(
        comm: *mut symm_comm,
        color: i32,
        key: i32,
        options: *const symm_comm_options,
        out: *mut *mut symm_comm,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_comm_rank(comm: *const symm_comm, rank: *mut i32) -> symm_status;
}
extern "C" {
    pub fn symm_comm_size(comm: *const symm_comm, size: *mut i32) -> symm_status;
}
extern "C" {
    pub fn symm_comm_device(comm: *const symm_comm, device: *mut i32) -> symm_status;
}
extern "C" {
    pub fn symm_comm_barrier(
        comm: *mut symm_comm,
        stream: *mut ::core::ffi::c_void,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_comm_check(comm: *const symm_comm, rank: *mut i32) -> symm_status;
}
extern "C" {
    pub fn symm_comm_abort(comm: *mut symm_comm) -> symm_status;
}
extern "C" {
    pub fn symm_comm_free(comm: *mut symm_comm);
}
extern "C" {
    pub fn symm_comm_nccl(
        comm: *const symm_comm,
        nccl: *mut *mut ::core::ffi::c_void,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_window_alloc(
        comm: *mut symm_comm,
        bytes: usize,
        options: *const symm_window_options,
        window: *mut *mut symm_window,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_window_register(
        comm: *mut symm_comm,
        pointer: *mut ::core::ffi::c_void,
        bytes: usize,
        options: *const symm_window_options,
        window: *mut *mut symm_window,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_window_size(
        window: *const symm_window,
        bytes: *mut usize,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_window_data(
        window: *const symm_window,
        rank: i32,
        pointer: *mut *mut ::core::ffi::c_void,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_window_free(window: *mut symm_window);
}
extern "C" {
    pub fn symm_all_reduce(
        comm: *mut symm_comm,
        input: *const ::core::ffi::c_void,
        output: *mut ::core::ffi::c_void,
        count: usize,
        dtype: symm_dtype,
        op: symm_op,
        stream: *mut ::core::ffi::c_void,
    ) -> symm_status;
}
extern "C" {
    pub fn symm_window_all_reduce(
        window: *mut symm_window,
        offset: usize,
        output: *mut ::core::ffi::c_void,
        count: usize,
        dtype: symm_dtype,
        op: symm_op,
        stream: *mut ::core::ffi::c_void,
    ) -> symm_status;
}
