//! `scatter_add` and `scatter_add_along`: what is added to an element is added in the order of the indices. So equal indices need
//! no atomics, and the result is the op's own sum, with one rounding for 16-bit floats.
//!
//! Few rows look at every index: a warp at 32 of them at a time. For many the indices are brought into [`order`](super::order)
//! first; then the updates of a row stand together, and the first of them adds them all; of whole slices each [`PIECE`] of them
//! by itself, and their sums in order, so that a row that takes most of the updates does not keep all waiting. Rows without an
//! update keep what the result holds already: the base, in whose place it is or which is copied.

use super::order::{Order, item};
use super::text::{elementwise, largest, launch, load, place, store};
use super::{Launches, Operands};
use crate::code::{Address, Launch, Space, THREADS};
use crate::render::scalar;
use onestep_ir::DType;
use onestep_ir::ops::{ReduceKind, ScatterAdd, ScatterAddAlong};
use onestep_ir::shape::around;

const WARP: usize = 32;
/// Columns of a row that a lane keeps in registers, at most, where the row looks at every index.
const COLUMNS: usize = 8;
/// The same where the indices are in order, and how many updates are under way at a time.
const ORDERED_COLUMNS: usize = 2;
const BATCH: usize = 16;
/// Updates that are looked at together even if there are fewer.
const FEW: usize = 4;
/// Updates of a row that are added one after the other: a multiple of a warp.
const PIECE: usize = 256;
/// Rows times indices from which it is faster to order the indices.
const MANY_LOOKS: usize = 1 << 23;
/// Indices of an element, likewise, where each row of elements has its own.
const MANY_ALONG: usize = 256;

/// Adds whole slices.
pub(super) fn rows(s: &ScatterAdd, k: &Operands<'_>) -> Launches {
    let (outer, axis, inner) = around(k.sizes(0), s.axis);
    let sizes = [outer, axis, inner];
    let count: usize = k.sizes(1).iter().product();
    let looks = outer * axis * inner.div_ceil(WARP * COLUMNS) * count;
    if looks < MANY_LOOKS || !fits(axis, count) {
        return look_rows(k, sizes, count).into();
    }
    let order =
        Order { rows: 1, length: count, bits: 32, key: key(axis, &place(k.view(1), "a")), take: None };
    let each = inner.div_ceil(WARP).min(ORDERED_COLUMNS);
    let (tiles, strips, pieces) = (inner.div_ceil(WARP * each), inner.div_ceil(WARP), count.div_ceil(PIECE));
    let head = format!(
        "  constexpr word tiles = {tiles}, strips = {strips}, piece = {PIECE}, pieces = {pieces};\n\
         \x20 constexpr int warp = {WARP}, each = {each}, batch = {BATCH}, few = {FEW};\n{}",
        include_str!("scatter/pieces.cuh")
    );
    let mut add = vec![(include_str!("scatter/add_rows.cu"), outer * count * tiles * WARP)];
    if pieces > 1 {
        add.push((include_str!("scatter/add_pieces.cu"), outer * pieces * strips * WARP));
    }
    ordered(k, &order, sizes, &head, &add, 2 * outer * pieces * inner)
}

/// Adds one element per index.
pub(super) fn along(s: &ScatterAddAlong, k: &Operands<'_>) -> Launches {
    let (outer, axis, inner) = around(k.sizes(0), s.axis);
    let sizes = [outer, axis, inner];
    let count = k.sizes(1)[s.axis];
    if count < MANY_ALONG || !fits(axis, count) {
        return look_along(k, sizes, count).into();
    }
    let from = format!("(row / {inner} * {count} + a) * {inner} + row % {inner}");
    let index = format!("    const word from = {from};\n");
    let key = index + &key(axis, &place(k.view(1), "from"));
    let order = Order { rows: outer * inner, length: count, bits: 32, key, take: None };
    let add = (include_str!("scatter/add_along.cu"), outer * inner * count);
    ordered(k, &order, sizes, "", &[add], 0)
}

/// Whether rows and indices can be counted by 32 bits, with one to spare.
fn fits(axis: usize, count: usize) -> bool {
    axis.max(count) < u32::MAX as usize
}

/// The key of an update whose index is at a place: its row, or for an index that is none the one after the last.
fn key(axis: usize, place: &str) -> String {
    format!(
        "    const long long index = (long long)p1[{place}];\n    return (unsigned int)(index < 0 || index >= {axis} ? {axis} : index);\n"
    )
}

/// Copies the base, orders the indices, and runs each text of `add` behind `head` on so many threads. They hand over `sums`.
fn ordered(
    k: &Operands<'_>,
    order: &Order,
    [outer, axis, inner]: [usize; 3],
    head: &str,
    add: &[(&str, usize)],
    sums: usize,
) -> Launches {
    let mut out = Launches::default();
    if !k.in_place(0) {
        let copy = format!("    p3[i] = p0[{}];\n", place(k.view(0), "i"));
        out.list.push(elementwise(k, k.results[0].numel(), &copy));
    }
    let items = order.launches(k, &mut out);
    let sums_at = Address { space: Space::Scratch, offset: out.scratch_bytes };
    // Whatever their type is, they are no wider.
    out.scratch_bytes += (sums * size_of::<f64>()).next_multiple_of(256);
    let d = k.dtype(0);
    let head = format!(
        "{}  typedef {} T;\n  constexpr word outer = {outer}, axis = {axis}, inner = {inner}, count = {};\n  constexpr int threads = {THREADS};\n\
         \x20 const Item* const items = (const Item*)p4;\n\
         \x20 const auto own = [&](word at) -> T {{ return {}; }};\n\
         \x20 const auto update = [&](word from) -> T {{ return {}; }};\n\
         \x20 const auto sum = [](T a, T b) -> T {{ return {}; }};\n\
         \x20 const auto put = [&](word at, T x) {{ {} }};\n{head}",
        item(32),
        scalar::c_type(d),
        order.length,
        load(d, 3, "at"),
        load(d, 2, &place(k.view(2), "from")),
        scalar::combine(ReduceKind::Sum, d, "a", "b"),
        store(d, 3, "at", "x"),
    );
    let dtypes = [k.dtypes(), vec![DType::I64; 2]].concat();
    let arguments = [k.arguments(), vec![items, sums_at]].concat();
    for (text, threads) in add {
        let (text, blocks) = (format!("{head}{text}"), threads.div_ceil(THREADS as usize));
        out.list.push(launch(&dtypes, arguments.clone(), &text, largest(k).max(*threads), blocks, 0));
    }
    out
}

/// A warp takes up to 256 columns of a row, and looks at every index.
fn look_rows(k: &Operands<'_>, [outer, axis, inner]: [usize; 3], count: usize) -> Launch {
    let d = k.dtype(0);
    let each = inner.div_ceil(WARP).clamp(1, COLUMNS);
    let tiles = inner.div_ceil(WARP * each);
    let work = outer * axis * tiles;
    let t = scalar::c_type(d);
    let columns = format!(
        "#pragma unroll\n    for (int q = 0; q < {each}; ++q) {{\n      const word c = (w % {tiles}) * {} + q * {WARP} + lane;\n      if (c < {inner}) {{\n",
        WARP * each
    );
    let sum = scalar::combine(ReduceKind::Sum, d, "acc[q]", &load(d, 2, "at"));
    let body = format!(
        "  const int lane = threadIdx.x % {WARP};\n\
         \x20 for (word w = (word)blockIdx.x * {warps} + (word)threadIdx.x / {WARP}; w < {work}; w += (word)gridDim.x * {warps}) {{\n\
         \x20   const word row = w / {tiles}, a = row % {axis}, o = row / {axis};\n    {t} acc[{each}];\n\
         {columns}        const word own = row * {inner} + c;\n        acc[q] = {base};\n      }}\n    }}\n\
         \x20   for (word first = 0; first < {count}; first += {WARP}) {{\n      const word next = first + lane;\n\
         \x20     const bool hit = next < {count} && (long long)p1[{index}] == (long long)a;\n\
         \x20     unsigned int hits = __ballot_sync(0xffffffffu, hit);\n      while (hits != 0) {{\n\
         \x20       const word j = first + __ffs((int)hits) - 1;\n        hits &= hits - 1;\n\
         {columns}        const word from = (o * {count} + j) * {inner} + c, at = {update};\n        acc[q] = {sum};\n      }}\n    }}\n\
         \x20     }}\n    }}\n\
         {columns}        const word own = row * {inner} + c;\n        {store}\n      }}\n    }}\n  }}\n",
        warps = THREADS as usize / WARP,
        base = load(d, 0, &place(k.view(0), "own")),
        index = place(k.view(1), "next"),
        update = place(k.view(2), "from"),
        store = store(d, 3, "own", "acc[q]"),
    );
    let blocks = work.div_ceil(THREADS as usize / WARP);
    launch(&k.dtypes(), k.arguments(), &body, largest(k), blocks, 0)
}

/// A thread takes an element, and looks at every index along its axis.
fn look_along(k: &Operands<'_>, [_, axis, inner]: [usize; 3], count: usize) -> Launch {
    let d = k.dtype(0);
    let body = format!(
        "    const word c = i % {inner}, a = i / {inner} % {axis}, o = i / {inner} / {axis};\n\
         \x20   {t} acc = {base};\n    for (word j = 0; j < {count}; ++j) {{\n\
         \x20     const word from = (o * {count} + j) * {inner} + c;\n\
         \x20     if ((long long)p1[{index}] == (long long)a) {{\n        const word at = {update};\n        acc = {sum};\n      }}\n    }}\n\
         \x20   {store}\n",
        t = scalar::c_type(d),
        base = load(d, 0, &place(k.view(0), "i")),
        index = place(k.view(1), "from"),
        update = place(k.view(2), "from"),
        sum = scalar::combine(ReduceKind::Sum, d, "acc", &load(d, 2, "at")),
        store = store(d, 3, "i", "acc"),
    );
    elementwise(k, k.results[0].numel(), &body)
}
