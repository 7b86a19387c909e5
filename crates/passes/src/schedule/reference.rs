//! The meaning of a loop kernel, as a scalar evaluator: the oracle that every renderer is compared with.
//!
//! Each expression is computed in `f64` or `i64` by the ops' own definitions and rounded or wrapped to its dtype; a
//! reduction runs over the whole row in that width and is rounded once. Clarity before speed: every value of a row is
//! held at once.

use super::{Access, Affine, Bound, BufferId, Expr, ExprId, LoopKernel};
use onestep_ir::ops::{BinaryKind, Bitcast, CompareKind, ReduceKind, UnaryKind};
use onestep_ir::{DType, Data, Dense, Fp8, random};
use std::collections::BTreeMap;
use std::ops::Range;

/// A scalar on the way: floats as `f64`, all else as `i64`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// Of a float dtype.
    Real(f64),
    /// Of an integer dtype or `bool`.
    Int(i64),
}

impl Number {
    /// As a real.
    pub fn real(self) -> f64 {
        match self {
            Number::Real(x) => x,
            Number::Int(x) => x as f64,
        }
    }

    /// As an integer (reals truncate; the verifier keeps that from happening).
    pub fn int(self) -> i64 {
        match self {
            Number::Real(x) => x as i64,
            Number::Int(x) => x,
        }
    }

    /// Rounded or wrapped to a dtype of its own class.
    fn settled(self, dtype: DType) -> Number {
        match self {
            Number::Real(x) => Number::Real(dtype.round(x)),
            Number::Int(x) => Number::Int(dtype.wrap(x)),
        }
    }
}

/// The number that the bits of a [`Expr::Literal`] (or a load's fill) stand for.
pub fn decode(dtype: DType, bits: u64) -> Number {
    match dtype {
        DType::F64 => Number::Real(f64::from_bits(bits)),
        DType::F32 => Number::Real(f32::from_bits(bits as u32) as f64),
        // Widening to the upper half of an f32 is what bfloat16 is.
        DType::BF16 => Number::Real(f32::from_bits((bits as u32) << 16) as f64),
        DType::F16 => Number::Real(half_to_f64(bits as u16)),
        DType::F8E4M3 => Number::Real(Fp8::E4M3.decode(bits as u8)),
        DType::F8E5M2 => Number::Real(Fp8::E5M2.decode(bits as u8)),
        DType::I64 => Number::Int(bits as i64),
        DType::I32 => Number::Int(bits as u32 as i32 as i64),
        DType::I8 => Number::Int(bits as u8 as i8 as i64),
        DType::U32 | DType::U8 => Number::Int(bits as i64),
        DType::Bool => Number::Int((bits != 0) as i64),
    }
}

/// IEEE half precision, decoded.
fn half_to_f64(bits: u16) -> f64 {
    let (exponent, mantissa) = ((bits >> 10) & 31, (bits & 1023) as f64);
    let size = match exponent {
        0 => mantissa * (-24f64).exp2(),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1024.0 + mantissa) * (e as f64 - 25.0).exp2(),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Where the evaluator reads and writes.
pub trait Memory {
    /// Element `place` of a buffer.
    fn load(&self, buffer: BufferId, place: i64) -> Number;
    /// Writes an element.
    fn store(&mut self, buffer: BufferId, place: i64, value: Number);
}

impl Memory for BTreeMap<BufferId, Dense> {
    fn load(&self, buffer: BufferId, place: i64) -> Number {
        match &self[&buffer].data {
            Data::Reals(v) => Number::Real(v[place as usize]),
            Data::Ints(v) => Number::Int(v[place as usize]),
        }
    }
    fn store(&mut self, buffer: BufferId, place: i64, value: Number) {
        let tensor = self.get_mut(&buffer).expect("the caller gives every buffer that the kernel names");
        match &mut tensor.data {
            Data::Reals(v) => v[place as usize] = value.real(),
            Data::Ints(v) => v[place as usize] = value.int(),
        }
    }
}

/// Runs a whole kernel.
///
/// # Panics
///
/// If `memory` lacks a buffer, or an access lies outside one: it is for tests.
pub fn run_loop(kernel: &LoopKernel, memory: &mut dyn Memory) {
    run_rows(kernel, 0..kernel.rows(), memory);
}

/// Runs the rows of a range of the flattened parallel axes.
pub fn run_rows(kernel: &LoopKernel, rows: Range<usize>, memory: &mut dyn Memory) {
    let (parallel, reduced) = kernel.extents.split_at(kernel.parallel);
    for row in rows {
        let outer = unflatten(row, parallel);
        let points: Vec<Vec<usize>> =
            (0..kernel.row_len()).map(|t| [outer.clone(), unflatten(t, reduced)].concat()).collect();
        run_row(kernel, &outer, &points, memory);
    }
}

/// The index of flat place `flat` in row-major order.
fn unflatten(mut flat: usize, extents: &[usize]) -> Vec<usize> {
    let mut index = vec![0; extents.len()];
    for axis in (0..extents.len()).rev() {
        index[axis] = flat % extents[axis];
        flat /= extents[axis];
    }
    index
}

/// The body in order, a vector of the values at each point for what varies in the row, of one value for the rest.
fn run_row(kernel: &LoopKernel, outer: &[usize], points: &[Vec<usize>], memory: &mut dyn Memory) {
    let varies = kernel.varies();
    let rank = kernel.extents.len();
    let mut row_point = outer.to_vec();
    row_point.resize(rank, 0);
    let row_point = vec![row_point];

    let mut values: Vec<Vec<Number>> = Vec::with_capacity(kernel.body.len());
    for (i, e) in kernel.body.iter().enumerate() {
        let value = if let Expr::Reduce(kind, a) = &e.expr {
            let terms = (0..points.len()).map(|t| at(&values[a.index()], t));
            vec![reduce(*kind, e.dtype, terms)]
        } else {
            let at_points = if varies[i] { points } else { &row_point };
            let one = |(t, point): (usize, &Vec<usize>)| {
                let operand = |id: ExprId| at(&values[id.index()], t);
                evaluate(kernel, &e.expr, e.dtype, point, &operand, memory)
            };
            at_points.iter().enumerate().map(one).collect()
        };
        values.push(value);
    }

    for s in &kernel.stores {
        let everywhere =
            varies[s.value.index()] || s.access.place.coefs[kernel.parallel..].iter().any(|&c| c != 0);
        let at_points = if everywhere { points } else { &row_point };
        for (t, point) in at_points.iter().enumerate() {
            memory.store(s.access.buffer, s.access.place.at(point), at(&values[s.value.index()], t));
        }
    }
}

/// The value at point `t` of a row.
fn at(values: &[Number], t: usize) -> Number {
    if values.len() == 1 { values[0] } else { values[t] }
}

fn reduce(kind: ReduceKind, dtype: DType, terms: impl Iterator<Item = Number>) -> Number {
    let combine = kind.combine();
    let whole = if dtype.is_float() {
        Number::Real(terms.fold(kind.identity(dtype), |sum, x| combine.real(sum, x.real())))
    } else {
        Number::Int(terms.fold(kind.identity_int(dtype), |sum, x| combine.int(sum, x.int())))
    };
    whole.settled(dtype)
}

fn holds(bound: &Bound, point: &[usize]) -> bool {
    let i = bound.index.at(point);
    0 <= i && i < bound.size && i % bound.step == 0
}

fn evaluate(
    kernel: &LoopKernel,
    expr: &Expr,
    dtype: DType,
    point: &[usize],
    operand: &dyn Fn(ExprId) -> Number,
    memory: &dyn Memory,
) -> Number {
    let value = match expr {
        Expr::Load { access: Access { buffer, place }, bounds, fill } => {
            if bounds.iter().all(|b| holds(b, point)) {
                memory.load(*buffer, place.at(point))
            } else {
                decode(dtype, *fill)
            }
        }
        Expr::Literal(bits) => decode(dtype, *bits),
        Expr::Index(affine) => index(dtype, affine, point),
        Expr::Unary(kind, a) => unary(*kind, dtype, operand(*a)),
        Expr::Binary(kind, a, b) => binary(*kind, operand(*a), operand(*b)),
        Expr::Compare(kind, a, b) => compare(*kind, operand(*a), operand(*b)),
        Expr::Select(c, a, b) => operand(if operand(*c).int() != 0 { *a } else { *b }),
        Expr::Cast(a) => cast(dtype, operand(*a)),
        Expr::Bitcast(a) => bitcast(kernel.body[a.index()].dtype, dtype, operand(*a)),
        Expr::RandomBits { key, counter, index, stream } => {
            debug_assert_eq!(kernel.body[index.index()].dtype, DType::I64);
            let word = |id: ExprId| operand(id).int() as u32;
            let key = [word(key[0]), word(key[1])];
            Number::Int(random::draw(key, *stream, word(*counter), operand(*index).int() as u64) as i64)
        }
        Expr::Reduce(..) => unreachable!("a reduction is not evaluated at a point"),
    };
    value.settled(dtype)
}

fn index(dtype: DType, affine: &Affine, point: &[usize]) -> Number {
    cast(dtype, Number::Int(affine.at(point)))
}

fn unary(kind: UnaryKind, dtype: DType, x: Number) -> Number {
    match (x, dtype) {
        (Number::Real(x), DType::Bool) => Number::Int(kind.real(x) as i64),
        (Number::Real(x), _) => Number::Real(kind.real(x)),
        (Number::Int(x), DType::Bool) => Number::Int((x == 0) as i64),
        (Number::Int(x), _) => Number::Int(kind.int(x)),
    }
}

fn binary(kind: BinaryKind, a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Number::Int(kind.int(a, b)),
        (a, b) => Number::Real(kind.real(a.real(), b.real())),
    }
}

fn compare(kind: CompareKind, a: Number, b: Number) -> Number {
    let holds = match (a, b) {
        (Number::Int(a), Number::Int(b)) => kind.holds(a, b),
        (a, b) => kind.holds(a.real(), b.real()),
    };
    Number::Int(holds as i64)
}

fn bitcast(from: DType, dtype: DType, x: Number) -> Number {
    let op = Bitcast { dtype };
    match x {
        Number::Real(x) if dtype.is_float() => Number::Real(x),
        Number::Real(x) => Number::Int(op.int(from, x)),
        Number::Int(x) if dtype.is_float() => Number::Real(op.real(x)),
        Number::Int(x) => Number::Int(x),
    }
}

fn cast(dtype: DType, x: Number) -> Number {
    match x {
        Number::Real(x) if dtype.is_float() => Number::Real(x),
        Number::Real(x) => Number::Int(dtype.saturate(x)),
        Number::Int(x) if dtype.is_float() => Number::Real(x as f64),
        Number::Int(x) => Number::Int(x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Store, TypedExpr};

    /// Softmax over rows of two, with a row sum kept: three stages, one store of a row and one of a point.
    #[test]
    fn staged_softmax() {
        let e = |dtype, expr| TypedExpr { dtype, expr };
        let place = |coefs: &[i64]| Affine { offset: 0, coefs: coefs.to_vec() };
        let access = |b, coefs: &[i64]| Access { buffer: BufferId(b), place: place(coefs) };
        let kernel = LoopKernel {
            extents: vec![2, 2],
            parallel: 1,
            body: vec![
                e(DType::F32, Expr::Load { access: access(0, &[2, 1]), bounds: vec![], fill: 0 }),
                e(DType::F32, Expr::Reduce(ReduceKind::Max, ExprId(0))),
                e(DType::F32, Expr::Binary(BinaryKind::Sub, ExprId(0), ExprId(1))),
                e(DType::F32, Expr::Unary(UnaryKind::Exp, ExprId(2))),
                e(DType::F32, Expr::Reduce(ReduceKind::Sum, ExprId(3))),
                e(DType::F32, Expr::Binary(BinaryKind::Div, ExprId(3), ExprId(4))),
            ],
            stores: vec![
                Store { value: ExprId(5), access: access(1, &[2, 1]) },
                Store { value: ExprId(4), access: access(2, &[1, 0]) },
            ],
        };
        let mut memory = BTreeMap::from([
            (BufferId(0), Dense::from_reals(DType::F32, &[2, 2], vec![0.0, 0.0, 1e8, -1e8])),
            (BufferId(1), Dense::full(DType::F32, &[2, 2], f64::NAN)),
            (BufferId(2), Dense::full(DType::F32, &[2], f64::NAN)),
        ]);
        run_loop(&kernel, &mut memory);
        assert_eq!(memory[&BufferId(1)].reals(), [0.5, 0.5, 1.0, 0.0]);
        assert_eq!(memory[&BufferId(2)].reals(), [2.0, 1.0]);
    }

    #[test]
    fn halves_decode() {
        for (bits, x) in [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 5.960464477539063e-8), (0x7bff, 65504.0)] {
            assert_eq!(decode(DType::F16, bits), Number::Real(x));
        }
        assert_eq!(decode(DType::BF16, 0x3f80), Number::Real(1.0));
        assert_eq!(decode(DType::I32, 0xffff_ffff), Number::Int(-1));
    }
}
