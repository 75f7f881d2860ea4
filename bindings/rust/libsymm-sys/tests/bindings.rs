//! What the checked-in bindings say is what symm.h says, and what the linked library does.

use libsymm_sys as sys;
use std::ffi::CStr;
use std::mem::{offset_of, size_of};

/// With SYMM_UPDATE_BINDINGS=1 (bindgen.sh) it puts them right instead.
#[cfg(feature = "bindgen")]
#[test]
fn the_checked_in_bindings_are_those_of_the_header() {
    let generated = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bindings.rs");
    if std::env::var_os("SYMM_UPDATE_BINDINGS").is_some_and(|value| value == "1") {
        std::fs::write(path, generated).unwrap();
        return;
    }
    let checked_in = std::fs::read_to_string(path).unwrap();
    let line = generated.lines().zip(checked_in.lines()).position(|(a, b)| a != b);
    assert!(
        generated == checked_in,
        "src/bindings.rs is not what bindgen makes of symm.h (first difference: line {}). \
         Run bindings/rust/bindgen.sh and commit src/bindings.rs.",
        line.map_or_else(|| "one is longer".into(), |index| (index + 1).to_string())
    );
}

#[test]
fn the_linked_library_is_of_the_version_that_the_bindings_are_for() {
    // SAFETY: no arguments.
    let version = unsafe { sys::symm_version() };
    let header = |part: sys::symm_header_version| part.0 as i32;
    let major = header(sys::symm_header_version::SYMM_VERSION_MAJOR);
    let minor = header(sys::symm_header_version::SYMM_VERSION_MINOR);
    assert_eq!(version / 1_000_000, major);
    assert!(version / 1000 % 1000 >= minor, "library {version}, bindings {major}.{minor}");
}

#[test]
fn the_crate_says_the_version_of_the_header() {
    let part = |part: sys::symm_header_version| part.0;
    let header = format!(
        "{}.{}.{}",
        part(sys::symm_header_version::SYMM_VERSION_MAJOR),
        part(sys::symm_header_version::SYMM_VERSION_MINOR),
        part(sys::symm_header_version::SYMM_VERSION_PATCH)
    );
    let said = env!("CARGO_PKG_VERSION").split("+symm.").nth(1);
    assert_eq!(
        said,
        Some(header.as_str()),
        "Cargo.toml's version ends in +symm.<symm.h's version>"
    );
}

#[test]
fn options_are_laid_out_as_in_c() {
    assert_eq!(size_of::<sys::symm_comm_options>(), 64);
    assert_eq!(offset_of!(sys::symm_comm_options, error), 24);
    assert_eq!(offset_of!(sys::symm_comm_options, timeout_ms), 48);
    assert_eq!(offset_of!(sys::symm_comm_options, reserved), 60);
    assert_eq!(size_of::<sys::symm_window_options>(), 40);
    assert_eq!(offset_of!(sys::symm_window_options, fd), 32);
    assert_eq!(offset_of!(sys::symm_window_options, flags), 36);
    assert_eq!(size_of::<sys::symm_status>(), size_of::<core::ffi::c_int>());
}

#[test]
fn statuses_have_the_numbers_that_the_library_gives_their_names() {
    for (status, name) in [
        (sys::symm_status::SYMM_OK, "SYMM_OK"),
        (sys::symm_status::SYMM_INVALID_ARGUMENT, "SYMM_INVALID_ARGUMENT"),
        (sys::symm_status::SYMM_UNSUPPORTED, "SYMM_UNSUPPORTED"),
        (sys::symm_status::SYMM_TIMEOUT, "SYMM_TIMEOUT"),
        (sys::symm_status::SYMM_INTERNAL, "SYMM_INTERNAL"),
        // A number of a newer library is a legal value here.
        (sys::symm_status(-4711), "SYMM_UNKNOWN"),
    ] {
        // SAFETY: any number is allowed, and the answer is static.
        let said = unsafe { CStr::from_ptr(sys::symm_status_name(status.0)) };
        assert_eq!(said.to_str(), Ok(name));
    }
}
