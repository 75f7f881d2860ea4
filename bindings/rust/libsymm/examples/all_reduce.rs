//! One rank of a job on the CPU that all-reduces an array and a window, and prints a digest.
//!
//! Usage: `all_reduce ADDRESS RANK SIZE`

use std::process::ExitCode;
use std::time::Duration;

use symm::{Comm, CommOptions, Device, Op};

const COUNT: usize = 1000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, rank, size] = arguments.as_slice() else {
        return Err("usage: all_reduce ADDRESS RANK SIZE".into());
    };
    let number = |name: &str, text: &str| -> Result<usize, String> {
        text.parse().map_err(|why| format!("{name} is '{text}': {why}"))
    };
    let (rank, size) = (number("RANK", rank)?, number("SIZE", size)?);

    let options = CommOptions::new().timeout(Duration::from_secs(60));
    let comm = Comm::create(address, rank, size, Device::Cpu, &options)?;
    let x: Vec<f32> = (0..COUNT).map(|i| 1.0 / (1 + i + 1000 * rank) as f32).collect();
    let mut sum = vec![0.0; COUNT];
    comm.all_reduce(&x, &mut sum, Op::Sum)?;

    let window = comm.alloc_window(size_of_val(x.as_slice()))?;
    window.copy_from(rank, 0, &x)?;
    let mut of_window = vec![0.0_f32; COUNT];
    window.all_reduce(0, &mut of_window, Op::Sum)?;
    let bytes = |values: &[f32]| -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    };
    if bytes(&of_window) != bytes(&sum) {
        return Err("the window's sum has other bits than the array's".into());
    }

    let digest = bytes(&sum).iter().fold(14695981039346656037, |digest: u64, &byte| {
        (digest ^ u64::from(byte)).wrapping_mul(1099511628211)
    });
    println!("rank {rank} of {size}: sum[0] = {:.6}, digest {digest:016x}", sum[0]);
    Ok(())
}
