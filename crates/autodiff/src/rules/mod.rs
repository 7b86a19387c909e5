//! The gradient rules, one file for each op's file, and the table that lists them.

mod attention;
mod barrier;
mod bce_with_logits;
mod binary;
mod broadcast;
mod cast;
mod concat;
mod convolution;
mod cross_entropy;
mod ctc_loss;
pub(crate) mod cumulative;
mod dropout;
mod dynamic_slice;
mod dynamic_update_slice;
mod gather;
mod gather_along;
mod gelu;
pub(crate) mod layer_norm;
mod log_softmax;
mod matmul;
mod max_pool;
mod mean;
mod pad;
mod quantize;
mod reduce;
mod reshape;
mod reverse;
mod rms_norm;
mod round_stochastic;
pub(crate) mod scan;
mod scatter_add;
mod scatter_add_along;
mod select;
mod silu;
mod slice;
mod softmax;
mod sort;
mod transpose;
mod unary;

use onestep_ir::ops::{BinaryKind, Custom, Scan, UnaryKind};
use onestep_ir::{GraphBuilder, Op, Shape, Tensor};

/// What a rule gives back: a cotangent for each operand. `None` is an exact zero, or an operand that is not wanted.
pub(crate) type Cotangents<'g> = Vec<Option<Tensor<'g>>>;

/// An op's rule, written with the same handles as a user's graph, so that the result is itself differentiable.
pub(crate) trait Gradient {
    /// The operands' cotangents from the results'. `None` when this case is left to the op's decomposition.
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>>;
}

/// How an op is differentiated.
pub(crate) enum Rule<'a> {
    /// By its own rule.
    Explicit(&'a dyn Gradient),
    /// Through its decomposition.
    Decomposition,
    /// Through the nodes of its region.
    Inline,
    /// By the scan of the region's derivative: [`scan::pull`].
    Scan(&'a Scan),
    /// By the gradient that the user's op gives, or else its decomposition.
    Custom(&'a Custom),
    /// Not at all: nothing flows through it, for this reason, and a path ends here.
    Ends(&'static str),
}

/// The table. A path from the loss ends silently at the ops without gradient: their results, or what they take, are
/// no floats.
pub(crate) fn rule(op: &Op) -> Rule<'_> {
    match op {
        Op::Constant(_) | Op::Iota(_) => Rule::Ends("it depends on nothing"),
        Op::Unary(op) => match op.kind {
            UnaryKind::IsFinite | UnaryKind::IsNan => Rule::Ends("its result is a truth value"),
            UnaryKind::Not => Rule::Ends("it takes integers and truth values"),
            _ => Rule::Explicit(op),
        },
        Op::Binary(op) => match op.kind {
            BinaryKind::And | BinaryKind::Or | BinaryKind::Xor | BinaryKind::Shl | BinaryKind::Shr => {
                Rule::Ends("it takes integers and truth values")
            }
            _ => Rule::Explicit(op),
        },
        Op::Compare(_) => Rule::Ends("its result is a truth value"),
        Op::Select(op) => Rule::Explicit(op),
        Op::Cast(op) if !op.dtype.is_float() => Rule::Ends("its result is not a float"),
        Op::Cast(op) => Rule::Explicit(op),
        Op::Bitcast(_) => Rule::Ends("its result or what it takes is bits"),
        Op::RoundStochastic(op) => Rule::Explicit(op),
        Op::Quantize(op) => Rule::Explicit(op),
        Op::Matmul(op) => Rule::Explicit(op),
        Op::Reduce(op) => Rule::Explicit(op),
        Op::Reshape(op) => Rule::Explicit(op),
        Op::Transpose(op) => Rule::Explicit(op),
        Op::Broadcast(op) => Rule::Explicit(op),
        Op::Slice(op) => Rule::Explicit(op),
        Op::Pad(op) => Rule::Explicit(op),
        Op::Concat(op) => Rule::Explicit(op),
        Op::Gather(op) => Rule::Explicit(op),
        Op::ScatterAdd(op) => Rule::Explicit(op),
        Op::GatherAlong(op) => Rule::Explicit(op),
        Op::ScatterAddAlong(op) => Rule::Explicit(op),
        Op::DynamicSlice(op) => Rule::Explicit(op),
        Op::DynamicUpdateSlice(op) => Rule::Explicit(op),
        Op::Mean(op) => Rule::Explicit(op),
        Op::Softmax(op) => Rule::Explicit(op),
        Op::LogSoftmax(op) => Rule::Explicit(op),
        Op::CrossEntropy(op) => Rule::Explicit(op),
        Op::LayerNorm(op) => Rule::Explicit(op),
        Op::RmsNorm(op) => Rule::Explicit(op),
        Op::Gelu(op) => Rule::Explicit(op),
        Op::Silu(op) => Rule::Explicit(op),
        Op::Dropout(op) => Rule::Explicit(op),
        Op::Attention(op) => Rule::Explicit(op),
        Op::AttentionGrad(_) => Rule::Decomposition,
        Op::Call(_) => Rule::Inline,
        Op::Barrier(op) => Rule::Explicit(op),
        Op::Scan(op) => Rule::Scan(op),
        Op::ArgReduce(_) => Rule::Ends("its result is an index"),
        Op::BceWithLogits(op) => Rule::Explicit(op),
        Op::Cumulative(op) => Rule::Explicit(op),
        Op::Reverse(op) => Rule::Explicit(op),
        Op::Sort(op) => Rule::Explicit(op),
        Op::CtcLoss(op) => Rule::Explicit(op),
        Op::RandomBits(_) => Rule::Ends("its result is random bits"),
        Op::Convolution(op) => Rule::Explicit(op),
        Op::ConvolutionInputGrad(op) => Rule::Explicit(op),
        Op::ConvolutionWeightGrad(op) => Rule::Explicit(op),
        Op::MaxPool(op) => Rule::Explicit(op),
        Op::SumPool(_) => Rule::Decomposition,
        Op::Custom(op) => Rule::Custom(op),
    }
}

/// Why an op has no gradient; `None` for the many that have one.
pub fn without_gradient(op: &Op) -> Option<&'static str> {
    match rule(op) {
        Rule::Ends(reason) => Some(reason),
        Rule::Explicit(_) | Rule::Decomposition | Rule::Inline | Rule::Scan(_) | Rule::Custom(_) => None,
    }
}

/// What a rule sees: one node of the graph.
pub(crate) struct At<'a, 'g> {
    /// Where the backward graph is built.
    pub g: &'g GraphBuilder,
    /// The node's operands.
    pub operands: &'a [Tensor<'g>],
    /// The node's results.
    pub results: &'a [Tensor<'g>],
    /// The results' cotangents; at least one is there.
    pub cotangents: &'a [Option<Tensor<'g>>],
    /// Which operands' cotangents are wanted.
    pub wanted: &'a [bool],
}

impl<'g> At<'_, 'g> {
    /// The first operand.
    pub fn x(&self) -> Tensor<'g> {
        self.operands[0]
    }

    /// The first result.
    pub fn y(&self) -> Tensor<'g> {
        self.results[0]
    }

    /// The first result's cotangent, which an op of one result always has (zeros otherwise).
    #[track_caller]
    pub fn dy(&self) -> Tensor<'g> {
        self.cotangents[0].unwrap_or_else(|| self.zeros(self.y()))
    }

    /// `f`'s cotangent for operand `i`, if that is wanted.
    pub fn want(&self, i: usize, f: impl FnOnce() -> Tensor<'g>) -> Option<Tensor<'g>> {
        self.wanted[i].then(f)
    }

    /// Zeros of the type of `like`.
    #[track_caller]
    pub fn zeros(&self, like: Tensor<'g>) -> Tensor<'g> {
        self.g.full(like.dtype(), like.shape(), 0.0)
    }
}

/// The sizes of a tensor: the sweep refuses unbound dimensions before it asks a rule.
pub(crate) fn sizes(t: Tensor<'_>) -> Vec<usize> {
    t.shape().sizes().unwrap_or_default()
}

/// `f16` and `bf16` as `f32`: formulas of several ops are computed wide and rounded once.
#[track_caller]
pub(crate) fn wide(t: Tensor<'_>) -> Tensor<'_> {
    t.cast(t.dtype().accumulator())
}

/// Undoes a reduction over `axes`: repeats `t` along them until the shape is `shape`.
#[track_caller]
pub(crate) fn spread<'g>(t: Tensor<'g>, axes: &[usize], shape: &Shape) -> Tensor<'g> {
    let mut kept = shape.clone();
    axes.iter().for_each(|&a| kept.0[a] = 1.into());
    t.reshape(kept).broadcast(shape)
}
