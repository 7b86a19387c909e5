//! Which products are of 8-bit floats, and how they are written.
//!
//! A product is one if all of this holds; every other one stays in 16 bits:
//!
//! - its right factor is a parameter, a matrix, perhaps transposed. So the products of attention stay, and those in the bodies of
//!   calls and scans;
//! - another product depends on its result. So the last ones stay, which give logits: their errors go into the loss unsmoothed;
//! - both sizes of the parameter are multiples of 16, which is what matrix units take.
//!
//! The left factor is quantised from its 16-bit form, which is in memory anyway, the parameter from its master.

use onestep_ir::ops::Matmul;
use onestep_ir::{DType, Graph, GraphBuilder, Node, Op, Role, Tensor, ValueId};
use std::collections::{HashMap, HashSet};

/// Sizes of the parameter are multiples of this.
const UNIT: usize = 16;

/// The choice of products, and what was quantised so far.
pub(super) struct EightBits {
    chosen: HashSet<ValueId>,
    quantised: HashMap<ValueId, (ValueId, ValueId)>,
}

impl EightBits {
    /// Chooses among the products of a graph.
    pub fn of(graph: &Graph) -> EightBits {
        // From the last node to the first: the values that a product is made of, at any distance.
        let mut multiplied: HashSet<ValueId> = HashSet::new();
        let mut chosen = HashSet::new();
        for node in graph.body.nodes.iter().rev().map(|&id| graph.node(id)) {
            let reaches = node.results.iter().any(|v| multiplied.contains(v));
            if reaches && matches!(&node.op, Op::Matmul(m) if of_weight(graph, m, node)) {
                chosen.insert(node.results[0]);
            }
            if reaches || multiplies(graph, node) {
                multiplied.extend(&node.operands);
            }
        }
        EightBits { chosen, quantised: HashMap::new() }
    }

    /// Whether a product of the graph is one of 8-bit floats.
    pub fn takes(&self, node: &Node) -> bool {
        self.chosen.contains(&node.results[0])
    }

    /// The product of 8-bit floats, in `bf16`.
    pub fn product<'g>(
        &mut self,
        g: &'g GraphBuilder,
        m: &Matmul,
        x: Tensor<'g>,
        w: Tensor<'g>,
    ) -> Tensor<'g> {
        let (x, x_scale) = self.quantised(g, x);
        let (w, w_scale) = self.quantised(g, w);
        let x = if m.transpose_a { x.transpose_last() } else { x };
        let w = if m.transpose_b { w } else { w.transpose_last() };
        let dtype = DType::BF16;
        let product = g.emit1(Matmul { transpose_a: false, transpose_b: true, dtype }, &[x, w]);
        // Powers of two, so that the order does not matter and nothing is rounded.
        product * x_scale.cast(dtype) * w_scale.cast(dtype)
    }

    /// A value in 8 bits with its scale, once however often it is used.
    fn quantised<'g>(&mut self, g: &'g GraphBuilder, t: Tensor<'g>) -> (Tensor<'g>, Tensor<'g>) {
        let known = t.value().and_then(|v| self.quantised.get(&v));
        if let Some(&(q, scale)) = known {
            return (g.tensor(q), g.tensor(scale));
        }
        let (q, scale) = t.quantize(DType::F8E4M3);
        if let (Some(v), Some(q), Some(scale)) = (t.value(), q.value(), scale.value()) {
            self.quantised.insert(v, (q, scale));
        }
        (q, scale)
    }
}

/// Whether a node multiplies matrices, itself or in its regions.
fn multiplies(graph: &Graph, node: &Node) -> bool {
    let product = matches!(node.op, Op::Matmul(_) | Op::Attention(_) | Op::Convolution(_));
    let inner = |r: &onestep_ir::Region| r.nodes.iter().any(|&id| multiplies(graph, graph.node(id)));
    product || node.regions.iter().any(inner)
}

/// Whether a product is of an `f32` tensor with a parameter whose sizes suit.
fn of_weight(graph: &Graph, m: &Matmul, node: &Node) -> bool {
    let (x, w) = (node.operands[0], node.operands[1]);
    let Some(sizes) = graph.ty(w).shape.sizes() else { return false };
    m.dtype == DType::F32
        && graph.ty(x).dtype == DType::F32
        && sizes.len() == 2
        && sizes.iter().all(|n| *n > 0 && n % UNIT == 0)
        && is_parameter(graph, w)
}

/// Whether a value is a parameter, or one transposed.
fn is_parameter(graph: &Graph, value: ValueId) -> bool {
    match graph.def(value) {
        None => graph.states.iter().any(|s| s.value == value && s.role == Role::Parameter),
        Some(Node { op: Op::Transpose(_), operands, .. }) => is_parameter(graph, operands[0]),
        Some(_) => false,
    }
}
