//! Options of communicators and windows.

use std::ffi::CString;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address::c_text;
use crate::error::{Error, Result, Status};
use crate::sys;

/// Options of [`Comm::create`](crate::Comm::create) and [`Comm::split`](crate::Comm::split).
///
/// What is not set has the library's default, or for a split the parent's value. Name, scratch,
/// timeouts and flags must be equal on every rank.
///
/// ```
/// use std::time::Duration;
/// use symm::CommOptions;
///
/// let options = CommOptions::new().name("solver").timeout(Duration::from_secs(30));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct CommOptions {
    name: String,
    nccl_path: Option<PathBuf>,
    scratch_bytes: usize,
    timeout_ms: i32,
    wait_timeout_ms: i32,
    flags: u32,
}

impl CommOptions {
    /// Every default.
    pub fn new() -> CommOptions {
        CommOptions::default()
    }

    /// Tells apart communicators that are created over one address.
    pub fn name(mut self, name: impl Into<String>) -> CommOptions {
        self.name = name.into();
        self
    }

    /// The NCCL library to load. Default: one already loaded, else the usual places.
    pub fn nccl_path(mut self, path: impl AsRef<Path>) -> CommOptions {
        self.nccl_path = Some(path.as_ref().to_owned());
        self
    }

    /// The most memory for scratch on each rank; larger messages go in pieces. Default: 128 MiB.
    pub fn scratch_bytes(mut self, bytes: usize) -> CommOptions {
        self.scratch_bytes = bytes;
        self
    }

    /// The deadline of collective set-up (create, split, windows), in whole milliseconds, from 1 ms
    /// to 24 days. Default: 5 minutes.
    pub fn timeout(mut self, timeout: Duration) -> CommOptions {
        self.timeout_ms = milliseconds(timeout);
        self
    }

    /// The deadline of waits inside all-reduces and barriers, in whole milliseconds, from 1 ms to 24
    /// days. Default: 10 minutes.
    pub fn wait_timeout(mut self, timeout: Duration) -> CommOptions {
        self.wait_timeout_ms = milliseconds(timeout);
        self
    }

    /// Whether several ranks may use one GPU.
    pub fn share_gpu(self, yes: bool) -> CommOptions {
        self.flag(sys::symm_comm_flags::SYMM_COMM_SHARE_GPU, yes)
    }

    /// Whether to create the NCCL communicator even where it is not needed.
    pub fn nccl(self, yes: bool) -> CommOptions {
        self.flag(sys::symm_comm_flags::SYMM_COMM_NCCL, yes)
    }

    /// Whether to fail rather than use a path (NCCL) whose order of operands is not that of ranks.
    pub fn strict(self, yes: bool) -> CommOptions {
        self.flag(sys::symm_comm_flags::SYMM_COMM_STRICT, yes)
    }

    /// Whether no other communicator works on these GPUs meanwhile: larger grids, faster from 4 MiB up.
    pub fn sole(self, yes: bool) -> CommOptions {
        self.flag(sys::symm_comm_flags::SYMM_COMM_SOLE, yes)
    }

    fn flag(mut self, flag: sys::symm_comm_flags, yes: bool) -> CommOptions {
        self.flags = if yes { self.flags | flag.0 } else { self.flags & !flag.0 };
        self
    }

    /// Calls `body` with what C takes, which points into `self`'s copies for as long.
    pub(crate) fn with_sys<R>(
        &self,
        function: &str,
        body: impl FnOnce(&sys::symm_comm_options) -> R,
    ) -> Result<R> {
        let name = c_text(function, "name", &self.name)?;
        let nccl_path = self.nccl_path.as_deref().map(|path| {
            CString::new(path.as_os_str().as_bytes()).map_err(|_| {
                let message = format!("{function}: nccl_path {path:?} has a NUL: leave it out");
                Error::new(Status::INVALID_ARGUMENT, message)
            })
        });
        let nccl_path = nccl_path.transpose()?;
        Ok(body(&sys::symm_comm_options {
            size: size_of::<sys::symm_comm_options>(),
            name: name.as_ptr(),
            nccl_path: nccl_path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            // The message is fetched by the calling thread, which makes the call.
            error: std::ptr::null_mut(),
            error_size: 0,
            scratch_bytes: self.scratch_bytes,
            timeout_ms: self.timeout_ms,
            wait_timeout_ms: self.wait_timeout_ms,
            flags: self.flags,
            reserved: 0,
        }))
    }
}

/// 0 would mean the default, so the shortest is 1 ms; C has no room for more than 24 days.
fn milliseconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX).max(1)
}

/// Options of [`Comm::register_window`](crate::Comm::register_window) and
/// [`Comm::alloc_window_with`](crate::Comm::alloc_window_with); all local.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct WindowOptions<'fd> {
    file: Option<(i32, usize)>,
    nccl: bool,
    fd: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> WindowOptions<'fd> {
    /// Every default.
    pub fn new() -> WindowOptions<'fd> {
        WindowOptions::default()
    }

    /// The memfd or other shared file that is mapped at the registered pointer (CPU), and where in it
    /// the registered memory starts. It stays the caller's, and may be closed after the call.
    pub fn file(mut self, fd: BorrowedFd<'fd>, offset: usize) -> WindowOptions<'fd> {
        self.file = Some((fd.as_raw_fd(), offset));
        self
    }

    /// Whether to make it an NCCL window as well.
    pub fn nccl(mut self, yes: bool) -> WindowOptions<'fd> {
        self.nccl = yes;
        self
    }

    pub(crate) fn to_sys(&self) -> sys::symm_window_options {
        let (fd, fd_offset) = self.file.unwrap_or((0, 0));
        let mut flags = 0;
        if self.file.is_some() {
            flags |= sys::symm_window_flags::SYMM_WINDOW_FD.0;
        }
        if self.nccl {
            flags |= sys::symm_window_flags::SYMM_WINDOW_NCCL.0;
        }
        sys::symm_window_options {
            size: size_of::<sys::symm_window_options>(),
            error: std::ptr::null_mut(),
            error_size: 0,
            fd_offset,
            fd,
            flags,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn what_is_set_is_what_c_gets() {
        let options = CommOptions::new()
            .name("n")
            .nccl_path("/a/b")
            .scratch_bytes(4096)
            .timeout(Duration::from_secs(2))
            .wait_timeout(Duration::from_micros(1500))
            .share_gpu(true)
            .nccl(true)
            .strict(true)
            .sole(true)
            .nccl(false);
        options
            .with_sys("f", |c| {
                assert_eq!(c.size, 64);
                // SAFETY: both are set, and live as long as the call.
                let (name, path) = unsafe { (CStr::from_ptr(c.name), CStr::from_ptr(c.nccl_path)) };
                assert_eq!((name.to_str(), path.to_str()), (Ok("n"), Ok("/a/b")));
                assert_eq!(c.scratch_bytes, 4096);
                assert_eq!((c.timeout_ms, c.wait_timeout_ms), (2000, 2));
                assert_eq!(c.flags, 1 | 4 | 8);
            })
            .unwrap();
    }

    #[test]
    fn the_defaults_are_zero() {
        let check = |c: &sys::symm_comm_options| {
            assert_eq!((c.timeout_ms, c.wait_timeout_ms, c.scratch_bytes, c.flags), (0, 0, 0, 0));
            assert!(c.nccl_path.is_null());
        };
        CommOptions::new().with_sys("f", check).unwrap();
        let window = WindowOptions::new().to_sys();
        assert_eq!((window.size, window.fd, window.fd_offset, window.flags), (40, 0, 0, 0));
    }

    #[test]
    fn timeouts_are_never_the_default_by_accident() {
        assert_eq!(milliseconds(Duration::ZERO), 1);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_nanos(1_000_001)), 2);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn a_nul_inside_a_name_is_refused() {
        let error = CommOptions::new().name("a\0b").with_sys("f", |_| ()).unwrap_err();
        assert_eq!(error.status, Status::INVALID_ARGUMENT);
        assert_eq!(error.message, r#"f: name "a\0b" has a NUL at byte 1: leave it out"#);
        let path = CommOptions::new().nccl_path("a\0b").with_sys("f", |_| ()).unwrap_err();
        assert!(path.message.contains("nccl_path"), "{path}");
    }
}
