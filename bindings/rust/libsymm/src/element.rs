//! What arrays and windows are made of.

use crate::sys;

/// The type of an array's elements, where it is not known when the program is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DType {
    Int8,
    UInt8,
    Int32,
    UInt32,
    Int64,
    UInt64,
    /// IEEE binary16.
    Float16,
    Float32,
    Float64,
    /// The upper half of a 32-bit float.
    BFloat16,
    /// OCP FP8 E4M3: no infinities, up to 448.
    Float8E4M3,
    /// OCP FP8 E5M2, up to 57344.
    Float8E5M2,
}

impl DType {
    /// The bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::Int8 | DType::UInt8 | DType::Float8E4M3 | DType::Float8E5M2 => 1,
            DType::Float16 | DType::BFloat16 => 2,
            DType::Int32 | DType::UInt32 | DType::Float32 => 4,
            DType::Int64 | DType::UInt64 | DType::Float64 => 8,
        }
    }

    pub(crate) const fn as_sys(self) -> sys::symm_dtype {
        match self {
            DType::Int8 => sys::symm_dtype::SYMM_INT8,
            DType::UInt8 => sys::symm_dtype::SYMM_UINT8,
            DType::Int32 => sys::symm_dtype::SYMM_INT32,
            DType::UInt32 => sys::symm_dtype::SYMM_UINT32,
            DType::Int64 => sys::symm_dtype::SYMM_INT64,
            DType::UInt64 => sys::symm_dtype::SYMM_UINT64,
            DType::Float16 => sys::symm_dtype::SYMM_FLOAT16,
            DType::Float32 => sys::symm_dtype::SYMM_FLOAT32,
            DType::Float64 => sys::symm_dtype::SYMM_FLOAT64,
            DType::BFloat16 => sys::symm_dtype::SYMM_BFLOAT16,
            DType::Float8E4M3 => sys::symm_dtype::SYMM_FLOAT8_E4M3,
            DType::Float8E5M2 => sys::symm_dtype::SYMM_FLOAT8_E5M2,
        }
    }
}

/// An 8-bit float of 4 exponent and 3 mantissa bits (OCP FP8 E4M3: no infinities, up to 448), as its
/// bits. It is a carrier: convert by the crate of your choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Float8E4M3(
    /// The bits.
    pub u8,
);

/// An 8-bit float of 5 exponent and 2 mantissa bits (OCP FP8 E5M2, up to 57344), as its bits. It is a
/// carrier: convert by the crate of your choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Float8E5M2(
    /// The bits.
    pub u8,
);

mod sealed {
    /// Sealed, since the library writes elements of any bits: every value of every implementor's size
    /// must be a legal one, without padding, and of C's layout for its [`DType`](super::DType).
    pub trait Sealed {}
}

/// A type that arrays and windows can be made of. Sealed: it names what the library can reduce.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// The number of this type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident,)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$type>() == DType::$dtype.size());
    )*};
}

use std::mem::size_of;

elements! {
    i8 => Int8,
    u8 => UInt8,
    i32 => Int32,
    u32 => UInt32,
    i64 => Int64,
    u64 => UInt64,
    f32 => Float32,
    f64 => Float64,
    Float8E4M3 => Float8E4M3,
    Float8E5M2 => Float8E5M2,
}

#[cfg(feature = "half")]
elements! {
    half::f16 => Float16,
    half::bf16 => BFloat16,
}
