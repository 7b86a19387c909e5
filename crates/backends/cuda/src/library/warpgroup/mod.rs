//! Products of 16-bit floats on Hopper's tensor cores, with the work on their elements: blocks that stay on their
//! multiprocessors, of which one thread loads tiles through the copy engine, two warpgroups multiply them, and the other warps
//! finish what was summed, meanwhile (`product.cu`).
//!
//! Where there are too few tiles to fill the device and much to sum, the depth is split among blocks, and a second launch adds the
//! parts in its order (`parts.cu`): the gradient of a weight.
//!
//! The work on an element starts from the product as it is stored, so that the bits do not tell whether it was fused. Tiles, parts
//! and the order of every sum follow from the sizes alone.

use super::wgmma::{self, Factors, wgmma};
use super::{Context, text};
use crate::code::{Address, Launch, NAME, PANEL, PROCESSORS, Product, Space, TensorMap, WAIT};
use crate::error::CudaError;
use crate::render::{self, ALIGNED, Buffers, Epilogue, prelude, scalar};
use onestep_ir::DType;
use onestep_ir::ops::BinaryKind;
use onestep_passes::schedule::{Access, BufferId, Expr, LoopKernel, MatmulKernel, TypedExpr};

/// Rows of a tile.
const HIGH: usize = 128;
/// Tiles below each other that are taken before the next column.
const BAND: usize = 16;
/// Warps 0 to 7 multiply, the last one loads, those between finish.
const THREADS: usize = 512;
/// Registers of a thread that multiplies, and of the others.
const REGISTERS: [usize; 2] = [152, 104];
/// Bytes of a chunk of neighbouring elements, and what rows of the factors are multiples of, as the copy engine wants them.
const CHUNK: usize = 16;
/// The largest index, so that 32 bits hold it and a tile more.
const MOST_INDEX: usize = 1 << 30;
/// The least depth that is worth the start of such blocks, and the most of whole tiles at which the vendor's library is no faster.
const DEPTHS: std::ops::RangeInclusive<usize> = 4 * PANEL..=4096;
/// How much of the depth is multiplied in the time of an addition to each element.
const DEPTH_FOR_AN_ADDITION: usize = 64;
/// Warps of a block that adds parts, and the columns of each.
const WARPS: usize = 4;
const COLUMNS_EACH: usize = 64;

/// How a product is cut into tiles.
#[derive(Clone, Copy)]
struct Form {
    /// Columns of a tile.
    wide: usize,
    /// Parts of the depth, as wide as a panel, that are loaded before the first must have been used.
    stages: usize,
    /// Whether the depth is split among blocks.
    split: bool,
}

/// Whole tiles, of no great depth; and smaller ones whose great depth is split, as in the gradient of a weight.
const WHOLE: Form = Form { wide: 192, stages: 4, split: false };
const SPLIT: Form = Form { wide: 128, stages: 6, split: true };

impl Form {
    /// By the sizes, and by whether the left factor is contiguous along the depth. `None` if the product is not made here: of several
    /// matrices, or where the vendor's library is faster.
    fn of([batch, rows, columns, depth]: [usize; 4], left_along: bool) -> Option<Form> {
        if batch != 1 || rows.max(columns).max(depth) >= MOST_INDEX {
            return None;
        }
        let fills = |form: Form| {
            let tiles = form.tiles(rows, columns);
            let places = tiles.next_multiple_of(PROCESSORS);
            tiles > 0 && places - tiles <= places / 8
        };
        if left_along {
            return (DEPTHS.contains(&depth) && fills(WHOLE)).then_some(WHOLE);
        }
        let few = (PROCESSORS / 4..2 * PROCESSORS).contains(&SPLIT.tiles(rows, columns)) && !fills(SPLIT);
        (few && depth > *DEPTHS.end()).then_some(SPLIT)
    }

    fn tiles(self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(HIGH).saturating_mul(columns.div_ceil(self.wide))
    }

    /// Tiles whose depth is split: what is left when every multiprocessor has as many whole ones.
    fn rest(self, rows: usize, columns: usize) -> usize {
        if self.split { self.tiles(rows, columns) % PROCESSORS } else { 0 }
    }
}

/// A factor by its lines (rows of the left one, columns of the right one) and the depth, each with the distance of neighbours: how
/// it is loaded, and whether the depth is contiguous. `None` if neither is, or the copy engine does not take its lines.
fn panels(dtype: DType, lines: [usize; 2], depth: [usize; 2]) -> Option<(TensorMap, bool)> {
    let along = depth[1] == 1;
    let ([inner, step], [outer, pitch]) = if along { (depth, lines) } else { (lines, depth) };
    let bytes = pitch * dtype.size();
    let fits = step == 1 && pitch >= inner && bytes.is_multiple_of(CHUNK) && bytes < 1 << 40;
    fits.then_some((TensorMap { dtype, sizes: [inner, outer], pitch }, along))
}

/// How this kernel makes a product, and its factors; `None` if it does not.
fn arranged(p: &Product) -> Option<(Form, [(TensorMap, bool); 2])> {
    let [_, rows, columns, depth] = p.sizes;
    let dtypes = matches!(p.dtype, DType::BF16 | DType::F16) && p.result == p.dtype;
    let aligned = p.aligned.is_multiple_of(CHUNK) && (columns * p.result.size()).is_multiple_of(CHUNK);
    if !dtypes || !aligned {
        return None;
    }
    let left = panels(p.dtype, [rows, p.lhs.1[1]], [depth, p.lhs.1[2]])?;
    let right = panels(p.dtype, [columns, p.rhs.1[2]], [depth, p.rhs.1[1]])?;
    Some((Form::of(p.sizes, left.1)?, [left, right]))
}

/// Whether this kernel makes the product.
pub(crate) fn takes(p: &Product) -> bool {
    arranged(p).is_some()
}

/// Whether it takes the loop kernel as its epilogue: the work on each element alone, of a result in 16 bits, that is done while the
/// next tile is multiplied. More of it takes longer here than in a launch of its own.
pub(crate) fn takes_epilogue(m: &MatmulKernel, epilogue: &LoopKernel) -> bool {
    let (batch, rows, columns, depth) = m.sizes();
    Form::of([batch, rows, columns, depth], m.lhs.strides[2] == 1).is_some_and(|f| !f.split)
        && columns.is_multiple_of(CHUNK / 2)
        && epilogue.parallel == epilogue.extents.len()
        && render::loaded(epilogue, m.out).is_some_and(|d| d.size() == 2)
        && cost(epilogue, m.out) <= depth / DEPTH_FOR_AN_ADDITION
}

/// What the work on an element costs, in additions.
fn cost(epilogue: &LoopKernel, product: BufferId) -> usize {
    let of_an_element =
        |access: &Access| access.buffer != product && access.place.coefs.iter().all(|&c| c != 0);
    let cost = |e: &TypedExpr| match &e.expr {
        Expr::Load { access, .. } if of_an_element(access) => 8,
        Expr::Load { .. } | Expr::Literal(_) | Expr::Cast(_) | Expr::Bitcast(_) => 0,
        Expr::Unary(kind, _) if !kind.is_exact() => 8,
        Expr::Binary(BinaryKind::Div | BinaryKind::Pow | BinaryKind::Rem, ..) => 8,
        Expr::RandomBits { .. } => 64,
        _ => 1,
    };
    epilogue.body.iter().map(cost).sum()
}

/// A launch, and the matrices that its first parameters describe.
pub(crate) type Mapped = (Launch, Vec<TensorMap>);

/// The product with its epilogue, and the bytes of scratch that it takes. `out` is the product's buffer.
pub(crate) fn compile(
    p: &Product,
    out: BufferId,
    epilogue: Option<&LoopKernel>,
    context: &Context<'_>,
) -> Result<(Vec<Mapped>, usize), CudaError> {
    let Some((form, factors)) = arranged(p) else {
        let why = format!("{}{:?} is no product for warpgroups", p.dtype, p.sizes);
        return Err(CudaError::Operand { what: "a factor", why });
    };
    let finish = Finish::new(p, out, epilogue, context)?;
    let [_, rows, columns, depth] = p.sizes;
    let Form { wide, split, .. } = form;
    let blocks = if split { PROCESSORS } else { form.tiles(rows, columns).min(PROCESSORS) };
    let tiles = format!(
        "constexpr int ROWS = {rows}, COLUMNS = {columns}, DEPTH = {depth}, WIDE = {wide}, BAND = {BAND}, BLOCKS = {blocks};\n\
         constexpr bool SPLIT = {split};\n{}{}{}{}",
        finish.types,
        wgmma::ORDER,
        include_str!("device.cuh"),
        include_str!("tiles.cuh"),
    );
    let parts = Address { space: Space::Scratch, offset: 0 };
    let mut launches = vec![multiply(p, form, factors, blocks, &tiles, &finish, parts)];
    let rest = form.rest(rows, columns);
    if rest > 0 {
        launches.push((add(form, rest, &tiles, &finish, parts), vec![]));
    }
    // A part of each block, and one more where the next block of a tail goes on in another tile.
    let kept = if rest > 0 { PROCESSORS + rest } else { 0 };
    Ok((launches, kept * HIGH * wide * 4))
}

/// The launch that multiplies; `tiles` is the text before it, and `parts` where it keeps sums over parts of the depth.
fn multiply(
    p: &Product,
    form: Form,
    [(left, left_along), (right, right_along)]: [(TensorMap, bool); 2],
    blocks: usize,
    tiles: &str,
    finish: &Finish,
    parts: Address,
) -> Mapped {
    let (Form { wide, stages, .. }, [most, fewest]) = (form, REGISTERS);
    // The distances of lines are in the maps, and stand here so that a text tells its maps.
    let text = format!(
        "{tiles}// Lines of the factors are {} and {} numbers apart.\n\
         constexpr int STAGES = {stages}, THREADS = {THREADS}, MOST_REGISTERS = {most}, FEWEST_REGISTERS = {fewest}, UNROLLED = {};\n\
         constexpr bool BF16 = {}, A_ALONG = {left_along}, B_ALONG = {right_along};\n{}{}",
        left.pitch,
        right.pitch,
        finish.unrolled,
        p.dtype == DType::BF16,
        wgmma(p.dtype, wide, Factors::Shared { left_along, right_along }),
        include_str!("product.cu"),
    );
    let parameters =
        "const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float4* parts";
    let call = "product(a, b, parts, load, finish)";
    let launch = Launch {
        source: finish.kernel(&format!("{THREADS}, 1"), &text, parameters, call),
        grid: blocks,
        threads: THREADS as u32,
        // Panels start at a multiple of 1024 bytes; behind them is what the warpgroups hand over.
        shared_bytes: 1024 + stages * (HIGH + wide) * PANEL * 2 + HIGH * wide * 2,
        arguments: [&[p.lhs.0, p.rhs.0, parts], &finish.buffers[..]].concat(),
    };
    (launch, vec![left, right])
}

/// The launch that adds the parts of `rest` tiles.
fn add(form: Form, rest: usize, tiles: &str, finish: &Finish, parts: Address) -> Launch {
    let threads = WARPS * 32;
    let text = format!(
        "{tiles}constexpr int WARPS = {WARPS}, N = {COLUMNS_EACH} / 2;\n{}",
        include_str!("parts.cu")
    );
    Launch {
        source: finish.kernel(&threads.to_string(), &text, "float4* parts", "add_parts(parts, load, finish)"),
        grid: (rest * (HIGH / 16) * (form.wide / COLUMNS_EACH)).div_ceil(WARPS),
        threads: threads as u32,
        shared_bytes: 0,
        arguments: [&[parts], &finish.buffers[..]].concat(),
    }
}

/// What is done with the elements of the result.
struct Finish {
    prelude: String,
    types: String,
    /// Functions of the row and the number of the chunk in it: what is loaded for its elements, and what is done with them.
    text: String,
    parameters: String,
    buffers: Vec<Address>,
    /// Chunks of a thread that are under way at a time.
    unrolled: usize,
}

impl Finish {
    fn new(
        p: &Product,
        out: BufferId,
        epilogue: Option<&LoopKernel>,
        context: &Context<'_>,
    ) -> Result<Finish, CudaError> {
        let dtype = |b: BufferId| context.schedule.buffer(b).dtype;
        let aligned = |b: BufferId| match context.homes[b.index()] {
            Address { space: Space::Body(_), .. } => 1,
            at => 1 << (at.offset | ALIGNED).trailing_zeros(),
        };
        let known = Buffers { dtype: &dtype, aligned: &aligned };
        let work = match epilogue {
            Some(e) => render::group(e, out, CHUNK / p.result.size(), known)?,
            None => Epilogue::default(),
        };
        let home = |b: &BufferId| context.homes[b.index()];
        let store = match epilogue.is_none() || context.reads_later(out) {
            true => "    *(Chunk*)(out + (word)i0 * COLUMNS + (word)i1 * CHUNK) = x0;\n",
            false => "",
        };
        let (index, point) = (work.index, &work.point);
        let members: String = work.loads.iter().map(|(member, _)| format!(" {member};")).collect();
        let values = work.loads.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ");
        let text = format!(
            "  struct Loaded {{{members}}};\n\
             \x20 const auto load = [&](const {index} i0, const {index} i1) {{\n    const {index} i2 = 0;\n    return Loaded{{{values}}};\n  }};\n\
             \x20 const auto finish = [&](const {index} i0, const {index} i1, const Chunk x0, const Loaded& loaded) {{\n{store}{point}  }};\n"
        );
        let element = scalar::storage(p.result);
        let more = work.parameters.iter().map(|(dtype, name)| format!(", {dtype}* {name}"));
        let parameters = format!(", {element}* out{}", more.collect::<String>());
        let pack = if p.result == DType::F16 { "f16x2" } else { "bf16x2" };
        let word = text::word(p.sizes[1].saturating_mul(p.sizes[2]));
        let types = format!(
            "typedef unsigned long long u64;\ntypedef unsigned int u32;\ntypedef {word} word;\n\
             __device__ __forceinline__ u32 pack(float low, float high) {{\n  u32 both;\n  \
             asm(\"cvt.rn.{pack}.f32 %0, %1, %2;\" : \"=r\"(both) : \"f\"(high), \"f\"(low));\n  return both;\n}}\n\
             __device__ __forceinline__ void wait_for_kernels_before() {{\n{WAIT}}}\n",
        );
        let unrolled = match epilogue.map(|e| cost(e, out)) {
            None => 8,
            Some(cost) if cost < 8 => 2,
            Some(_) => 1,
        };
        let prelude = prelude::of(&format!("Group<{text}"));
        let buffers = [vec![p.out], work.buffers.iter().map(home).collect()].concat();
        Ok(Finish { prelude, types, text, parameters, buffers, unrolled })
    }

    /// A kernel of so many threads that calls a function of the text with what is done.
    fn kernel(&self, threads: &str, text: &str, parameters: &str, call: &str) -> String {
        let Finish { prelude, text: lambdas, parameters: more, .. } = self;
        format!(
            "{prelude}{text}extern \"C\" __global__ void __launch_bounds__({threads}) {NAME}({parameters}{more}) {{\n{lambdas}  {call};\n}}\n"
        )
    }
}
