//! Finds libsymm, or builds it; see the crate's documentation for the order.

use std::env;
use std::path::Path;
use std::process::exit;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DOCS_RS");
    println!("cargo:rerun-if-env-changed=SYMM_LIB_DIR");
    println!("cargo:rerun-if-env-changed=SYMM_STATIC");
    #[cfg(feature = "bindgen")]
    generate::bindings();

    // Documentation links nothing, and docs.rs has nothing to link.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux")
        || env::var("CARGO_CFG_TARGET_POINTER_WIDTH").as_deref() != Ok("64")
    {
        fail("libsymm is for 64-bit Linux");
    }
    let is_static = wants_static();
    if let Some(dir) = env::var_os("SYMM_LIB_DIR").filter(|dir| !dir.is_empty()) {
        return link_folder(Path::new(&dir), is_static.unwrap_or(false));
    }
    let pkg_config_says = match probe_pkg_config(is_static.unwrap_or(false)) {
        Ok(()) => return,
        Err(why) => why,
    };
    #[cfg(feature = "vendored")]
    {
        drop(pkg_config_says);
        vendored::build(is_static.unwrap_or(true));
    }
    #[cfg(not(feature = "vendored"))]
    fail(&format!(
        "libsymm was not found. Set SYMM_LIB_DIR to the folder that has libsymm.so, or \
         PKG_CONFIG_PATH to the one that has symm.pc, or use the feature `vendored`, which builds it \
         (C++20 compiler, CMake).\n\npkg-config: {pkg_config_says}"
    ));
}

fn fail(why: &str) -> ! {
    eprintln!("libsymm-sys: {why}");
    exit(1);
}

/// What SYMM_STATIC says, if it says anything.
fn wants_static() -> Option<bool> {
    match env::var("SYMM_STATIC").unwrap_or_default().as_str() {
        "" => None,
        "1" => Some(true),
        "0" => Some(false),
        other => fail(&format!("SYMM_STATIC is '{other}'; set it to 1, to 0, or not at all")),
    }
}

/// Tells cargo to link the library in `dir`, and dependent crates where it is.
fn link(dir: &Path, is_static: bool) {
    println!("cargo:root={}", dir.display());
    println!("cargo:rustc-link-search=native={}", dir.display());
    if is_static {
        println!("cargo:rustc-link-lib=static=symm");
        link_cxx_runtime();
    } else {
        println!("cargo:rustc-link-lib=dylib=symm");
    }
}

/// What libsymm.a needs beside what Rust's standard library links anyway.
fn link_cxx_runtime() {
    println!("cargo:rerun-if-env-changed=CXXSTDLIB");
    // The name by which other crates' builds take it too.
    let runtime = env::var("CXXSTDLIB").unwrap_or_else(|_| "stdc++".into());
    for library in [runtime.as_str(), "m", "dl", "pthread"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}

fn link_folder(dir: &Path, is_static: bool) {
    let name = if is_static { "libsymm.a" } else { "libsymm.so" };
    if !dir.join(name).is_file() {
        fail(&format!(
            "SYMM_LIB_DIR is {}, which has no {name}. Set it to the folder that has it{}.",
            dir.display(),
            if is_static {
                ", or SYMM_STATIC=0 for libsymm.so"
            } else {
                ", or SYMM_STATIC=1 for libsymm.a"
            }
        ));
    }
    // A path relative to this crate would mean another folder to those who depend on it.
    let dir = dir.canonicalize().unwrap_or_else(|why| fail(&format!("SYMM_LIB_DIR: {why}")));
    println!("cargo:rerun-if-changed={}", dir.join(name).display());
    if let Some(include) = dir.parent().map(|prefix| prefix.join("include")) {
        if include.join("symm.h").is_file() {
            println!("cargo:include={}", include.display());
        }
    }
    link(&dir, is_static);
}

fn probe_pkg_config(is_static: bool) -> Result<(), String> {
    let part = |name: &str| -> u32 {
        env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap().parse().unwrap()
    };
    let (major, minor) = (part("MAJOR"), part("MINOR"));
    // While the major version is 0, another minor one may be another interface.
    let next = if major == 0 { format!("0.{}.0", minor + 1) } else { format!("{}.0.0", major + 1) };
    let wanted = format!("{major}.{minor}.0");
    let found = pkg_config::Config::new()
        .range_version(wanted.as_str()..next.as_str())
        .statik(is_static)
        .cargo_metadata(!is_static)
        .probe("symm")
        .map_err(|why| why.to_string())?;
    if is_static {
        // The crate would take the shared library wherever that is below /usr.
        let dir = pkg_config::get_variable("symm", "libdir").map_err(|why| why.to_string())?;
        if !Path::new(&dir).join("libsymm.a").is_file() {
            return Err(format!(
                "symm.pc names {dir}, which has no libsymm.a, and SYMM_STATIC is 1"
            ));
        }
        link(Path::new(&dir), true);
    } else if let Some(dir) = found.link_paths.first() {
        println!("cargo:root={}", dir.display());
    }
    if let Some(dir) = found.include_paths.first() {
        println!("cargo:include={}", dir.display());
    }
    Ok(())
}

/// The library's sources: in a checkout by links, in a package as files.
#[cfg(any(feature = "vendored", feature = "bindgen"))]
fn sources() -> std::path::PathBuf {
    Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("symm")
}

#[cfg(feature = "vendored")]
mod vendored {
    use super::{link, sources};

    pub(super) fn build(is_static: bool) {
        let sources = sources();
        for part in ["CMakeLists.txt", "capi", "core", "kernels"] {
            println!("cargo:rerun-if-changed={}", sources.join(part).display());
        }
        // Release whatever cargo's profile is: a debug build of the kernels is of no use to anyone.
        let target = if is_static { "symm_static" } else { "symm" };
        let out = cmake::Config::new(&sources)
            .profile("Release")
            .define("SYMM_CUDA", "OFF")
            .define("SYMM_BUILD_TESTS", "OFF")
            .define("SYMM_BUILD_EXAMPLES", "OFF")
            .build_target(target)
            .build();
        println!("cargo:include={}", sources.join("capi").display());
        link(&out.join("build"), is_static);
    }
}

#[cfg(feature = "bindgen")]
mod generate {
    use super::sources;
    use std::path::PathBuf;

    /// Writes bindings.rs into OUT_DIR. The result depends on symm.h and on nothing of the machine.
    pub(super) fn bindings() {
        let header = sources().join("capi/symm.h");
        println!("cargo:rerun-if-changed={}", header.display());
        let text = bindgen::Builder::default()
            .header(header.to_str().expect("the crate lies in a folder whose name is UTF-8"))
            .rust_target(bindgen::RustTarget::stable(81, 0).unwrap())
            .rust_edition(bindgen::RustEdition::Edition2021)
            .use_core()
            .default_enum_style(bindgen::EnumVariation::NewType {
                is_bitfield: false,
                is_global: false,
            })
            .prepend_enum_name(false)
            .size_t_is_usize(true)
            .layout_tests(false)
            .generate_comments(false)
            .allowlist_function("symm_.*")
            .allowlist_type("symm_.*")
            .allowlist_var("SYMM_.*")
            .disable_header_comment()
            .raw_line("// By bindgen.sh, from capi/symm.h. Do not edit.")
            .formatter(bindgen::Formatter::Prettyplease)
            .generate()
            .unwrap_or_else(|why| super::fail(&format!("bindgen: {why}")));
        let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap()).join("bindings.rs");
        text.write_to_file(&out)
            .unwrap_or_else(|why| super::fail(&format!("{}: {why}", out.display())));
    }
}
