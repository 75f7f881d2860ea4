//! An all-reduce of 8 bytes by the safe crate and by the C interface.
//!
//! `cargo bench -p benches` with SYMM_LIB_DIR and LD_LIBRARY_PATH set; test.sh --bench does that.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use criterion::{criterion_group, Criterion};
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

/// A call by one of the two ways.
type Call<'a> = &'a mut dyn FnMut(&[f32; 2], &mut [f32; 2]);

/// Times so many calls of one of the ways.
type Timed<'a> = &'a mut dyn FnMut(u64, Way) -> Duration;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    C,
    Rust,
}

fn time(calls: u64, call: Call) -> Duration {
    let (input, mut output) = ([1.0_f32, 2.0], [0.0_f32; 2]);
    call(&input, &mut output);
    let start = Instant::now();
    (0..calls).for_each(|_| call(black_box(&input), black_box(&mut output)));
    start.elapsed()
}

/// Both ways on one communicator of `size` ranks. The other ranks' calls are always C's.
fn with_ranks(size: i32, body: impl FnOnce(Timed)) {
    let address = Address::create(Some("127.0.0.1")).unwrap();
    let mut told = Vec::new();
    let others: Vec<_> = (1..size)
        .map(|rank| {
            let (tell, calls) = mpsc::channel::<u64>();
            told.push(tell);
            let address = address.to_string();
            std::thread::spawn(move || {
                let raw = Raw::create(&address, rank, size);
                for calls in calls {
                    time(calls, &mut |input, output| raw.all_reduce(input, output));
                }
            })
        })
        .collect();
    let comm = Comm::create(&address, 0, size as usize, Device::Cpu, &CommOptions::new()).unwrap();
    // The same communicator by both ways, so that nothing but the way differs.
    let raw = std::mem::ManuallyDrop::new(Raw(comm.as_raw()));
    body(&mut |calls, way| {
        told.iter().for_each(|told| told.send(calls).unwrap());
        match way {
            Way::C => time(calls, &mut |input, output| raw.all_reduce(input, output)),
            Way::Rust => time(calls, &mut |input, output| {
                comm.all_reduce(input, output, Op::Sum).unwrap();
            }),
        }
    });
    drop(told);
    others.into_iter().for_each(|other| other.join().unwrap());
}

fn name(size: i32) -> String {
    format!("{size} ranks, 8 bytes")
}

fn by_criterion(criterion: &mut Criterion) {
    for size in [1, 2] {
        with_ranks(size, |timed| {
            let mut group = criterion.benchmark_group(name(size));
            group.bench_function("C", |b| b.iter_custom(|calls| timed(calls, Way::C)));
            group.bench_function("Rust", |b| b.iter_custom(|calls| timed(calls, Way::Rust)));
        });
    }
}

/// Criterion measures one way after the other, and between the two a busy machine may have changed.
/// Here they take turns, batch by batch.
fn in_turns() {
    const BATCHES: usize = 2001;
    const CALLS: u64 = 500;
    for size in [1, 2] {
        with_ranks(size, |timed| {
            let mut nanoseconds = [Vec::new(), Vec::new()];
            for batch in 0..BATCHES {
                // Each as often first as second.
                let first = if batch % 2 == 0 { Way::C } else { Way::Rust };
                let second = if batch % 2 == 0 { Way::Rust } else { Way::C };
                for way in [first, second] {
                    let time = timed(CALLS, way).as_nanos() as f64 / CALLS as f64;
                    nanoseconds[usize::from(way == Way::Rust)].push(time);
                }
            }
            for (what, tenths) in [("median", 5), ("undisturbed tenth", 1)] {
                let [c, rust] = [0, 1].map(|way| {
                    nanoseconds[way].sort_by(f64::total_cmp);
                    nanoseconds[way][BATCHES * tenths / 10]
                });
                let name = name(size);
                println!(
                    "{name} in turns, {what}: C {c:.1} ns, Rust {rust:.1} ns, {:.3}",
                    rust / c
                );
            }
        });
    }
}

criterion_group!(benches, by_criterion);

fn main() {
    benches();
    in_turns();
    Criterion::default().configure_from_args().final_summary();
}
