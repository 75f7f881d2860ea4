//! Symmetric memory windows and one-shot all-reduce, for ranks on the CPUs or GPUs of one host.
//!
//! A rank is a process, a thread, or any mix. Ranks meet at an address ([`Comm::create`]); the
//! [`Comm`] that each gets reduces arrays over all of them ([`Comm::all_reduce`]) and makes
//! [`Window`]s, memory of which every rank sees every other rank's copy.
//!
//! ```
//! use symm::{Address, Comm, CommOptions, Device, Op};
//!
//! # fn main() -> symm::Result<()> {
//! let address = Address::create(None)?;
//! std::thread::scope(|scope| {
//!     for rank in 0..2 {
//!         let address = address.as_str();
//!         scope.spawn(move || -> symm::Result<()> {
//!             let comm = Comm::create(address, rank, 2, Device::Cpu, &CommOptions::new())?;
//!             let mut sum = [0_i32; 2];
//!             comm.all_reduce(&[1, 10 * rank as i32], &mut sum, Op::Sum)?;
//!             assert_eq!(sum, [2, 10]);
//!             Ok(())
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! - **Collective** calls are made by every rank of the communicator, in the same order among the
//!   collective calls of that communicator. If one fails on one rank it fails on every rank.
//! - An **argument error of an all-reduce** or barrier is local: nothing was sent, and the call may
//!   be repeated.
//! - **Sticky errors** ([`Status::TIMEOUT`], [`PEER`](Status::PEER), [`MISMATCH`](Status::MISMATCH),
//!   [`ABORTED`](Status::ABORTED), [`CUDA`](Status::CUDA), [`NCCL`](Status::NCCL),
//!   [`INTERNAL`](Status::INTERNAL)) end the communicator and its windows: every later call returns
//!   the same. Create another one, with another name. Outputs of a failed call are unspecified.
//! - **Threads**: [`Comm`] and [`Window`] may be sent to other threads, and not be shared. An
//!   [`AbortHandle`] is for any thread, at any time. Different communicators may be used at once.
//! - **Dropping** never waits, in any order: windows keep their communicator a member.
//! - **fork**: what the parent made is dead in the child, where calls return
//!   [`Status::INVALID_ARGUMENT`] and drops do nothing; a child may make its own.
//! - **Sizes and offsets** of windows are in bytes, counts in elements.
//!
//! # What is unsafe, and why
//!
//! A communicator of CPU ranks works in the calling thread and is done when a call returns, so slices
//! are borrowed for just as long as they are used: that is safe, and so is copying into and out of
//! windows ([`Window::copy_from`], [`Window::copy_to`]). Slices *of* window memory are not, since
//! other ranks write there without the borrow checker's knowledge; nor are calls with pointers, or on
//! a GPU's stream, which return before the work is done.
//!
//! # Features
//!
//! - `half` (default): `half::f16` and `half::bf16` are element types.
//! - `cudarc`: calls with cudarc's streams and device slices. CUDA itself is looked for when the
//!   program runs, so the feature builds on any machine. Needs Rust 1.88, where the rest needs 1.81.
//! - `vendored`: builds the C library from bundled sources where none is found; see `libsymm-sys`.
#![deny(missing_docs)]

mod abort;
mod address;
mod comm;
mod copy;
#[cfg(feature = "cudarc")]
mod cuda;
mod device;
mod element;
mod error;
mod handle;
mod op;
mod options;
mod text;
mod window;

pub use abort::AbortHandle;
pub use address::Address;
pub use comm::Comm;
#[cfg(feature = "cudarc")]
pub use cuda::DeviceWindow;
pub use device::Device;
pub use element::{DType, Element, Float8E4M3, Float8E5M2};
pub use error::{Error, Result, Status};
pub use op::Op;
pub use options::{CommOptions, WindowOptions};
pub use window::Window;

/// The C interface, for what this crate leaves out.
pub use libsymm_sys as sys;

/// The version of the linked C library: major, minor, patch.
///
/// ```
/// assert_eq!(symm::version().0, 0);
/// ```
pub fn version() -> (u32, u32, u32) {
    // SAFETY: takes nothing and never fails.
    let version = unsafe { sys::symm_version() }.unsigned_abs();
    (version / 1_000_000, version / 1000 % 1000, version % 1000)
}

/// JSON about this process and machine: library, devices, driver. Keys are only ever added.
/// [`Comm::report`] has more about a communicator.
///
/// # Errors
///
/// [`Status::OUT_OF_MEMORY`], or a failure to ask the system.
///
/// ```
/// assert!(symm::report()?.starts_with('{'));
/// # Ok::<(), symm::Error>(())
/// ```
pub fn report() -> Result<String> {
    text::fetch(|buffer, size, needed| {
        // SAFETY: `fetch` gives a buffer of that size; no communicator is asked about.
        unsafe { sys::symm_report(std::ptr::null(), buffer, size, needed) }
    })
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
