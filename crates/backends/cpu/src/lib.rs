//! The CPU backend.
//!
//! [`CpuProgram`] is a compiled schedule: [`tape`]s for loop kernels, [`library`] kernels for whole ops, run one after the
//! other on a [`pool::Pool`].
//!
//! Two modules carry everything else here. [`math`] holds the scalar functions that kernels call in their inner
//! loops: branch-free, vectorised by the compiler, the same bits whatever the instruction set. [`pool`] shares a
//! kernel's chunks among threads at a cost of about a microsecond.

pub mod error;
mod kernel;
pub mod library;
pub mod math;
pub mod pool;
pub mod program;
mod scan;
pub mod tape;
mod target;

pub use error::CpuError;
pub use program::CpuProgram;
pub use target::CpuTarget;
