//! Tapes against the reference evaluator, and against themselves: other instruction sets, modes, chunk orders, threads.

mod fuzz;
mod kernels;
mod ops;
mod support;
