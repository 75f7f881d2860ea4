//! Communicators.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::address::c_text;
use crate::error::{check, Error, Result, Status};
use crate::handle::Handle;
use crate::{
    sys, text, AbortHandle, CommOptions, DType, Device, Element, Op, Window, WindowOptions,
};

/// A communicator: one rank's membership of a group of ranks.
///
/// It may be sent to another thread, and not be shared ([`Comm::abort_handle`] gives what may).
/// Dropping it never waits; its windows keep the rank a member for as long as they live.
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<symm::Comm>();
/// ```
pub struct Comm {
    handle: Arc<Handle>,
    rank: usize,
    size: usize,
    device: Device,
    // Calls of two threads would be serialised by the library, but in an order that no other rank
    // can know: that is an error of the program's, and this makes it one of the compiler's.
    not_sync: PhantomData<Cell<()>>,
}

impl Comm {
    /// Joins `size` ranks at `address` as the rank numbered `rank`, from 0 up. Collective; blocks
    /// until all are here or [`CommOptions::timeout`] is over.
    ///
    /// Addresses are those of [`Address::create`](crate::Address::create), `tcp://host:port` (rank 0
    /// serves), `file:///path` and `env://` (which [`Comm::from_env`] takes). It may be called again
    /// with the same address; two at once, or one after a rank was restarted, need
    /// [names](CommOptions::name) of their own.
    ///
    /// # Errors
    ///
    /// On every rank the same: [`Status::INVALID_ARGUMENT`] if some rank's arguments are wrong or two
    /// claim one rank, [`Status::TIMEOUT`] naming those that did not come, [`Status::PEER`] if one
    /// died, [`Status::UNSUPPORTED`] without such a device. A NUL in `address` or in the name cannot
    /// be told to the others, and is refused on this rank alone.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// assert_eq!((comm.rank(), comm.size(), comm.device()), (0, 1, Device::Cpu));
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn create(
        address: impl AsRef<str>,
        rank: usize,
        size: usize,
        device: Device,
        options: &CommOptions,
    ) -> Result<Comm> {
        // What C has no room for becomes a number that the library refuses on every rank.
        let number = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        Comm::meet(address.as_ref(), number(rank), number(size), device, options)
    }

    /// Joins the ranks of this job with rank, size and address of the launcher's variables: `RANK`,
    /// `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` (torchrun's), else Open MPI's, PMI's or Slurm's.
    /// Collective, like [`Comm::create`].
    ///
    /// # Errors
    ///
    /// Those of [`Comm::create`], and [`Status::INVALID_ARGUMENT`] naming the variable that is not
    /// set or wrong.
    ///
    /// ```no_run
    /// # use symm::{Comm, CommOptions, Device};
    /// // Under `mpirun -n 4`, `torchrun` or `srun`:
    /// let comm = Comm::from_env(Device::Cpu, &CommOptions::new())?;
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn from_env(device: Device, options: &CommOptions) -> Result<Comm> {
        let unknown = sys::symm_limits::SYMM_FROM_ADDRESS.0;
        Comm::meet("env://", unknown, unknown, device, options)
    }

    fn meet(
        address: &str,
        rank: i32,
        size: i32,
        device: Device,
        options: &CommOptions,
    ) -> Result<Comm> {
        let address = c_text("Comm::create", "address", address)?;
        let mut comm = null_mut();
        options.with_sys("Comm::create", |options| {
            // SAFETY: texts and options live as long as the call, which writes a handle on success.
            check(unsafe {
                sys::symm_comm_create(
                    address.as_ptr(),
                    rank,
                    size,
                    device.to_code(),
                    options,
                    &mut comm,
                )
            })
        })??;
        Comm::own(comm).map(|comm| comm.expect("a communicator was created"))
    }

    /// Takes over a handle that the library gave out.
    fn own(comm: *mut sys::symm_comm) -> Result<Option<Comm>> {
        let Some(handle) = Handle::own(comm) else {
            return Ok(None);
        };
        let (mut rank, mut size, mut device) = (0, 0, 0);
        // SAFETY: the handle is alive, and the outputs are.
        unsafe {
            check(sys::symm_comm_rank(handle.as_ptr(), &mut rank))?;
            check(sys::symm_comm_size(handle.as_ptr(), &mut size))?;
            check(sys::symm_comm_device(handle.as_ptr(), &mut device))?;
        }
        Ok(Some(Comm {
            handle: Arc::new(handle),
            rank: rank as usize,
            size: size as usize,
            device: Device::from_code(device),
            not_sync: PhantomData,
        }))
    }

    /// Makes one communicator for each color, of the ranks that say it, numbered by `key`, then by
    /// their ranks here. Collective. `None` joins no group and gets `None`. Parent and child owe each
    /// other nothing: either may be dropped, aborted or fail without the other.
    ///
    /// # Errors
    ///
    /// Those of a collective call, on every rank; a color above `i32::MAX` is one of them.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let half = comm.split(Some((comm.rank() % 2) as u32), 0, &CommOptions::new())?;
    /// assert_eq!(half.map(|half| half.size()), Some(1));
    /// assert!(comm.split(None, 0, &CommOptions::new())?.is_none());
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        options: &CommOptions,
    ) -> Result<Option<Comm>> {
        let none = sys::symm_limits::SYMM_NO_COLOR.0;
        let code = color.map_or(none, |color| i32::try_from(color).unwrap_or(i32::MIN));
        let mut out = null_mut();
        options
            .with_sys("Comm::split", |options| {
                // SAFETY: handle and options are alive; a handle or null is written on success.
                check(unsafe {
                    sys::symm_comm_split(self.handle.as_ptr(), code, key, options, &mut out)
                })
            })?
            .map_err(|error| match color {
                Some(color) if code == i32::MIN && error.status == Status::INVALID_ARGUMENT => {
                    self.error("split", &format!("color {color} is above {}", i32::MAX))
                }
                _ => error,
            })?;
        Comm::own(out)
    }

    /// This rank's own number, from 0 up.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where it works: [`Device::Cpu`] or a [`Device::Gpu`].
    pub fn device(&self) -> Device {
        self.device
    }

    /// `output[i]` becomes `op` over all ranks' `input[i]`. Collective; CPU communicators only, on
    /// which it blocks until it is done.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] if the slices' lengths differ or this is a GPU's communicator:
    /// nothing was sent. Otherwise sticky: [`Status::MISMATCH`] if the ranks called different things,
    /// [`Status::TIMEOUT`], [`Status::PEER`], [`Status::ABORTED`]; `output` is then unspecified.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device, Op};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let mut largest = [0_i64; 2];
    /// comm.all_reduce(&[7, -7], &mut largest, Op::Max)?;
    /// assert_eq!(largest, [7, -7]);
    /// # Ok::<(), symm::Error>(())
    /// ```
    #[inline]
    pub fn all_reduce<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<()> {
        self.check_host_slices("all_reduce")?;
        if input.len() != output.len() {
            return Err(self.lengths_differ("all_reduce", input.len(), output.len()));
        }
        let (input, count) = (input.as_ptr().cast(), input.len());
        // SAFETY: on a CPU communicator the call is done with both when it returns, they are `count`
        // elements each, and the library may leave any bits in an element.
        unsafe {
            self.all_reduce_raw(input, output.as_mut_ptr().cast(), count, T::DTYPE, op, null_mut())
        }
    }

    /// `buffer[i]` becomes `op` over all ranks' `buffer[i]`. Collective; CPU communicators only.
    ///
    /// # Errors
    ///
    /// Those of [`Comm::all_reduce`].
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device, Op};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let mut mean = vec![2.5_f32; 1000];
    /// comm.all_reduce_in_place(&mut mean, Op::Avg)?;
    /// assert_eq!(mean[999], 2.5);
    /// # Ok::<(), symm::Error>(())
    /// ```
    #[inline]
    pub fn all_reduce_in_place<T: Element>(&self, buffer: &mut [T], op: Op) -> Result<()> {
        self.check_host_slices("all_reduce_in_place")?;
        let (pointer, count): (*mut c_void, _) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: as in all_reduce; input and output may be the same.
        unsafe { self.all_reduce_raw(pointer, pointer, count, T::DTYPE, op, null_mut()) }
    }

    /// The all-reduce of the C interface, with memory of the communicator's device and, for a GPU, on
    /// a stream. Collective. It blocks on a CPU communicator, and is enqueued on a GPU's.
    ///
    /// `stream` is a `cudaStream_t` or `CUstream` of the communicator's device, null for the legacy
    /// default stream; on a CPU communicator it is null. In a capture the call becomes part of the
    /// graph.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] for pointers, alignment or overlap that can be seen to be wrong:
    /// nothing was sent. Otherwise those of [`Comm::all_reduce`]; on a GPU failures after the launch
    /// are seen by [`Comm::check`] once the stream has run so far.
    ///
    /// # Safety
    ///
    /// `input` is `count` elements of `dtype` to read and `output` as many to write, the same as
    /// `input` or no byte of it, for as long as the work takes: until this returns on a CPU
    /// communicator; on a GPU's until `stream` has run past it, and for each replay of a graph that
    /// captured it. Meanwhile nobody else writes `input`, nor touches `output`. `stream` is null or
    /// a stream that exists.
    #[inline]
    pub unsafe fn all_reduce_raw(
        &self,
        input: *const c_void,
        output: *mut c_void,
        count: usize,
        dtype: DType,
        op: Op,
        stream: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the handle is alive; the rest is the caller's promise.
        check(unsafe {
            let comm = self.handle.as_ptr();
            sys::symm_all_reduce(comm, input, output, count, dtype.as_sys(), op.as_sys(), stream)
        })
    }

    /// What follows runs after everything before it on every rank, and sees their stores to windows.
    /// Collective. A CPU communicator blocks until every rank is here; on a GPU it is enqueued on the
    /// legacy default stream.
    ///
    /// # Errors
    ///
    /// Sticky ones, like those of [`Comm::all_reduce`].
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// comm.barrier()?;
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: null is the CPU's stream and a GPU's legacy default stream.
        unsafe { self.barrier_raw(null_mut()) }
    }

    /// [`Comm::barrier`] on a stream of a GPU's. Collective.
    ///
    /// # Errors
    ///
    /// Those of [`Comm::barrier`]; [`Status::INVALID_ARGUMENT`] for a stream with CPU ranks.
    ///
    /// # Safety
    ///
    /// `stream` is null or a `cudaStream_t` or `CUstream` that exists.
    pub unsafe fn barrier_raw(&self, stream: *mut c_void) -> Result<()> {
        // SAFETY: the handle is alive; the stream is the caller's promise.
        check(unsafe { sys::symm_comm_barrier(self.handle.as_ptr(), stream) })
    }

    /// Whether the communicator still works. Does not block; of work on a GPU's stream it knows once
    /// that has run.
    ///
    /// # Errors
    ///
    /// The sticky error; [`Comm::blamed_rank`] says whose it is.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device, Status};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// comm.check()?;
    /// comm.abort()?;
    /// assert_eq!(comm.check().unwrap_err().status, Status::ABORTED);
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn check(&self) -> Result<()> {
        // SAFETY: the handle is alive; null asks for no rank.
        check(unsafe { sys::symm_comm_check(self.handle.as_ptr(), null_mut()) })
    }

    /// The rank to blame for the sticky error, where there is one and it is known.
    pub fn blamed_rank(&self) -> Option<usize> {
        let mut rank = -1;
        // SAFETY: the handle is alive, and so is the output. It is written in failing calls too, and
        // their status is of no interest here.
        let _ = unsafe { sys::symm_comm_check(self.handle.as_ptr(), &mut rank) };
        usize::try_from(rank).ok()
    }

    /// Ends every wait of this communicator and its windows on every rank, now and later, with
    /// [`Status::ABORTED`]. Does not block. [`Comm::abort_handle`] is for other threads.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] in a forked child.
    pub fn abort(&self) -> Result<()> {
        self.handle.abort()
    }

    /// What ends this communicator's waits from any thread, and outlives it harmlessly.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(Arc::downgrade(&self.handle))
    }

    /// JSON about this communicator: library, device, how each rank is reached and why not better,
    /// sticky error, table of algorithms. Keys are only ever added. Allowed after a failure.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] in a forked child.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// assert!(comm.report()?.contains("\"rank\""));
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn report(&self) -> Result<String> {
        text::fetch(|buffer, size, needed| {
            // SAFETY: the handle is alive; `fetch` gives a buffer of that size.
            unsafe { sys::symm_report(self.handle.as_ptr(), buffer, size, needed) }
        })
    }

    /// JSON about the path that an all-reduce of `count` elements would take: algorithm, blocks,
    /// threads, reason, and why not a faster one. Local.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] for a count that is more memory than there can be.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device, DType, Op};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// assert!(comm.plan(1 << 20, DType::Float32, Op::Sum)?.contains("\"algorithm\""));
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn plan(&self, count: usize, dtype: DType, op: Op) -> Result<String> {
        text::plan(&self.handle, std::ptr::null(), count, dtype, op)
    }

    /// Makes a window of `bytes`, equal on every rank, of zeroed memory that is aligned to 256 bytes.
    /// Collective. With 0 bytes it is a window with no memory.
    ///
    /// # Errors
    ///
    /// On every rank: [`Status::INVALID_ARGUMENT`] if `bytes` differ, [`Status::OUT_OF_MEMORY`] if
    /// any rank has not so much, or the sticky ones.
    ///
    /// ```
    /// # use symm::{Address, Comm, CommOptions, Device};
    /// # let comm = Comm::create(Address::create(None)?, 0, 1, Device::Cpu, &CommOptions::new())?;
    /// let window = comm.alloc_window(1 << 20)?;
    /// assert_eq!(window.bytes(), 1 << 20);
    /// # Ok::<(), symm::Error>(())
    /// ```
    pub fn alloc_window(&self, bytes: usize) -> Result<Window> {
        self.alloc_window_with(bytes, &WindowOptions::new())
    }

    /// [`Comm::alloc_window`] with options; a [file](WindowOptions::file) is none of them.
    ///
    /// # Errors
    ///
    /// Those of [`Comm::alloc_window`].
    pub fn alloc_window_with(&self, bytes: usize, options: &WindowOptions<'_>) -> Result<Window> {
        let mut window = null_mut();
        let options = options.to_sys();
        // SAFETY: handle and options are alive; a handle is written on success.
        check(unsafe {
            sys::symm_window_alloc(self.handle.as_ptr(), bytes, &options, &mut window)
        })?;
        // SAFETY: it is this communicator's, and nobody else's.
        unsafe { Window::own(window, self, &self.handle) }
    }

    /// Makes a window over memory of the caller's: any address inside any allocation, which may
    /// differ between ranks; `bytes` may not. Collective. CPU memory must be a memfd or another shared
    /// mapping: of a window, or named by [`WindowOptions::file`].
    ///
    /// # Errors
    ///
    /// Those of [`Comm::alloc_window`], and [`Status::UNSUPPORTED`], with the remedy, for memory that
    /// cannot be shared.
    ///
    /// # Safety
    ///
    /// `pointer` is `bytes` of memory of the communicator's device. It outlives the window *on every
    /// rank*, graphs that captured it included: drop the window, [barrier](Comm::barrier), then
    /// release it. A file that is mapped there is not cut short meanwhile. Other ranks read and write
    /// the memory: no reference to it exists while they do.
    pub unsafe fn register_window(
        &self,
        pointer: *mut c_void,
        bytes: usize,
        options: &WindowOptions<'_>,
    ) -> Result<Window> {
        let mut window = null_mut();
        let options = options.to_sys();
        // SAFETY: handle and options are alive, the memory is the caller's promise; a handle is
        // written on success.
        check(unsafe {
            let comm = self.handle.as_ptr();
            sys::symm_window_register(comm, pointer, bytes, &options, &mut window)
        })?;
        // SAFETY: it is this communicator's, and nobody else's.
        unsafe { Window::own(window, self, &self.handle) }
    }

    /// The `ncclComm_t` inside. It stays the library's: valid while this communicator is, and never
    /// to be destroyed.
    ///
    /// # Errors
    ///
    /// [`Status::UNSUPPORTED`] if there is none.
    pub fn nccl(&self) -> Result<*mut c_void> {
        let mut nccl = null_mut();
        // SAFETY: the handle is alive, and so is the output.
        check(unsafe { sys::symm_comm_nccl(self.handle.as_ptr(), &mut nccl) })?;
        Ok(nccl)
    }

    /// The handle of the C interface, for what this crate leaves out. It stays this communicator's:
    /// valid while this lives, and never to be freed.
    pub fn as_raw(&self) -> *mut sys::symm_comm {
        self.handle.as_ptr()
    }

    /// A kernel must not be launched with the address of a host slice.
    #[inline]
    fn check_host_slices(&self, function: &str) -> Result<()> {
        match self.device {
            Device::Cpu => Ok(()),
            _ => Err(self.host_slices_refused(function)),
        }
    }

    #[cold]
    fn host_slices_refused(&self, function: &str) -> Error {
        let what = format!(
            "slices are host memory, and this communicator is on {:?}: use all_reduce_raw, or \
             all_reduce_on of the feature cudarc",
            self.device
        );
        self.error(function, &what)
    }

    #[cold]
    pub(crate) fn lengths_differ(&self, function: &str, input: usize, output: usize) -> Error {
        let what = format!(
            "input has {input} elements and output {output}: they must have the same number"
        );
        self.error(function, &what)
    }

    /// A wrong argument, in the library's words for where.
    #[cold]
    fn error(&self, function: &str, what: &str) -> Error {
        let (rank, size) = (self.rank, self.size);
        let message = format!("Comm::{function} (rank {rank} of {size}): {what}");
        Error::new(Status::INVALID_ARGUMENT, message)
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comm")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    fn alone() -> Comm {
        let address = Address::create(Some("127.0.0.1")).unwrap();
        Comm::create(address, 0, 1, Device::Cpu, &CommOptions::new()).unwrap()
    }

    #[test]
    fn a_gpu_s_communicator_refuses_host_slices() {
        let mut comm = alone();
        let mut output = [0_u8; 2];
        comm.all_reduce(&[1, 2], &mut output, Op::Sum).unwrap();
        comm.device = Device::Gpu(3);
        for error in [
            comm.all_reduce(&[3, 4], &mut output, Op::Sum).unwrap_err(),
            comm.all_reduce_in_place(&mut output, Op::Sum).unwrap_err(),
        ] {
            assert_eq!(error.status, Status::INVALID_ARGUMENT);
            assert!(error.message.contains("(rank 0 of 1)"), "{error}");
            assert!(error.message.contains("Gpu(3)"), "{error}");
        }
        assert_eq!(output, [1, 2]);
    }
}
