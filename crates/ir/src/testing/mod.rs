//! Test support, for this crate and for every crate that compiles graphs: no part of the compiler uses it.

mod random_graph;

pub use random_graph::{RandomOptions, random_graph, random_inputs, random_state};
