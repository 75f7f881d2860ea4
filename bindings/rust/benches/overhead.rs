//! An all-reduce of 8 bytes by the safe crate and by the C interface, alternating.
//!
//! `cargo bench -p benches` with SYMM_LIB_DIR and LD_LIBRARY_PATH set; test.sh --bench does that.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, Criterion};
use symm::{sys, Address, Comm, CommOptions, Device, Op};

/// A communicator by the C interface alone.
struct Raw(*mut sys::symm_comm);
// SAFETY: handles are of no thread.
unsafe impl Send for Raw {}

impl Raw {
    fn create(address: &str, rank: i32, size: i32) -> Raw {
        let address = std::ffi::CString::new(address).unwrap();
        let mut comm = std::ptr::null_mut();
        let (cpu, options) = (sys::symm_device::SYMM_CPU.0, std::ptr::null());
        // SAFETY: the text and the output are alive.
        let status =
            unsafe { sys::symm_comm_create(address.as_ptr(), rank, size, cpu, options, &mut comm) };
        assert_eq!(status, sys::symm_status::SYMM_OK);
        Raw(comm)
    }

    #[inline]
    fn all_reduce(&self, input: &[f32; 2], output: &mut [f32; 2]) {
        // SAFETY: the handle is alive, and the arrays are as long as is said.
        let status = unsafe {
            sys::symm_all_reduce(
                self.0,
                input.as_ptr().cast(),
                output.as_mut_ptr().cast(),
                2,
                sys::symm_dtype::SYMM_FLOAT32,
                sys::symm_op::SYMM_SUM,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(status, sys::symm_status::SYMM_OK);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { sys::symm_comm_free(self.0) }
    }
}

fn one_rank(criterion: &mut Criterion) {
    let address = Address::create(Some("127.0.0.1")).unwrap();
    let raw = Raw::create(address.as_str(), 0, 1);
    let safe = Comm::create(&address, 0, 1, Device::Cpu, &CommOptions::new()).unwrap();
    let (input, mut output) = ([1.0_f32, 2.0], [0.0_f32; 2]);
    let mut group = criterion.benchmark_group("one rank, 8 bytes");
    // Twice each: what differs between runs of the same is noise.
    for round in 1..=2 {
        group.bench_function(format!("C {round}"), |b| {
            b.iter(|| raw.all_reduce(black_box(&input), black_box(&mut output)));
        });
        group.bench_function(format!("Rust {round}"), |b| {
            b.iter(|| {
                safe.all_reduce(black_box(&input), black_box(&mut output), Op::Sum).unwrap();
            });
        });
    }
}

fn two_ranks(criterion: &mut Criterion) {
    let address = Address::create(Some("127.0.0.1")).unwrap();
    // The other rank makes as many calls as it is told, always by the C interface.
    let (told, calls) = mpsc::channel::<u64>();
    let other = std::thread::spawn({
        let address = address.to_string();
        move || {
            let raw = Raw::create(&address, 1, 2);
            let (input, mut output) = ([3.0_f32, 4.0], [0.0_f32; 2]);
            for count in calls {
                (0..count).for_each(|_| raw.all_reduce(&input, &mut output));
            }
        }
    });
    let comm = Comm::create(&address, 0, 2, Device::Cpu, &CommOptions::new()).unwrap();
    // The same communicator by both ways, so that nothing but the way differs.
    let raw = std::mem::ManuallyDrop::new(Raw(comm.as_raw()));
    let (input, mut output) = ([1.0_f32, 2.0], [0.0_f32; 2]);
    let mut group = criterion.benchmark_group("two ranks, 8 bytes");
    let mut timed = |count: u64, call: &mut dyn FnMut(&[f32; 2], &mut [f32; 2])| -> Duration {
        told.send(count + 1).unwrap();
        call(&input, &mut output); // the other is awake
        let start = Instant::now();
        (0..count).for_each(|_| call(black_box(&input), black_box(&mut output)));
        start.elapsed()
    };
    for round in 1..=2 {
        group.bench_function(format!("C {round}"), |b| {
            b.iter_custom(|count| timed(count, &mut |input, output| raw.all_reduce(input, output)));
        });
        group.bench_function(format!("Rust {round}"), |b| {
            b.iter_custom(|count| {
                timed(count, &mut |input, output| {
                    comm.all_reduce(input, output, Op::Sum).unwrap();
                })
            });
        });
    }
    group.finish();
    drop(told);
    other.join().unwrap();
}

criterion_group!(benches, one_rank, two_ranks);
criterion_main!(benches);
