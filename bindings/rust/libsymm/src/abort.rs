//! Ending a communicator's waits from another thread.

use std::fmt;
use std::sync::Weak;

use crate::error::Result;
use crate::handle::Handle;

/// Ends a communicator's waits from any thread, at any time.
///
/// It neither keeps the communicator alive nor needs it to be: aborting one that has been dropped,
/// with its windows, does nothing.
///
/// ```
/// use symm::{Address, Comm, CommOptions, Device, Op, Status};
///
/// # fn main() -> symm::Result<()> {
/// let address = Address::create(None)?;
/// # let other = { let address = address.clone(); std::thread::spawn(move || {
/// #     let comm = Comm::create(&address, 1, 2, Device::Cpu, &CommOptions::new()).unwrap();
/// #     while comm.check().is_ok() { std::thread::yield_now(); }
/// # }) };
/// let comm = Comm::create(&address, 0, 2, Device::Cpu, &CommOptions::new())?;
/// let handle = comm.abort_handle();
/// std::thread::spawn(move || handle.abort());
/// // The other rank never comes.
/// let error = comm.all_reduce_in_place(&mut [1.0_f64], Op::Sum).unwrap_err();
/// assert_eq!(error.status, Status::ABORTED);
/// # other.join().unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AbortHandle(Weak<Handle>);

impl AbortHandle {
    pub(crate) fn new(handle: Weak<Handle>) -> AbortHandle {
        AbortHandle(handle)
    }

    /// Ends every wait of the communicator and its windows on every rank, now and later, with
    /// [`Status::ABORTED`](crate::Status::ABORTED). Does not block. Its parent, children and siblings
    /// go on.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`](crate::Status::INVALID_ARGUMENT) in a forked child.
    pub fn abort(&self) -> Result<()> {
        // While this call holds the handle nobody else's drop frees it; if they all come meanwhile,
        // it is freed here.
        self.0.upgrade().map_or(Ok(()), |handle| handle.abort())
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("alive", &(self.0.strong_count() > 0)).finish()
    }
}
