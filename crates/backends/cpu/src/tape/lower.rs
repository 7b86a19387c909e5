//! From a kernel's body to nodes over storage dtypes that have arithmetic.
//!
//! Functions of f16 and bf16 become functions of f32 between casts, each result rounded to its dtype; reductions of
//! them accumulate in f32 and round once. An index becomes an i64 index and a cast. Two f32 functions of
//! which one is used only by the other become one node (with both roundings), where there is an instruction for it.

use super::domain::{Domain, Line};
use super::instr::joined;
use super::walk::{Condition, Load};
use crate::error::CpuError;
use onestep_ir::DType;
use onestep_ir::ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::{Affine, Bound, BufferId, Expr, ExprId, LoopKernel};

/// What a node computes from its operands.
#[derive(Clone, Debug)]
pub enum NodeOp {
    Load(Load),
    Literal(u64),
    Index(Line),
    Unary(UnaryKind),
    Binary(BinaryKind),
    /// `a / (√b + c)`; f32.
    RootQuotient,
    /// `outer(inner(a, b))`; f32.
    Composed {
        outer: UnaryKind,
        inner: BinaryKind,
    },
    /// `outer(inner(a, b), c)`, or `outer(c, inner(a, b))` when `second`; f32.
    Pair {
        inner: BinaryKind,
        outer: BinaryKind,
        second: bool,
    },
    Compare(CompareKind),
    Select,
    Cast,
    Bitcast,
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

/// Lowers a body that has been checked.
pub fn lower(kernel: &LoopKernel, domain: &Domain) -> Lowered {
    let mut l = Lowering { domain, nodes: vec![], of_expr: vec![] };
    for e in &kernel.body {
        let node = l.expression(&e.expr, e.dtype);
        l.of_expr.push((node, None));
    }
    let stored = kernel.stores.iter().map(|s| l.of_expr[s.value.index()].0).collect();
    let mut lowered = Lowered { nodes: l.nodes, stored };
    lowered.join_root_quotients();
    lowered.join_pairs();
    lowered
}

/// Checks that operands fit their expressions, accesses their buffers, and affine functions the domain.
pub fn check(kernel: &LoopKernel, dtype_of: &dyn Fn(BufferId) -> DType) -> Result<(), CpuError> {
    for i in 0..kernel.body.len() {
        check_expression(kernel, i, dtype_of)?;
    }
    for s in &kernel.stores {
        let Some(value) = kernel.body.get(s.value.index()) else {
            return Err(CpuError::Malformed {
                expr: s.value.index(),
                why: "a store names it, but it is not there",
            });
        };
        same_buffer(dtype_of, s.access.buffer, value.dtype)?;
        if s.access.place.coefs.len() != kernel.extents.len() {
            return Err(CpuError::Malformed { expr: s.value.index(), why: "its store is of another rank" });
        }
    }
    Ok(())
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

fn check_expression(
    kernel: &LoopKernel,
    i: usize,
    dtype_of: &dyn Fn(BufferId) -> DType,
) -> Result<(), CpuError> {
    let e = &kernel.body[i];
    let malformed = |why| Err(CpuError::Malformed { expr: i, why });
    if e.expr.operands().iter().any(|o| o.index() >= i) {
        return malformed("an operand does not stand before it");
    }
    let dtype = |id: &ExprId| kernel.body[id.index()].dtype;
    let whole = |a: &Affine| a.coefs.len() == kernel.extents.len();
    match &e.expr {
        Expr::Load { access, bounds, .. } => {
            if bounds.iter().any(|b| b.step < 1) {
                return malformed("a bound's step is not positive");
            }
            if !whole(&access.place) || !bounds.iter().all(|b| whole(&b.index)) {
                return malformed("it is of another rank");
            }
            same_buffer(dtype_of, access.buffer, e.dtype)
        }
        Expr::Index(affine) if !whole(affine) => malformed("it is of another rank"),
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
        Expr::Bitcast(a) if dtype(a).size() != e.dtype.size() || e.dtype.size() < 4 => {
            malformed("its bits are not those of its operand's dtype")
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
    matches!(dtype, DType::F16 | DType::BF16) || dtype.is_fp8()
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
                let condition =
                    |b: &Bound| Condition { index: self.domain.line(&b.index), size: b.size, step: b.step };
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
            Expr::Bitcast(a) => {
                let args = vec![self.node(a)];
                self.push(NodeOp::Bitcast, dtype, args)
            }
            Expr::RandomBits { key, counter, index, stream } => {
                let args = vec![self.node(&key[0]), self.node(&key[1]), self.node(counter), self.node(index)];
                self.push(NodeOp::Random(*stream), dtype, args)
            }
        }
    }
}

impl Lowered {
    /// How often each node is used.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        self.nodes.iter().flat_map(|n| &n.args).chain(&self.stored).for_each(|&a| uses[a] += 1);
        uses
    }

    /// Whether `node` is only used by `user`, at the same points.
    fn belongs(&self, uses: &[usize], node: usize, user: &Node) -> bool {
        let n = &self.nodes[node];
        uses[node] == 1 && n.axes == user.axes && n.stage == user.stage
    }

    /// Makes one node of each `a / (√b + c)`.
    fn join_root_quotients(&mut self) {
        let uses = self.uses();
        for i in 0..self.nodes.len() {
            let node = &self.nodes[i];
            if !matches!(node.op, NodeOp::Binary(BinaryKind::Div)) || node.dtype != DType::F32 {
                continue;
            }
            let [a, sum] = [node.args[0], node.args[1]];
            if !matches!(self.nodes[sum].op, NodeOp::Binary(BinaryKind::Add))
                || !self.belongs(&uses, sum, node)
            {
                continue;
            }
            let [x, y] = [self.nodes[sum].args[0], self.nodes[sum].args[1]];
            let is_root = |n: usize| {
                matches!(self.nodes[n].op, NodeOp::Unary(UnaryKind::Sqrt)) && self.belongs(&uses, n, node)
            };
            let (root, c) = match (is_root(x), is_root(y)) {
                (true, _) => (x, y),
                (_, true) => (y, x),
                _ => continue,
            };
            let args = vec![a, self.nodes[root].args[0], c];
            self.nodes[i].args = args;
            self.nodes[i].op = NodeOp::RootQuotient;
            // No longer used, and so no operand of a pair.
            self.nodes[sum].args.clear();
            self.nodes[root].args.clear();
            self.nodes[sum].op = NodeOp::Literal(0);
            self.nodes[root].op = NodeOp::Literal(0);
        }
    }

    /// Makes one node of two functions of which one is used only by the other.
    fn join_pairs(&mut self) {
        let uses = self.uses();
        for i in 0..self.nodes.len() {
            let node = &self.nodes[i];
            if let NodeOp::Unary(outer) = node.op
                && node.dtype == DType::F32
                && let NodeOp::Binary(inner) = self.nodes[node.args[0]].op
                && joined::composes(outer, inner)
                && self.belongs(&uses, node.args[0], node)
            {
                self.nodes[i].args = self.nodes[node.args[0]].args.clone();
                self.nodes[i].op = NodeOp::Composed { outer, inner };
                continue;
            }
            let NodeOp::Binary(outer) = node.op else { continue };
            if node.dtype != DType::F32 {
                continue;
            }
            let inner_of = |place: usize| {
                let below = node.args[place];
                let second = place == 1 && outer == BinaryKind::Sub;
                match self.nodes[below].op {
                    NodeOp::Binary(inner) if self.belongs(&uses, below, node) => {
                        joined::pairs(inner, outer, second).then_some((inner, second, place))
                    }
                    _ => None,
                }
            };
            let Some((inner, second, place)) = inner_of(0).or_else(|| inner_of(1)) else { continue };
            let below = node.args[place];
            let args = vec![self.nodes[below].args[0], self.nodes[below].args[1], node.args[1 - place]];
            self.nodes[i].args = args;
            self.nodes[i].op = NodeOp::Pair { inner, outer, second };
        }
    }
}
