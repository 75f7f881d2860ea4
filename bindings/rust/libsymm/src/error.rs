//! What a call that failed says.

use std::ffi::CStr;
use std::fmt;

use crate::sys;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of a failure: the number that the C library returned.
///
/// A newer library may return numbers that this crate has no name for, so this is no `enum`: compare
/// it with the constants.
///
/// ```
/// use symm::Status;
///
/// assert_eq!(Status::TIMEOUT.to_string(), "SYMM_TIMEOUT");
/// assert_eq!(Status::from_code(-4711).to_string(), "SYMM_UNKNOWN (-4711)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(i32);

impl Status {
    /// This rank's call, or (collective calls) another rank's, is wrong.
    pub const INVALID_ARGUMENT: Status = Status(sys::symm_status::SYMM_INVALID_ARGUMENT.0);
    /// Host or device memory, or descriptors for it, ran out.
    pub const OUT_OF_MEMORY: Status = Status(sys::symm_status::SYMM_OUT_OF_MEMORY.0);
    /// Not with this device, driver, build or library version.
    pub const UNSUPPORTED: Status = Status(sys::symm_status::SYMM_UNSUPPORTED.0);
    /// A system call failed: sockets, files, memory maps.
    pub const SYSTEM: Status = Status(sys::symm_status::SYMM_SYSTEM.0);
    /// A call of the CUDA driver failed. Sticky.
    pub const CUDA: Status = Status(sys::symm_status::SYMM_CUDA.0);
    /// A call of NCCL failed. Sticky.
    pub const NCCL: Status = Status(sys::symm_status::SYMM_NCCL.0);
    /// Some ranks did not arrive before the deadline. Sticky.
    pub const TIMEOUT: Status = Status(sys::symm_status::SYMM_TIMEOUT.0);
    /// A rank died, or left while it was still needed. Sticky.
    pub const PEER: Status = Status(sys::symm_status::SYMM_PEER.0);
    /// The ranks called different things. Sticky.
    pub const MISMATCH: Status = Status(sys::symm_status::SYMM_MISMATCH.0);
    /// Some rank aborted the communicator. Sticky.
    pub const ABORTED: Status = Status(sys::symm_status::SYMM_ABORTED.0);
    /// A bug of the library. Sticky.
    pub const INTERNAL: Status = Status(sys::symm_status::SYMM_INTERNAL.0);

    /// The status of a number of C's `symm_status`, known or not.
    pub const fn from_code(code: i32) -> Status {
        Status(code)
    }

    /// The number of C's `symm_status`.
    pub const fn code(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: any number is allowed, and the answer is static text, never null.
        let name = unsafe { CStr::from_ptr(sys::symm_status_name(self.0)) }.to_string_lossy();
        if name == "SYMM_UNKNOWN" {
            write!(f, "SYMM_UNKNOWN ({})", self.0)
        } else {
            f.write_str(&name)
        }
    }
}

/// Why a call failed.
///
/// Displayed, it is the message: function, rank, argument, value and remedy in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The kind of failure.
    pub status: Status,
    /// Function, rank, argument, value, remedy.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.status)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// A failure that is seen before the library is asked.
    #[cold]
    pub(crate) fn new(status: Status, message: String) -> Error {
        Error { status, message }
    }

    /// The failure that the last call of this thread returned. The library keeps its text for each
    /// thread until that thread's next failure, so it is fetched before anything else is called.
    #[cold]
    fn last(status: sys::symm_status) -> Error {
        // SAFETY: never null, and valid until the next failing call of this thread.
        let message = unsafe { CStr::from_ptr(sys::symm_last_error()) };
        Error::new(Status(status.0), message.to_string_lossy().into_owned())
    }
}

/// What the call just made by this thread said.
#[inline]
pub(crate) fn check(status: sys::symm_status) -> Result<()> {
    if status == sys::symm_status::SYMM_OK {
        Ok(())
    } else {
        Err(Error::last(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_can_be_boxed_sent_and_matched() {
        fn anything<T: std::error::Error + Send + Sync + 'static>(_: &T) {}
        let error = Error::new(Status::PEER, "f: rank 1 died".into());
        anything(&error);
        assert!(matches!(error, Error { status: Status::PEER, .. }));
        assert_eq!(error.to_string(), "f: rank 1 died (SYMM_PEER)");
    }

    #[test]
    fn the_message_is_of_the_call_that_failed() {
        // SAFETY: null is refused, not followed.
        let first = check(unsafe { sys::symm_comm_abort(std::ptr::null_mut()) }).unwrap_err();
        // SAFETY: as above.
        let status = unsafe { sys::symm_comm_barrier(std::ptr::null_mut(), std::ptr::null_mut()) };
        let second = check(status).unwrap_err();
        assert_eq!(first.status, Status::INVALID_ARGUMENT);
        assert!(first.message.starts_with("symm_comm_abort"), "{first}");
        assert!(second.message.starts_with("symm_comm_barrier"), "{second}");
    }

    #[test]
    fn statuses_are_the_library_s_numbers() {
        for (status, name) in [
            (Status::INVALID_ARGUMENT, "SYMM_INVALID_ARGUMENT"),
            (Status::OUT_OF_MEMORY, "SYMM_OUT_OF_MEMORY"),
            (Status::UNSUPPORTED, "SYMM_UNSUPPORTED"),
            (Status::SYSTEM, "SYMM_SYSTEM"),
            (Status::CUDA, "SYMM_CUDA"),
            (Status::NCCL, "SYMM_NCCL"),
            (Status::TIMEOUT, "SYMM_TIMEOUT"),
            (Status::PEER, "SYMM_PEER"),
            (Status::MISMATCH, "SYMM_MISMATCH"),
            (Status::ABORTED, "SYMM_ABORTED"),
            (Status::INTERNAL, "SYMM_INTERNAL"),
        ] {
            assert_eq!(status.to_string(), name);
            assert_eq!(Status::from_code(status.code()), status);
        }
    }
}
