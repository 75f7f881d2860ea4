//! Raw bindings to libsymm: symmetric memory windows and one-shot
//! all-reduce. Most programs want the safe crate `libsymm`, whose library is named `symm`.
//!
//! Names and meaning are those of `symm.h`, which is the reference. Statuses, types and operations
//! are newtypes over C's `int`, so that a value which a newer library returns is a legal one here.
//!
//! # Which library is linked
//!
//! The first of these that there is:
//!
//! 1. `SYMM_LIB_DIR`, the folder that has `libsymm.so` (`libsymm.a` with `SYMM_STATIC=1`);
//! 2. what `pkg-config` knows as `symm`, of this crate's minor version while it is 0
//!    (`SYMM_NO_PKG_CONFIG=1` passes it over);
//! 3. with the feature `vendored`, the bundled sources, built by CMake with a C++20 compiler: the
//!    static library, or the shared one with `SYMM_STATIC=0`. This build is for CPU ranks.
//!
//! Build scripts of dependent crates find the library's folder in `DEP_SYMM_ROOT`, and that of
//! `symm.h` in `DEP_SYMM_INCLUDE` where it is known. A shared library must be found again when the
//! program starts: by the loader's usual places, `LD_LIBRARY_PATH`, or an rpath of the program's.
#![no_std]
#![allow(non_camel_case_types)]
#![allow(clippy::all)]

#[cfg(not(feature = "bindgen"))]
include!("bindings.rs");
#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
