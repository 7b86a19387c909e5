//! The schedule: ordered kernels over buffers. It is what a backend renders, and the only thing it sees of a program.
//!
//! There are three kinds of kernel so far. A **loop kernel** is an iteration domain, an affine map from it to each operand
//! (so that broadcast, transpose, slice and padding cost nothing), and a staged body of scalar expressions
//! (map → reduce → map …). A **library kernel** is one op over strided views: matmul, gather, attention …. A **scan** is a
//! schedule of its own that runs a number of times: [`ScanKernel`].

mod axes;
pub mod cost;
pub mod execute;
mod print;
pub mod reference;
mod scan;
mod written;

pub use scan::{ScanKernel, slices_are_dense};

use onestep_ir::ops::{BinaryKind, CompareKind, Op, ReduceKind, UnaryKind};
use onestep_ir::{Array, DType, Role};
use std::ops::Range;
use std::sync::Arc;

/// A buffer: one dense, row-major tensor that some kernel, caller or state provides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BufferId(pub u32);

impl BufferId {
    /// As an index into [`Schedule::buffers`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who provides a buffer's storage.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BufferKind {
    /// Input `n` of the call.
    Input(usize),
    /// State tensor `n`, as it is when the call begins.
    State(usize),
    /// Known at compile time.
    Constant(Array),
    /// Written by kernels: each element once, and as a rule all of them by one.
    Temp,
}

/// A buffer's description.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// For people: what it holds.
    pub name: String,
    /// Element type (`bool` is one byte, 0 or 1).
    pub dtype: DType,
    /// Sizes of the dense tensor.
    pub shape: Vec<usize>,
    /// Its provider.
    pub kind: BufferKind,
}

impl Buffer {
    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }
    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.numel() * self.dtype.size()
    }
}

/// An expression of a loop kernel's body, by its place in [`LoopKernel::body`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExprId(pub u32);

impl ExprId {
    /// As an index into [`LoopKernel::body`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An affine function of the iteration point: `offset + Σ coefs[axis] · i[axis]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Affine {
    /// The constant part.
    pub offset: i64,
    /// One coefficient for each axis of the domain.
    pub coefs: Vec<i64>,
}

impl Affine {
    /// A constant over a domain of `rank` axes.
    pub fn constant(offset: i64, rank: usize) -> Affine {
        Affine { offset, coefs: vec![0; rank] }
    }
    /// Its value at a point.
    pub fn at(&self, point: &[usize]) -> i64 {
        self.offset + self.coefs.iter().zip(point).map(|(c, &i)| c * i as i64).sum::<i64>()
    }
}

/// A condition under which an element exists: `0 ≤ index < size` and `index ≡ 0 (mod step)`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bound {
    /// The tested index.
    pub index: Affine,
    /// One more than the largest index that exists.
    pub size: i64,
    /// Distance of the elements that exist (1 unless there is interior padding).
    pub step: i64,
}

/// Where a loop kernel reads or writes at an iteration point: element `place` of `buffer`, in elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// The element.
    pub place: Affine,
}

/// A scalar expression. Operands stand before it in the body.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// An element of a buffer; where a bound does not hold, `fill` (bits of the dtype, as of [`Expr::Literal`]) and no
    /// access is made.
    Load {
        /// Where.
        access: Access,
        /// All must hold for the element to exist.
        bounds: Vec<Bound>,
        /// The value elsewhere.
        fill: u64,
    },
    /// A number: the bits of the dtype's little-endian storage, zero-extended.
    Literal(u64),
    /// The value of an affine index, converted to the dtype (never `bool`).
    Index(Affine),
    /// An elementwise function.
    Unary(UnaryKind, ExprId),
    /// An elementwise function of two expressions of one dtype.
    Binary(BinaryKind, ExprId, ExprId),
    /// A comparison of two expressions of one dtype.
    Compare(CompareKind, ExprId, ExprId),
    /// The second where the first (a `bool`) holds, else the third.
    Select(ExprId, ExprId, ExprId),
    /// A conversion to this expression's dtype, by the rules of the op `cast`.
    Cast(ExprId),
    /// The same bits as this expression's dtype, by the rules of the op `bitcast`.
    Bitcast(ExprId),
    /// A reduction over all reduced axes of the domain, in row-major order of them; a value of the row.
    Reduce(ReduceKind, ExprId),
    /// Philox bits: element `index` (an `i64` expression) of `stream`, from two `u32` key words and a `u32` counter.
    RandomBits {
        /// Key words.
        key: [ExprId; 2],
        /// The step.
        counter: ExprId,
        /// The element.
        index: ExprId,
        /// The stream.
        stream: u64,
    },
}

impl Expr {
    /// The expressions that it uses.
    pub fn operands(&self) -> Vec<ExprId> {
        match self {
            Expr::Load { .. } | Expr::Literal(_) | Expr::Index(_) => vec![],
            Expr::Unary(_, a) | Expr::Cast(a) | Expr::Bitcast(a) | Expr::Reduce(_, a) => vec![*a],
            Expr::Binary(_, a, b) | Expr::Compare(_, a, b) => vec![*a, *b],
            Expr::Select(a, b, c) => vec![*a, *b, *c],
            Expr::RandomBits { key, counter, index, .. } => vec![key[0], key[1], *counter, *index],
        }
    }
}

/// An expression with its dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TypedExpr {
    /// The result's dtype.
    pub dtype: DType,
    /// The expression.
    pub expr: Expr,
}

/// A store of an expression's value. One of a row's value happens once a row; else at every point.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    /// What.
    pub value: ExprId,
    /// Where: forward along every axis. Distinct rows (points) write distinct elements, and all stores to a buffer, of
    /// whichever kernels, together write all of it.
    pub access: Access,
}

/// A staged loop over an iteration domain.
///
/// For each **row** (a point of the parallel axes, all independent): the body's expressions over each point of the reduced
/// axes. An expression is *of the row* when it does not vary with the reduced axes, as every [`Expr::Reduce`]. Without
/// reduced axes, a row is a single point.
///
/// A stage is what can be computed before the next reduction is known; see [`LoopKernel::stages`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LoopKernel {
    /// Sizes of the axes, outermost first: the parallel ones, then the reduced ones.
    pub extents: Vec<usize>,
    /// How many are parallel.
    pub parallel: usize,
    /// The expressions, each after its operands.
    pub body: Vec<TypedExpr>,
    /// What it writes.
    pub stores: Vec<Store>,
}

impl LoopKernel {
    /// Number of rows: points of the parallel axes.
    pub fn rows(&self) -> usize {
        self.extents[..self.parallel].iter().product()
    }

    /// Number of points in a row: of the reduced axes (1 when there are none).
    pub fn row_len(&self) -> usize {
        self.extents[self.parallel..].iter().product()
    }

    /// For each expression, whether it varies with the reduced axes.
    pub fn varies(&self) -> Vec<bool> {
        let reduced = |a: &Affine| a.coefs[self.parallel..].iter().any(|&c| c != 0);
        let mut varies: Vec<bool> = Vec::with_capacity(self.body.len());
        for e in &self.body {
            varies.push(match &e.expr {
                Expr::Load { access, bounds, .. } => {
                    reduced(&access.place) || bounds.iter().any(|b| reduced(&b.index))
                }
                Expr::Index(a) => reduced(a),
                Expr::Reduce(..) => false,
                other => other.operands().iter().any(|o| varies[o.index()]),
            });
        }
        varies
    }

    /// For each expression, the number of reductions on the longest chain below it: the stage in which it is known.
    /// A reduction is known one stage after its operand.
    pub fn stages(&self) -> Vec<usize> {
        let mut stages: Vec<usize> = Vec::with_capacity(self.body.len());
        for e in &self.body {
            let below = e.expr.operands().iter().map(|o| stages[o.index()]).max().unwrap_or(0);
            stages.push(below + matches!(e.expr, Expr::Reduce(..)) as usize);
        }
        stages
    }

    /// The buffers that it reads, each once.
    pub fn reads(&self) -> Vec<BufferId> {
        let mut out = vec![];
        for e in &self.body {
            if let Expr::Load { access, .. } = &e.expr
                && !out.contains(&access.buffer)
            {
                out.push(access.buffer);
            }
        }
        out
    }

    /// The buffers that it writes, each once.
    pub fn writes(&self) -> Vec<BufferId> {
        let mut out: Vec<BufferId> = self.stores.iter().map(|s| s.access.buffer).collect();
        out.sort();
        out.dedup();
        out
    }

    /// Whether the two have one body but for the buffers: what a renderer can serve with one piece of code.
    pub fn same_form(&self, other: &LoopKernel) -> bool {
        let blank = |k: &LoopKernel| {
            let mut k = k.clone();
            for (i, e) in k.body.iter_mut().enumerate() {
                if let Expr::Load { access, .. } = &mut e.expr {
                    access.buffer = BufferId(i as u32);
                }
            }
            for s in &mut k.stores {
                s.access.buffer = BufferId(0);
            }
            (k.extents.len(), k.parallel, k.body, k.stores)
        };
        blank(self) == blank(other)
    }
}

/// A strided view of a buffer, in elements: what a library kernel reads, or where it leaves a result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// The buffer.
    pub buffer: BufferId,
    /// The first element.
    pub offset: usize,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Distance of neighbours on each axis (0 where broadcast).
    pub strides: Vec<usize>,
}

impl View {
    /// All of a buffer of this shape.
    pub fn whole(buffer: BufferId, shape: &[usize]) -> View {
        View { buffer, offset: 0, shape: shape.to_vec(), strides: onestep_ir::row_major(shape) }
    }

    /// Whether elements that are neighbours along the last axis lie side by side.
    pub fn last_is_dense(&self) -> bool {
        let last = self.shape.last().zip(self.strides.last());
        last.is_none_or(|(&size, &stride)| size <= 1 || stride == 1)
    }

    /// Whether the view is the dense, row-major layout of its shape (at some offset).
    pub fn is_dense(&self) -> bool {
        let dense = onestep_ir::row_major(&self.shape);
        self.shape.iter().enumerate().all(|(i, &n)| n <= 1 || self.strides[i] == dense[i])
    }
}

/// A matrix product over a batch: `out[b, i, j] = Σ_k lhs[b, i, k] · rhs[b, k, j]`, dense output, each view of rank 3.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MatmulKernel {
    /// `[batch, m, k]`.
    pub lhs: View,
    /// `[batch, k, n]` (batch stride 0 when shared).
    pub rhs: View,
    /// `[batch, m, n]`, dense.
    pub out: BufferId,
    /// Work on the output while it is in cache: a loop kernel without access to other rows' results. Its rows (or the
    /// leading part of its points) are the output's rows: the domain is `[batch·m, n]`, with either no reduced axis or `n`
    /// as the only reduced one. It loads `out` like any buffer.
    pub epilogue: Option<Box<LoopKernel>>,
}

impl MatmulKernel {
    /// `(batch, m, n, k)`.
    pub fn sizes(&self) -> (usize, usize, usize, usize) {
        (self.lhs.shape[0], self.lhs.shape[1], self.rhs.shape[2], self.lhs.shape[2])
    }
}

/// Any other op over views.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LibraryKernel {
    /// The op, whose reference defines the result.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<View>,
    /// Where its results go: dense but for those that the target gives strided, such as parts of a concatenation.
    pub results: Vec<View>,
}

impl LibraryKernel {
    /// The operand whose storage the result may take, when the kernel only changes part of it.
    pub fn in_place(&self) -> Option<usize> {
        matches!(self.op.rule().name(), "dynamic_update_slice" | "scatter_add" | "scatter_add_along")
            .then_some(0)
    }
}

/// A kernel of the schedule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kernel {
    /// Loop kernels that do not depend on each other, in one dispatch.
    Loops(Vec<LoopKernel>),
    /// A matrix product with its epilogue.
    Matmul(MatmulKernel),
    /// Another op.
    Library(LibraryKernel),
    /// A schedule that runs a number of times.
    Scan(Box<ScanKernel>),
}

impl Kernel {
    /// The buffers that it reads, each once.
    pub fn reads(&self) -> Vec<BufferId> {
        let mut out: Vec<BufferId> = match self {
            Kernel::Loops(parts) => parts.iter().flat_map(|p| p.reads()).collect(),
            Kernel::Matmul(m) => {
                let mut all = vec![m.lhs.buffer, m.rhs.buffer];
                all.extend(m.epilogue.iter().flat_map(|e| e.reads()).filter(|b| *b != m.out));
                all
            }
            Kernel::Library(l) => l.operands.iter().map(|v| v.buffer).collect(),
            Kernel::Scan(s) => s.operands().map(|v| v.buffer).collect(),
        };
        out.sort();
        out.dedup();
        out
    }

    /// The buffers that it writes, each once.
    pub fn writes(&self) -> Vec<BufferId> {
        match self {
            Kernel::Loops(parts) => each_once(parts.iter().flat_map(|p| p.writes())),
            Kernel::Matmul(m) => [vec![m.out], m.epilogue.iter().flat_map(|e| e.writes()).collect()].concat(),
            Kernel::Library(l) => each_once(l.results.iter().map(|v| v.buffer)),
            Kernel::Scan(s) => s.results.iter().copied().chain(s.arena).collect(),
        }
    }
}

/// The buffers, each where it first comes.
fn each_once(buffers: impl Iterator<Item = BufferId>) -> Vec<BufferId> {
    let mut seen = vec![];
    for b in buffers {
        if !seen.contains(&b) {
            seen.push(b);
        }
    }
    seen
}

/// A state tensor as the schedule knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StateBuffer {
    /// Its path.
    pub name: Arc<str>,
    /// What it is for.
    pub role: Role,
    /// The buffer that holds it when the call begins.
    pub buffer: BufferId,
    /// The buffer whose value it has when the call ends; a [`BufferKind::Temp`].
    pub update: Option<BufferId>,
}

/// Ordered kernels over buffers, and the interface of the program.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The kernels, each after those whose buffers it reads.
    pub kernels: Vec<Kernel>,
    /// Inputs in order, by name.
    pub inputs: Vec<(Arc<str>, BufferId)>,
    /// State in order.
    pub states: Vec<StateBuffer>,
    /// Outputs in order, by name. An output may be any buffer.
    pub outputs: Vec<(Arc<str>, BufferId)>,
    /// Whether products of `f32` may take their factors in TF32, with 11 bits of significand instead of 24: each is then off by
    /// less than 2⁻¹⁰ of itself, and so each term of a sum by less than 2⁻⁹. A permission, which a backend need not use.
    pub allow_tf32: bool,
    /// Kernels that the target runs as one launch, whose blocks do not wait for each other: ranges of numbers, in order and
    /// apart. Nothing that one of them reads or writes may share storage with what another writes.
    pub together: Vec<Range<usize>>,
}

impl Schedule {
    /// A buffer's description.
    pub fn buffer(&self, b: BufferId) -> &Buffer {
        &self.buffers[b.index()]
    }

    /// The kernels that run together with this one, itself too.
    pub fn beside(&self, kernel: usize) -> Range<usize> {
        self.together.iter().find(|r| r.contains(&kernel)).cloned().unwrap_or(kernel..kernel + 1)
    }
}
