//! Ranks as processes and as threads.
#![allow(dead_code)] // Not every test file uses all of it.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use symm::{Address, Comm, CommOptions, Device};

/// No test waits longer for anything, however busy the machine is.
pub const LIMIT: Duration = Duration::from_secs(90);

/// Short enough to wait for, long enough that nobody is late by chance.
pub const SOON: Duration = Duration::from_secs(20);

/// What a rank knows when it starts.
#[derive(Clone)]
pub struct Rank {
    pub address: String,
    pub rank: usize,
    pub size: usize,
}

impl Rank {
    pub fn comm(&self) -> Comm {
        self.named("")
    }

    pub fn named(&self, name: &str) -> Comm {
        let options = CommOptions::new().name(name).timeout(LIMIT).wait_timeout(LIMIT);
        Comm::create(&self.address, self.rank, self.size, Device::Cpu, &options)
            .unwrap_or_else(|why| panic!("rank {}: {why}", self.rank))
    }
}

pub fn address() -> String {
    Address::create(Some("127.0.0.1")).unwrap().to_string()
}

/// Runs `body` as each of `size` ranks, in threads of this process. A panic in one fails the test.
pub fn threads(size: usize, body: impl Fn(Rank) + Sync) {
    let address = address();
    std::thread::scope(|scope| {
        for rank in 0..size {
            let rank = Rank { address: address.clone(), rank, size };
            scope.spawn(|| body(rank));
        }
    });
}

const RANK: &str = "SYMM_TEST_RANK";
const ADDRESS: &str = "SYMM_TEST_ADDRESS";
/// What a rank's process says once its body is through: a name that matches no test runs nothing.
const DONE: &str = "the rank's body is done";

/// How a rank's process ended.
pub struct End {
    pub status: ExitStatus,
    pub output: String,
}

impl End {
    pub fn done(&self) -> bool {
        self.status.success() && self.output.contains(DONE)
    }
}

/// Runs `body` as each of `size` ranks, in processes of their own, in which this test program runs the
/// test named `test` again. Returns the ends of all, in the parent; `None` in a rank.
pub fn processes(test: &str, size: usize, body: impl FnOnce(Rank)) -> Option<Vec<End>> {
    if let Ok(rank) = std::env::var(RANK) {
        let (rank, address) = (rank.parse().unwrap(), std::env::var(ADDRESS).unwrap());
        body(Rank { address, rank, size });
        println!("{DONE}");
        return None;
    }
    let address = address();
    let launcher = [
        ("WORLD_SIZE", size.to_string()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", free_port().to_string()),
    ];
    let program = std::env::current_exe().unwrap();
    let ranks: Vec<Child> = (0..size)
        .map(|rank| {
            Command::new(&program)
                .args([test, "--exact", "--nocapture", "--test-threads=1"])
                .env(RANK, rank.to_string())
                .env(ADDRESS, &address)
                // What a launcher sets, for those who ask.
                .env("RANK", rank.to_string())
                .envs(launcher.clone())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit())
                .spawn()
                .unwrap()
        })
        .collect();
    Some(ranks.into_iter().map(end_of).collect())
}

/// [`processes`], all of which must come through.
pub fn all_processes(test: &str, size: usize, body: impl FnOnce(Rank)) {
    for (rank, end) in processes(test, size, body).into_iter().flatten().enumerate() {
        assert!(end.done(), "rank {rank} ended with {}:\n{}", end.status, end.output);
    }
}

pub fn end_of(mut child: Child) -> End {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LIMIT + SOON {
            child.kill().unwrap();
            break child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    End { status, output }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A path of this process's own, where nothing is yet.
pub fn fresh_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("symm-rust-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Waits until `condition` holds; fails the test if that never happens.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        std::thread::yield_now();
    }
}
