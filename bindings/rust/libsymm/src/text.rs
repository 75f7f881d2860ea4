//! The way in which the C library hands out texts.

use std::ffi::c_char;

use crate::error::{check, Result};
use crate::handle::Handle;
use crate::{sys, DType, Op};

/// Calls `ask` for the size of its text and then for the text.
pub(crate) fn fetch(
    mut ask: impl FnMut(*mut c_char, usize, *mut usize) -> sys::symm_status,
) -> Result<String> {
    // Addresses and plans fit at once; of a report only the size is learnt.
    let mut buffer = vec![0_u8; sys::symm_limits::SYMM_ADDRESS_SIZE.0 as usize];
    loop {
        let mut needed = 0;
        let status = ask(buffer.as_mut_ptr().cast(), buffer.len(), &mut needed);
        // A report may have grown since its size was asked for.
        if status != sys::symm_status::SYMM_OK && needed > buffer.len() {
            buffer.resize(needed, 0);
            continue;
        }
        check(status)?;
        buffer.truncate(needed.saturating_sub(1));
        return Ok(String::from_utf8_lossy(&buffer).into_owned());
    }
}

/// The plan of an all-reduce of `window`, or of any memory for null.
pub(crate) fn plan(
    comm: &Handle,
    window: *const sys::symm_window,
    count: usize,
    dtype: DType,
    op: Op,
) -> Result<String> {
    fetch(|buffer, size, needed| {
        let (dtype, op) = (dtype.as_sys(), op.as_sys());
        // SAFETY: both are alive or null; `fetch` gives a buffer of that size.
        unsafe { sys::symm_plan(comm.as_ptr(), window, count, dtype, op, buffer, size, needed) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as the C library does, with a text of `length` bytes and its NUL.
    fn answer(
        buffer: *mut c_char,
        size: usize,
        needed: *mut usize,
        length: usize,
    ) -> sys::symm_status {
        // SAFETY: `fetch` gives a number to write to and a buffer of `size`.
        unsafe {
            *needed = length + 1;
            if size < length + 1 {
                return sys::symm_status::SYMM_INVALID_ARGUMENT;
            }
            buffer.cast::<u8>().write_bytes(b'x', length);
            buffer.cast::<u8>().add(length).write(0);
        }
        sys::symm_status::SYMM_OK
    }

    #[test]
    fn a_text_that_grows_while_it_is_asked_for_is_whole() {
        let mut lengths = [600, 5000, 5000].into_iter();
        let text =
            fetch(|buffer, size, needed| answer(buffer, size, needed, lengths.next().unwrap()));
        assert_eq!(text.unwrap(), "x".repeat(5000));
        assert_eq!(lengths.next(), None);
    }

    #[test]
    fn a_short_text_takes_one_call() {
        let mut calls = 0;
        let text = fetch(|buffer, size, needed| {
            calls += 1;
            answer(buffer, size, needed, 3)
        });
        assert_eq!((text.unwrap().as_str(), calls), ("xxx", 1));
    }
}
