//! GPU ranks with cudarc's streams and slices: for machines that have a GPU, by `--ignored`.
#![cfg(feature = "cudarc")]

mod support;
#[macro_use]
#[path = "support/reference.rs"]
mod reference;

use std::sync::{Arc, Barrier};

use cudarc::driver::{CudaContext, CudaStream};
use reference::{assert_same, expected, inputs};
use support::{threads, Rank, LIMIT};
use symm::{Comm, CommOptions, Device, Op, Status};

/// Two ranks that share the first GPU, each with a stream of its own.
///
/// They share its context too, and the driver may hold that while it waits: in a call that
/// allocates, or that copies to or from pageable memory. A rank that did so behind an all-reduce
/// could keep the other from making the call that it waits for. So all memory is there before any
/// rank enqueues anything, for which `together` is, and streams are waited for before copies.
fn ranks(body: impl Fn(&Comm, &Arc<CudaStream>, &dyn Fn()) + Sync) {
    let barrier = Barrier::new(2);
    threads(2, |rank: Rank| {
        let options = CommOptions::new().share_gpu(true).timeout(LIMIT).wait_timeout(LIMIT);
        let comm = Comm::create(&rank.address, rank.rank, 2, Device::Gpu(0), &options).unwrap();
        assert_eq!(comm.device(), Device::Gpu(0));
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        body(&comm, &stream, &|| {
            stream.synchronize().unwrap();
            barrier.wait();
        });
        stream.synchronize().unwrap();
        comm.check().unwrap();
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn device_slices_are_reduced_on_a_stream() {
    ranks(|comm, stream, together| {
        for (count, op) in [(1, Op::Sum), (1000, Op::Avg), (100_000, Op::Max), (333, Op::Prod)] {
            let inputs = inputs::<f32>(count as u64, 2, count);
            let expected = expected(op, &inputs);
            let what = format!("{op:?} x {count}, rank {}", comm.rank());
            let input = stream.clone_htod(&inputs[comm.rank()]).unwrap();
            let mut output = stream.alloc_zeros::<f32>(count).unwrap();
            together();
            // SAFETY: both slices live until the stream has been waited for, below.
            unsafe { comm.all_reduce_on(stream, &input, &mut output, op) }.unwrap();
            together();
            assert_same(&stream.clone_dtoh(&output).unwrap(), &expected, &what);
            let mut buffer = input;
            together();
            // SAFETY: as above.
            unsafe { comm.all_reduce_in_place_on(stream, &mut buffer, op) }.unwrap();
            together();
            assert_same(&stream.clone_dtoh(&buffer).unwrap(), &expected, &what);
            together();
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn windows_are_device_slices_of_every_rank_s_copy() {
    ranks(|comm, stream, together| {
        let count = 1000;
        let (rank, peer) = (comm.rank(), 1 - comm.rank());
        let inputs = inputs::<f64>(7, 2, count);
        let window = comm.alloc_window(8 * (count + 2)).unwrap();
        // SAFETY: all work on it is on one stream here, and barriers order the ranks.
        let mut own = unsafe { window.device_slice::<f64>(stream, rank, 16, count) }.unwrap();
        stream.memcpy_htod(&inputs[rank], &mut own).unwrap();
        let mut output = stream.alloc_zeros::<f64>(count).unwrap();
        together();
        comm.barrier_on(stream).unwrap();
        together();
        // SAFETY: as above.
        let theirs = unsafe { window.device_slice::<f64>(stream, peer, 16, count) }.unwrap();
        let seen: Vec<f64> = stream.clone_dtoh(&theirs).unwrap();
        assert_same(&seen, &inputs[peer], "the peer's copy");
        together();
        // SAFETY: `output` lives until the stream has been waited for.
        unsafe { window.all_reduce_on(stream, 16, &mut output, Op::Sum) }.unwrap();
        together();
        let sum = stream.clone_dtoh(&output).unwrap();
        assert_same(&sum, &expected(Op::Sum, &inputs), "the window's sum");
        stream.synchronize().unwrap();
        // SAFETY: refused.
        let past = unsafe { window.device_slice::<f64>(stream, rank, 24, count + 1) }.unwrap_err();
        assert!(past.message.contains("reaches past"), "{past}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn safe_calls_with_host_memory_are_refused() {
    ranks(|comm, stream, together| {
        let window = comm.alloc_window(64).unwrap();
        let mut numbers = [1_u64; 2];
        let errors = [
            comm.all_reduce(&[1, 2], &mut numbers, Op::Sum).unwrap_err(),
            comm.all_reduce_in_place(&mut numbers, Op::Sum).unwrap_err(),
            window.copy_from(0, 0, &numbers).unwrap_err(),
            window.copy_to(0, 0, &mut numbers).unwrap_err(),
            window.all_reduce(0, &mut numbers, Op::Sum).unwrap_err(),
            window.all_reduce_in_place::<u64>(0, 2, Op::Sum).unwrap_err(),
            {
                let input = stream.alloc_zeros::<u64>(3).unwrap();
                let mut output = stream.alloc_zeros::<u64>(2).unwrap();
                // SAFETY: refused, so nothing is enqueued.
                unsafe { comm.all_reduce_on(stream, &input, &mut output, Op::Sum) }.unwrap_err()
            },
        ];
        assert!(errors.iter().all(|error| error.status == Status::INVALID_ARGUMENT));
        assert_eq!(numbers, [1; 2]);
        together();
        comm.barrier_on(stream).unwrap();
    });
}
