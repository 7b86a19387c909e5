//! The cotangents of values, each the sum of what its uses gave.
//!
//! What is read in slices gets parts over zeros. Such parts that lie side by side are put together, and no zeros are added: the
//! gradient of a product that is cut into queries, keys and values is the concatenation of theirs.

use onestep_ir::ops::{Concat, Pad};
use onestep_ir::{Graph, GraphBuilder, Node, Op, Tensor, ValueId};
use std::collections::HashMap;

/// What the uses of a value gave so far.
#[derive(Default)]
struct Given<'g> {
    /// The sum of what is not a slice's.
    sum: Option<Tensor<'g>>,
    /// What slices along one axis gave, apart from each other.
    slices: Vec<Slice<'g>>,
}

/// What a slice gave: a part, and that over zeros.
#[derive(Clone, Copy)]
struct Slice<'g> {
    axis: usize,
    start: usize,
    end: usize,
    part: Tensor<'g>,
    padded: Tensor<'g>,
}

/// The cotangents so far, by value.
pub(crate) struct Sums<'g> {
    g: &'g GraphBuilder,
    given: HashMap<ValueId, Given<'g>>,
}

impl<'g> Sums<'g> {
    pub fn new(g: &'g GraphBuilder) -> Sums<'g> {
        Sums { g, given: HashMap::new() }
    }

    /// Adds what a use of a value gave.
    #[track_caller]
    pub fn add(&mut self, v: ValueId, c: Tensor<'g>) {
        let given = self.given.entry(v).or_default();
        let slice = self.g.with_graph(|graph| Slice::of(self.g, graph, c));
        match slice.filter(|s| given.slices.iter().all(|other| s.is_apart(other))) {
            Some(slice) => given.slices.push(slice),
            None => given.sum = Some(given.sum.map_or(c, |before| sum(self.g, before, c))),
        }
    }

    /// The cotangent of a value, if any of its uses gave one.
    #[track_caller]
    pub fn of(&mut self, v: ValueId) -> Option<Tensor<'g>> {
        let given = self.given.get_mut(&v)?;
        given.slices.sort_by_key(|s| s.start);
        for run in std::mem::take(&mut given.slices).chunk_by(|a, b| a.end == b.start) {
            let c = together(self.g, run);
            given.sum = Some(given.sum.map_or(c, |before| before + c));
        }
        given.sum
    }
}

impl<'g> Slice<'g> {
    /// A value as a part over zeros, if it is one.
    fn of(g: &'g GraphBuilder, graph: &Graph, padded: Tensor<'g>) -> Option<Slice<'g>> {
        let Node { op: Op::Pad(pad), operands, .. } = graph.def(padded.value()?)? else { return None };
        let size = graph.ty(operands[0]).shape.0[pad.axis].size()?;
        let zeros = pad.interior == 0 && pad.value.get() == 0.0;
        let (start, part) = (pad.low, g.tensor(operands[0]));
        zeros.then_some(Slice { axis: pad.axis, start, end: start + size, part, padded })
    }

    fn is_apart(&self, other: &Slice<'g>) -> bool {
        self.axis == other.axis && (self.end <= other.start || other.end <= self.start)
    }
}

/// Neighbours as one cotangent.
fn together<'g>(g: &'g GraphBuilder, run: &[Slice<'g>]) -> Tensor<'g> {
    let ([first, .., last], Some(size)) = (run, run[0].padded.shape().0[run[0].axis].size()) else {
        return run[0].padded;
    };
    let parts: Vec<Tensor<'g>> = run.iter().map(|s| s.part).collect();
    let joined = g.emit1(Concat { axis: first.axis }, &parts);
    let (axis, low, high) = (first.axis, first.start, size - last.end);
    if low == 0 && high == 0 {
        return joined;
    }
    g.emit1(Pad { axis, low, high, interior: 0, value: 0.0.into() }, &[joined])
}

/// The sum of two cotangents. Where the second scatters onto zeros, it scatters onto the first as well, without the zeros. So the
/// gradient of a table that is looked up and multiplied with, such as a tied embedding, is written once.
#[track_caller]
fn sum<'g>(g: &'g GraphBuilder, before: Tensor<'g>, c: Tensor<'g>) -> Tensor<'g> {
    scattered_onto(g, before, c).unwrap_or_else(|| before + c)
}

fn scattered_onto<'g>(g: &'g GraphBuilder, before: Tensor<'g>, c: Tensor<'g>) -> Option<Tensor<'g>> {
    let (value, ty) = (c.value()?, before.ty()?);
    let (scatter, [indices, updates]) = g.with_graph(|graph| {
        let node = graph.def(value).filter(|_| *graph.ty(value) == ty)?;
        let (Op::ScatterAdd(scatter), [base, rest @ ..]) = (&node.op, &node.operands[..]) else {
            return None;
        };
        let rest: [ValueId; 2] = rest.try_into().ok()?;
        is_zeros(graph, *base).then_some((*scatter, rest))
    })?;
    Some(g.emit1(scatter, &[before, g.tensor(indices), g.tensor(updates)]))
}

/// Whether every element of a value is the number 0.
fn is_zeros(graph: &Graph, v: ValueId) -> bool {
    match graph.def(v) {
        Some(Node { op: Op::Constant(c), .. }) => c.as_splat() == Some(0.0),
        Some(Node { op: Op::Broadcast(_) | Op::Cast(_) | Op::Reshape(_), operands, .. }) => {
            is_zeros(graph, operands[0])
        }
        _ => false,
    }
}
