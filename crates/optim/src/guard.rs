//! The commit guard: one `bool` scalar that decides whether a step happens at all.
//!
//! Parameters, slots and the counter are written together or not at all. Whether every element is finite is asked
//! element by element and reduced as truth values, never as a count of floats, so that one bad element among more than
//! 2^24 is seen.

use onestep_ir::{DType, GraphBuilder, Init, Role, Tensor};

/// Whether every element of every tensor is finite.
pub fn all_finite<'g>(g: &'g GraphBuilder, tensors: &[Tensor<'g>]) -> Tensor<'g> {
    all_of(g, tensors.iter().map(|t| t.is_finite().all()))
}

fn all_of<'g>(g: &'g GraphBuilder, conditions: impl Iterator<Item = Tensor<'g>>) -> Tensor<'g> {
    conditions.reduce(|a, b| a.and(b)).unwrap_or_else(|| g.scalar(DType::Bool, 1.0))
}

/// Sets the commit guard: all of `conditions`, and the guard that the graph had. Counts the steps that are skipped in
/// the always-written state `opt/skipped`. Gives the guard.
pub fn commit_guard<'g>(g: &'g GraphBuilder, conditions: &[Tensor<'g>]) -> Tensor<'g> {
    let before = g.with_graph(|graph| graph.guard).map(|v| g.tensor(v));
    let guard = all_of(g, conditions.iter().copied().chain(before));
    g.set_guard(guard);
    let skipped = g.state("opt/skipped", Role::Scalar, DType::I32, &[], Init::ZEROS);
    g.update(skipped, skipped + guard.not().cast(DType::I32), false);
    guard
}
