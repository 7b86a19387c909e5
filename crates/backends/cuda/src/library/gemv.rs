//! Products of few rows with a large matrix, as when one token is decoded: memory-bound, so the matrix is read once, as fast
//! as memory gives it (`gemv.cuh`). Products that do not depend on each other share a launch: the queries, keys and values of
//! a layer. Alone, a product takes the work on its elements along. A matrix that no kernel of the program writes is loaded
//! while the kernels before still run.

use super::{Context, Launches};
use crate::code::{Address, Launch, MAKE_WAY, NAME, PROCESSORS, Product, THREADS, WAIT};
use crate::error::CudaError;
use crate::render::{Epilogue, point, prelude, scalar};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, LoopKernel, MatmulKernel};
use std::fmt::Write;

/// The most rows.
const MOST_ROWS: usize = 8;
/// The most products of a launch.
const MOST_PRODUCTS: usize = 8;
/// Bytes of a load.
const LOAD: usize = 16;
const WARP: usize = 32;
const WARPS: usize = THREADS as usize / WARP;
/// Warps that keep a device busy: 16 for each multiprocessor.
const ENOUGH: usize = PROCESSORS * 16;
/// The most loads of a lane that are worth a warp alone, and the fewest that are worth one more.
const LONG: usize = 12;
const SHORT: usize = 2;

/// Whether this kernel takes a product: few rows, sums in `f32`, and both factors contiguous along the sum at addresses that
/// loads of 16 bytes may have.
pub(crate) fn takes(p: &Product) -> bool {
    let [batch, rows, columns, depth] = p.sizes;
    let width = LOAD / p.dtype.size();
    let apart = |stride: usize, count: usize| count == 1 || stride.is_multiple_of(width);
    batch == 1
        && (1..=MOST_ROWS).contains(&rows)
        && matches!(p.dtype, DType::BF16 | DType::F16 | DType::F32)
        && p.result != DType::F64
        && (p.lhs.1[2], p.rhs.1[1]) == (1, 1)
        && depth > 0
        && depth.is_multiple_of(width)
        && apart(p.lhs.1[1], rows)
        && apart(p.rhs.1[2], columns)
        && p.aligned.is_multiple_of(LOAD)
        && depth < 1 << 30
        && columns < 1 << 30
}

/// Whether the loop kernel may be its epilogue: the work on each element alone.
pub(crate) fn takes_epilogue(m: &MatmulKernel, epilogue: &LoopKernel) -> bool {
    let (batch, rows, _, _) = m.sizes();
    batch == 1 && rows <= MOST_ROWS && epilogue.parallel == epilogue.extents.len()
}

/// Whether a product may run beside others of a launch: of the same types, and apart from what they write and read.
pub(crate) fn joins(group: &[Product], p: &Product) -> bool {
    let theirs = Area::of(p);
    let fits = |q: &Product| {
        let own = Area::of(q);
        (q.dtype, q.result) == (p.dtype, p.result)
            && own.iter().all(|area| area.is_apart(&theirs[2]))
            && theirs.iter().all(|area| area.is_apart(&own[2]))
    };
    group.len() < MOST_PRODUCTS && group.iter().all(fits)
}

/// A stretch of memory.
struct Area {
    start: Address,
    bytes: usize,
}

impl Area {
    /// What the factors and the result of a product span.
    fn of(p: &Product) -> [Area; 3] {
        let [_, rows, columns, depth] = p.sizes;
        let factor = |start, count: usize, stride: usize| {
            let elements = count.saturating_sub(1) * stride + depth;
            Area { start, bytes: elements * p.dtype.size() }
        };
        let out = Area { start: p.out, bytes: rows * columns * p.result.size() };
        [factor(p.lhs.0, rows, p.lhs.1[1]), factor(p.rhs.0, columns, p.rhs.1[2]), out]
    }

    fn is_apart(&self, other: &Area) -> bool {
        let (a, b) = (self.start, other.start);
        a.space != b.space || a.offset + self.bytes <= b.offset || b.offset + other.bytes <= a.offset
    }
}

/// How a product is dealt out to warps.
struct Form {
    /// Columns that a warp takes at a time, so that a row's values are loaded once for all of them.
    each: usize,
    /// Warps that share the sum.
    split: usize,
    /// Loads of a lane in flight, for each column.
    ahead: usize,
    blocks: usize,
}

impl Form {
    /// By the sizes alone.
    fn of(p: &Product) -> Form {
        let [_, rows, columns, depth] = p.sizes;
        let each = if rows == 1 { 1 } else { 2 };
        let groups = columns.div_ceil(each);
        let loads = (depth * p.dtype.size()).div_ceil(LOAD * WARP);
        let mut split = 1;
        while split < WARPS
            && (loads.div_ceil(split) > LONG || groups * split < ENOUGH && loads >= 2 * SHORT * split)
        {
            split *= 2;
        }
        let ahead = loads.div_ceil(split).clamp(1, LONG / each);
        Form { each, split, ahead, blocks: groups.div_ceil(WARPS / split) }
    }
}

/// A product alone, with an epilogue that [`takes_epilogue`] took. `out` is the product's buffer.
pub(crate) fn compile(
    p: &Product,
    out: BufferId,
    epilogue: Option<&LoopKernel>,
    context: &Context<'_>,
    fixed: bool,
) -> Result<Launches, CudaError> {
    let dtype_of = |b: BufferId| context.schedule.buffer(b).dtype;
    let point = match epilogue {
        Some(e) => point(e, out, &dtype_of)?,
        None => Epilogue::default(),
    };
    let buffers = point.buffers.iter().map(|b| context.homes[b.index()]).collect();
    Ok(render(std::slice::from_ref(p), &point, buffers, fixed).into())
}

/// The launch of products that may run side by side, one at least. `fixed`: no kernel of the program writes their matrices.
pub(crate) fn launch(group: &[Product], fixed: bool) -> Launch {
    render(group, &Epilogue::default(), vec![], fixed)
}

/// The launch of products, after each element of which the work of `point` is done, over these buffers.
fn render(group: &[Product], point: &Epilogue, buffers: Vec<Address>, fixed: bool) -> Launch {
    let (dtype, result) = (group[0].dtype, group[0].result);
    let (mut calls, mut blocks, mut shared) = (String::new(), 0, 0);
    let mut parameters = vec![];
    for (n, p) in group.iter().enumerate() {
        let form = Form::of(p);
        let [_, rows, columns, depth] = p.sizes;
        let Form { each, split, ahead, .. } = form;
        let (first, end) = (blocks, blocks + form.blocks);
        let _ = writeln!(
            calls,
            "  if (block < {end}) return gemv<{rows}, {columns}, {depth}, {each}, {split}, {ahead}>(x{n}, {}, w{n}, {}, block - {first}, (float*)shared, [&](int i, int j, float sum) {{ finish(y{n}, {columns}, i, j, sum); }});",
            p.lhs.1[1], p.rhs.1[2],
        );
        parameters.push(format!("const element* x{n}, const element* w{n}, result* y{n}"));
        blocks = end;
        if split > 1 {
            shared = shared.max(WARPS * each * rows * 4);
        }
    }
    parameters.extend(point.parameters.iter().map(|(dtype, name)| format!("{dtype}* {name}")));
    let (make_way, wait) = if fixed { (MAKE_WAY, WAIT) } else { ("", "") };
    let (index, work) = (point.index, &point.point);
    let held = match work.is_empty() {
        true => String::new(),
        false => format!("    const float x = {};\n", scalar::from_storage(result, "stored")),
    };
    let finish = format!(
        "  const auto finish = [&](result* y, int columns, {index} i0, {index} i1, float sum) {{\n\
         \x20   const result stored = {};\n    y[(long long)i0 * columns + i1] = stored;\n{held}{work}  }};\n",
        scalar::to_storage(result, "sum"),
    );
    let elements = elements(dtype, result);
    let source = format!(
        "{}{elements}__device__ __forceinline__ void settle() {{\n{wait}}}\n{}extern \"C\" __global__ void __launch_bounds__({THREADS}) {NAME}({}) {{\n{make_way}  extern __shared__ long long shared[];\n  const int block = (int)blockIdx.x;\n{finish}{calls}}}\n",
        prelude::of(&format!("{elements}{finish}")),
        include_str!("gemv.cuh"),
        parameters.join(", "),
    );
    let factors = group.iter().flat_map(|p| [p.lhs.0, p.rhs.0, p.out]);
    let arguments = factors.chain(buffers).collect();
    Launch { source, grid: blocks, threads: THREADS, shared_bytes: shared, arguments }
}

/// The types of the factors and of the result, and how a load becomes floats.
fn elements(dtype: DType, result: DType) -> String {
    let pair = |low: &str, high: &str| {
        format!("  for (int i = 0; i < 4; ++i) {{\n    x[2 * i] = {low};\n    x[2 * i + 1] = {high};\n  }}\n")
    };
    let widen = match dtype {
        DType::BF16 => pair("__uint_as_float(words[i] << 16)", "__uint_as_float(words[i] & 0xffff0000u)"),
        DType::F16 => pair(
            "f16_to_f32((unsigned short)(words[i] & 0xffffu))",
            "f16_to_f32((unsigned short)(words[i] >> 16))",
        ),
        _ => "  for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(words[i]);\n".to_string(),
    };
    format!(
        "typedef {} element;\ntypedef {} result;\nconstexpr int THREADS = {THREADS}, WIDTH = {};\n\
         __device__ __forceinline__ void widen(const uint4 load, float (&x)[WIDTH]) {{\n\
         \x20 const unsigned int words[4] = {{load.x, load.y, load.z, load.w}};\n#pragma unroll\n{widen}}}\n",
        scalar::storage(dtype),
        scalar::storage(result),
        LOAD / dtype.size(),
    )
}
