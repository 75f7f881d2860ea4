//! Nothing: see `overhead.rs`.
