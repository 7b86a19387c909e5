//! Writes a cluster as a loop kernel: pulls every output's expression through the views down to loads.

use super::analysis::Analysis;
use super::cluster::{Cluster, Clusters};
use super::index::{place, through};
use crate::schedule::{Access, Affine, Bound, BufferId, Expr, ExprId, LoopKernel, Store, TypedExpr};
use onestep_ir::ops::{BinaryKind, CompareKind, Op};
use onestep_ir::{Array, DType, Real, ValueId, row_major};
use std::collections::HashMap;

/// A value that must get a buffer before this cluster can be written.
pub struct NeedsBuffer(pub ValueId);

type Key = (ValueId, Vec<Affine>, Vec<Bound>);

/// The state of one kernel's emission.
pub struct Emit<'e, 'g> {
    a: &'e Analysis<'g>,
    clusters: &'e Clusters<'e, 'g>,
    cluster: &'e Cluster,
    buffer: &'e dyn Fn(ValueId) -> Option<BufferId>,
    body: Vec<TypedExpr>,
    known: HashMap<Key, ExprId>,
    interned: HashMap<TypedExpr, ExprId>,
}

/// The little-endian bits of the first element.
pub fn bits(a: &Array) -> u64 {
    let mut word = [0u8; 8];
    let size = a.dtype().size();
    word[..size].copy_from_slice(&a.bytes()[..size]);
    u64::from_le_bytes(word)
}

/// The bits of a number in a dtype.
pub fn number(dtype: DType, value: f64) -> u64 {
    bits(&Array::from_f64(dtype, &[], &[value]).expect("one element fills a scalar"))
}

impl<'e, 'g> Emit<'e, 'g> {
    /// The loop kernel of cluster `id`; `buffer` gives the buffer of a value that has one.
    pub fn kernel(
        a: &'e Analysis<'g>,
        clusters: &'e Clusters<'_, 'g>,
        id: usize,
        buffer: &'e dyn Fn(ValueId) -> Option<BufferId>,
    ) -> Result<LoopKernel, NeedsBuffer> {
        let cluster = &clusters.list[id];
        let mut e = Emit {
            a,
            clusters,
            cluster,
            buffer,
            body: vec![],
            known: HashMap::new(),
            interned: HashMap::new(),
        };
        let mut stores = vec![];
        let rank = cluster.extents.len();
        for (&at, m) in &cluster.members {
            if clusters.stored(at, id) {
                let v = a.nodes[at].results[0];
                let value = e.pull(v, &m.index, &[])?;
                let to = a.stored(v);
                let buffer = (e.buffer)(v).ok_or(NeedsBuffer(v))?;
                let place = place(&m.index, &to.strides, to.offset, rank);
                stores.push(Store { value, access: Access { buffer, place } });
            }
        }
        // Parallel axes first, then the reduced ones in their order.
        let mut order: Vec<usize> = (0..rank).filter(|d| !cluster.reduced.contains(d)).collect();
        let parallel = order.len();
        order.extend(&cluster.reduced);
        let mut kernel =
            LoopKernel { extents: cluster.extents.clone(), parallel: rank, body: e.body, stores };
        reorder(&mut kernel, &order, parallel);
        Ok(kernel.collapsed(false))
    }

    fn push(&mut self, dtype: DType, expr: Expr) -> ExprId {
        let e = TypedExpr { dtype, expr };
        if let Some(&known) = self.interned.get(&e) {
            return known;
        }
        let id = ExprId(self.body.len() as u32);
        self.body.push(e.clone());
        self.interned.insert(e, id);
        id
    }

    /// The expression of element `index` of a value; where a bound fails, what it gives does not matter, but it makes no
    /// access outside a buffer.
    fn pull(&mut self, v: ValueId, index: &[Affine], bounds: &[Bound]) -> Result<ExprId, NeedsBuffer> {
        let key = (v, index.to_vec(), bounds.to_vec());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let id = self.pull_new(v, index, bounds)?;
        self.known.insert(key, id);
        Ok(id)
    }

    fn load(
        &mut self,
        v: ValueId,
        index: &[Affine],
        bounds: &[Bound],
        fill: u64,
    ) -> Result<Option<ExprId>, NeedsBuffer> {
        let (a, buffer) = (self.a, self.buffer);
        // A member is an expression here, even when it is stored too.
        let outside = |w: ValueId| {
            let member = a.def[w.index()].is_some_and(|at| self.cluster.members.contains_key(&at));
            !member && buffer(w).is_some()
        };
        let Some(view) = a.view(v, &outside) else { return Ok(None) };
        let Some(base) = buffer(view.base) else { return Ok(None) };
        let dtype = a.graph.ty(v).dtype;
        if a.graph.ty(view.base).numel() == 0 {
            // No point reads an element of nothing: what is there is the fill.
            return Ok(Some(self.push(dtype, Expr::Literal(fill))));
        }
        let at = place(index, &view.strides, view.offset, self.cluster.extents.len());
        let access = Access { buffer: base, place: at };
        Ok(Some(self.push(dtype, Expr::Load { access, bounds: bounds.to_vec(), fill })))
    }

    fn pull_new(&mut self, v: ValueId, index: &[Affine], bounds: &[Bound]) -> Result<ExprId, NeedsBuffer> {
        let a = self.a;
        let ty = a.graph.ty(v);
        let rank = self.cluster.extents.len();
        if let Some(load) = self.load(v, index, bounds, 0)? {
            return Ok(load);
        }
        let Some(at) = a.def[v.index()] else { return Err(NeedsBuffer(v)) };
        let node = a.nodes[at];
        let member = self.cluster.members.get(&at);
        if member.is_none() && !a.inlined(at) && !self.clusters.through.contains(&at) {
            return Err(NeedsBuffer(v));
        }
        let expr = match &node.op {
            Op::Constant(c) if c.value.shape().is_empty() => Expr::Literal(bits(&c.value)),
            Op::Iota(i) => Expr::Index(index[i.axis].clone()),
            Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Reverse(_) => {
                return self.pull_view(v, at, index, bounds);
            }
            Op::Reduce(r) => {
                // A reduction is computed once a row, for its own element.
                if member.is_none_or(|m| m.index != index) {
                    return Err(NeedsBuffer(v));
                }
                let (from, none) =
                    self.cluster.operand_index(a, at, 0).ok_or(NeedsBuffer(node.operands[0]))?;
                debug_assert!(none.is_empty());
                let bounds = self.once_a_row(bounds).ok_or(NeedsBuffer(v))?;
                Expr::Reduce(r.kind, self.pull(node.operands[0], &from, &bounds)?)
            }
            Op::RandomBits(r) => {
                let zero = |n: i64| vec![Affine::constant(n, rank)];
                let key = [
                    self.pull(node.operands[0], &zero(0), &[])?,
                    self.pull(node.operands[0], &zero(1), &[])?,
                ];
                let counter = self.pull(node.operands[1], &[], &[])?;
                let linear = place(index, &row_major(&ty.sizes()), 0, rank);
                let index = self.push(DType::I64, Expr::Index(linear));
                Expr::RandomBits { key, counter, index, stream: r.stream }
            }
            op => {
                let mut ids = vec![];
                for &o in &node.operands {
                    ids.push(self.pull(o, index, bounds)?);
                }
                match op {
                    Op::Unary(u) => Expr::Unary(u.kind, ids[0]),
                    Op::Binary(b) => Expr::Binary(b.kind, ids[0], ids[1]),
                    Op::Compare(c) => Expr::Compare(c.kind, ids[0], ids[1]),
                    Op::Select(_) => Expr::Select(ids[0], ids[1], ids[2]),
                    Op::Cast(_) => Expr::Cast(ids[0]),
                    Op::Bitcast(_) => Expr::Bitcast(ids[0]),
                    _ => return Err(NeedsBuffer(v)),
                }
            }
        };
        Ok(self.push(ty.dtype, expr))
    }

    /// The bounds that hold for a whole row, for what is reduced along it: a bound on the reduced axes is about the column
    /// that is written, not about the terms. `None` where one is about both.
    fn once_a_row(&self, bounds: &[Bound]) -> Option<Vec<Bound>> {
        let mut rows = vec![];
        for b in bounds {
            let uses = |reduced: bool| {
                let mut axes = b.index.coefs.iter().enumerate().filter(|(_, c)| **c != 0);
                axes.any(|(d, _)| self.cluster.reduced.contains(&d) == reduced)
            };
            match (uses(false), uses(true)) {
                (true, true) => return None,
                (false, true) => {}
                (_, false) => rows.push(b.clone()),
            }
        }
        Some(rows)
    }

    fn pull_view(
        &mut self,
        v: ValueId,
        at: usize,
        index: &[Affine],
        bounds: &[Bound],
    ) -> Result<ExprId, NeedsBuffer> {
        let a = self.a;
        let node = a.nodes[at];
        let from = node.operands[0];
        let t = through(&node.op, &a.sizes(from), &a.sizes(v), index, &self.cluster.extents);
        let Some(t) = t else { return Err(NeedsBuffer(from)) };
        let Op::Pad(pad) = &node.op else { return self.pull(from, &t.index, bounds) };
        let dtype = a.graph.ty(v).dtype;
        let fill = number(dtype, Real::get(pad.value));
        if t.bounds.is_empty() {
            return self.pull(from, &t.index, bounds);
        }
        if bounds.is_empty()
            && let Some(load) = self.load(from, &t.index, &t.bounds, fill)?
        {
            return Ok(load);
        }
        // An expression under the pad: it is computed everywhere, safely, and chosen where it exists.
        let mut all = bounds.to_vec();
        all.extend(t.bounds.iter().cloned());
        let value = self.pull(from, &t.index, &all)?;
        let mut inside: Option<ExprId> = None;
        for b in &t.bounds {
            let here = self.push(DType::I64, Expr::Index(b.index.clone()));
            let low = self.push(DType::I64, Expr::Literal(0));
            let high = self.push(DType::I64, Expr::Literal(b.size as u64));
            for (kind, limit) in [(CompareKind::Ge, low), (CompareKind::Lt, high)] {
                let c = self.push(DType::Bool, Expr::Compare(kind, here, limit));
                inside = Some(match inside {
                    None => c,
                    Some(before) => self.push(DType::Bool, Expr::Binary(BinaryKind::And, before, c)),
                });
            }
        }
        let fill = self.push(dtype, Expr::Literal(fill));
        match inside {
            Some(c) => Ok(self.push(dtype, Expr::Select(c, value, fill))),
            None => Ok(value),
        }
    }
}

fn reorder(kernel: &mut LoopKernel, order: &[usize], parallel: usize) {
    kernel.extents = order.iter().map(|&d| kernel.extents[d]).collect();
    kernel.parallel = parallel;
    kernel.for_each_affine(|a| a.coefs = order.iter().map(|&d| a.coefs[d]).collect());
}
