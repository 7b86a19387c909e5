//! The CPU backend.
//!
//! [`math`] holds the scalar functions that kernels call in their inner loops: branch-free, vectorised by the
//! compiler, the same bits whatever the instruction set.

pub mod math;
