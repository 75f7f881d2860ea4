//! What goes wrong, and what is said about it.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use support::{address, all_processes, eventually, processes, threads, LIMIT, SOON};
use symm::{Comm, CommOptions, DType, Device, Op, Status, WindowOptions};

#[test]
fn a_rank_that_is_killed_ends_its_peers_waits() {
    let test = "a_rank_that_is_killed_ends_its_peers_waits";
    let ends = processes(test, 3, |rank| {
        let comm = rank.comm();
        comm.barrier().unwrap();
        if rank.rank == 1 {
            // SAFETY: it ends the process, as is meant.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        let start = Instant::now();
        let error = comm.all_reduce_in_place(&mut [1.0_f32; 100], Op::Sum).unwrap_err();
        assert!(start.elapsed() < SOON, "after {:?}", start.elapsed());
        assert_eq!(error.status, Status::PEER, "{error}");
        assert!(error.message.contains("rank 1"), "{error}");
        assert_eq!(comm.blamed_rank(), Some(1));
        // For good, and whatever is called.
        assert_eq!(comm.check().unwrap_err().status, Status::PEER);
        assert_eq!(comm.barrier().unwrap_err().status, Status::PEER);
        assert_eq!(comm.alloc_window(8).unwrap_err().status, Status::PEER);
        assert!(comm.report().unwrap().contains("SYMM_PEER"));
    });
    let Some(ends) = ends else { return };
    assert_eq!(ends[1].status.signal(), Some(libc::SIGKILL));
    assert!(ends[0].done() && ends[2].done(), "{}{}", ends[0].output, ends[2].output);
}

#[test]
fn abort_from_another_thread_ends_every_rank_s_wait() {
    let test = "abort_from_another_thread_ends_every_rank_s_wait";
    all_processes(test, 2, |rank| {
        let comm = rank.comm();
        let other = rank.named("other");
        let window = comm.alloc_window(64).unwrap();
        if rank.rank == 0 {
            let handle = comm.abort_handle();
            let waits = std::thread::spawn(move || {
                // Rank 1 never comes.
                let error = comm.barrier().unwrap_err();
                (comm, error)
            });
            std::thread::sleep(Duration::from_millis(50));
            handle.clone().abort().unwrap();
            let (comm, error) = waits.join().unwrap();
            assert_eq!(error.status, Status::ABORTED, "{error}");
            assert_eq!(comm.check().unwrap_err().status, Status::ABORTED);
        } else {
            eventually("the abort is known here", || comm.check().is_err());
            assert_eq!(comm.check().unwrap_err().status, Status::ABORTED);
            assert_eq!(comm.blamed_rank(), Some(0));
        }
        let error = window.all_reduce(0, &mut [0_u8; 4], Op::Sum).unwrap_err();
        assert_eq!(error.status, Status::ABORTED, "{error}");
        // Its sibling is another's.
        other.barrier().unwrap();
    });
}

#[test]
fn an_abort_handle_outlives_its_communicator() {
    threads(2, |rank| {
        let comm = rank.comm();
        let window = comm.alloc_window(64).unwrap();
        let handle = comm.abort_handle();
        comm.barrier().unwrap();
        drop(comm);
        // The window keeps the rank a member, and can still be aborted.
        let mut sum = [0_i32];
        window.all_reduce(0, &mut sum, Op::Sum).unwrap();
        if rank.rank == 0 {
            handle.abort().unwrap();
            let error = window.all_reduce(0, &mut sum, Op::Sum).unwrap_err();
            assert_eq!(error.status, Status::ABORTED);
        } else {
            eventually("the abort is known here", || {
                window.all_reduce(0, &mut sum, Op::Sum).is_err()
            });
        }
        drop(window);
        assert!(format!("{handle:?}").contains("false"));
        handle.abort().unwrap();
    });
}

#[test]
fn a_rank_whose_last_handle_is_dropped_has_left() {
    threads(2, |rank| {
        for order in 0..2 {
            let comm = rank.named(&format!("order {order}"));
            let window = comm.alloc_window(64).unwrap();
            comm.barrier().unwrap();
            if rank.rank == 1 {
                match order {
                    0 => drop((window, comm)),
                    _ => drop((comm, window)),
                }
                continue;
            }
            let start = Instant::now();
            let error = comm.barrier().unwrap_err();
            assert_eq!(error.status, Status::PEER, "{error}");
            assert!(error.message.contains("rank 1"), "{error}");
            assert!(start.elapsed() < SOON, "after {:?}", start.elapsed());
        }
    });
}

#[test]
fn aborts_and_drops_of_all_threads_may_coincide() {
    for _ in 0..200 {
        let comm = Comm::create(address(), 0, 1, Device::Cpu, &CommOptions::new()).unwrap();
        let window = comm.alloc_window(8).unwrap();
        let handle = comm.abort_handle();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let handle = handle.clone();
                scope.spawn(move || (0..20).for_each(|_| handle.abort().unwrap()));
            }
            scope.spawn(move || drop(comm));
            scope.spawn(move || drop(window));
        });
    }
}

#[test]
fn other_calls_are_a_mismatch_on_every_rank() {
    threads(2, |rank| {
        let comm = rank.comm();
        let mut numbers = vec![1_i32; 3 + rank.rank];
        let error = comm.all_reduce_in_place(&mut numbers, Op::Sum).unwrap_err();
        assert_eq!(error.status, Status::MISMATCH, "{error}");
        assert!(error.message.contains('3') && error.message.contains('4'), "{error}");
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_at_the_deadline() {
    let options = CommOptions::new().timeout(Duration::from_millis(200));
    let start = Instant::now();
    let error = Comm::create(address(), 0, 2, Device::Cpu, &options).unwrap_err();
    assert!(start.elapsed() < SOON, "after {:?}", start.elapsed());
    assert_eq!(error.status, Status::TIMEOUT);
    assert!(error.message.contains("rank 1") || error.message.contains("ranks 1"), "{error}");
}

#[test]
fn waits_of_all_reduces_end_at_their_own_deadline() {
    threads(2, |rank| {
        let options = CommOptions::new().wait_timeout(Duration::from_millis(200)).timeout(LIMIT);
        let comm = Comm::create(&rank.address, rank.rank, 2, Device::Cpu, &options).unwrap();
        let start = Instant::now();
        if rank.rank == 0 {
            let error = comm.barrier().unwrap_err();
            assert_eq!(error.status, Status::TIMEOUT, "{error}");
            assert!(start.elapsed() < SOON, "after {:?}", start.elapsed());
        } else {
            eventually("the failure is known here", || comm.check().is_err());
        }
    });
}

#[test]
fn arguments_of_create_are_refused_by_name() {
    let create = |rank, size, device| {
        let options = CommOptions::new().timeout(SOON);
        Comm::create(address(), rank, size, device, &options).unwrap_err()
    };
    for (rank, size) in [(2, 2), (usize::MAX, 2), (0, 0), (0, usize::MAX)] {
        let error = create(rank, size, Device::Cpu);
        assert_eq!(error.status, Status::INVALID_ARGUMENT, "{error}");
        assert!(error.message.contains("symm_comm_create"), "{error}");
    }
    // Whatever GPUs there are, not so many.
    for ordinal in [60_000, u32::MAX] {
        let error = create(0, 1, Device::Gpu(ordinal));
        assert_ne!(error.status, Status::INTERNAL, "{error}");
    }
    let nul = Comm::create("tcp://\0", 0, 1, Device::Cpu, &CommOptions::new()).unwrap_err();
    assert_eq!(nul.status, Status::INVALID_ARGUMENT);
    assert!(nul.message.contains("address") && nul.message.contains("NUL"), "{nul}");
    let scheme = Comm::create("nfs://x", 0, 1, Device::Cpu, &CommOptions::new()).unwrap_err();
    assert_eq!(scheme.status, Status::INVALID_ARGUMENT);
    assert!(scheme.message.contains("nfs://x"), "{scheme}");
}

#[test]
fn one_rank_s_bad_color_fails_the_split_on_every_rank() {
    threads(2, |rank| {
        let comm = rank.comm();
        let color = if rank.rank == 0 { u32::MAX } else { 0 };
        let error = comm.split(Some(color), 0, &CommOptions::new()).unwrap_err();
        assert_eq!(error.status, Status::INVALID_ARGUMENT, "{error}");
        if rank.rank == 0 {
            assert!(error.message.contains("color 4294967295"), "{error}");
        }
        // Not sticky.
        comm.barrier().unwrap();
    });
}

#[test]
fn argument_errors_of_all_reduces_send_nothing() {
    threads(2, |rank| {
        let comm = rank.comm();
        let window = comm.alloc_window(64).unwrap();
        let mut numbers = [1_i32; 4];
        let refused = |error: symm::Error, word: &str| {
            assert_eq!(error.status, Status::INVALID_ARGUMENT, "{error}");
            assert!(error.message.contains(word), "{error}");
            assert!(error.message.contains(&format!("(rank {} of 2)", rank.rank)), "{error}");
        };
        if rank.rank == 0 {
            refused(comm.all_reduce(&[1, 2, 3], &mut numbers, Op::Sum).unwrap_err(), "3 elements");
            refused(window.all_reduce(52, &mut numbers, Op::Sum).unwrap_err(), "offset 52");
            refused(window.all_reduce(2, &mut numbers, Op::Sum).unwrap_err(), "aligned");
            let past = window.all_reduce_in_place::<i64>(usize::MAX, 1, Op::Sum).unwrap_err();
            refused(past, "offset");
            let many = window.all_reduce_in_place::<i64>(0, usize::MAX, Op::Sum).unwrap_err();
            refused(many, "count");
            let start = numbers.as_mut_ptr();
            // SAFETY: all within `numbers`; the overlap is refused.
            let overlap = unsafe {
                comm.all_reduce_raw(
                    start.cast(),
                    start.add(1).cast(),
                    2,
                    DType::Int32,
                    Op::Sum,
                    std::ptr::null_mut(),
                )
            };
            refused(overlap.unwrap_err(), "overlap");
            // SAFETY: a CPU communicator refuses any stream before it looks at it.
            let stream = unsafe { comm.barrier_raw(start.cast()) };
            refused(stream.unwrap_err(), "stream");
        }
        comm.all_reduce_in_place(&mut numbers, Op::Sum).unwrap();
        assert_eq!(numbers, [2; 4]);
    });
}

#[test]
fn windows_fail_everywhere_or_nowhere() {
    threads(2, |rank| {
        let comm = rank.comm();
        let differ = comm.alloc_window(64 + rank.rank).unwrap_err();
        assert_eq!(differ.status, Status::INVALID_ARGUMENT, "{differ}");
        let much = comm.alloc_window(usize::MAX / 4).unwrap_err();
        assert!([Status::OUT_OF_MEMORY, Status::INVALID_ARGUMENT].contains(&much.status), "{much}");
        let mut private = vec![0_u64; 512];
        // SAFETY: it outlives the attempt, and is no shared mapping, which is refused.
        let error = unsafe {
            comm.register_window(private.as_mut_ptr().cast(), 4096, &WindowOptions::new())
        };
        assert_eq!(error.unwrap_err().status, Status::UNSUPPORTED);
        comm.barrier().unwrap();
    });
}

#[test]
fn there_is_no_nccl_communicator_among_cpus() {
    threads(1, |rank| {
        let error = rank.comm().nccl().unwrap_err();
        assert_eq!(error.status, Status::UNSUPPORTED);
    });
}

#[test]
fn a_count_beyond_memory_has_no_plan() {
    threads(1, |rank| {
        let comm = rank.comm();
        let error = comm.plan(usize::MAX, DType::Float64, Op::Sum).unwrap_err();
        assert_eq!(error.status, Status::INVALID_ARGUMENT, "{error}");
        let window = comm.alloc_window(8).unwrap();
        window.plan(1, DType::Float64, Op::Sum).unwrap();
        let error = window.plan(2, DType::Float64, Op::Sum).unwrap_err();
        assert_eq!(error.status, Status::INVALID_ARGUMENT, "{error}");
    });
}
