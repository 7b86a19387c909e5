//! The CUDA target. So far it holds the renderer: a schedule's loop kernels as CUDA C, which is pure text and needs no CUDA to
//! build or to test. The example `nvrtc_check` (feature `device`) compiles the text by NVRTC, runs it on a device and
//! compares the results with the reference evaluator.

pub mod render;
