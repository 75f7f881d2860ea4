//! Copies between this rank's own memory and memory that other ranks write at the same time.
//!
//! To the compiler an ordinary copy from such memory is a data race and so undefined, a volatile one
//! as well where the other rank is a thread of this process. What is wanted is a copy of relaxed
//! atomic bytes: bytes that are written meanwhile come old or new, and nothing else goes wrong. Bytes,
//! and no wider unit, since accesses that race must be of one size, and two ranks may well write
//! neighbouring bytes of a word.
//!
//! Compilers make a slow loop of that, so on x86-64 it is one instruction in assembly, which does just
//! what such a loop does and of which the compiler knows no more than that memory changes.
//!
//! Order among ranks is not this module's: it comes from barriers and all-reduces.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use bytes as chosen;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use instruction as chosen;

/// Copies `count` bytes out of shared memory.
///
/// # Safety
///
/// `shared` is `count` bytes of mapped memory to read, `own` as many to write, which nobody else
/// touches meanwhile. Every access of other threads to `shared` is atomic or the C library's.
pub(crate) unsafe fn load(shared: *const u8, own: *mut u8, count: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { chosen::load(shared, own, count) }
}

/// Copies `count` bytes into shared memory.
///
/// # Safety
///
/// `shared` is `count` bytes of mapped memory to write, `own` as many to read, which nobody writes
/// meanwhile. Every access of other threads to `shared` is atomic or the C library's.
pub(crate) unsafe fn store(own: *const u8, shared: *mut u8, count: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { chosen::store(own, shared, count) }
}

/// One instruction, for both directions.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod instruction {
    /// # Safety
    ///
    /// That of either use.
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
        // SAFETY: the callers' promise. The direction flag is clear wherever Rust code runs.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") count => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
    }

    pub(super) use copy as load;
    pub(super) use copy as store;
}

/// The loop itself: on other processors, under Miri, and for the tests.
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
mod bytes {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// # Safety
    ///
    /// That of [`super::load`].
    pub(super) unsafe fn load(shared: *const u8, own: *mut u8, count: usize) {
        for i in 0..count {
            // SAFETY: both are `count` bytes; a shared one is only ever used as an atomic.
            unsafe {
                let byte = AtomicU8::from_ptr(shared.add(i).cast_mut());
                own.add(i).write(byte.load(Relaxed));
            }
        }
    }

    /// # Safety
    ///
    /// That of [`super::store`].
    pub(super) unsafe fn store(own: *const u8, shared: *mut u8, count: usize) {
        for i in 0..count {
            // SAFETY: both are `count` bytes; a shared one is only ever used as an atomic.
            unsafe {
                let byte = AtomicU8::from_ptr(shared.add(i));
                byte.store(own.add(i).read(), Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    type Load = unsafe fn(*const u8, *mut u8, usize);
    type Store = unsafe fn(*const u8, *mut u8, usize);
    /// What this machine uses, and what others do.
    const BOTH: [(Load, Store); 2] = [(load, store), (bytes::load, bytes::store)];

    struct Shared([UnsafeCell<u8>; 64]);
    // SAFETY: only touched by load and store, whose accesses are atomic.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn new() -> Shared {
            Shared([const { UnsafeCell::new(0) }; 64])
        }
        fn at(&self, index: usize) -> *mut u8 {
            // Of the whole array, so that more than one byte may be reached from it.
            self.0.as_ptr().cast::<u8>().cast_mut().wrapping_add(index)
        }
    }

    #[test]
    fn just_the_bytes_named_are_copied() {
        let ranges = [(0, 64), (0, 0), (64, 0), (3, 1), (5, 17), (63, 1), (1, 63)];
        for ((load, store), (start, count)) in
            BOTH.into_iter().flat_map(|both| ranges.map(|range| (both, range)))
        {
            let shared = Shared::new();
            let own: Vec<u8> = (1..=count as u8).collect();
            let mut back = vec![0; count];
            let mut whole = [0; 64];
            // SAFETY: start + count is at most 64.
            unsafe {
                store(own.as_ptr(), shared.at(start), count);
                load(shared.at(start), back.as_mut_ptr(), count);
                load(shared.at(0), whole.as_mut_ptr(), 64);
            }
            assert_eq!(back, own);
            let mut expected = [0; 64];
            expected[start..start + count].copy_from_slice(&own);
            assert_eq!(whole, expected, "{start} {count}");
        }
    }

    /// Under Miri, which knows a data race when it sees one, this is what the module is about.
    #[test]
    fn bytes_that_are_written_meanwhile_come_old_or_new() {
        BOTH.into_iter().for_each(|(load, store)| race(load, store));
    }

    fn race(load: Load, store: Store) {
        let shared = &Shared::new();
        let rounds = if cfg!(miri) { 10 } else { 10_000 };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..rounds {
                    let own = [if round % 2 == 0 { 0xff } else { 0 }; 9];
                    // SAFETY: 7 + 9 bytes are within the 64.
                    unsafe { store(own.as_ptr(), shared.at(7), own.len()) }
                }
            });
            for _ in 0..rounds {
                let mut own = [1; 64];
                // SAFETY: all 64 bytes.
                unsafe { load(shared.at(0), own.as_mut_ptr(), own.len()) }
                assert!(own[..7].iter().chain(&own[16..]).all(|&byte| byte == 0), "{own:?}");
                assert!(own[7..16].iter().all(|&byte| byte == 0 || byte == 0xff), "{own:?}");
            }
        });
    }
}
