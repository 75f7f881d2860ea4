//! Communicators and windows of ranks that are processes and threads.

mod support;

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use support::{address, all_processes, fresh_path, threads, Rank, LIMIT};
use symm::{AbortHandle, Address, Comm, CommOptions, DType, Device, Op, Window, WindowOptions};

#[test]
fn what_may_go_to_other_threads_does() {
    fn send<T: Send>() {}
    fn send_sync_clone<T: Send + Sync + Clone>() {}
    send::<Comm>();
    send::<Window>();
    send_sync_clone::<AbortHandle>();
    send_sync_clone::<Address>();
    send_sync_clone::<CommOptions>();
    send_sync_clone::<symm::Error>();
}

#[test]
fn processes_meet_at_a_served_address() {
    all_processes("processes_meet_at_a_served_address", 3, |rank| {
        let comm = rank.comm();
        assert_eq!((comm.rank(), comm.size(), comm.device()), (rank.rank, 3, Device::Cpu));
        let mut squares = [(comm.rank() as u64).pow(2)];
        comm.all_reduce_in_place(&mut squares, Op::Sum).unwrap();
        assert_eq!(squares, [5]);
    });
}

#[test]
fn processes_meet_by_the_launcher_s_variables() {
    all_processes("processes_meet_by_the_launcher_s_variables", 2, |rank| {
        let options = CommOptions::new().timeout(LIMIT).name("from the environment");
        let by_env = Comm::from_env(Device::Cpu, &options).unwrap();
        assert_eq!((by_env.rank(), by_env.size()), (rank.rank, 2));
        by_env.barrier().unwrap();
    });
}

#[test]
fn ranks_meet_at_a_file() {
    let path = fresh_path("meeting");
    let address = format!("file://{}", path.display());
    threads(2, |rank| Rank { address: address.clone(), ..rank }.comm().barrier().unwrap());
    let _ = std::fs::remove_file(path);
}

#[test]
fn an_address_serves_communicators_by_name() {
    threads(2, |rank| {
        let (a, b) = (rank.named("a"), rank.named("b"));
        assert!(b.report().unwrap().contains("\"b\""));
        a.barrier().unwrap();
        drop(a);
        b.barrier().unwrap();
    });
}

#[test]
fn an_address_of_a_host_that_is_none_is_refused() {
    assert!(Address::create(Some("no such host")).is_err());
    assert!(Address::create(Some("a\0b")).unwrap_err().message.contains("host"));
    assert!(Address::create(None).unwrap().as_str().len() < 512);
}

#[test]
fn a_split_makes_groups_that_owe_the_parent_nothing() {
    all_processes("a_split_makes_groups_that_owe_the_parent_nothing", 4, |rank| {
        let comm = rank.comm();
        let color = [Some(0), Some(1), Some(0), None][rank.rank];
        // Keys turn the order round.
        let group = comm.split(color, -(rank.rank as i32), &CommOptions::new()).unwrap();
        match (rank.rank, &group) {
            (3, None) => {}
            (1, Some(group)) => assert_eq!((group.rank(), group.size()), (0, 1)),
            (_, Some(group)) => {
                assert_eq!((group.rank(), group.size()), (1 - rank.rank / 2, 2));
                drop(comm);
                let mut sum = [rank.rank as i32];
                group.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
                assert_eq!(sum, [2]);
            }
            _ => panic!("rank {} got {group:?}", rank.rank),
        }
    });
}

#[test]
fn every_rank_sees_every_copy() {
    all_processes("every_rank_sees_every_copy", 3, |rank| {
        let comm = rank.comm();
        let window = comm.alloc_window(3 * 100).unwrap();
        // To everybody, at a place of this rank's own that is aligned to nothing.
        let own: Vec<u8> = (0..99).map(|i| i + 50 * rank.rank as u8).collect();
        for to in 0..3 {
            window.copy_from(to, rank.rank * 99, &own).unwrap();
        }
        comm.barrier().unwrap();
        for at in 0..3 {
            let mut all = [0_u8; 3 * 100];
            window.copy_to(at, 0, &mut all).unwrap();
            for (i, &byte) in all[..3 * 99].iter().enumerate() {
                assert_eq!(usize::from(byte), i % 99 + 50 * (i / 99), "byte {i} of rank {at}'s");
            }
            assert_eq!(all[3 * 99..], [0; 3]);
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn copies_stay_within_the_window() {
    threads(1, |rank| {
        let window = rank.comm().alloc_window(64).unwrap();
        for (rank, offset, count) in [
            (0, 0, 65),
            (0, 64, 1),
            (0, 65, 0),
            (0, usize::MAX, 1),
            (0, usize::MAX, 0),
            (1, 0, 1),
            (usize::MAX, 0, 1),
        ] {
            let mut bytes = vec![7_u8; count];
            let errors = [
                window.copy_from(rank, offset, &bytes).unwrap_err(),
                window.copy_to(rank, offset, &mut bytes).unwrap_err(),
                // SAFETY: there is one rank and one thread.
                unsafe { window.as_slice::<u8>(rank, offset, count) }.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.status, symm::Status::INVALID_ARGUMENT);
                assert!(error.message.contains("rank") && error.message.contains("Window::"));
            }
            assert_eq!(bytes, vec![7; count]);
        }
        window.copy_from(0, 64, &[0_u64; 0]).unwrap();
        // SAFETY: as above.
        let overflow = unsafe { window.as_slice::<u64>(0, 8, usize::MAX / 4) };
        assert!(overflow.unwrap_err().message.contains("reaches past"));
        // SAFETY: as above.
        let unaligned = unsafe { window.as_slice::<u64>(0, 4, 1) };
        assert!(unaligned.unwrap_err().message.contains("aligned"));
        let mut all = [1_u8; 64];
        window.copy_to(0, 0, &mut all).unwrap();
        assert_eq!(all, [0; 64]);
    });
}

#[test]
fn a_window_of_no_bytes_is_a_window() {
    threads(2, |rank| {
        let comm = rank.comm();
        let mut window = comm.alloc_window(0).unwrap();
        assert_eq!(window.bytes(), 0);
        assert!(window.data(1).unwrap().is_null());
        window.copy_from(1, 0, &[0_u8; 0]).unwrap();
        // SAFETY: there is nothing to race for.
        assert!(unsafe { window.as_slice::<f64>(0, 0, 0) }.unwrap().is_empty());
        // SAFETY: as above.
        assert!(unsafe { window.as_mut_slice::<f64>(0, 0, 0) }.unwrap().is_empty());
        window.all_reduce(0, &mut [0_f32; 0], Op::Sum).unwrap();
        window.all_reduce_in_place::<f32>(0, 0, Op::Sum).unwrap();
    });
}

#[test]
fn slices_are_the_window_s_own_memory() {
    threads(2, |rank| {
        let comm = rank.comm();
        let mut window = comm.alloc_window(4096).unwrap();
        // SAFETY: each rank writes its own copy, and looks at the other's after the barrier.
        unsafe { window.as_mut_slice(rank.rank, 8, 10) }.unwrap().fill(rank.rank as i32 + 1);
        comm.barrier().unwrap();
        let peer = 1 - rank.rank;
        // SAFETY: nobody writes before the next barrier.
        let slice = unsafe { window.as_slice::<i32>(peer, 8, 11) }.unwrap();
        assert_eq!(slice[..10], [peer as i32 + 1; 10]);
        assert_eq!(slice[10], 0);
        assert_eq!(slice.as_ptr().cast(), window.data(peer).unwrap().wrapping_add(8).cast_const());
        comm.barrier().unwrap();
    });
}

#[test]
fn a_memfd_becomes_a_window() {
    all_processes("a_memfd_becomes_a_window", 2, |rank| {
        let comm = rank.comm();
        let bytes = 3 * 4096;
        // SAFETY: plain system calls, whose results are looked at.
        let (fd, start) = unsafe {
            let fd = libc::memfd_create(c"symm-rust-test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            let fd = OwnedFd::from_raw_fd(fd);
            let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
            assert_eq!(libc::ftruncate(raw, bytes as libc::off_t), 0);
            let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let start = libc::mmap(null_mut(), bytes, access, shared, raw, 0);
            assert_ne!(start, libc::MAP_FAILED);
            (fd, start.cast::<u8>())
        };
        // Registered memory may lie at another place on each rank.
        let offset = 4096 + 64 * rank.rank;
        let options = WindowOptions::new().file(fd.as_fd(), offset);
        // SAFETY: the mapping stays until the process ends, and nothing else refers to it.
        let window =
            unsafe { comm.register_window(start.add(offset).cast(), 4096, &options) }.unwrap();
        drop(fd);
        window.copy_from(1 - rank.rank, 100, &[rank.rank as u64 + 5]).unwrap();
        comm.barrier().unwrap();
        // SAFETY: written before the barrier, and by nobody after it.
        let seen = unsafe { start.add(offset + 100).cast::<u64>().read_unaligned() };
        assert_eq!(seen, 1 - rank.rank as u64 + 5);
        let mut sum = [0_u64];
        window.all_reduce(104, &mut sum, Op::Sum).unwrap();
        comm.barrier().unwrap();
    });
}

#[test]
fn windows_and_communicators_are_dropped_in_any_order() {
    threads(2, |rank| {
        for order in 0..4 {
            let comm = rank.named(&format!("order {order}"));
            let (a, b) = (comm.alloc_window(64).unwrap(), comm.alloc_window(64).unwrap());
            a.copy_from(rank.rank, 0, &[1_i32]).unwrap();
            let sum = |window: &Window| {
                let mut sum = [0];
                window.all_reduce(0, &mut sum, Op::Sum).map(|()| sum[0])
            };
            match order {
                0 => {
                    drop(comm);
                    assert_eq!(sum(&a), Ok(2));
                    drop(b);
                    assert_eq!(sum(&a), Ok(2));
                }
                1 => {
                    drop((a, b));
                    comm.barrier().unwrap();
                }
                2 => {
                    drop(a);
                    drop(comm);
                    assert_eq!(sum(&b), Ok(0));
                }
                _ => {
                    // In another thread, which is where it was sent.
                    let sent = std::thread::spawn(move || {
                        drop(comm);
                        drop(a);
                        b.all_reduce_in_place::<i32>(0, 1, Op::Sum)
                    });
                    sent.join().unwrap().unwrap();
                }
            }
        }
    });
}

#[test]
fn leaving_is_not_dying() {
    all_processes("leaving_is_not_dying", 2, |rank| {
        let comm = rank.comm();
        comm.barrier().unwrap();
        if rank.rank == 0 {
            // Ends with everything still open.
            std::mem::forget(comm);
        } else {
            std::thread::sleep(std::time::Duration::from_millis(100));
            comm.check().unwrap();
        }
    });
}

#[test]
fn reports_and_plans_are_json_about_the_library() {
    let version = symm::version();
    let text = format!("{}.{}.{}", version.0, version.1, version.2);
    for report in [symm::report(), threads_report()] {
        let report = report.unwrap();
        assert!(report.starts_with('{') && report.ends_with('}'), "{report}");
        assert!(report.contains(&text), "{report}");
    }
}

fn threads_report() -> symm::Result<String> {
    let comm = Comm::create(address(), 0, 1, Device::Cpu, &CommOptions::new())?;
    let plan = comm.plan(1000, DType::Float32, Op::Sum)?;
    assert!(plan.starts_with('{') && plan.contains("\"algorithm\""), "{plan}");
    let window = comm.alloc_window(4000)?;
    assert!(window.plan(1000, DType::Float32, Op::Sum)?.contains("\"algorithm\""));
    comm.report()
}

#[test]
fn a_child_of_a_fork_finds_its_handles_dead_and_may_make_its_own() {
    let test = "a_child_of_a_fork_finds_its_handles_dead_and_may_make_its_own";
    all_processes(test, 2, |rank| {
        let comm = rank.comm();
        let window = comm.alloc_window(64).unwrap();
        let handle = comm.abort_handle();
        // SAFETY: the child leaves by _exit, and until then takes no lock that another thread of
        // this test's process may have held.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = [
                comm.barrier(),
                comm.check(),
                comm.abort(),
                handle.abort(),
                comm.all_reduce_in_place(&mut [1_u8], Op::Sum),
                window.copy_from(0, 0, &[1_u8]),
                window.copy_to(0, 0, &mut [1_u8]),
                window.all_reduce(0, &mut [1_u8], Op::Sum),
                window.all_reduce_in_place::<u8>(0, 1, Op::Sum),
                comm.alloc_window(8).map(drop),
                comm.report().map(drop),
            ];
            let dead = refused.iter().all(|result| {
                matches!(result, Err(error) if error.status == symm::Status::INVALID_ARGUMENT
                    && error.message.contains("fork"))
            });
            drop((comm, window, handle));
            let own = Comm::create(address(), 0, 1, Device::Cpu, &CommOptions::new());
            let works = own.is_ok_and(|own| own.barrier().is_ok());
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!dead) + 2 * i32::from(!works)) }
        }
        let mut status = -1;
        // SAFETY: waits for the child above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        // The child's drops were nothing to this communicator.
        let mut sum = [1];
        comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
        assert_eq!(sum, [2]);
    });
}
