//! Where ranks meet.

use std::ffi::CString;
use std::fmt;

use crate::error::{Error, Result, Status};
use crate::{sys, text};

/// An address that this process serves until it exits; hand its text to every rank by any means.
///
/// It serves any number of communicators, told apart by [`CommOptions::name`](crate::CommOptions::name),
/// and nothing needs freeing. The process need not be a rank itself.
///
/// ```
/// use std::process::Command;
/// use symm::Address;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let address = Address::create(None)?;
/// for rank in 0..2 {
///     // A program that gives both to `Comm::create`; here one that does nothing.
///     Command::new("true").args([address.as_str(), &rank.to_string()]).spawn()?.wait()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(String);

impl Address {
    /// Starts to serve a new address. `host` is the name or number that others reach this process
    /// by; `None`: every interface it has.
    ///
    /// # Errors
    ///
    /// [`Status::INVALID_ARGUMENT`] for a host that is none, [`Status::SYSTEM`] if no socket can be
    /// had.
    pub fn create(host: Option<&str>) -> Result<Address> {
        let host = host.map(|host| c_text("Address::create", "host", host)).transpose()?;
        let host = host.as_ref().map_or(std::ptr::null(), |host| host.as_ptr());
        let text = text::fetch(|buffer, size, needed| {
            // SAFETY: `host` is null or ends in NUL and lives on; `fetch` gives a buffer of that size.
            unsafe { sys::symm_address_create(host, buffer, size, needed) }
        })?;
        Ok(Address(text))
    }

    /// The text that [`Comm::create`](crate::Comm::create) of every rank takes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Address {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `value` as C wants it. A NUL inside cannot be said to C, and so not to the other ranks either.
pub(crate) fn c_text(function: &str, argument: &str, value: &str) -> Result<CString> {
    CString::new(value).map_err(|why| {
        let message = format!(
            "{function}: {argument} {value:?} has a NUL at byte {}: leave it out",
            why.nul_position()
        );
        Error::new(Status::INVALID_ARGUMENT, message)
    })
}
