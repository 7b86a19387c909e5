//! The CPU backend.
//!
//! Two modules carry everything else. [`math`] holds the scalar functions that kernels call in their inner
//! loops: branch-free, vectorised by the compiler, the same bits whatever the instruction set. [`pool`] shares a
//! kernel's chunks among threads at a cost of about a microsecond. [`tape`] runs loop kernels on
//! them.

pub mod error;
pub mod math;
pub mod pool;
pub mod tape;

pub use error::CpuError;
