//! Long rows in two kernels: pieces of every row are reduced by blocks of their own, and then the pieces.
//!
//! A loop kernel over a long row goes over it once, by the target's `max_row`; so it is one stage of reductions, and what is
//! stored is of the row. How a row is cut follows from the sizes of its axes alone, so the tree of a reduction still does not
//! depend on what else is in the kernel. Partial results of 16-bit floats are `f32`.

use onestep_ir::DType;
use onestep_ir::ops::{CompareKind, ReduceKind};
use onestep_passes::schedule::{Access, Affine, Bound, BufferId, Expr, ExprId, LoopKernel, Store, TypedExpr};
use std::collections::HashMap;

/// Rows of at most this many points are not cut.
const LONG: usize = 16_384;
/// Points of a piece, about, and the most pieces of a row.
const PIECE: usize = 4096;
const MOST_PIECES: usize = 1024;

/// A kernel cut in two, with the buffers between them: dtype and number of elements.
pub(crate) struct Split {
    pub pieces: LoopKernel,
    pub rest: LoopKernel,
    pub between: Vec<(DType, usize)>,
}

/// Cuts a kernel if its rows are long. The buffers between are numbered from `first`.
pub(crate) fn split(kernel: &LoopKernel, first: u32) -> Option<Split> {
    if kernel.row_len() <= LONG {
        return None;
    }
    let k = kernel.collapsed(false);
    let (stages, varies) = (k.stages(), k.varies());
    let of_row =
        |s: &Store| !varies[s.value.index()] && s.access.place.coefs[k.parallel..].iter().all(|&c| c == 0);
    if stages.iter().any(|&s| s > 1) || !k.stores.iter().all(of_row) {
        return None;
    }
    let reduced = k.parallel..k.extents.len();
    let axis = reduced.max_by_key(|&a| k.extents[a])?;
    let extent = k.extents[axis];
    let length = extent.div_ceil(k.row_len().div_ceil(PIECE).clamp(2, MOST_PIECES).min(extent));
    let cut = Cut { axis, extent, length, count: extent.div_ceil(length), parallel: k.parallel };
    let between: Vec<(usize, BufferId)> = k
        .body
        .iter()
        .enumerate()
        .filter(|(_, e)| matches!(e.expr, Expr::Reduce(..)))
        .zip(first..)
        .map(|((i, _), b)| (i, BufferId(b)))
        .collect();
    let elements = k.rows() * cut.count;
    let dtypes = between.iter().map(|&(i, _)| (partial(k.body[i].dtype), elements));
    Some(Split {
        pieces: cut.pieces(&k, &varies, &between),
        rest: cut.rest(&k, &varies, &between),
        between: dtypes.collect(),
    })
}

/// The dtype of a partial result.
fn partial(d: DType) -> DType {
    if d.is_float() && d != DType::F64 { DType::F32 } else { d }
}

/// How the rows are cut: `axis` in `count` pieces of `length`.
struct Cut {
    axis: usize,
    extent: usize,
    length: usize,
    count: usize,
    parallel: usize,
}

/// A kernel's body under construction.
#[derive(Default)]
struct Body {
    list: Vec<TypedExpr>,
    known: HashMap<usize, ExprId>,
}

impl Body {
    fn push(&mut self, dtype: DType, expr: Expr) -> ExprId {
        self.list.push(TypedExpr { dtype, expr });
        ExprId(self.list.len() as u32 - 1)
    }

    /// Adds expression `i` of another body with its operands renamed and its indices mapped.
    fn copy(&mut self, i: usize, e: &TypedExpr, index: &dyn Fn(&Affine) -> Affine) {
        let of = |id: &ExprId| self.known[&id.index()];
        let expr = match &e.expr {
            Expr::Load { access, bounds, fill } => Expr::Load {
                access: Access { buffer: access.buffer, place: index(&access.place) },
                bounds: bounds.iter().map(|b| Bound { index: index(&b.index), ..b.clone() }).collect(),
                fill: *fill,
            },
            Expr::Literal(bits) => Expr::Literal(*bits),
            Expr::Index(a) => Expr::Index(index(a)),
            Expr::Unary(kind, a) => Expr::Unary(*kind, of(a)),
            Expr::Binary(kind, a, b) => Expr::Binary(*kind, of(a), of(b)),
            Expr::Compare(kind, a, b) => Expr::Compare(*kind, of(a), of(b)),
            Expr::Select(c, a, b) => Expr::Select(of(c), of(a), of(b)),
            Expr::Cast(a) => Expr::Cast(of(a)),
            Expr::Bitcast(a) => Expr::Bitcast(of(a)),
            Expr::Reduce(kind, a) => Expr::Reduce(*kind, of(a)),
            Expr::RandomBits { key: [a, b], counter, index, stream } => Expr::RandomBits {
                key: [of(a), of(b)],
                counter: of(counter),
                index: of(index),
                stream: *stream,
            },
        };
        let id = self.push(e.dtype, expr);
        self.known.insert(i, id);
    }
}

impl Cut {
    /// The place of a piece's result: row-major over rows and pieces, in a domain of `rank` axes.
    fn place(&self, k: &LoopKernel, rank: usize) -> Affine {
        let mut coefs = vec![0; rank];
        let mut stride = 1;
        coefs[self.parallel] = 1;
        for a in (0..self.parallel).rev() {
            coefs[a] = stride * self.count as i64;
            stride *= k.extents[a] as i64;
        }
        Affine { offset: 0, coefs }
    }

    /// The domain has the pieces as one more parallel axis.
    fn pieces(&self, k: &LoopKernel, varies: &[bool], between: &[(usize, BufferId)]) -> LoopKernel {
        let mut extents = k.extents.clone();
        extents[self.axis] = self.length;
        extents.insert(self.parallel, self.count);
        let rank = extents.len();
        let index = |a: &Affine| {
            let mut coefs = a.coefs.clone();
            coefs.insert(self.parallel, a.coefs[self.axis] * self.length as i64);
            Affine { offset: a.offset, coefs }
        };
        // The place along the cut axis; beyond its end where the last piece is shorter.
        let mut along = Affine::constant(0, rank);
        along.coefs[self.parallel] = self.length as i64;
        along.coefs[self.axis + 1] = 1;
        let short = self.count * self.length > self.extent;

        let mut needed = vec![false; k.body.len()];
        for (i, e) in k.body.iter().enumerate().rev() {
            if needed[i] || matches!(e.expr, Expr::Reduce(..)) {
                e.expr.operands().iter().for_each(|o| needed[o.index()] = true);
            }
        }
        let mut body = Body::default();
        for (i, e) in k.body.iter().enumerate().filter(|(i, _)| needed[*i]) {
            if matches!(e.expr, Expr::Reduce(..)) {
                continue;
            }
            body.copy(i, e, &index);
            if let Some(TypedExpr { expr: Expr::Load { bounds, .. }, .. }) = body.list.last_mut()
                && short
                && varies[i]
            {
                bounds.push(Bound { index: along.clone(), size: self.extent as i64, step: 1 });
            }
        }
        let inside = short.then(|| {
            let at = body.push(DType::I64, Expr::Index(along));
            let end = body.push(DType::I64, Expr::Literal(self.extent as u64));
            body.push(DType::Bool, Expr::Compare(CompareKind::Lt, at, end))
        });
        let mut stores = vec![];
        for &(i, buffer) in between {
            let Expr::Reduce(kind, operand) = k.body[i].expr else { continue };
            let dtype = partial(k.body[i].dtype);
            let mut x = body.known[&operand.index()];
            if dtype != k.body[i].dtype {
                x = body.push(dtype, Expr::Cast(x));
            }
            if let Some(inside) = inside {
                let nothing = body.push(dtype, Expr::Literal(identity(kind, dtype)));
                x = body.push(dtype, Expr::Select(inside, x, nothing));
            }
            let value = body.push(dtype, Expr::Reduce(kind, x));
            stores.push(Store { value, access: Access { buffer, place: self.place(k, rank) } });
        }
        LoopKernel { extents, parallel: self.parallel + 1, body: body.list, stores }
    }

    /// The domain has the pieces in place of the reduced axes.
    fn rest(&self, k: &LoopKernel, varies: &[bool], between: &[(usize, BufferId)]) -> LoopKernel {
        let extents = [&k.extents[..self.parallel], &[self.count]].concat();
        let rank = extents.len();
        let index = |a: &Affine| {
            let mut coefs = a.coefs[..self.parallel].to_vec();
            coefs.push(0);
            Affine { offset: a.offset, coefs }
        };
        let mut body = Body::default();
        for (i, e) in k.body.iter().enumerate().filter(|(i, _)| !varies[*i]) {
            let Expr::Reduce(kind, _) = e.expr else {
                body.copy(i, e, &index);
                continue;
            };
            let Some(&(_, buffer)) = between.iter().find(|(r, _)| *r == i) else { continue };
            let dtype = partial(e.dtype);
            let access = Access { buffer, place: self.place(k, rank) };
            let x = body.push(dtype, Expr::Load { access, bounds: vec![], fill: 0 });
            let mut value = body.push(dtype, Expr::Reduce(kind, x));
            if dtype != e.dtype {
                value = body.push(e.dtype, Expr::Cast(value));
            }
            body.known.insert(i, value);
        }
        let stores = k.stores.iter().map(|s| Store {
            value: body.known[&s.value.index()],
            access: Access { buffer: s.access.buffer, place: index(&s.access.place) },
        });
        let stores = stores.collect();
        LoopKernel { extents, parallel: self.parallel, body: body.list, stores }
    }
}

/// The bits of a reduction's result over nothing.
fn identity(kind: ReduceKind, d: DType) -> u64 {
    match d {
        DType::F64 => kind.identity(d).to_bits(),
        DType::F32 => u64::from((kind.identity(d) as f32).to_bits()),
        _ => kind.identity_int(d) as u64 & (u64::MAX >> (64 - 8 * d.size())),
    }
}
