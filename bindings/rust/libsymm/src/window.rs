//! Windows.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, size_of, size_of_val};
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;

use crate::error::{check, Error, Result, Status};
use crate::handle::Handle;
use crate::{copy, sys, text, Comm, DType, Device, Element, Op};

/// Memory of which every rank has a copy, and sees every other rank's copy.
///
/// Made by [`Comm::alloc_window`] and [`Comm::register_window`]. It may outlive its [`Comm`], be sent
/// to another thread, and not be shared. Dropping it never waits.
///
/// A rank writes into another's copy, or reads it, and a barrier makes that known:
///
/// ```
/// use symm::{Address, Comm, CommOptions, Device};
///
/// fn rank(address: &Address, rank: usize) -> symm::Result<()> {
///     let comm = Comm::create(address, rank, 2, Device::Cpu, &CommOptions::new())?;
///     let window = comm.alloc_window(16)?;
///     let next = (rank + 1) % 2;
///     window.copy_from(next, 8, &[rank as u64])?;
///     comm.barrier()?;
///     let mut from = [0_u64];
///     window.copy_to(rank, 8, &mut from)?;
///     assert_eq!(from[0], next as u64);
///     comm.barrier()
/// }
///
/// let address = Address::create(None)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| rank(&address, 0).unwrap());
///     scope.spawn(|| rank(&address, 1).unwrap());
/// });
/// # Ok::<(), symm::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<symm::Window>();
/// ```
pub struct Window {
    window: NonNull<sys::symm_window>,
    bytes: usize,
    rank: usize,
    size: usize,
    device: Device,
    // Freed after the window, in whose drop it is not used any more; abort handles reach it so long.
    comm: Arc<Handle>,
    // Like Comm's.
    not_sync: PhantomData<Cell<()>>,
}

// SAFETY: the library's handles are of no thread, and it serialises this window's calls with those on
// its communicator and on its other windows.
unsafe impl Send for Window {}

impl Window {
    /// Takes over a window that the library made for `comm`.
    ///
    /// # Safety
    ///
    /// `window` is a handle of that communicator's that nobody else frees.
    pub(crate) unsafe fn own(
        window: *mut sys::symm_window,
        comm: &Comm,
        handle: &Arc<Handle>,
    ) -> Result<Window> {
        let mut window = Window {
            window: NonNull::new(window).expect("a window was created"),
            bytes: 0,
            rank: comm.rank(),
            size: comm.size(),
            device: comm.device(),
            comm: Arc::clone(handle),
            not_sync: PhantomData,
        };
        // SAFETY: the handle is alive, and so is the output.
        check(unsafe { sys::symm_window_size(window.window.as_ptr(), &mut window.bytes) })?;
        Ok(window)
    }

    /// The bytes of each rank's copy.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where this process sees `rank`'s copy, of [`Window::bytes`]: valid until this window is
    /// dropped, null for a window of 0 bytes. With a GPU's communicator it is a device pointer.
    ///
    /// Other ranks read and write there at any time; what an access through this pointer needs is for
    /// the program to see to.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] for a rank that is none, and in a forked child.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(4096)?;
    /// assert_eq!(window.data(0)? as usize % 256, 0);
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn data(&self, rank: usize) -> Result<*mut u8> {
        let mut pointer = null_mut();
        let code = i32::try_from(rank).unwrap_or(i32::MAX);
        // SAFETY: the handle is alive, and so is the output.
        check(unsafe { sys::symm_window_data(self.window.as_ptr(), code, &mut pointer) })?;
        Ok(pointer.cast())
    }

    /// Copies `source` into `rank`'s copy from byte `offset` on. CPU only.
    ///
    /// What other ranks write there meanwhile and what they read is bytes of one or the other. A
    /// [barrier](Comm::barrier) or an all-reduce after it makes it known to the other ranks.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] for a rank that is none, for what reaches past the window's end,
    /// with a GPU's communicator, and in a forked child.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(16)?;
    /// window.copy_from(0, 4, &[1.0_f32, 2.0, 3.0])?;
    /// assert!(window.copy_from(0, 8, &[1.0_f32, 2.0, 3.0]).is_err());
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn copy_from<T: Element>(&self, rank: usize, offset: usize, source: &[T]) -> Result<()> {
        let count = size_of_val(source);
        self.check_host_memory("copy_from")?;
        let shared = self.range("copy_from", rank, offset, count)?;
        // SAFETY: the range is within the window, whose memory is mapped as long as it lives, and
        // `source` is a slice of so many bytes.
        unsafe { copy::store(source.as_ptr().cast(), shared, count) }
        Ok(())
    }

    /// Copies from `rank`'s copy, from byte `offset` on, until `destination` is full. CPU only.
    ///
    /// Bytes that other ranks write meanwhile are from before or after.
    ///
    /// # Errors
    ///
    /// Those of [`Window::copy_from`].
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(16)?;
    /// let mut bytes = [1_u8; 3];
    /// window.copy_to(0, 13, &mut bytes)?;
    /// assert_eq!(bytes, [0; 3]);
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn copy_to<T: Element>(
        &self,
        rank: usize,
        offset: usize,
        destination: &mut [T],
    ) -> Result<()> {
        let count = size_of_val(destination);
        self.check_host_memory("copy_to")?;
        let shared = self.range("copy_to", rank, offset, count)?;
        // SAFETY: as in copy_from; any bytes are a legal T.
        unsafe { copy::load(shared, destination.as_mut_ptr().cast(), count) }
        Ok(())
    }

    /// `count` elements of `rank`'s copy, from byte `offset` on. CPU only.
    ///
    /// # Errors
    ///
    /// Those of [`Window::copy_from`], and [`Status::INVALID_ARGUMENT`] where elements are not
    /// aligned.
    ///
    /// # Safety
    ///
    /// Nobody writes there while the slice lives: no rank, of this process or another, by any means,
    /// all-reduces included. (Other ranks' writes of before must have been made known, by a barrier.)
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(16)?;
    /// comm.barrier()?;
    /// // SAFETY: every rank only reads until the next barrier.
    /// let numbers = unsafe { window.as_slice::<u32>(0, 4, 2) }?;
    /// assert_eq!(numbers, [0, 0]);
    /// comm.barrier()?;
    /// # Ok::<(), symm::Error>(())
    /// ```
    ///
    /// It cannot outlive the window:
    ///
    /// ```compile_fail,E0505
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(16)?;
    /// let numbers = unsafe { window.as_slice::<u32>(0, 4, 2) }?;
    /// drop(window);
    /// assert_eq!(numbers, [0, 0]);
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub unsafe fn as_slice<T: Element>(
        &self,
        rank: usize,
        offset: usize,
        count: usize,
    ) -> Result<&[T]> {
        self.check_host_memory("as_slice")?;
        let pointer = self.elements("as_slice", rank, offset, count)?;
        // SAFETY: the range is within the window, which outlives the slice; it is aligned, any bytes
        // are a legal T, and that nobody writes is the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
    }

    /// `count` elements of `rank`'s copy, from byte `offset` on, to write. CPU only.
    ///
    /// # Errors
    ///
    /// Those of [`Window::as_slice`].
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes there while the slice lives: no rank, of this process or another,
    /// by any means, all-reduces included.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device, Op};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let mut window = comm.alloc_window(16)?;
    /// // SAFETY: no rank looks into another's copy but by the all-reduce, which comes after.
    /// unsafe { window.as_mut_slice(comm.rank(), 0, 4) }?.fill(1.5_f32);
    /// window.all_reduce_in_place::<f32>(0, 4, Op::Prod)?;
    /// # Ok::<(), symm::Error>(())
    /// ```
    ///
    /// Nor can this window be used meanwhile:
    ///
    /// ```compile_fail,E0502
    /// # use symm::{Address, Comm, CommOptions, Device, Op};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let mut window = comm.alloc_window(16)?;
    /// let numbers = unsafe { window.as_mut_slice(comm.rank(), 0, 4) }?;
    /// window.all_reduce_in_place::<f32>(0, 4, Op::Prod)?;
    /// numbers.fill(1.5_f32);
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub unsafe fn as_mut_slice<T: Element>(
        &mut self,
        rank: usize,
        offset: usize,
        count: usize,
    ) -> Result<&mut [T]> {
        self.check_host_memory("as_mut_slice")?;
        let pointer = self.elements("as_mut_slice", rank, offset, count)?;
        // SAFETY: as in as_slice; that nobody else reads or writes is the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
    }

    /// `output[i]` becomes `op` over all ranks' windows, from byte `offset` on, which is equal on
    /// every rank. Collective; CPU communicators only, on which it blocks until it is done.
    ///
    /// The windows may be written again once it has returned on their rank; what is written
    /// meanwhile makes the result unspecified.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] for what reaches past the window's end, is not aligned to
    /// elements, or with a GPU's communicator: nothing was sent. Otherwise those of
    /// [`Comm::all_reduce`].
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device, Op};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(16)?;
    /// window.copy_from(comm.rank(), 8, &[2_i32, 3])?;
    /// let mut sum = [0; 2];
    /// window.all_reduce(8, &mut sum, Op::Sum)?;
    /// assert_eq!(sum, [2, 3]);
    /// # Ok::<(), symm::Error>(())
    /// ```
    #[inline]
    pub fn all_reduce<T: Element>(&self, offset: usize, output: &mut [T], op: Op) -> Result<()> {
        self.check_host_memory("all_reduce")?;
        let (pointer, count) = (output.as_mut_ptr().cast(), output.len());
        // SAFETY: on a CPU communicator the call is done with the slice when it returns, the slice is
        // `count` elements, and the library may leave any bits in them. It reads the window in the
        // same way as memory that others write: their bytes go into the numbers, and nowhere else.
        unsafe { self.all_reduce_raw(offset, pointer, count, T::DTYPE, op, null_mut()) }
    }

    /// `count` elements of each rank's own copy, from byte `offset` on, become `op` over all ranks'.
    /// Collective; CPU communicators only.
    ///
    /// # Errors
    ///
    /// Those of [`Window::all_reduce`].
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device, Op};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(16)?;
    /// window.copy_from(comm.rank(), 0, &[1_i64, -1])?;
    /// window.all_reduce_in_place::<i64>(0, 2, Op::Min)?;
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn all_reduce_in_place<T: Element>(
        &self,
        offset: usize,
        count: usize,
        op: Op,
    ) -> Result<()> {
        self.check_host_memory("all_reduce_in_place")?;
        let own = self.data(self.rank)?.wrapping_add(offset).cast();
        // SAFETY: the library refuses what is not within the window; slices of it, which nobody may
        // write, are their makers' promise.
        unsafe { self.all_reduce_raw(offset, own, count, T::DTYPE, op, null_mut()) }
    }

    /// The all-reduce of the C interface, with output anywhere in memory of the communicator's device
    /// and, for a GPU, on a stream. Collective. It blocks on a CPU communicator, and is enqueued on a
    /// GPU's; the window may be written again once it has run on this rank's stream.
    ///
    /// # Errors
    ///
    /// Those of [`Window::all_reduce`] and [`Comm::all_reduce_raw`].
    ///
    /// # Safety
    ///
    /// `output` is `count` elements of `dtype` to write, the window's own `offset` or no byte of the
    /// input, for as long as the work takes: until this returns on a CPU communicator; on a GPU's
    /// until `stream` has run past it, and for each replay of a graph that captured it. Meanwhile
    /// nobody else touches `output`. `stream` is null or a `cudaStream_t` or `CUstream` that exists.
    #[inline]
    pub unsafe fn all_reduce_raw(
        &self,
        offset: usize,
        output: *mut c_void,
        count: usize,
        dtype: DType,
        op: Op,
        stream: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the handle is alive; the rest is the caller's promise.
        check(unsafe {
            let (window, dtype, op) = (self.window.as_ptr(), dtype.as_sys(), op.as_sys());
            sys::symm_window_all_reduce(window, offset, output, count, dtype, op, stream)
        })
    }

    /// JSON about the path that an all-reduce of this window's would take; see [`Comm::plan`].
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] for more elements than the window has.
    pub fn plan(&self, count: usize, dtype: DType, op: Op) -> Result<String> {
        text::plan(&self.comm, self.window.as_ptr(), count, dtype, op)
    }

    /// The handle of the C interface, for what this crate leaves out. It stays this window's: valid
    /// while this lives, and never to be freed.
    pub fn as_raw(&self) -> *mut sys::symm_window {
        self.window.as_ptr()
    }

    /// Where `count` bytes of `rank`'s copy are, if they are there.
    fn range(&self, function: &str, rank: usize, offset: usize, count: usize) -> Result<*mut u8> {
        if rank >= self.size {
            return Err(self.error(function, &format!("rank {rank} is not in 0..{}", self.size)));
        }
        if offset > self.bytes || count > self.bytes - offset {
            let bytes = self.bytes;
            let what = format!(
                "offset {offset} with {count} bytes reaches past the window's {bytes} bytes"
            );
            return Err(self.error(function, &what));
        }
        // Null, of a window of 0 bytes, stays null.
        Ok(self.data(rank)?.wrapping_add(offset))
    }

    /// Where `count` elements of `rank`'s copy are, fit for a slice.
    fn elements<T: Element>(
        &self,
        function: &str,
        rank: usize,
        offset: usize,
        count: usize,
    ) -> Result<*mut T> {
        let bytes = count.saturating_mul(size_of::<T>());
        let pointer = self.range(function, rank, offset, bytes)?;
        if pointer.is_null() {
            return Ok(NonNull::dangling().as_ptr());
        }
        if pointer.align_offset(align_of::<T>()) != 0 {
            let what = format!(
                "offset {offset} is at {pointer:p}, which is not aligned to elements of {} bytes",
                size_of::<T>()
            );
            return Err(self.error(function, &what));
        }
        Ok(pointer.cast())
    }

    /// Where `count` elements of `rank`'s copy are on the GPU.
    #[cfg(feature = "cudarc")]
    pub(crate) fn device_range<T: Element>(
        &self,
        function: &str,
        rank: usize,
        offset: usize,
        count: usize,
    ) -> Result<u64> {
        if self.device == Device::Cpu {
            return Err(self.error(function, "the window is in host memory: use as_slice"));
        }
        Ok(self.elements::<T>(function, rank, offset, count)? as u64)
    }

    #[inline]
    fn check_host_memory(&self, function: &str) -> Result<()> {
        match self.device {
            Device::Cpu => Ok(()),
            _ => Err(self.host_refused(function)),
        }
    }

    #[cold]
    fn host_refused(&self, function: &str) -> Error {
        let what = format!(
            "this is for host memory, and the window is on {:?}: use data, all_reduce_raw, or the \
             feature cudarc",
            self.device
        );
        self.error(function, &what)
    }

    /// A wrong argument, in the library's words for where.
    #[cold]
    fn error(&self, function: &str, what: &str) -> Error {
        let (rank, size) = (self.rank, self.size);
        let message = format!("Window::{function} (rank {rank} of {size}): {what}");
        Error::new(Status::INVALID_ARGUMENT, message)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle. In a forked child the call does nothing.
        unsafe { sys::symm_window_free(self.window.as_ptr()) }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("bytes", &self.bytes)
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, CommOptions};

    #[test]
    fn a_window_on_a_gpu_refuses_host_memory() {
        let address = Address::create(Some("127.0.0.1")).unwrap();
        let comm = Comm::create(address, 0, 1, Device::Cpu, &CommOptions::new()).unwrap();
        let mut window = comm.alloc_window(8).unwrap();
        window.copy_from(0, 0, &[7_u64]).unwrap();
        window.device = Device::Gpu(1);
        let mut number = [0_u64];
        let errors = [
            window.copy_from(0, 0, &[8_u64]).unwrap_err(),
            window.copy_to(0, 0, &mut number).unwrap_err(),
            window.all_reduce(0, &mut number, Op::Sum).unwrap_err(),
            window.all_reduce_in_place::<u64>(0, 1, Op::Sum).unwrap_err(),
            // SAFETY: there is one rank, and one thread.
            unsafe { window.as_slice::<u64>(0, 0, 1) }.unwrap_err(),
            // SAFETY: as above.
            unsafe { window.as_mut_slice::<u64>(0, 0, 1) }.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.status, Status::INVALID_ARGUMENT);
            assert!(error.message.contains("Gpu(1)"), "{error}");
        }
        assert_eq!(number, [0]);
        window.device = Device::Cpu;
        window.copy_to(0, 0, &mut number).unwrap();
        assert_eq!(number, [7]);
    }
}
