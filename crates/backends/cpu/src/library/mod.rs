//! Library kernels.
pub mod gemm;
