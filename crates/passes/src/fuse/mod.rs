//! Pass `fuse`: from a graph of primitives and accepted library ops to a schedule of kernels.
//!
//! 1. `analysis`: the kind of each node, and which values must have a buffer.
//! 2. `cluster`: maps and reductions are grouped; each group becomes one loop kernel. `union` makes one group of two.
//! 3. `emit`: each group is written as a loop kernel. When an index turns out not to be affine, the value in question is
//!    given a buffer, and fusion starts over.
//! 4. `recompute`: values that others read are computed again there, where that moves fewer bytes.
//! 5. Matmuls take a loop kernel as their epilogue where the target allows it; and the kernels get an order: `order`.
//!
//! A concatenation whose parts can be computed in their places is no kernel: `join`.
//!
//! The regions of scans become schedules first, each as a program of its own: `scan`.
//!
//! [`unfused`] skips the grouping: every node is a kernel of its own. Tests hold the two equal, bit for bit.

mod analysis;
mod cluster;
mod emit;
mod explain;
mod index;
mod join;
mod order;
mod recompute;
mod scan;
mod union;

use crate::plan::PlanOptions;
use crate::schedule::{
    Buffer, BufferId, BufferKind, Kernel, LibraryKernel, LoopKernel, MatmulKernel, Schedule, StateBuffer,
    View,
};
use crate::{CompileError, Target};
use analysis::{Analysis, Kind};
use cluster::Clusters;
use emit::{Emit, NeedsBuffer};
use join::Places;
use onestep_ir::{Def, Graph, Node, NodeId, Op, Region, ValueId};
use scan::Bodies;
use std::collections::{BTreeSet, HashMap};

pub(crate) use analysis::costly;
pub use explain::{Provenance, Reason, Role, Waits, provenance};

/// Runs the pass. The bodies of scans are fused, grouped and planned on the way, with these options.
pub fn fuse(graph: &Graph, target: &dyn Target, plan: &PlanOptions) -> Result<Schedule, CompileError> {
    run(graph, target, true, plan)
}

/// One kernel for each node: for tests, and to see what fusion buys.
pub fn unfused(graph: &Graph, target: &dyn Target, plan: &PlanOptions) -> Result<Schedule, CompileError> {
    run(graph, target, false, plan)
}

fn run(
    graph: &Graph,
    target: &dyn Target,
    merge: bool,
    plan: &PlanOptions,
) -> Result<Schedule, CompileError> {
    settle(graph, target, merge, plan, |_, _, schedule| schedule)
}

/// Groups until every value that needs a buffer has one; `done` sees the analysis and the scans' bodies with which that was so.
fn settle<T>(
    graph: &Graph,
    target: &dyn Target,
    merge: bool,
    plan: &PlanOptions,
    done: impl FnOnce(&Analysis<'_>, &Bodies, Schedule) -> T,
) -> Result<T, CompileError> {
    let bodies = scan::bodies(graph, target, merge, plan)?;
    let (mut graph, mut forced) = with_copies(graph);
    let places = Places::find(&mut graph, target, &mut forced);
    if !merge {
        let compute = |n: &&Node| {
            matches!(
                n.op,
                Op::Unary(_)
                    | Op::Binary(_)
                    | Op::Compare(_)
                    | Op::Select(_)
                    | Op::Cast(_)
                    | Op::Bitcast(_)
                    | Op::Reduce(_)
                    | Op::RandomBits(_)
            )
        };
        forced.extend(graph.body_nodes().filter(compute).flat_map(|n| n.results.clone()));
    }
    loop {
        let analysis = Analysis::new(&graph, target, &forced, &places)?;
        match Lower::new(&analysis, &bodies, merge).schedule() {
            Ok(schedule) => return Ok(done(&analysis, &bodies, schedule)),
            Err(Failure::NeedBuffers(values)) => {
                let before = forced.len();
                forced.extend(&values);
                if forced.len() == before {
                    let which = format!("fusion cannot place value %{}", values[0].0);
                    return Err(CompileError::Internal(which));
                }
            }
            Err(Failure::Cycle) => {
                return Err(CompileError::Internal(
                    "fusion made kernels that wait for each other".to_string(),
                ));
            }
        }
    }
}

/// The graph with an explicit copy (a reshape to the same shape) wherever a state's new value is not computed by a kernel
/// of this call, or an output is a state's old value: those need storage of their own.
fn with_copies(graph: &Graph) -> (Graph, BTreeSet<ValueId>) {
    let mut g = graph.clone();
    let mut copies = BTreeSet::new();
    let base = |g: &Graph, mut v: ValueId| {
        while let Some(Node { op: Op::Reshape(_) | Op::Barrier(_), operands, .. }) = g.def(v) {
            v = operands[0];
        }
        v
    };
    let provided = |g: &Graph, v: ValueId| match g.def(v) {
        None => true,
        Some(node) => matches!(node.op, Op::Constant(_)),
    };
    let updated: Vec<ValueId> = g.updates.iter().map(|u| g.states[u.state].value).collect();
    for i in 0..g.updates.len() {
        let v = g.updates[i].value;
        if provided(&g, base(&g, v)) {
            g.updates[i].value = copy(&mut g, v, None);
            copies.insert(g.updates[i].value);
        }
    }
    for i in 0..g.outputs.len() {
        let v = g.outputs[i].value;
        if updated.contains(&base(&g, v)) {
            g.outputs[i].value = copy(&mut g, v, None);
            copies.insert(g.outputs[i].value);
        }
    }
    (g, copies)
}

/// A copy of a value, for a node or, without one, at the end.
fn copy(g: &mut Graph, v: ValueId, reader: Option<NodeId>) -> ValueId {
    let ty = g.ty(v).clone();
    let node = NodeId(g.nodes.len() as u32);
    let dims = ty.shape.0.clone();
    let result = g.add_value(ty, Def::Node(node, 0));
    let op = onestep_ir::ops::Reshape { dims }.into();
    let loc = g.def(v).and_then(|n| n.loc);
    g.nodes.push(Node { op, operands: vec![v], results: vec![result], regions: Vec::<Region>::new(), loc });
    let all = &mut g.body.nodes;
    let at = reader.and_then(|r| all.iter().position(|n| *n == r));
    all.insert(at.unwrap_or(all.len()), node);
    result
}

/// What is scheduled as one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Unit {
    Cluster(usize),
    Node(usize),
}

/// Why a grouping could not be written.
enum Failure {
    /// Values need a buffer: try again with them.
    NeedBuffers(Vec<ValueId>),
    /// A mistake in the grouping.
    Cycle,
}

struct Lower<'a, 'g> {
    a: &'a Analysis<'g>,
    bodies: &'a Bodies,
    clusters: Clusters<'a, 'g>,
    buffers: Vec<Buffer>,
    of: HashMap<ValueId, BufferId>,
    /// The scratch of each scan that needs any, by its first result.
    arenas: HashMap<ValueId, BufferId>,
    merge: bool,
}

impl<'a, 'g> Lower<'a, 'g> {
    fn new(a: &'a Analysis<'g>, bodies: &'a Bodies, merge: bool) -> Lower<'a, 'g> {
        let clusters = Clusters::form(a, merge);
        Lower { a, bodies, clusters, buffers: vec![], of: HashMap::new(), arenas: HashMap::new(), merge }
    }

    fn add_buffer(&mut self, v: ValueId, name: String, kind: BufferKind) -> BufferId {
        let ty = self.a.graph.ty(v);
        let id = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer { name, dtype: ty.dtype, shape: ty.sizes(), kind });
        self.of.insert(v, id);
        id
    }

    /// Gives every value that needs one a buffer.
    fn assign_buffers(&mut self) {
        let a = self.a;
        for (i, port) in a.graph.inputs.iter().enumerate() {
            self.add_buffer(port.value, port.name.to_string(), BufferKind::Input(i));
        }
        for (i, s) in a.graph.states.iter().enumerate() {
            self.add_buffer(s.value, s.name.to_string(), BufferKind::State(i));
        }
        let name = |v: ValueId, node: &Node| format!("%{} {}", v.0, node.op.rule().name());
        // What lies in a concatenation comes before it.
        for at in (0..a.nodes.len()).filter(|&at| a.kinds[at] == Kind::Join) {
            let v = a.nodes[at].results[0];
            self.add_buffer(v, name(v, a.nodes[at]), BufferKind::Temp);
        }
        for (part, whole) in a.places.all() {
            self.of.insert(part, self.of[&whole]);
        }
        for at in 0..a.nodes.len() {
            let node = a.nodes[at];
            let name = |v: ValueId| name(v, node);
            match (a.kinds[at], &node.op) {
                (Kind::Matmul | Kind::Library, _) => {
                    for &v in node.results.iter().filter(|v| a.places.of(**v).is_none()) {
                        self.add_buffer(v, name(v), BufferKind::Temp);
                    }
                    if matches!(node.op, Op::Scan(_)) {
                        self.add_arena(node.results[0]);
                    }
                }
                (Kind::Barrier, _) => {
                    let view = a.view(node.operands[0], &|v| self.of.contains_key(&v));
                    // What was demanded of the operand is a buffer that holds it, and nothing else.
                    if let Some(buffer) = view.and_then(|view| self.of.get(&view.base).copied()) {
                        self.of.insert(node.results[0], buffer);
                    }
                }
                (Kind::Leaf, Op::Constant(c)) if !c.value.shape().is_empty() => {
                    let v = node.results[0];
                    self.add_buffer(v, name(v), BufferKind::Constant(c.value.clone()));
                }
                _ => {
                    if let Some(id) = self.clusters.of[at]
                        && self.clusters.stored(at, id)
                    {
                        let v = node.results[0];
                        if a.places.of(v).is_none() {
                            self.add_buffer(v, name(v), BufferKind::Temp);
                        }
                    }
                }
            }
        }
    }

    fn schedule(mut self) -> Result<Schedule, Failure> {
        self.assign_buffers();
        let hosts = self.epilogues();
        let order = self.ordered(&hosts).ok_or(Failure::Cycle)?;
        // Everything that lacks a buffer is found at once: a model has the same lack in every layer.
        let mut lacking = vec![];
        let mut kernels = vec![];
        for unit in order {
            if let Unit::Node(at) = unit
                && self.a.kinds[at] == Kind::Barrier
            {
                lacking.extend(self.whole(self.a.nodes[at].operands[0]).err().map(|NeedsBuffer(v)| v));
                continue;
            }
            if matches!(unit, Unit::Node(at) if self.a.kinds[at] == Kind::Join)
                || matches!(unit, Unit::Cluster(id) if self.clusters.is_idle(id))
            {
                continue;
            }
            match self.kernel(unit, &hosts) {
                Ok(kernel) => kernels.push(kernel),
                Err(NeedsBuffer(v)) => lacking.push(v),
            }
        }
        let mut whole = |v: ValueId| {
            self.whole(v).unwrap_or_else(|NeedsBuffer(v)| {
                lacking.push(v);
                BufferId(0)
            })
        };
        let graph = self.a.graph;
        let inputs = graph.inputs.iter().map(|p| (p.name.clone(), self.of[&p.value])).collect();
        let outputs = graph.outputs.iter().map(|o| (o.name.clone(), whole(o.value))).collect();
        let mut states = vec![];
        for (i, s) in graph.states.iter().enumerate() {
            let update = graph.updates.iter().find(|u| u.state == i).map(|u| whole(u.value));
            let (name, buffer) = (s.name.clone(), self.of[&s.value]);
            states.push(StateBuffer { name, role: s.role, buffer, update });
        }
        if !lacking.is_empty() {
            return Err(Failure::NeedBuffers(lacking));
        }
        let (name, buffers) = (graph.name.clone(), self.buffers);
        Ok(Schedule { name, buffers, kernels, inputs, states, outputs, allow_tf32: false, together: vec![] })
    }

    /// The buffer that holds all of a value.
    fn whole(&self, v: ValueId) -> Result<BufferId, NeedsBuffer> {
        let view = self.a.view(v, &|b| self.of.contains_key(&b)).ok_or(NeedsBuffer(v))?;
        if view.is_whole(self.a.graph) { Ok(self.of[&view.base]) } else { Err(NeedsBuffer(v)) }
    }

    fn unit_of(&self, at: usize) -> Option<Unit> {
        match self.clusters.of[at] {
            Some(id) => Some(Unit::Cluster(id)),
            None => {
                let alone = [Kind::Matmul, Kind::Library, Kind::Barrier, Kind::Join];
                alone.contains(&self.a.kinds[at]).then_some(Unit::Node(at))
            }
        }
    }

    /// The cluster as an epilogue of the matmul, if it has that form and the target takes it.
    fn epilogue(&self, at: usize, id: usize) -> Result<Option<(MatmulKernel, LoopKernel)>, NeedsBuffer> {
        if self.clusters.is_idle(id) {
            return Ok(None);
        }
        let mut matmul = self.matmul(at)?;
        let (batch, m, n, _) = matmul.sizes();
        let buffer = |v: ValueId| self.of.get(&v).copied();
        let full = Emit::kernel(self.a, &self.clusters, id, &buffer)?;
        let rows = batch * m;
        let Some(kernel) = as_rows(&full, rows, n) else { return Ok(None) };
        // Every access to the matmul's result, and every access to anything the kernel writes, stays in its own row.
        let own = |place: &crate::schedule::Affine| place.offset == 0 && place.coefs == [n as i64, 1];
        let writes = kernel.writes();
        let local = kernel.body.iter().all(|e| match &e.expr {
            crate::schedule::Expr::Load { access, bounds, .. } if access.buffer == matmul.out => {
                own(&access.place) && bounds.is_empty()
            }
            crate::schedule::Expr::Load { access, .. } => !writes.contains(&access.buffer),
            _ => true,
        });
        if !local || !self.a.target.takes_epilogue(&matmul, &kernel) {
            return Ok(None);
        }
        matmul.epilogue = Some(Box::new(kernel.clone()));
        Ok(Some((matmul, kernel)))
    }

    fn kernel(&self, unit: Unit, hosts: &HashMap<usize, usize>) -> Result<Kernel, NeedsBuffer> {
        let at = match unit {
            Unit::Cluster(id) => {
                let buffer = |v: ValueId| self.of.get(&v).copied();
                return Ok(Kernel::Loops(vec![Emit::kernel(self.a, &self.clusters, id, &buffer)?]));
            }
            Unit::Node(at) => at,
        };
        let node = self.a.nodes[at];
        if self.a.kinds[at] == Kind::Matmul {
            if let Some((&id, _)) = hosts.iter().find(|(_, host)| **host == at)
                && let Some((matmul, _)) = self.epilogue(at, id)?
            {
                return Ok(Kernel::Matmul(matmul));
            }
            return Ok(Kernel::Matmul(self.matmul(at)?));
        }
        if let Op::Scan(op) = &node.op {
            return self.scan(op, node);
        }
        let mut operands = vec![];
        for (slot, &v) in node.operands.iter().enumerate() {
            let view = self.view(v)?;
            if !view.is_dense() && !self.a.target.takes_strided(&node.op, slot) {
                return Err(NeedsBuffer(v));
            }
            operands.push(view);
        }
        let results = node.results.iter().map(|&v| self.view(v)).collect::<Result<_, _>>()?;
        Ok(Kernel::Library(LibraryKernel { op: node.op.clone(), operands, results }))
    }

    fn view(&self, v: ValueId) -> Result<View, NeedsBuffer> {
        let view = self.a.view(v, &|b| self.of.contains_key(&b)).ok_or(NeedsBuffer(v))?;
        let buffer = self.of[&view.base];
        Ok(View { buffer, offset: view.offset, shape: view.shape, strides: view.strides })
    }

    /// The matmul of a node, its operands as rank-3 views.
    fn matmul(&self, at: usize) -> Result<MatmulKernel, NeedsBuffer> {
        let node = self.a.nodes[at];
        let Op::Matmul(op) = &node.op else { return Err(NeedsBuffer(node.results[0])) };
        let (va, vb) = (node.operands[0], node.operands[1]);
        let flat = |v: ValueId, transpose: bool, merge_rows: bool| -> Result<View, NeedsBuffer> {
            let mut view = self.view(v)?;
            let r = view.shape.len();
            if transpose {
                view.shape.swap(r - 1, r - 2);
                view.strides.swap(r - 1, r - 2);
            }
            // Batch axes become one; with a shared right side, batch and rows become one.
            let (rows, cols) = (view.shape[r - 2], view.shape[r - 1]);
            let batch: usize = view.shape[..r - 2].iter().product();
            let to = if merge_rows { [1, batch * rows, cols] } else { [batch, rows, cols] };
            let strides = index::reshape_strides(&view.shape, &view.strides, &to);
            let Some(strides) = strides else { return Err(NeedsBuffer(v)) };
            Ok(View { shape: to.to_vec(), strides, ..view })
        };
        let s = op.sizes(self.a.graph.ty(va), self.a.graph.ty(vb));
        let shared = s.shared_b && !op.transpose_a;
        let lhs = flat(va, op.transpose_a, shared)?;
        let mut rhs = flat(vb, op.transpose_b, false)?;
        if s.shared_b && !shared {
            rhs.shape[0] = lhs.shape[0];
            rhs.strides[0] = 0;
        }
        Ok(MatmulKernel { lhs, rhs, out: self.of[&node.results[0]], epilogue: None })
    }
}

/// A loop kernel over the domain `[rows, n]`, with no reduced axis or only `n`; `None` if it has not that form.
fn as_rows(kernel: &LoopKernel, rows: usize, n: usize) -> Option<LoopKernel> {
    let reduced = kernel.extents.len() - kernel.parallel;
    let k = if reduced == 0 { split_last(kernel, rows, n)? } else { kernel.collapsed(true) };
    let parallel_rows = if reduced == 0 { 1 } else { k.parallel };
    (k.extents == [rows, n] && parallel_rows == 1 && (reduced == 0 || k.parallel == 1)).then_some(k)
}

/// A kernel without reduced axes over `[rows, n]`: the collapsed axes are split at the border of rows again.
fn split_last(kernel: &LoopKernel, rows: usize, n: usize) -> Option<LoopKernel> {
    if kernel.extents == [rows, n] {
        return Some(kernel.clone());
    }
    // Rows of no elements have no border to split at.
    if n > 0 && kernel.extents == [rows * n] {
        return Some(kernel.split_axis(0, n));
    }
    None
}

impl LoopKernel {
    /// The same kernel with a parallel axis split in two, the inner one of size `inner`.
    fn split_axis(&self, axis: usize, inner: usize) -> LoopKernel {
        let mut k = self.clone();
        k.extents[axis] /= inner;
        k.extents.insert(axis + 1, inner);
        k.parallel += 1;
        k.for_each_affine(|a| {
            let c = a.coefs[axis];
            a.coefs[axis] = c * inner as i64;
            a.coefs.insert(axis + 1, c);
        });
        k
    }
}
