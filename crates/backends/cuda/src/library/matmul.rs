//! Matrix products: as the vendor's library wants them described, and by the tiles of this crate for what it does not take.

use super::text::store;
use super::tiles::{Factor, Tiles, multiple_of_8};
use super::{Context, Launches};
use crate::code::{Address, Product, Space};
use crate::error::CudaError;
use onestep_ir::{DType, Op, Type};
use onestep_passes::schedule::MatmulKernel;

/// Whether the vendor's library multiplies these 8-bit floats: all sizes are multiples of 16, and one factor is `f8e4m3`.
pub(crate) fn takes_eight_bits(op: &Op, operands: &[Type]) -> bool {
    let (Op::Matmul(m), [a, b]) = (op, operands) else { return false };
    if a.dtype == DType::F8E5M2 && b.dtype == DType::F8E5M2 {
        return false;
    }
    let s = m.sizes(a, b);
    let rows = if s.shared_b { s.batch * s.m } else { s.m };
    [rows, s.n, s.k].iter().all(|n| *n > 0 && n % 16 == 0)
}

/// A product of a schedule, checked.
pub(crate) fn product(m: &MatmulKernel, context: &Context<'_>) -> Result<Product, CudaError> {
    let dtype = context.check_view(&m.lhs, "the left factor")?;
    let right = context.check_view(&m.rhs, "the right factor")?;
    let (l, r) = (&m.lhs, &m.rhs);
    // 8-bit floats of both formats mix; all others are alike.
    let fits = l.shape.len() == 3
        && r.shape.len() == 3
        && l.shape[0] == r.shape[0]
        && l.shape[2] == r.shape[1]
        && (right == dtype || right.is_fp8() && dtype.is_fp8())
        && dtype.is_float();
    if !fits {
        let why = format!("{dtype}{:?} times {right}{:?}", l.shape, r.shape);
        return Err(CudaError::Operand { what: "a factor", why });
    }
    let (batch, rows, columns, depth) = m.sizes();
    let out = context.schedule.buffers.get(m.out.index());
    let Some(out) = out.filter(|o| o.numel() == batch * rows * columns && o.dtype.is_float()) else {
        let why = format!("{} does not hold {dtype}{:?} times {:?}", m.out, l.shape, r.shape);
        return Err(CudaError::Operand { what: "the result", why });
    };
    let (lhs, rhs, out_at) = (context.of(l), context.of(r), context.home(m.out));
    let bytes = dtype.size();
    // What every address and batch is a multiple of: an iteration of a scan may put it at any element.
    let aligned = |a: Address, distance: usize| match a.space {
        Space::Body(_) => bytes,
        _ if batch == 1 => 1 << (a.offset | 256).trailing_zeros(),
        _ => 1 << (a.offset | (distance * bytes) | 256).trailing_zeros(),
    };
    let aligned =
        aligned(lhs, l.strides[0]).min(aligned(rhs, r.strides[0])).min(aligned(out_at, rows * columns));
    Ok(Product {
        aligned,
        sizes: [batch, rows, columns, depth],
        dtype,
        right_dtype: right,
        tf32: false,
        result: out.dtype,
        lhs: (lhs, [l.strides[0], l.strides[1], l.strides[2]]),
        rhs: (rhs, [r.strides[0], r.strides[1], r.strides[2]]),
        out: out_at,
    })
}

/// The product by tiles.
pub(crate) fn own(p: &Product) -> Launches {
    let [batch, rows, columns, depth] = p.sizes;
    let (lhs, rhs) = (p.lhs.1, p.rhs.1);
    let start = [p.lhs.0, p.rhs.0];
    // Distances of batches, of lines, and of neighbours along `k`.
    let factor = |n: usize, strides: [usize; 3], [line, step]: [usize; 2], name: &str| {
        let base = format!("b * (word){} + {name} * (word){line}", strides[0]);
        let chunks = step == 1 && multiple_of_8(&[depth, strides[0], line]) && start[n].in_chunks();
        Factor { chunks, ..Factor::dense(n, base, format!("k * (word){step}"), step == 1) }
    };
    let far = |[b, i, j]: [usize; 3], [x, y]: [usize; 2]| batch * b + x * i + y * j;
    Tiles {
        batch,
        rows,
        columns,
        depth,
        dtype: p.dtype,
        left: factor(0, lhs, [lhs[1], lhs[2]], "i"),
        right: factor(1, rhs, [rhs[2], rhs[1]], "j"),
        store: format!("          {}", store(p.result, 2, &format!("(b * {rows} + i) * {columns} + j"), "x")),
        dtypes: &[p.dtype, p.right_dtype, p.result],
        arguments: vec![p.lhs.0, p.rhs.0, p.out],
        largest: far(p.lhs.1, [rows, depth]).max(far(p.rhs.1, [depth, columns])),
    }
    .compile()
}
