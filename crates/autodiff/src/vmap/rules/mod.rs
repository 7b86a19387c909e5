//! The rules of mapping, and the table that lists them. Most ops are the same op with its axes counted one further, on
//! operands that all have the axis in front; those that treat their operands differently have a file.

mod attention;
mod broadcast;
mod convolution;
mod ctc_loss;
mod dynamic_slice;
mod dynamic_update_slice;
mod gather;
mod layer_norm;
mod matmul;
mod random_bits;
mod scatter_add;

use super::Lane;
use onestep_ir::ops::*;
use onestep_ir::{GraphBuilder, Op, Tensor, Type};

/// An op's own rule.
pub(crate) trait Batch {
    /// The results for all members, each with the axis in front. At least one operand is mapped. `None` when this case is
    /// left to the op's decomposition.
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>>;
}

/// How an op is mapped.
pub(crate) enum Rule<'a> {
    /// As this op, on operands that all have the axis in front.
    Lifted(Op),
    /// By its own rule.
    Explicit(&'a dyn Batch),
    /// Through its decomposition.
    Decomposition,
}

/// The table.
pub(crate) fn rule(op: &Op, size: usize) -> Rule<'_> {
    let further = |axes: &[usize]| axes.iter().map(|a| a + 1).collect::<Vec<_>>();
    let same = || Rule::Lifted(op.clone());
    let lifted: Op = match op {
        // They take no operand, so that none is mapped.
        Op::Constant(_) | Op::Iota(_) => return same(),
        // Element by element.
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Cast(_) => return same(),
        Op::Bitcast(_) | Op::RoundStochastic(_) => return same(),
        Op::Gelu(_) | Op::Silu(_) | Op::Dropout(_) | Op::BceWithLogits(_) | Op::Barrier(_) => return same(),
        // Along the last axes.
        Op::CrossEntropy(_) | Op::MaxPool(_) | Op::SumPool(_) => return same(),
        Op::Reduce(o) => Reduce { axes: further(&o.axes), ..*o }.into(),
        Op::Mean(o) => Mean { axes: further(&o.axes) }.into(),
        Op::Reverse(o) => Reverse { axes: further(&o.axes) }.into(),
        Op::Transpose(o) => Transpose { perm: [vec![0], further(&o.perm)].concat() }.into(),
        Op::Reshape(o) => Reshape { dims: [vec![size.into()], o.dims.clone()].concat() }.into(),
        Op::Slice(o) => Slice { axis: o.axis + 1, ..*o }.into(),
        Op::Pad(o) => Pad { axis: o.axis + 1, ..*o }.into(),
        Op::Concat(o) => Concat { axis: o.axis + 1 }.into(),
        Op::GatherAlong(o) => GatherAlong { axis: o.axis + 1 }.into(),
        Op::ScatterAddAlong(o) => ScatterAddAlong { axis: o.axis + 1 }.into(),
        Op::ArgReduce(o) => ArgReduce { axis: o.axis + 1, ..*o }.into(),
        Op::Softmax(o) => Softmax { axis: o.axis + 1 }.into(),
        Op::LogSoftmax(o) => LogSoftmax { axis: o.axis + 1 }.into(),
        Op::Cumulative(o) => Cumulative { axis: o.axis + 1, ..*o }.into(),
        Op::Sort(o) => Sort { axis: o.axis + 1, ..*o }.into(),
        Op::Broadcast(o) => return Rule::Explicit(o),
        Op::Matmul(o) => return Rule::Explicit(o),
        Op::Convolution(o) => return Rule::Explicit(o),
        Op::ConvolutionInputGrad(o) => return Rule::Explicit(o),
        Op::ConvolutionWeightGrad(o) => return Rule::Explicit(o),
        Op::Gather(o) => return Rule::Explicit(o),
        Op::ScatterAdd(o) => return Rule::Explicit(o),
        Op::DynamicSlice(o) => return Rule::Explicit(o),
        Op::DynamicUpdateSlice(o) => return Rule::Explicit(o),
        Op::RandomBits(o) => return Rule::Explicit(o),
        Op::Attention(o) => return Rule::Explicit(o),
        Op::AttentionGrad(o) => return Rule::Explicit(o),
        Op::CtcLoss(o) => return Rule::Explicit(o),
        Op::LayerNorm(o) => return Rule::Explicit(o),
        Op::RmsNorm(o) => return Rule::Explicit(o),
        // Each member has a scale of its own.
        Op::Quantize(_) | Op::Custom(_) => return Rule::Decomposition,
        // Their regions are mapped instead: the mapper does that.
        Op::Call(_) | Op::Scan(_) => return Rule::Decomposition,
    };
    Rule::Lifted(lifted)
}

impl Rule<'_> {
    /// The results for all members; `None` where the op is to be taken apart.
    pub fn apply<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        match self {
            Rule::Lifted(op) => {
                let operands: Vec<Tensor<'g>> = (0..at.lanes.len()).map(|i| at.wide(i)).collect();
                Some(at.g.emit(op.clone(), &operands))
            }
            Rule::Explicit(rule) => rule.batch(at),
            Rule::Decomposition => None,
        }
    }
}

/// What a rule sees.
pub(crate) struct At<'a, 'g> {
    /// Where the mapped graph is built.
    pub g: &'g GraphBuilder,
    /// The number of members.
    pub size: usize,
    /// The operands; at least one is mapped.
    pub lanes: &'a [Lane<'g>],
    /// The types of one member's operands, all of them bound.
    pub types: &'a [Type],
}

impl<'g> At<'_, 'g> {
    /// Whether operand `i` is mapped.
    pub fn mapped(&self, i: usize) -> bool {
        self.lanes[i].mapped
    }

    /// Operand `i` as it is.
    pub fn operand(&self, i: usize) -> Tensor<'g> {
        self.lanes[i].tensor
    }

    /// Operand `i` with the axis in front: repeated if it is shared.
    pub fn wide(&self, i: usize) -> Tensor<'g> {
        self.lanes[i].wide(self.size)
    }

    /// The sizes of one member's operand `i`.
    pub fn sizes(&self, i: usize) -> Vec<usize> {
        self.types[i].shape.sizes().unwrap_or_default()
    }
}

/// `[a, b, rest…]` as `[a·b, rest…]`.
pub(crate) fn merged(t: Tensor<'_>) -> Tensor<'_> {
    let sizes = crate::rules::sizes(t);
    let (first, rest) = sizes.split_at(sizes.len().min(2));
    t.reshape(&[&[first.iter().product()], rest].concat()[..])
}

/// `[size·b, rest…]` as `[size, b, rest…]`.
pub(crate) fn parted(t: Tensor<'_>, size: usize) -> Tensor<'_> {
    let sizes = crate::rules::sizes(t);
    let (first, rest) = sizes.split_at(sizes.len().min(1));
    t.reshape(&[&[size, first.iter().product::<usize>() / size], rest].concat()[..])
}
