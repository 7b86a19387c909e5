//! From a kernel's body to nodes over storage dtypes that have arithmetic.
//!
//! Functions of f16 and bf16 become functions of f32 between casts, each result rounded to its dtype; reductions of
//! them accumulate in f32 and round once. An index becomes an i64 index and a cast. A product used once, by a sum, is
//! one node with it (with both roundings).

use super::domain::{Domain, Line};
use super::walk::{Condition, Load};
use crate::error::CpuError;
use onestep_ir::DType;
use onestep_ir::ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::{BufferId, Expr, ExprId, LoopKernel};

/// What a node computes from its operands.
#[derive(Clone, Debug)]
pub enum NodeOp {
    Load(Load),
    Literal(u64),
    Index(Line),
    Unary(UnaryKind),
    Binary(BinaryKind),
    /// `a · b + c`, or `− c` when set; f32.
    MulThen(bool),
    Compare(CompareKind),
    Select,
    Cast,
    Reduce(ReduceKind),
    /// Operands: two key words, the step, the index.
    Random(u64),
}

/// An expression on the way to an instruction.
#[derive(Clone, Debug)]
pub struct Node {
    pub op: NodeOp,
    pub dtype: DType,
    pub args: Vec<usize>,
    /// The axes on which it depends, as bits.
    pub axes: u32,
    /// The number of reductions on the longest chain below it.
    pub stage: usize,
}

/// A lowered body: its nodes, each after its operands, and the node of each store's value.
pub struct Lowered {
    pub nodes: Vec<Node>,
    pub stored: Vec<usize>,
}

struct Lowering<'a> {
    domain: &'a Domain,
    nodes: Vec<Node>,
    /// For each expression, its node, and that node in f32 once asked for.
    of_expr: Vec<(usize, Option<usize>)>,
}

/// Lowers a body, after checking that operands fit their expressions and buffers.
pub fn lower(
    kernel: &LoopKernel,
    domain: &Domain,
    dtype_of: &dyn Fn(BufferId) -> DType,
) -> Result<Lowered, CpuError> {
    let mut l = Lowering { domain, nodes: vec![], of_expr: vec![] };
    for (i, e) in kernel.body.iter().enumerate() {
        check(kernel, i, dtype_of)?;
        let node = l.expression(&e.expr, e.dtype);
        l.of_expr.push((node, None));
    }
    for s in &kernel.stores {
        same_buffer(dtype_of, s.access.buffer, kernel.body[s.value.index()].dtype)?;
    }
    let stored = kernel.stores.iter().map(|s| l.of_expr[s.value.index()].0).collect();
    let mut lowered = Lowered { nodes: l.nodes, stored };
    lowered.join_products();
    Ok(lowered)
}

fn same_buffer(
    dtype_of: &dyn Fn(BufferId) -> DType,
    buffer: BufferId,
    expected: DType,
) -> Result<(), CpuError> {
    let found = dtype_of(buffer);
    if found == expected {
        return Ok(());
    }
    Err(CpuError::BufferDType { buffer: buffer.0, found, expected })
}

fn check(kernel: &LoopKernel, i: usize, dtype_of: &dyn Fn(BufferId) -> DType) -> Result<(), CpuError> {
    let e = &kernel.body[i];
    let malformed = |why| Err(CpuError::Malformed { expr: i, why });
    if e.expr.operands().iter().any(|o| o.index() >= i) {
        return malformed("an operand does not stand before it");
    }
    let dtype = |id: &ExprId| kernel.body[id.index()].dtype;
    match &e.expr {
        Expr::Load { access, bounds, .. } => {
            if bounds.iter().any(|b| b.step < 1) {
                return malformed("a bound's step is not positive");
            }
            same_buffer(dtype_of, access.buffer, e.dtype)
        }
        Expr::Binary(_, a, b) if dtype(a) != dtype(b) || dtype(a) != e.dtype => {
            malformed("its operands are not of its dtype")
        }
        Expr::Compare(_, a, b) if dtype(a) != dtype(b) || e.dtype != DType::Bool => {
            malformed("it compares two dtypes, or is not bool")
        }
        Expr::Select(c, a, b) if dtype(c) != DType::Bool || dtype(a) != e.dtype || dtype(b) != e.dtype => {
            malformed("it selects by what is not bool, or another dtype than its own")
        }
        Expr::Unary(UnaryKind::IsFinite | UnaryKind::IsNan, _) if e.dtype != DType::Bool => {
            malformed("it is a test, but not bool")
        }
        Expr::Unary(UnaryKind::IsFinite | UnaryKind::IsNan, _) => Ok(()),
        Expr::Unary(_, a) | Expr::Reduce(_, a) if dtype(a) != e.dtype => {
            malformed("its operand is not of its dtype")
        }
        Expr::Index(_) if e.dtype == DType::Bool => malformed("an index is not bool"),
        Expr::RandomBits { key, counter, index, .. } => {
            let words = [key[0], key[1], *counter];
            if words.iter().any(|w| dtype(w) != DType::U32)
                || dtype(index) != DType::I64
                || e.dtype != DType::U32
            {
                return malformed("random bits are u32, from u32 words and an i64 index");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

impl Lowering<'_> {
    fn push(&mut self, op: NodeOp, dtype: DType, args: Vec<usize>) -> usize {
        let (mut axes, mut stage) = (0, 0);
        for &a in &args {
            axes |= self.nodes[a].axes;
            stage = stage.max(self.nodes[a].stage);
        }
        match &op {
            NodeOp::Load(load) => {
                axes = load.bounds.iter().fold(load.place.axes, |set, b| set | b.index.axes);
            }
            NodeOp::Index(line) => axes = line.axes,
            NodeOp::Reduce(_) => {
                axes &= !self.domain.reduced_axes();
                stage += 1;
            }
            _ => {}
        }
        self.nodes.push(Node { op, dtype, args, axes, stage });
        self.nodes.len() - 1
    }

    fn node(&self, id: &ExprId) -> usize {
        self.of_expr[id.index()].0
    }

    /// An operand in a dtype that has arithmetic.
    fn wide(&mut self, id: &ExprId) -> usize {
        let (node, cast) = self.of_expr[id.index()];
        if !narrow(self.nodes[node].dtype) {
            return node;
        }
        let cast = match cast {
            Some(cast) => cast,
            None => self.push(NodeOp::Cast, DType::F32, vec![node]),
        };
        self.of_expr[id.index()].1 = Some(cast);
        cast
    }

    /// A function computed in f32 where the dtype is narrower.
    fn function(&mut self, op: NodeOp, dtype: DType, operands: &[&ExprId]) -> usize {
        let args = operands.iter().map(|id| self.wide(id)).collect();
        if !narrow(dtype) {
            return self.push(op, dtype, args);
        }
        let wide = self.push(op, DType::F32, args);
        self.push(NodeOp::Cast, dtype, vec![wide])
    }

    fn expression(&mut self, expr: &Expr, dtype: DType) -> usize {
        match expr {
            Expr::Load { access, bounds, fill } => {
                let condition = |b: &onestep_passes::schedule::Bound| Condition {
                    index: self.domain.line(&b.index),
                    size: b.size,
                    step: b.step,
                };
                let load = Load {
                    buffer: access.buffer,
                    place: self.domain.line(&access.place),
                    size: dtype.size(),
                    bounds: bounds.iter().map(condition).collect(),
                    fill: *fill,
                };
                self.push(NodeOp::Load(load), dtype, vec![])
            }
            Expr::Literal(bits) => self.push(NodeOp::Literal(*bits), dtype, vec![]),
            Expr::Index(affine) => {
                let index = self.push(NodeOp::Index(self.domain.line(affine)), DType::I64, vec![]);
                match dtype {
                    DType::I64 => index,
                    _ => self.push(NodeOp::Cast, dtype, vec![index]),
                }
            }
            Expr::Unary(kind, a) => self.function(NodeOp::Unary(*kind), dtype, &[a]),
            Expr::Binary(kind, a, b) => self.function(NodeOp::Binary(*kind), dtype, &[a, b]),
            Expr::Compare(kind, a, b) => self.function(NodeOp::Compare(*kind), dtype, &[a, b]),
            Expr::Reduce(kind, a) => self.function(NodeOp::Reduce(*kind), dtype, &[a]),
            Expr::Select(c, a, b) => {
                let args = vec![self.node(c), self.node(a), self.node(b)];
                self.push(NodeOp::Select, dtype, args)
            }
            Expr::Cast(a) => {
                let a = self.node(a);
                match self.nodes[a].dtype == dtype {
                    true => a,
                    false => self.push(NodeOp::Cast, dtype, vec![a]),
                }
            }
            Expr::RandomBits { key, counter, index, stream } => {
                let args = vec![self.node(&key[0]), self.node(&key[1]), self.node(counter), self.node(index)];
                self.push(NodeOp::Random(*stream), dtype, args)
            }
        }
    }
}

impl Lowered {
    /// Makes one node of a product and the only sum that uses it.
    fn join_products(&mut self) {
        let mut uses = vec![0; self.nodes.len()];
        self.nodes.iter().flat_map(|n| &n.args).chain(&self.stored).for_each(|&a| uses[a] += 1);
        for i in 0..self.nodes.len() {
            let node = &self.nodes[i];
            let NodeOp::Binary(kind @ (BinaryKind::Add | BinaryKind::Sub)) = node.op else { continue };
            if node.dtype != DType::F32 {
                continue;
            }
            let joinable = |&p: &usize| {
                let product = &self.nodes[p];
                let same_loop = product.axes == node.axes && product.stage == node.stage;
                matches!(product.op, NodeOp::Binary(BinaryKind::Mul)) && uses[p] == 1 && same_loop
            };
            // A sum commutes to the bit; a difference has the product on its left.
            let (product, other) = match (kind, joinable(&node.args[0]), joinable(&node.args[1])) {
                (_, true, _) => (node.args[0], node.args[1]),
                (BinaryKind::Add, false, true) => (node.args[1], node.args[0]),
                _ => continue,
            };
            let [mut a, mut b] = [self.nodes[product].args[0], self.nodes[product].args[1]];
            if self.nodes[b].axes < self.nodes[a].axes {
                (a, b) = (b, a);
            }
            self.nodes[i].args = vec![a, b, other];
            self.nodes[i].op = NodeOp::MulThen(kind == BinaryKind::Sub);
        }
    }
}
