//! Operations of an all-reduce.

use crate::sys;

/// What an all-reduce does with the operands of all ranks, which are taken in rank order.
///
/// 8- and 16-bit floats accumulate in `f32` (sum, product, average) and are rounded once, to nearest
/// even; float8 saturates. Integers wrap. The result has the same bits on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The largest; NaN if any operand is, and -0 is less than +0.
    Max,
    /// The smallest; NaN if any operand is, and -0 is less than +0.
    Min,
    /// The sum, divided by the number of ranks; integers towards zero.
    Avg,
}

impl Op {
    pub(crate) const fn as_sys(self) -> sys::symm_op {
        match self {
            Op::Sum => sys::symm_op::SYMM_SUM,
            Op::Prod => sys::symm_op::SYMM_PROD,
            Op::Max => sys::symm_op::SYMM_MAX,
            Op::Min => sys::symm_op::SYMM_MIN,
            Op::Avg => sys::symm_op::SYMM_AVG,
        }
    }
}
