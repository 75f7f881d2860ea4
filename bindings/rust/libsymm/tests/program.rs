//! The example program, whose result is worked out here once more.

mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use support::{address, end_of};

/// Beside this test program's folder; cargo builds it before the tests.
fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let path = deps.parent().unwrap().parent().unwrap().join("examples/all_reduce");
    assert!(path.is_file(), "{} is not there: build the examples", path.display());
    path
}

fn expected_line(rank: usize, size: usize) -> String {
    let mut digest: u64 = 14_695_981_039_346_656_037;
    let mut first = 0.0;
    for i in 0..1000 {
        let mut sum = 0.0_f32;
        for from in 0..size {
            let x = 1.0 / (1.0 + i as f32 + 1000.0 * from as f32);
            sum = if from == 0 { x } else { sum + x };
        }
        if i == 0 {
            first = sum;
        }
        for byte in sum.to_le_bytes() {
            digest = (digest ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
        }
    }
    format!("rank {rank} of {size}: sum[0] = {first:.6}, digest {digest:016x}\n")
}

#[test]
fn every_rank_of_the_program_prints_the_digest_of_the_sum() {
    for size in [1, 2, 3] {
        let address = address();
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                Command::new(program())
                    .args([&address, &rank.to_string(), &size.to_string()])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for (rank, child) in ranks.into_iter().enumerate() {
            let end = end_of(child);
            assert!(end.status.success());
            assert_eq!(end.output, expected_line(rank, size));
        }
    }
}

#[test]
fn the_program_says_in_one_line_what_is_wrong() {
    for (arguments, word) in [
        (vec!["tcp://127.0.0.1:1", "2", "2"], "rank 2"),
        (vec!["tcp://127.0.0.1:1", "x", "2"], "'x'"),
        (vec![], "usage"),
    ] {
        let output = Command::new(program()).args(arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(message.contains(word) && message.lines().count() == 1, "{message}");
        assert!(output.stdout.is_empty());
    }
}
