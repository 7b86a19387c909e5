//! Test support, for this crate and for every crate that compiles graphs: no part of the compiler uses it.

mod custom;
mod random_graph;
mod samples;

pub use custom::{Horner, Peak, custom_samples};
pub use random_graph::{RandomOptions, random_graph, random_inputs, random_state};
pub use samples::{Rng, decomposed, difference, epsilon, graph_of, operand_values};
