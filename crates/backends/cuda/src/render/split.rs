//! Reductions in two kernels: pieces of every row are reduced by groups of threads of their own, and then the pieces. For rows
//! that are too few to keep the device busy, and long.
//!
//! A row that is longer than a block should take is cut into ranges, by its length alone: the tree of its reduction is the
//! ranges' trees and one over their results. A shorter one that is a column is cut into the lanes of its own [`Tree`], which the
//! second kernel completes: the bits are those of a kernel that is not cut. So what a reduction's bits depend on is the length of
//! its rows and whether there are many.
//!
//! What is stored at every point is stored by the pieces. A kernel of several stages of reductions, or that stores at every
//! point what follows one, is not cut. Partial results of 16-bit floats are `f32`.

use super::group::{BLOCK, Cut, Form, MANY_BLOCKS, Tree, WARP, arrange_rows};
use super::parts::Part;
use onestep_ir::DType;
use onestep_passes::schedule::{Access, Affine, Bound, BufferId, Expr, ExprId, LoopKernel, Store, TypedExpr};
use std::collections::HashMap;

/// Rows from which none is cut: as columns, so many that a warp reads neighbours together in every block.
pub(crate) const MANY_ROWS: usize = WARP * MANY_BLOCKS;
/// Rows of at most this many points are not cut into ranges.
const LONG: usize = 16_384;
/// Points of a range, at least, and the most ranges of a row, unless they would be long rows themselves.
const RANGE: usize = 4096;
const MOST_RANGES: usize = 1024;
/// What a range is a multiple of, so that its tree gives every lane as many groups of neighbours.
const WHOLE: usize = 4 * BLOCK;
/// Points from which columns are cut into lanes.
const LONG_COLUMN: usize = 2048;

/// A kernel cut in two, with the buffers between them: dtype and number of elements.
pub(crate) struct Split {
    pub pieces: Part,
    pub rest: LoopKernel,
    pub between: Vec<(DType, usize)>,
}

/// Cuts a kernel if its rows are long, or its columns long and few. The buffers between are numbered from `first`.
pub(crate) fn split(kernel: &LoopKernel, first: u32) -> Option<Split> {
    let kernel = kernel.collapsed(false);
    if kernel.extents.len() == kernel.parallel {
        return None;
    }
    let (k, form) = arrange_rows(kernel, Cut::Whole);
    let cut = cut(&k, form)?;
    let (stages, varies) = (k.stages(), k.varies());
    let at_points =
        |s: &Store| varies[s.value.index()] || s.access.place.coefs[k.parallel..].iter().any(|&c| c != 0);
    let late = |s: &Store| at_points(s) && stages[s.value.index()] > 0;
    if stages.iter().max() != Some(&1) || k.stores.iter().any(late) {
        return None;
    }
    let (of_points, of_rows): (Vec<Store>, Vec<Store>) = k.stores.iter().cloned().partition(at_points);
    let reductions = k.body.iter().enumerate().filter(|(_, e)| matches!(e.expr, Expr::Reduce(..)));
    let between: Vec<(usize, BufferId)> = reductions.map(|(i, _)| i).zip((first..).map(BufferId)).collect();
    let count = match cut {
        Cut::Ranges(length) => k.row_len().div_ceil(length),
        _ => Tree::of(k.row_len()).lanes,
    };
    let dtypes = between.iter().map(|&(i, _)| (partial(k.body[i].dtype), k.rows() * count)).collect();
    Some(Split {
        pieces: Part { kernel: pieces(&k, count, of_points, &between), cut },
        rest: rest(&k, &partials(cut, count), &of_rows, &between),
        between: dtypes,
    })
}

/// How an arranged kernel is cut.
fn cut(k: &LoopKernel, form: Form) -> Option<Cut> {
    let n = k.row_len();
    if k.rows() >= MANY_ROWS {
        return None;
    }
    if n > LONG {
        let length = n.div_ceil(MOST_RANGES).clamp(RANGE, LONG);
        return Some(Cut::Ranges(length.next_multiple_of(WHOLE)));
    }
    (matches!(form, Form::Columns { .. }) && n >= LONG_COLUMN).then_some(Cut::Lanes)
}

/// The dtype of a partial result.
fn partial(d: DType) -> DType {
    if d.is_float() && d != DType::F64 { DType::F32 } else { d }
}

/// The kernel of the pieces, which are one more parallel axis, the first. Partial results stand piece by piece, row by row.
fn pieces(k: &LoopKernel, count: usize, stores: Vec<Store>, between: &[(usize, BufferId)]) -> LoopKernel {
    let extents = [&[count], &k.extents[..]].concat();
    let mut pieces = LoopKernel { extents, parallel: k.parallel + 1, body: k.body.clone(), stores };
    pieces.for_each_affine(|a| a.coefs.insert(0, 0));
    let mut place = Affine::constant(0, pieces.extents.len());
    let rows = onestep_ir::row_major(&pieces.extents[..pieces.parallel]);
    place.coefs.iter_mut().zip(rows).for_each(|(c, stride)| *c = stride as i64);
    for &(i, buffer) in between {
        let TypedExpr { dtype, expr: Expr::Reduce(kind, operand) } = &k.body[i] else { continue };
        let (dtype, kind, operand) = (*dtype, *kind, *operand);
        let mut push = |dtype, expr| {
            pieces.body.push(TypedExpr { dtype, expr });
            ExprId(pieces.body.len() as u32 - 1)
        };
        let value = match partial(dtype) {
            same if same == dtype => ExprId(i as u32),
            wide => {
                let x = push(wide, Expr::Cast(operand));
                push(wide, Expr::Reduce(kind, x))
            }
        };
        pieces.stores.push(Store { value, access: Access { buffer, place: place.clone() } });
    }
    pieces
}

/// The axes of a row of partial results, sizes and distances in pieces, so that its own tree takes them in the order in which
/// the row's tree does: lanes equal modulo 32 in order.
fn partials(cut: Cut, count: usize) -> Vec<(usize, usize)> {
    match cut {
        Cut::Lanes => {
            let width = Tree::of(count).width;
            vec![(count / WARP / width, WARP * width), (WARP, 1), (width, WARP)]
        }
        _ => vec![(count, 1)],
    }
}

/// The kernel of what follows: the partial results in place of the reduced axes.
fn rest(
    k: &LoopKernel,
    partials: &[(usize, usize)],
    stores: &[Store],
    between: &[(usize, BufferId)],
) -> LoopKernel {
    let (rows, axes) = (&k.extents[..k.parallel], partials.iter().map(|p| p.0).collect::<Vec<_>>());
    let index = |a: &Affine| {
        let mut coefs = a.coefs[..k.parallel].to_vec();
        coefs.resize(k.parallel + axes.len(), 0);
        Affine { offset: a.offset, coefs }
    };
    let of_row = onestep_ir::row_major(rows).into_iter();
    let of_piece = partials.iter().map(|p| p.1 * k.rows());
    let place = Affine { offset: 0, coefs: of_row.chain(of_piece).map(|c| c as i64).collect() };
    let varies = k.varies();
    let mut body = Body::default();
    for (i, e) in k.body.iter().enumerate().filter(|(i, _)| !varies[*i]) {
        let reduction = between.iter().find(|(r, _)| *r == i);
        let (Expr::Reduce(kind, _), Some(&(_, buffer))) = (&e.expr, reduction) else {
            body.copy(i, e, &index);
            continue;
        };
        let dtype = partial(e.dtype);
        let access = Access { buffer, place: place.clone() };
        let x = body.push(dtype, Expr::Load { access, bounds: vec![], fill: 0 });
        let mut value = body.push(dtype, Expr::Reduce(*kind, x));
        if dtype != e.dtype {
            value = body.push(e.dtype, Expr::Cast(value));
        }
        body.known.insert(i, value);
    }
    let stores = stores.iter().map(|s| Store {
        value: body.known[&s.value.index()],
        access: Access { buffer: s.access.buffer, place: index(&s.access.place) },
    });
    let stores = stores.collect();
    LoopKernel { extents: [rows, &axes].concat(), parallel: k.parallel, body: body.list, stores }
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
