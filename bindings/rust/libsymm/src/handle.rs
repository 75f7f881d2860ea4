//! The communicator's handle, which windows and abort handles share.

use std::ptr::NonNull;

use crate::error::{check, Result};
use crate::sys;

/// The C handle, freed with the last of communicator, windows and aborts under way that have it.
pub(crate) struct Handle(NonNull<sys::symm_comm>);

// SAFETY: the library's handles are of no thread, it serialises the calls on one communicator and on
// its windows, and it is freed when nobody else can have it.
unsafe impl Send for Handle {}
// SAFETY: as above: every call through a shared handle may be made by several threads at once.
unsafe impl Sync for Handle {}

impl Handle {
    /// Takes over what the library gave out; `None` for null.
    pub(crate) fn own(comm: *mut sys::symm_comm) -> Option<Handle> {
        NonNull::new(comm).map(Handle)
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::symm_comm {
        self.0.as_ptr()
    }

    pub(crate) fn abort(&self) -> Result<()> {
        // SAFETY: the handle is alive; the call may be made at any time by any thread.
        check(unsafe { sys::symm_comm_abort(self.as_ptr()) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody else has it any more. In a forked child the call does nothing.
        unsafe { sys::symm_comm_free(self.as_ptr()) }
    }
}
