//! Small `f32` products, which the vendor's library has no fast kernel for: `simt.cuh`, with the sizes as constants and a loop
//! kernel as epilogue, on each element or on each row.
//!
//! Which products, the tiles and the order of every sum follow from the sizes and strides alone. The epilogue starts from the
//! product as it is stored, so that the bits do not tell whether it was fused.

use super::{Context, Launches};
use crate::code::{Launch, NAME, Product, THREADS};
use crate::error::CudaError;
use crate::render::{self, Epilogue, prelude};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, LoopKernel, MatmulKernel};
use std::fmt::Write;

/// Multiplications from which the vendor's library is as fast.
const MOST_WORK: usize = 1 << 26;
/// The largest index, so that 32 bits hold it and a tile more.
const MOST_INDEX: usize = 1 << 30;
/// Tiles that keep a device busy.
const ENOUGH: usize = 128;

/// A size of tiles, the lines of each factor that a thread holds, and the elements of a slab of both factors.
#[derive(Clone, Copy)]
struct Shape {
    tile: [usize; 2],
    lane: [usize; 2],
    slab: usize,
}

/// From large to small; the larger, the fewer loads for a multiplication.
const SHAPES: [Shape; 6] = [
    Shape { tile: [32, 64], lane: [8, 4], slab: 8192 },
    Shape { tile: [32, 32], lane: [8, 4], slab: 8192 },
    Shape { tile: [16, 32], lane: [8, 4], slab: 8192 },
    Shape { tile: [16, 16], lane: [4, 4], slab: 16_384 },
    Shape { tile: [8, 16], lane: [4, 4], slab: 16_384 },
    Shape { tile: [8, 8], lane: [4, 4], slab: 16_384 },
];

/// Whether products of these sizes and strides are made here. The strides are of batch, line and `k`, where the lines are the
/// left factor's rows and the right factor's columns.
fn fits([batch, rows, columns, depth]: [usize; 4], strides: [[usize; 3]; 2]) -> bool {
    let work = [batch, rows, columns, depth].iter().try_fold(1usize, |p, &n| p.checked_mul(n));
    let far = |lines: usize, [_, line, k]: [usize; 3]| {
        lines.saturating_mul(line).saturating_add(depth.saturating_mul(k))
    };
    let largest = far(rows, strides[0]).max(far(columns, strides[1]));
    work.is_some_and(|w| 0 < w && w <= MOST_WORK) && largest < MOST_INDEX
}

/// The strides of batch, line and `k`.
fn strides([lhs, rhs]: [&[usize]; 2]) -> [[usize; 3]; 2] {
    [[lhs[0], lhs[1], lhs[2]], [rhs[0], rhs[2], rhs[1]]]
}

/// Whether this kernel makes the product.
pub(crate) fn takes(p: &Product) -> bool {
    p.dtype == DType::F32 && p.result == DType::F32 && fits(p.sizes, strides([&p.lhs.1, &p.rhs.1]))
}

/// Whether it takes the loop kernel as its epilogue.
pub(crate) fn takes_epilogue(m: &MatmulKernel, epilogue: &LoopKernel) -> bool {
    let (batch, rows, columns, depth) = m.sizes();
    let sizes = [batch, rows, columns, depth];
    fits(sizes, strides([&m.lhs.strides, &m.rhs.strides]))
        && (elementwise(epilogue) || by_rows(sizes, epilogue))
}

/// Whether an epilogue is the work on each element alone.
fn elementwise(epilogue: &LoopKernel) -> bool {
    epilogue.parallel == epilogue.extents.len()
}

/// Whether the blocks of the product have whole rows, those that blocks of the epilogue by itself would take.
fn by_rows(sizes: [usize; 4], epilogue: &LoopKernel) -> bool {
    let [batch, rows, columns, _] = sizes;
    let [high, wide] = shape(sizes).tile;
    columns <= wide && (batch == 1 || rows % high == 0) && render::rows_per_block(epilogue) == Some(high)
}

/// A factor as the text describes it.
struct Factor {
    /// The distances of neighbours.
    line: usize,
    k: usize,
    batch: usize,
    lines: usize,
    tile: usize,
    lane: usize,
    /// Whether `k` is contiguous, or no axis is.
    along: bool,
    vector: usize,
}

impl Factor {
    fn new(p: &Product, side: usize, shape: Shape) -> Factor {
        let [batch, line, k] = strides([&p.lhs.1, &p.rhs.1])[side];
        let (lines, depth) = (p.sizes[1 + side], p.sizes[3]);
        let along = k == 1 || line != 1;
        let (contiguous, other) = if along { ([k, depth], line) } else { ([line, lines], k) };
        let divides = |v: &usize| {
            contiguous[0] == 1 && [contiguous[1], other, batch, p.aligned / 4].iter().all(|n| n % v == 0)
        };
        let vector = [4, 2].into_iter().find(|v| divides(v)).unwrap_or(1);
        let (tile, lane) = (shape.tile[side], shape.lane[side]);
        Factor { line, k, batch, lines, tile, lane, along, vector }
    }

    fn text(&self, name: &str) -> String {
        let Factor { line, k, lines, tile, lane, along, vector, .. } = self;
        format!(
            "struct {name} {{ static constexpr int LINE = {line}, K = {k}, LINES = {lines}, TILE = {tile}, LANE = {lane}, \
             VECTOR = {vector}; static constexpr bool ALONG = {along}; }};\n"
        )
    }

    /// Elements of a slab in shared memory: `Factor::SHARED` of the text.
    fn shared(&self, slab: usize) -> usize {
        match self.along {
            true => ((slab / 4) | 1) * 4 * self.tile,
            false => slab * (self.tile + 4),
        }
    }
}

/// The largest tiles of which there are enough, and that the matrix fills by half at least; or the smallest, but of whole rows
/// if those are short.
fn shape([batch, rows, columns, _]: [usize; 4]) -> Shape {
    let tiles = |s: &Shape| batch * rows.div_ceil(s.tile[0]) * columns.div_ceil(s.tile[1]);
    let filled = |s: &Shape| s.tile[0] < 2 * rows.max(8) && s.tile[1] < 2 * columns.max(8);
    let least = if columns <= 8 || columns > 16 { SHAPES.len() - 1 } else { SHAPES.len() - 2 };
    *SHAPES.iter().find(|s| filled(s) && tiles(s) >= ENOUGH).unwrap_or(&SHAPES[least])
}

/// The product with its epilogue. `out` is the product's buffer.
pub(crate) fn compile(
    p: &Product,
    out: BufferId,
    epilogue: Option<&LoopKernel>,
    context: &Context<'_>,
) -> Result<Launches, CudaError> {
    let [batch, rows, columns, depth] = p.sizes;
    let shape = shape(p.sizes);
    let [left, right] = [0, 1].map(|side| Factor::new(p, side, shape));
    let (high, wide) = (rows.div_ceil(left.tile), columns.div_ceil(right.tile));
    // Slabs of equal length, about.
    let most = shape.slab / (left.tile + right.tile);
    let slab = depth.div_ceil(depth.div_ceil(most)).next_multiple_of(4);
    let threads = THREADS as usize;
    let groups = threads / (left.tile / left.lane * right.tile / right.lane);
    let sums = groups.min(slab / 4) * (left.tile * right.tile + 8);
    let shared = 4 * sums.max(left.shared(slab) + right.shared(slab));

    let dtype_of = |b: BufferId| context.schedule.buffer(b).dtype;
    let epilogue = match epilogue {
        Some(e) if elementwise(e) => render::point(e, &[out], &dtype_of)?,
        Some(e) => render::rows(e, out, &dtype_of)?,
        None => Epilogue::default(),
    };
    let mut parameters = "const float* lhs, const float* rhs, float* out".to_string();
    for (dtype, name) in &epilogue.parameters {
        let _ = write!(parameters, ", {dtype}* {name}");
    }
    let index = epilogue.index;
    let source = format!(
        "constexpr int THREADS = {THREADS}, DEPTH = {depth}, SLAB = {slab};\n{}{}{}{}{}\
         extern \"C\" __global__ void __launch_bounds__({THREADS}) {NAME}({parameters}) {{\n\
         \x20 const int j = (int)blockIdx.x % {wide} * {}, i = (int)blockIdx.x / {wide} % {high} * {}, b = (int)blockIdx.x / {};\n\
         \x20 product(lhs + (long long)b * {}, rhs + (long long)b * {}, i, j, [&](int i, int j, float x0) {{\n\
         \x20   const {index} i0 = b * {rows} + i, i1 = j;\n    out[i0 * {columns} + i1] = x0;\n{}  }});\n{}}}\n",
        left.text("Left"),
        right.text("Right"),
        prelude::of(&(epilogue.functions.clone() + &epilogue.point)),
        include_str!("simt.cuh"),
        epilogue.functions,
        right.tile,
        left.tile,
        wide * high,
        left.batch,
        right.batch,
        epilogue.point,
        epilogue.end,
    );
    let mut arguments = vec![p.lhs.0, p.rhs.0, p.out];
    arguments.extend(epilogue.buffers.iter().map(|b| context.homes[b.index()]));
    let launch =
        Launch { source, grid: batch * high * wide, threads: THREADS, shared_bytes: shared, arguments };
    Ok(launch.into())
}
