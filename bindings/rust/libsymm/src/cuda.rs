//! Calls with cudarc's streams and device slices.
//!
//! They are enqueued and return before the work is done, and so are unsafe: cudarc orders the work on
//! its own slices among its streams, but does not know what other ranks do, nor keeps what a captured
//! graph needs.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::size_of;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop};

use crate::error::Result;
use crate::{Comm, Element, Op, Window};

impl Comm {
    /// [`Comm::all_reduce`] of device slices, on `stream`. Collective; for a GPU's communicator.
    ///
    /// ```no_run
    /// # use symm::{Comm, CommOptions, Device, Op};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let comm = Comm::from_env(Device::Gpu(0), &CommOptions::new())?;
    /// let stream = cudarc::driver::CudaContext::new(0)?.new_stream()?;
    /// let input = stream.clone_htod(&[1.0_f32, 2.0])?;
    /// let mut sum = stream.alloc_zeros::<f32>(2)?;
    /// // SAFETY: both slices live until the stream has been waited for.
    /// unsafe { comm.all_reduce_on(&stream, &input, &mut sum, Op::Sum)? };
    /// stream.synchronize()?;
    /// comm.check()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Comm::all_reduce_raw`], and
    /// [`Status::INVALID_ARGUMENT`](crate::Status::INVALID_ARGUMENT) if the lengths differ.
    ///
    /// # Safety
    ///
    /// Until `stream` has run past it, and for each replay of a graph that captured it, both slices
    /// live, nobody writes `input` and nobody touches `output`, other than work that is ordered after
    /// it. cudarc sees to that for its own slices unless a graph captures the call or its
    /// [event tracking](cudarc::driver::CudaContext::disable_event_tracking) is off.
    pub unsafe fn all_reduce_on<T: Element>(
        &self,
        stream: &CudaStream,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        op: Op,
    ) -> Result<()> {
        let count = input.len();
        if count != output.len() {
            return Err(self.lengths_differ("all_reduce_on", count, output.len()));
        }
        let (input, _read) = input.device_ptr(stream);
        let (output, _written) = output.device_ptr_mut(stream);
        let (input, output) = (input as *const c_void, output as *mut c_void);
        // SAFETY: both are `count` elements of T; how long they stay so is the caller's promise.
        unsafe { self.all_reduce_raw(input, output, count, T::DTYPE, op, raw(stream)) }
    }

    /// [`Comm::all_reduce_in_place`] of a device slice, on `stream`. Collective; for a GPU's
    /// communicator.
    ///
    /// # Errors
    ///
    /// Those of [`Comm::all_reduce_raw`].
    ///
    /// # Safety
    ///
    /// As for the output of [`Comm::all_reduce_on`].
    pub unsafe fn all_reduce_in_place_on<T: Element>(
        &self,
        stream: &CudaStream,
        buffer: &mut impl DevicePtrMut<T>,
        op: Op,
    ) -> Result<()> {
        let count = buffer.len();
        let (buffer, _written) = buffer.device_ptr_mut(stream);
        let buffer = buffer as *mut c_void;
        // SAFETY: it is `count` elements of T; how long it stays so is the caller's promise.
        unsafe { self.all_reduce_raw(buffer, buffer, count, T::DTYPE, op, raw(stream)) }
    }

    /// [`Comm::barrier`] on `stream`. Collective. Safe, since it touches no memory of the program's.
    ///
    /// # Errors
    ///
    /// Those of [`Comm::barrier_raw`].
    pub fn barrier_on(&self, stream: &CudaStream) -> Result<()> {
        // SAFETY: the stream exists, and destroying it waits for nothing and breaks nothing enqueued.
        unsafe { self.barrier_raw(raw(stream)) }
    }
}

impl Window {
    /// [`Window::all_reduce`] into a device slice, on `stream`. Collective; for a GPU's communicator.
    ///
    /// # Errors
    ///
    /// Those of [`Window::all_reduce_raw`].
    ///
    /// # Safety
    ///
    /// As for the output of [`Comm::all_reduce_on`].
    pub unsafe fn all_reduce_on<T: Element>(
        &self,
        stream: &CudaStream,
        offset: usize,
        output: &mut impl DevicePtrMut<T>,
        op: Op,
    ) -> Result<()> {
        let count = output.len();
        let (output, _written) = output.device_ptr_mut(stream);
        let output = output as *mut c_void;
        // SAFETY: it is `count` elements of T; how long it stays so is the caller's promise.
        unsafe { self.all_reduce_raw(offset, output, count, T::DTYPE, op, raw(stream)) }
    }

    /// `count` elements of `rank`'s copy, from byte `offset` on, as a device slice that cudarc's
    /// copies and launches take. `stream` is the one it says it belongs to.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`](crate::Status::INVALID_ARGUMENT) for a rank that is none, for what
    /// reaches past the window's end or is not aligned, and for a window in host memory.
    ///
    /// # Safety
    ///
    /// Work with the slice is ordered by the program: by one stream, events, and barriers of the
    /// communicator against other ranks' reads and writes. cudarc does not track it. The window
    /// outlives the work.
    pub unsafe fn device_slice<T: Element>(
        &self,
        stream: &Arc<CudaStream>,
        rank: usize,
        offset: usize,
        count: usize,
    ) -> Result<DeviceWindow<'_, T>> {
        let pointer = self.device_range::<T>("device_slice", rank, offset, count)?;
        Ok(DeviceWindow { pointer, count, stream: Arc::clone(stream), window: PhantomData })
    }
}

/// A part of one rank's copy of a window, as cudarc's copies and launches take it. It cannot outlive
/// the window.
#[derive(Debug)]
pub struct DeviceWindow<'w, T> {
    pointer: CUdeviceptr,
    count: usize,
    stream: Arc<CudaStream>,
    window: PhantomData<(&'w Window, T)>,
}

impl<T: Element> DeviceSlice<T> for DeviceWindow<'_, T> {
    fn len(&self) -> usize {
        self.count
    }

    fn num_bytes(&self) -> usize {
        self.count * size_of::<T>()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl<T: Element> DevicePtr<T> for DeviceWindow<'_, T> {
    fn device_ptr<'a>(&'a self, _: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        (self.pointer, SyncOnDrop::Record(None))
    }
}

impl<T: Element> DevicePtrMut<T> for DeviceWindow<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, _: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        (self.pointer, SyncOnDrop::Record(None))
    }
}

fn raw(stream: &CudaStream) -> *mut c_void {
    stream.cu_stream().cast()
}
