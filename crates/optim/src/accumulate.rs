//! Accumulation over several calls: each adds its weighted gradients to sums in state, and every `k`-th ends the step with
//! their mean.
//!
//! A call is whole or nothing, like any other: one whose gradients are not finite, or whose guard forbids it, is refused,
//! adds nothing, and does not count; the next one takes its place. Running statistics and random counters advance with
//! each call that counts; parameters, slots, averages and `opt/step` only with the last. The update is computed at every
//! call, and kept at the last.
//!
//! | path | what |
//! |---|---|
//! | `opt/accumulate/calls` | `i32`: calls that make a step; it may change between steps |
//! | `opt/accumulate/count` | `i32`: calls of this step so far |
//! | `opt/accumulate/weight` | their weights' sum |
//! | `opt/accumulate/gradient/<path>` | their weighted gradients' sum |
//! | `opt/accumulate/output/<name>` | the weighted sum, or the sum, of each output that is combined |

use crate::combine::{Kind, mean};
use crate::error::check;
use crate::{Combine, OptimError, Trained};
use onestep_ir::{DType, Graph, GraphBuilder, Init, Role, Tensor, ValueId};

/// Replaces each gradient by the mean over the calls of this step so far, and each combined output likewise. Gives
/// whether this call ends the step.
pub(crate) fn accumulate<'g>(
    g: &'g GraphBuilder,
    calls: u32,
    combine: &Combine,
    trained: &mut [Trained<'g>],
) -> Result<Tensor<'g>, OptimError> {
    let counts = |x: f64| (1.0..=i32::MAX as f64).contains(&x);
    check("accumulation", "calls", calls as f64, counts, "use a number of calls, 1 or above, in 32 bits")?;
    g.with_graph(|graph| combine.check(graph))?;
    let wide = trained.iter().any(|t| t.gradient.dtype() == DType::F64);
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let scalar = |name: &str, dtype, value| {
        g.state(&format!("opt/accumulate/{name}"), Role::Scalar, dtype, &[], Init::Constant(value))
    };
    let (calls, count) = (scalar("calls", DType::I32, calls as f64), scalar("count", DType::I32, 0.0));
    let counted = count + 1.0;
    let last = counted.greater_equal(calls);
    g.update(count, last.select(0.0, counted), true);

    let outputs = g.with_graph(|graph| graph.outputs.clone());
    let find = |name: &str| outputs.iter().find(|o| &*o.name == name).map(|o| g.tensor(o.value));
    let weight = combine.weight(g, dtype, find);
    let sums = Sums { g, last };
    let total = sums.add(scalar("weight", dtype, 0.0), weight.amount);
    for t in trained {
        let ty = t.gradient.ty().map(|ty| (ty.dtype, ty.shape.sizes().unwrap_or_default()));
        let (dtype, sizes) = ty.unwrap_or((dtype, vec![]));
        let path = format!("opt/accumulate/gradient/{}", t.path);
        let sum = g.state(&path, Role::Slot, dtype, &sizes, Init::ZEROS);
        t.gradient = mean(sums.add(sum, weight.of(t.gradient)), total);
    }
    for port in &outputs {
        let value = g.tensor(port.value);
        let ty = g.with_graph(|graph| graph.ty(port.value).clone());
        let dtype = Combine::sum_dtype(ty.dtype);
        let sum = |part| sums.add(scalar(&format!("output/{}", port.name), dtype, 0.0), part);
        let combined = match combine.kind(&port.name, &ty) {
            Kind::Mean => mean(sum(weight.of(value.cast(dtype))), total).cast(ty.dtype),
            Kind::Sum => sum(value.cast(dtype)).cast(ty.dtype),
            Kind::Last => value,
        };
        // Each anew, so that the order stays.
        g.set_output(&port.name, combined);
    }
    Ok(last)
}

/// Sums that start again after the last call of a step.
struct Sums<'g> {
    g: &'g GraphBuilder,
    last: Tensor<'g>,
}

impl<'g> Sums<'g> {
    /// The sum with `x`, and the state's update.
    fn add(&self, state: Tensor<'g>, x: Tensor<'g>) -> Tensor<'g> {
        let sum = state + x;
        self.g.update(state, self.last.select(0.0, sum), true);
        sum
    }
}

/// The graph in which the guarded updates from number `from` on happen only where `last` holds.
pub(crate) fn only_at(graph: Graph, last: ValueId, from: usize) -> Result<Graph, OptimError> {
    let updates = graph.updates.clone();
    let mut base = graph;
    base.updates.truncate(from);
    let g = GraphBuilder::edit(base);
    for u in &updates[from..] {
        let state = g.with_graph(|graph| graph.states[u.state].value);
        let (state, value) = (g.tensor(state), g.tensor(u.value));
        let value = if u.guarded { g.tensor(last).select(value, state) } else { value };
        g.update(state, value, u.guarded);
    }
    Ok(g.build()?)
}
