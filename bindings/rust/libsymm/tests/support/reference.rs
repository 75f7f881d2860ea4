//! All-reduces a second time, in Rust, operand by operand in rank order.

use std::fmt::Debug;
use std::sync::OnceLock;

use symm::{Element, Float8E4M3, Float8E5M2, Op};

/// A xorshift generator: the same numbers from the same seed everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.bits();
        }
        random
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// An element whose arithmetic is known here too.
pub trait Known: Element + Debug {
    /// Any value now and then, infinities and NaNs included; mostly ones that do not overflow.
    fn random(random: &mut Random) -> Self;
    fn reduce(op: Op, operands: &[Self]) -> Self;
    /// Equal bits, or both NaN: which NaN is nobody's promise.
    fn same(self, other: Self) -> bool;
}

/// Operands of `op`, of which there is at least one, taken one after the other.
fn fold<T: Copy>(
    op: Op,
    operands: &[T],
    sum: fn(T, T) -> T,
    product: fn(T, T) -> T,
    max: fn(T, T) -> T,
    min: fn(T, T) -> T,
) -> T {
    let step = match op {
        Op::Sum | Op::Avg => sum,
        Op::Prod => product,
        Op::Max => max,
        Op::Min => min,
        _ => unreachable!("an operation that these tests do not know"),
    };
    operands.iter().copied().reduce(step).unwrap()
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Known for $type {
            fn random(random: &mut Random) -> $type {
                let bits = random.bits();
                if bits % 4 == 0 { random.bits() as $type } else { (bits >> 32) as $type % 11 }
            }
            fn reduce(op: Op, operands: &[$type]) -> $type {
                let all = fold(
                    op,
                    operands,
                    <$type>::wrapping_add,
                    <$type>::wrapping_mul,
                    |a, b| a.max(b),
                    |a, b| a.min(b),
                );
                if op == Op::Avg { all / operands.len() as $type } else { all }
            }
            fn same(self, other: $type) -> bool {
                self == other
            }
        }
    )*};
}
integers!(i8, u8, i32, u32, i64, u64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Known for $type {
            fn random(random: &mut Random) -> $type {
                let bits = random.bits();
                match bits % 16 {
                    0 => <$type>::from_bits(random.bits() as _),
                    1 => [0.0, -0.0, <$type>::NAN, <$type>::INFINITY][(bits >> 60) as usize % 4],
                    _ => ((bits >> 40) as i32 - (1 << 23)) as $type / (1 << 20) as $type,
                }
            }
            fn reduce(op: Op, operands: &[$type]) -> $type {
                // NaN beats all, and -0 is less than +0.
                let greater = |a: $type, b: $type| {
                    a > b || (a == b && a.is_sign_positive() && b.is_sign_negative())
                };
                let pick = |a: $type, b: $type, first: bool| {
                    if a.is_nan() || b.is_nan() { <$type>::NAN } else if first { a } else { b }
                };
                let all = match op {
                    Op::Max => operands.iter().copied().reduce(|a, b| pick(a, b, !greater(b, a))),
                    Op::Min => operands.iter().copied().reduce(|a, b| pick(a, b, !greater(a, b))),
                    _ => {
                        let (sum, product) = (|a, b| a + b, |a, b| a * b);
                        Some(fold(op, operands, sum, product, sum, sum))
                    }
                };
                let all = all.unwrap();
                if op == Op::Avg { all / operands.len() as $type } else { all }
            }
            fn same(self, other: $type) -> bool {
                self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
            }
        }
    )*};
}
floats!(f32, f64);

/// A float of 8 or 16 bits: reduced in f32, rounded once.
trait Narrow: Element + Debug {
    fn from_low_bits(bits: u64) -> Self;
    fn widen(self) -> f32;
    fn round(value: f32) -> Self;
}

macro_rules! narrow_floats {
    ($($type:ty),*) => {$(
        impl Known for $type {
            fn random(random: &mut Random) -> $type {
                let bits = random.bits();
                if bits % 8 == 0 {
                    return <$type>::from_low_bits(random.bits());
                }
                <$type>::round(((bits >> 40) as i32 - (1 << 23)) as f32 / (1 << 21) as f32)
            }
            fn reduce(op: Op, operands: &[$type]) -> $type {
                let wide: Vec<f32> = operands.iter().map(|value| value.widen()).collect();
                let result = f32::reduce(op, &wide);
                if matches!(op, Op::Max | Op::Min) {
                    // One of the operands, infinities of E5M2 included.
                    return *operands.iter().find(|value| value.widen().same(result)).unwrap();
                }
                <$type>::round(result)
            }
            fn same(self, other: $type) -> bool {
                // Nothing is lost on the way, so equal bits there are equal bits here.
                self.widen().same(other.widen())
            }
        }
    )*};
}
narrow_floats!(Float8E4M3, Float8E5M2);
#[cfg(feature = "half")]
narrow_floats!(half::f16, half::bf16);

#[cfg(feature = "half")]
impl Narrow for half::f16 {
    fn from_low_bits(bits: u64) -> Self {
        half::f16::from_bits(bits as u16)
    }
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn round(value: f32) -> Self {
        half::f16::from_f32(value)
    }
}

#[cfg(feature = "half")]
impl Narrow for half::bf16 {
    fn from_low_bits(bits: u64) -> Self {
        half::bf16::from_bits(bits as u16)
    }
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn round(value: f32) -> Self {
        half::bf16::from_f32(value)
    }
}

/// What the bits of a float8 with so many mantissa bits mean. Of the two formats only E5M2 has
/// infinities; E4M3 has NaN where all bits are set, and numbers elsewhere.
fn widen_float8(bits: u8, mantissa: u32) -> f32 {
    let bias = if mantissa == 3 { 7 } else { 15 };
    let (exponent, fraction) = (u32::from(bits & 0x7f) >> mantissa, bits & ((1 << mantissa) - 1));
    let magnitude = if mantissa == 2 && exponent == 31 {
        if fraction == 0 {
            f32::INFINITY
        } else {
            f32::NAN
        }
    } else if mantissa == 3 && bits & 0x7f == 0x7f {
        f32::NAN
    } else {
        let (hidden, power) = if exponent == 0 { (0, 1) } else { (1 << mantissa, exponent as i32) };
        f32::from(fraction + hidden) * 2_f32.powi(power - bias - mantissa as i32)
    };
    if bits & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// The nearest float8, the even one of two; the largest for whatever is beyond. By looking it up
/// among all of them, which leaves nothing to get wrong.
fn round_float8(value: f32, mantissa: u32) -> u8 {
    static ALL: [OnceLock<Vec<f32>>; 2] = [const { OnceLock::new() }; 2];
    if value.is_nan() {
        return 0x7f;
    }
    let largest: u8 = if mantissa == 3 { 0x7e } else { 0x7b };
    let all = ALL[mantissa as usize - 2]
        .get_or_init(|| (0..=largest).map(|bits| widen_float8(bits, mantissa)).collect());
    let above = all.partition_point(|&number| number < value.abs());
    let magnitude = if above == all.len() {
        largest
    } else if above == 0 {
        0
    } else {
        // Of floats so close to each other the differences are exact.
        let (up, down) = (all[above] - value.abs(), value.abs() - all[above - 1]);
        let even_above = above % 2 == 0;
        (if up < down || (up == down && even_above) { above } else { above - 1 }) as u8
    };
    magnitude | if value.is_sign_negative() { 0x80 } else { 0 }
}

impl Narrow for Float8E4M3 {
    fn from_low_bits(bits: u64) -> Self {
        Float8E4M3(bits as u8)
    }
    fn widen(self) -> f32 {
        widen_float8(self.0, 3)
    }
    fn round(value: f32) -> Self {
        Float8E4M3(round_float8(value, 3))
    }
}

impl Narrow for Float8E5M2 {
    fn from_low_bits(bits: u64) -> Self {
        Float8E5M2(bits as u8)
    }
    fn widen(self) -> f32 {
        widen_float8(self.0, 2)
    }
    fn round(value: f32) -> Self {
        Float8E5M2(round_float8(value, 2))
    }
}

/// Operands of one element type, which every rank makes for all ranks.
pub fn inputs<T: Known>(seed: u64, size: usize, count: usize) -> Vec<Vec<T>> {
    (0..size as u64)
        .map(|rank| {
            let mut random = Random::new(seed.wrapping_mul(1000) + rank);
            (0..count).map(|_| T::random(&mut random)).collect()
        })
        .collect()
}

/// What every rank must get from `inputs`.
pub fn expected<T: Known>(op: Op, inputs: &[Vec<T>]) -> Vec<T> {
    (0..inputs[0].len())
        .map(|i| T::reduce(op, &inputs.iter().map(|input| input[i]).collect::<Vec<T>>()))
        .collect()
}

pub fn assert_same<T: Known>(got: &[T], expected: &[T], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!(got.same(expected), "{what}: element {i} is {got:?}, should be {expected:?}");
    }
}

/// Calls a generic function of two arguments for every element type.
#[macro_export]
macro_rules! for_every_element {
    ($function:ident, $($argument:expr),*) => {{
        let mut types = 0;
        for_every_element!(@each types $function ($($argument),*)
            i8 u8 i32 u32 i64 u64 f32 f64 symm::Float8E4M3 symm::Float8E5M2);
        #[cfg(feature = "half")]
        for_every_element!(@each types $function ($($argument),*) half::f16 half::bf16);
        types
    }};
    (@each $types:ident $function:ident $arguments:tt $($type:ty)*) => {$(
        for_every_element!(@call $function $type, $arguments);
        $types += 1;
    )*};
    (@call $function:ident $type:ty, ($($argument:expr),*)) => { $function::<$type>($($argument),*) };
}
