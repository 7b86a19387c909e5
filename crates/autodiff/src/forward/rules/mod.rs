//! The forward rules, and the table that lists them. Most ops need no formula of their own: their derivative is the op
//! itself on tangents, or the reverse rule of an op whose Jacobian is symmetric.

mod cumulative;
mod layer_norm;
mod log_softmax;
mod max_pool;
mod pad;
mod rms_norm;
mod round_stochastic;
mod sort;

use crate::rules::{At as Back, Gradient, sizes, without_gradient};
use onestep_ir::ops::{ReduceKind, Scan};
use onestep_ir::{GraphBuilder, Op, Tensor};

/// What a rule gives: a tangent for each result. `None` is an exact zero, or a result that is no float.
pub(crate) type Tangents<'g> = Vec<Option<Tensor<'g>>>;

/// An op's own rule, written with the same handles as a user's graph, so that the result is itself differentiable.
pub(crate) trait Forward {
    /// The results' tangents from the operands'. `None` when this case is left to the op's decomposition.
    fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>>;
}

/// How an op passes tangents on.
pub(crate) enum Rule<'a> {
    /// Linear in its float operands together: the op itself on their tangents. Indices and conditions stay.
    Linear,
    /// Linear in each float operand alone: the sum over these of the op with that one's tangent in its place.
    Multilinear,
    /// Its Jacobian in each operand is symmetric (an elementwise function's is diagonal): the reverse rule, given the
    /// tangent of an operand in place of the cotangent, gives what that operand adds.
    Symmetric(&'a dyn Gradient),
    /// Each result is a function of its own group of elements along `axes`: the sum over these of the slopes, which the
    /// reverse rule gives for a cotangent of ones, times the tangent. Only the first operand moves.
    Grouped(&'a dyn Gradient, Vec<isize>),
    /// By its own rule.
    Explicit(&'a dyn Forward),
    /// Through its decomposition.
    Decomposition,
    /// Through the nodes of its region.
    Inline,
    /// By a scan of its region and that one's derivative.
    Scan(&'a Scan),
    /// Not at all: nothing flows through it, for the reason that reverse mode gives.
    Ends,
}

/// The table.
pub(crate) fn rule(op: &Op) -> Rule<'_> {
    if without_gradient(op).is_some() {
        return Rule::Ends;
    }
    match op {
        Op::Constant(_) | Op::Iota(_) | Op::Compare(_) | Op::ArgReduce(_) | Op::RandomBits(_) => Rule::Ends,
        Op::Bitcast(_) => Rule::Ends,
        Op::RoundStochastic(op) => Rule::Explicit(op),
        Op::Unary(op) => Rule::Symmetric(op),
        Op::Binary(op) => Rule::Symmetric(op),
        Op::Gelu(op) => Rule::Symmetric(op),
        Op::Silu(op) => Rule::Symmetric(op),
        Op::BceWithLogits(op) => Rule::Symmetric(op),
        Op::Softmax(op) => Rule::Symmetric(op),
        Op::Select(_) | Op::Cast(_) | Op::Dropout(_) | Op::Barrier(_) => Rule::Linear,
        Op::Reshape(_) | Op::Transpose(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Reverse(_) => Rule::Linear,
        Op::Concat(_) | Op::Mean(_) | Op::SumPool(_) => Rule::Linear,
        Op::Gather(_) | Op::ScatterAdd(_) | Op::GatherAlong(_) | Op::ScatterAddAlong(_) => Rule::Linear,
        Op::DynamicSlice(_) | Op::DynamicUpdateSlice(_) => Rule::Linear,
        Op::Reduce(op) if op.kind == ReduceKind::Sum => Rule::Linear,
        Op::Reduce(op) => Rule::Grouped(op, op.axes.iter().map(|&a| a as isize).collect()),
        Op::CrossEntropy(op) => Rule::Grouped(op, vec![-1]),
        Op::Cumulative(op) if op.kind == ReduceKind::Sum => Rule::Linear,
        Op::Cumulative(op) => Rule::Explicit(op),
        Op::Matmul(_) => Rule::Multilinear,
        Op::Convolution(_) | Op::ConvolutionInputGrad(_) | Op::ConvolutionWeightGrad(_) => Rule::Multilinear,
        Op::Pad(op) => Rule::Explicit(op),
        Op::Sort(op) => Rule::Explicit(op),
        Op::MaxPool(op) => Rule::Explicit(op),
        Op::LogSoftmax(op) => Rule::Explicit(op),
        Op::LayerNorm(op) => Rule::Explicit(op),
        Op::RmsNorm(op) => Rule::Explicit(op),
        Op::Attention(_) | Op::AttentionGrad(_) | Op::Quantize(_) => Rule::Decomposition,
        Op::CtcLoss(_) | Op::Custom(_) => Rule::Decomposition,
        Op::Call(_) => Rule::Inline,
        Op::Scan(op) => Rule::Scan(op),
    }
}

/// What a rule sees: one node of the graph.
pub(crate) struct At<'a, 'g> {
    /// Where the derivative is built.
    pub g: &'g GraphBuilder,
    /// The node's op.
    pub op: &'a Op,
    /// The node's operands.
    pub operands: &'a [Tensor<'g>],
    /// The node's results.
    pub results: &'a [Tensor<'g>],
    /// The operands' tangents; at least one is there.
    pub tangents: &'a [Option<Tensor<'g>>],
}

impl<'g> At<'_, 'g> {
    /// The first operand.
    pub fn x(&self) -> Tensor<'g> {
        self.operands[0]
    }

    /// The first operand's tangent, which an op of one float operand always has.
    pub fn dx(&self) -> Option<Tensor<'g>> {
        self.tangents[0]
    }

    /// What the reverse rule of operand `i` makes of a cotangent of the first result.
    fn pull(&self, rule: &dyn Gradient, i: usize, cotangent: Tensor<'g>) -> Option<Option<Tensor<'g>>> {
        let mut cotangents = vec![None; self.results.len()];
        cotangents[0] = Some(cotangent);
        let wanted: Vec<bool> = (0..self.operands.len()).map(|n| n == i).collect();
        let (g, operands, results) = (self.g, self.operands, self.results);
        let at = Back { g, operands, results, cotangents: &cotangents, wanted: &wanted };
        Some(rule.pull(&at)?[i])
    }

    /// The op with the tangents of its float operands in their places.
    fn on_tangents(&self) -> Tensor<'g> {
        let operand = |(x, t): (&Tensor<'g>, &Option<Tensor<'g>>)| match t {
            Some(t) => *t,
            None if x.dtype().is_float() => self.g.full(x.dtype(), x.shape(), 0.0),
            None => *x,
        };
        let operands: Vec<_> = self.operands.iter().zip(self.tangents).map(operand).collect();
        self.g.emit1(self.op.clone(), &operands)
    }

    /// The sum of what `part` gives for each operand that moves.
    fn sum(
        &self,
        part: impl Fn(usize, Tensor<'g>) -> Option<Option<Tensor<'g>>>,
    ) -> Option<Option<Tensor<'g>>> {
        let mut total = None;
        for (i, t) in self.tangents.iter().enumerate() {
            let Some(t) = t else { continue };
            if let Some(more) = part(i, *t)? {
                total = Some(total.map_or(more, |before: Tensor<'g>| before + more));
            }
        }
        Some(total)
    }
}

impl Rule<'_> {
    /// The results' tangents; `None` where the op is to be taken apart.
    pub fn push<'g>(&self, at: &At<'_, 'g>) -> Option<Tangents<'g>> {
        match self {
            Rule::Linear => Some(vec![Some(at.on_tangents())]),
            Rule::Multilinear => {
                let part = |i: usize, t| {
                    let mut operands = at.operands.to_vec();
                    operands[i] = t;
                    Some(Some(at.g.emit1(at.op.clone(), &operands)))
                };
                Some(vec![at.sum(part)?])
            }
            Rule::Symmetric(rule) => Some(vec![at.sum(|i, t| at.pull(*rule, i, t))?]),
            Rule::Grouped(rule, axes) => {
                let y = at.results[0];
                let slope = at.pull(*rule, 0, at.g.full(y.dtype(), y.shape(), 1.0))?;
                let product = |slope: Tensor<'g>| {
                    let moved = slope * at.dx()?;
                    Some(if axes.is_empty() { moved } else { moved.sum(axes) })
                };
                Some(vec![slope.and_then(product)])
            }
            Rule::Explicit(rule) => rule.push(at),
            Rule::Ends => Some(vec![None; at.results.len()]),
            Rule::Decomposition | Rule::Inline | Rule::Scan(_) => None,
        }
    }
}

/// `[.., spatial…]` as `[planes, places]`, with the last `axes` axes as places.
pub(crate) fn planes<'g>(t: Tensor<'g>, axes: usize) -> Tensor<'g> {
    let of = sizes(t);
    let (lead, spatial) = of.split_at(of.len() - axes);
    t.reshape([lead.iter().product(), spatial.iter().product()])
}
