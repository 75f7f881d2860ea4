//! Every element type and operation, bit by bit against a second implementation.

mod support;
#[macro_use]
#[path = "support/reference.rs"]
mod reference;

use reference::{assert_same, expected, inputs, Known};
use support::{all_processes, threads, Rank};
use symm::{Comm, Op, Window};

/// Printed with whatever fails; SYMM_TEST_SEED takes another.
fn seed() -> u64 {
    match std::env::var("SYMM_TEST_SEED") {
        Ok(seed) => seed.parse().expect("SYMM_TEST_SEED is a number"),
        Err(_) => 20_260_101,
    }
}

const OPS: [Op; 5] = [Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg];

/// Few for one word, odd ones, and enough to go by another algorithm.
const COUNTS: [usize; 5] = [0, 1, 13, 1000, 50_000];

fn every_form_agrees<T: Known>(comm: &Comm, window: &Window, counts: &[usize]) {
    for (&count, op) in counts.iter().flat_map(|count| OPS.map(|op| (count, op))) {
        let seed = seed() + count as u64;
        let what = format!("{:?} {op:?} x {count}, seed {seed}, rank {}", T::DTYPE, comm.rank());
        let inputs = inputs::<T>(seed, comm.size(), count);
        let own = &inputs[comm.rank()];
        let expected = expected(op, &inputs);

        // Outputs start as something that is not the result.
        let mut output: Vec<T> = own.iter().rev().copied().collect();
        comm.all_reduce(own, &mut output, op).unwrap();
        assert_same(&output, &expected, &what);

        let mut buffer = own.clone();
        comm.all_reduce_in_place(&mut buffer, op).unwrap();
        assert_same(&buffer, &expected, &format!("{what}, in place"));

        let offset = 16;
        window.copy_from(comm.rank(), offset, own).unwrap();
        output = own.iter().rev().copied().collect();
        window.all_reduce(offset, &mut output, op).unwrap();
        assert_same(&output, &expected, &format!("{what}, window"));

        window.all_reduce_in_place::<T>(offset, count, op).unwrap();
        output = own.iter().rev().copied().collect();
        window.copy_to(comm.rank(), offset, &mut output).unwrap();
        assert_same(&output, &expected, &format!("{what}, window in place"));
    }
}

fn every_type(rank: Rank, counts: &[usize]) {
    let comm = rank.comm();
    let window = comm.alloc_window(16 + 8 * counts.iter().max().unwrap()).unwrap();
    let types = for_every_element!(every_form_agrees, &comm, &window, counts);
    assert_eq!(types, if cfg!(feature = "half") { 12 } else { 10 });
}

#[test]
fn processes_get_the_bits_of_the_reference() {
    let test = "processes_get_the_bits_of_the_reference";
    all_processes(test, 3, |rank| every_type(rank, &COUNTS));
}

#[test]
fn threads_get_the_bits_of_the_reference() {
    threads(2, |rank| every_type(rank, &COUNTS));
}

#[test]
fn many_ranks_take_operands_in_rank_order() {
    threads(5, |rank| every_type(rank, &[1, 333]));
}

#[test]
fn one_rank_gets_its_own_numbers() {
    threads(1, |rank| every_type(rank, &[0, 7]));
}

/// The reference itself, at the edges where formats are easily got wrong.
#[test]
fn the_reference_rounds_as_the_formats_say() {
    use symm::{Float8E4M3, Float8E5M2};
    let sum = |values: &[u8]| {
        Float8E4M3::reduce(Op::Sum, &values.iter().map(|&v| Float8E4M3(v)).collect::<Vec<_>>()).0
    };
    // 1 + 2^-4 is halfway between 1 and the next number: to the even one.
    assert_eq!(sum(&[0x38, 0x18]), 0x38);
    assert_eq!(sum(&[0x39, 0x18]), 0x3a);
    // 448 is the largest, 2^-9 the smallest.
    assert_eq!(sum(&[0x7e, 0x7e]), 0x7e);
    assert_eq!(sum(&[0x01, 0x01]), 0x02);
    let wide = Float8E5M2::reduce(Op::Sum, &[Float8E5M2(0x7c), Float8E5M2(0x00)]);
    assert_eq!(wide.0, 0x7b);
    assert_eq!(i8::reduce(Op::Avg, &[-7, 0]), -3);
    assert_eq!(f32::reduce(Op::Max, &[-0.0, 0.0]).to_bits(), 0);
    assert_eq!(f32::reduce(Op::Min, &[0.0, -0.0]).to_bits(), 1 << 31);
}
