//! Pass `fold`: computes at compile time what depends on constants only, by the ops' own references.
//!
//! Only ops with one right result are folded: exp has the bits that the target gives it, and a sum those of the target's
//! order, whether or not their operands happen to be constants. Results above [`LIMIT`] elements stay in the graph, unless
//! they repeat one number. Views of constants and `iota` are left alone: kernels read them for nothing.

use onestep_ir::ops::{Binary, Constant, Op, ReduceKind, Unary};
use onestep_ir::{DType, Dense, Graph, GraphError, Shape, Type};

/// The largest result that is stored as a constant, in elements.
pub const LIMIT: usize = 4096;

/// Runs the pass. One walk suffices: operands come before their uses.
pub fn fold(graph: &Graph) -> Result<Graph, GraphError> {
    onestep_ir::rewrite::rewrite(graph, &mut |g, node, operands| {
        let result = graph.ty(*node.results.first()?).clone();
        if operands.is_empty() || !same_everywhere(&node.op, result.dtype) {
            return None;
        }
        let elementwise = !matches!(node.op, Op::Reduce(_) | Op::RandomBits(_));
        let constants: Vec<(Constant, Type)> = g.with_graph(|graph| {
            operands
                .iter()
                .map(|t| match &graph.def(t.value()?)?.op {
                    Op::Constant(c) => Some((c.clone(), t.ty()?)),
                    _ => None,
                })
                .collect::<Option<_>>()
        })?;
        let sizes = result.shape.sizes()?;
        let repeats = constants.iter().all(|(c, _)| c.value.shape().is_empty());
        if elementwise && repeats {
            // One element stands for all.
            let ones: Vec<Dense> = constants.iter().map(|(c, _)| Dense::from_array(&c.value)).collect();
            let scalar = Type::new(result.dtype, Shape::scalar());
            let one = eval(&node.op, &ones, &scalar)?;
            let value = one.to_array().ok()?;
            return Some(vec![g.emit1(Constant { value, dims: result.shape.0 }, &[])]);
        }
        let most = constants.iter().map(|(_, ty)| ty.numel()).chain([sizes.iter().product()]).max()?;
        if most > LIMIT {
            return None;
        }
        let full: Vec<Dense> = constants
            .iter()
            .map(|(c, ty)| {
                let d = Dense::from_array(&c.value);
                if c.value.shape().is_empty() { d.repeat(ty.numel(), &ty.sizes()) } else { d }
            })
            .collect();
        let value = eval(&node.op, &full, &result)?.to_array().ok()?;
        Some(vec![g.emit1(Constant::dense(value), &[])])
    })
}

/// Whether every target gives an op of this result the same bits: exactly rounded arithmetic, comparisons, choices,
/// integers and random bits.
fn same_everywhere(op: &Op, dtype: DType) -> bool {
    match op {
        Op::Unary(Unary { kind }) => kind.is_exact(),
        Op::Binary(Binary { kind }) => kind.is_exact(),
        Op::Compare(_) | Op::Select(_) | Op::Cast(_) | Op::Bitcast(_) | Op::RandomBits(_) => true,
        Op::Reduce(r) => !dtype.is_float() || matches!(r.kind, ReduceKind::Max | ReduceKind::Min),
        _ => false,
    }
}

fn eval(op: &Op, operands: &[Dense], result: &Type) -> Option<Dense> {
    let refs: Vec<&Dense> = operands.iter().collect();
    let mut out = op.rule().reference(&refs, std::slice::from_ref(result)).ok()?.pop()?;
    out.settle();
    Some(out)
}
