//! Pass `precision`: mixed precision. An `f32` graph gets the casts with which its products run in a 16-bit float; run it
//! before differentiation, so that the backward pass has the same precision (Micikevicius and others, "Mixed precision
//! training", ICLR 2018).
//!
//! What it keeps: inputs, state, outputs, updates and every value's type, so parameters are `f32` masters, and losses, slots
//! and scalars are `f32`. What it changes is one [`table`]:
//!
//! - [`Rule::Low`]: `f32` operands are cast down and the op runs on them; it accumulates in `f32`.
//! - [`Rule::Follows`]: runs low where one operand is low already and each other one is too, or is a parameter or a constant
//!   that the low dtype can hold (also seen through views). Otherwise in `f32`.
//! - [`Rule::F32`]: runs on `f32` values; a low one is cast up.
//!
//! With [`Precision::F8`] it is that of `bf16`, but for the products of weights (those that `eight_bits.rs` names), whose operands are quantised to
//! `f8e4m3` with a scale for each tensor. Their gradients are products of 8-bit floats too, by the rule of `matmul`.
//!
//! A value is cast down once, however often it is used. Values of other dtypes than `f32`, and casts that the graph has of
//! its own, stay as they are.

mod eight_bits;

use eight_bits::EightBits;
use onestep_ir::rewrite::{eliminate_dead, rewrite};
use onestep_ir::{
    DType, Graph, GraphBuilder, GraphError, Mistake, Node, Op, Role, StatePort, Tensor, ValueId,
};
use std::collections::HashMap;
use std::fmt::Write;
use std::str::FromStr;

/// In which precision a graph computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// As it is written.
    #[default]
    F32,
    /// The same graph; the compiler may have the factors of its products in TF32: the range of `f32`, 11 bits of significand.
    /// A permission ([`Options::allow_tf32`](crate::pipeline::Options::allow_tf32)), which no pass acts on.
    Tf32,
    /// Products in `bf16`: the range of `f32`, 8 bits of significand.
    Bf16,
    /// Products in `f16`: 11 bits of significand, at most 65504. Scale the loss.
    F16,
    /// As `Bf16`, and products of weights in 8 bits: `f8e4m3`, their cotangents in `f8e5m2`. Each tensor has one scale, chosen
    /// at each step by its largest element.
    F8,
}

impl Precision {
    /// Its name, which it is read from too.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F8 => "f8",
            Precision::Tf32 => "tf32",
            _ => self.low().unwrap_or(DType::F32).name(),
        }
    }

    /// The dtype of the products, but for those of 8 bits; `None` for those of the graph.
    pub fn low(self) -> Option<DType> {
        match self {
            Precision::F32 | Precision::Tf32 => None,
            Precision::Bf16 | Precision::F8 => Some(DType::BF16),
            Precision::F16 => Some(DType::F16),
        }
    }
}

impl FromStr for Precision {
    type Err = String;
    fn from_str(name: &str) -> Result<Precision, String> {
        let all = [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16, Precision::F8];
        let found = all.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| format!("there is no precision '{name}'; use f32, tf32, bf16, f16 or f8"))
    }
}

/// In which precision an op runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// In the low dtype.
    Low,
    /// In that of its operands.
    Follows,
    /// In `f32`.
    F32,
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Where the ops run.
    pub rule: Rule,
    /// What they have in common.
    pub what: &'static str,
    /// Their mnemonics.
    pub ops: &'static [&'static str],
}

/// Every op with its precision, in one table: `docs/precision.md` shows it.
pub fn table() -> &'static [Row] {
    TABLE
}

#[rustfmt::skip] // a row of ops to a line
const TABLE: &[Row] = &[
    Row {
        rule: Rule::Low,
        what: "products, with sums in f32",
        ops: &[
            "matmul", "convolution", "convolution_input_grad", "convolution_weight_grad", "attention",
            "attention_grad"
        ],
    },
    Row {
        rule: Rule::Follows,
        what: "arithmetic of an element that loses no more than its rounding",
        ops: &["add", "sub", "mul", "div", "max", "min", "neg", "abs", "sign", "select"],
    },
    Row {
        rule: Rule::Follows,
        what: "activations, computed in f32 and rounded once",
        ops: &["relu", "tanh", "sigmoid", "gelu", "silu", "dropout"],
    },
    Row {
        rule: Rule::Follows,
        what: "copies, views and choices of elements",
        ops: &[
            "reshape", "transpose", "broadcast", "slice", "pad", "concat", "reverse", "gather", "gather_along",
            "dynamic_slice", "dynamic_update_slice", "max_pool", "barrier"
        ],
    },
    Row {
        rule: Rule::F32,
        what: "softmax, norms and losses",
        ops: &["softmax", "log_softmax", "layer_norm", "rms_norm", "cross_entropy", "bce_with_logits", "ctc_loss"],
    },
    Row {
        rule: Rule::F32,
        what: "sums and other reductions",
        ops: &[
            "sum", "mean", "prod", "reduce_max", "reduce_min", "sum_pool", "cumsum", "cumprod", "cummax", "cummin",
            "scatter_add", "scatter_add_along"
        ],
    },
    Row {
        rule: Rule::F32,
        what: "functions of an element",
        ops: &[
            "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "pow", "sin", "cos", "tan", "asin",
            "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2", "erf", "erfc", "floor", "ceil",
            "round", "trunc", "rem"
        ],
    },
    Row {
        rule: Rule::F32,
        what: "comparisons, orders, truth values, integers, and what makes values of nothing",
        ops: &[
            "eq", "ne", "lt", "le", "gt", "ge", "is_finite", "is_nan", "not", "and", "or", "xor", "shl", "shr",
            "argmax", "argmin", "sort", "constant", "iota", "random_bits"
        ],
    },
    Row {
        rule: Rule::F32,
        what: "what the graph says itself, and calls and scans, whose bodies are treated alike",
        ops: &["cast", "bitcast", "round_stochastic", "quantize", "call", "scan"],
    },
];

/// In which precision an op runs. One that the table lacks stays in `f32`.
pub fn rule(op: &Op) -> Rule {
    let name = op.rule().name();
    TABLE.iter().find(|row| row.ops.contains(&name)).map_or(Rule::F32, |row| row.rule)
}

/// The table as Markdown.
pub fn markdown() -> String {
    let mut out = "| runs | what | ops |\n|---|---|---|\n".to_string();
    for row in TABLE {
        let runs = match row.rule {
            Rule::Low => "low",
            Rule::Follows => "as its operands",
            Rule::F32 => "f32",
        };
        let ops: Vec<String> = row.ops.iter().map(|op| format!("`{op}`")).collect();
        writeln!(out, "| {runs} | {} | {} |", row.what, ops.join(" ")).unwrap_or_default();
    }
    out
}

/// Runs the pass. The dimensions need not be bound. A graph that is differentiated already, which shows in an update of a
/// parameter, a slot or a gradient, is a mistake: an optimizer does not compute in 16 bits.
pub fn precision(graph: &Graph, precision: Precision) -> Result<Graph, GraphError> {
    let Some(low) = precision.low() else { return Ok(graph.clone()) };
    check(graph)?;
    // The low form of each value that was cast down.
    let mut casts: HashMap<ValueId, ValueId> = HashMap::new();
    let mut eight_bits = (precision == Precision::F8).then(|| EightBits::of(graph));
    let out = rewrite(graph, &mut |g, node, operands| {
        let runs_low = match rule(&node.op) {
            Rule::F32 => false,
            Rule::Low => true,
            Rule::Follows => follows(g, low, operands),
        };
        if !runs_low || !operands.iter().any(|t| t.dtype() == DType::F32) {
            return None;
        }
        if let (Some(eight_bits), Op::Matmul(m)) = (&mut eight_bits, &node.op)
            && eight_bits.takes(node)
        {
            let x = narrowed(g, low, operands[0], &mut casts);
            return Some(vec![eight_bits.product(g, m, x, operands[1]).cast(m.dtype)]);
        }
        let mut narrow: Vec<Tensor<'_>> = operands.iter().map(|t| narrowed(g, low, *t, &mut casts)).collect();
        if let (Op::AttentionGrad(_), [.., lse, _]) = (&node.op, operands) {
            // The log-sum-exp is `f32` whatever q is.
            let at = operands.len() - 2;
            narrow[at] = *lse;
        }
        let op = match &node.op {
            Op::Matmul(m) if m.dtype == DType::F32 => onestep_ir::ops::Matmul { dtype: low, ..*m }.into(),
            op => op.clone(),
        };
        let wide = |(t, v): (Tensor<'_>, &ValueId)| t.cast(graph.ty(*v).dtype).value();
        let values: Vec<_> = g.emit(op, &narrow).into_iter().zip(&node.results).filter_map(wide).collect();
        Some(values.into_iter().map(|v| g.tensor(v)).collect())
    })?;
    Ok(eliminate_dead(&out))
}

/// Refuses a graph that is differentiated already.
pub(crate) fn check(graph: &Graph) -> Result<(), GraphError> {
    let state = |u: &onestep_ir::Update| &graph.states[u.state];
    let learned = |s: &&StatePort| matches!(s.role, Role::Parameter | Role::Slot | Role::Gradient);
    let Some(state) = graph.updates.iter().map(state).find(learned) else { return Ok(()) };
    let what = format!("the graph is differentiated already: it updates '{}'", state.name);
    let g = GraphBuilder::new(&graph.name);
    g.mistake("precision", &[], Mistake::new(what, "choose the precision of the forward graph"));
    g.build().map(|_| ())
}

/// Whether an op that follows its operands runs low: one of them is low, and no other holds it back.
fn follows(g: &GraphBuilder, low: DType, operands: &[Tensor<'_>]) -> bool {
    let floats = || operands.iter().filter(|t| t.dtype() == DType::F32);
    floats().any(|t| source(g, low, *t).is_some())
        && floats().all(|t| source(g, low, *t).is_some() || yields(g, low, *t))
}

/// The low value of which this one is the wide form.
pub(crate) fn source(g: &GraphBuilder, low: DType, t: Tensor<'_>) -> Option<ValueId> {
    g.with_graph(|graph| {
        let node = graph.def(t.value()?)?;
        let from = *node.operands.first()?;
        (matches!(node.op, Op::Cast(_)) && graph.ty(from).dtype == low).then_some(from)
    })
}

/// Whether a value takes the precision of its company: a parameter, a constant, or a view of one.
fn yields(g: &GraphBuilder, low: DType, t: Tensor<'_>) -> bool {
    let Some(mut value) = t.value() else { return false };
    g.with_graph(|graph| {
        loop {
            match graph.def(value) {
                None => {
                    return graph.states.iter().any(|s| s.value == value && s.role == Role::Parameter);
                }
                Some(Node { op: Op::Constant(c), .. }) => {
                    return c.as_splat().is_none_or(|x| holds(low, x));
                }
                Some(Node {
                    op: Op::Reshape(_) | Op::Transpose(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Reverse(_),
                    operands,
                    ..
                }) => value = operands[0],
                Some(_) => return false,
            }
        }
    })
}

/// Whether a number is neither too large nor too small for the low dtype.
fn holds(low: DType, x: f64) -> bool {
    let rounded = low.round(x);
    rounded.is_finite() == x.is_finite() && (rounded == 0.0) == (x == 0.0)
}

/// An operand as the op takes it: `f32` in the low dtype, anything else as it is.
fn narrowed<'g>(
    g: &'g GraphBuilder,
    low: DType,
    t: Tensor<'g>,
    casts: &mut HashMap<ValueId, ValueId>,
) -> Tensor<'g> {
    let Some(value) = t.value().filter(|_| t.dtype() == DType::F32) else { return t };
    if let Some(low) = source(g, low, t).or_else(|| casts.get(&value).copied()) {
        return g.tensor(low);
    }
    let cast = t.cast(low);
    casts.extend(cast.value().map(|v| (value, v)));
    cast
}
