//! `argmax` and `argmin`: a thread takes a short row, a warp a longer one, and a block a long one; where such rows are few, a
//! block takes a piece of one, and a second launch compares what the pieces found. Which element wins does not depend on the
//! order of the comparisons, so all find the same one: the first NaN, else the first of the best.

use super::text::{elementwise, largest, launch, load};
use super::{Launches, Operands};
use crate::code::{Address, Launch, PROCESSORS, Space, THREADS};
use crate::render::scalar;
use onestep_ir::DType;
use onestep_ir::ops::{ArgKind, ArgReduce};
use onestep_ir::shape::around;

/// The longest row of a thread.
const SHORT: usize = 64;
/// The longest row of a warp, and the least piece of a block.
const LONG: usize = 2048;
/// Blocks that keep a large device busy.
const MANY_BLOCKS: usize = PROCESSORS * 2;
const WARP: usize = 32;

pub(super) fn compile(op: &ArgReduce, k: &Operands<'_>) -> Launches {
    let (outer, n, inner) = around(k.sizes(0), op.axis);
    if n <= LONG {
        return short(op, k).into();
    }
    let rows = outer * inner;
    let pieces = (MANY_BLOCKS / rows).clamp(1, n / LONG);
    let scratch = Address { space: Space::Scratch, offset: 0 };
    let mut out = Launches::default();
    if pieces == 1 {
        out.list.push(blocks(op, k, [n, 1], scratch, ["c", "p1[w] = (int)which;"]));
        return out;
    }
    out.list.push(blocks(op, k, [n, pieces], scratch, ["c", "p2[w] = (int)which;"]));
    let found = format!("(word)p2[row * {pieces} + c]");
    out.list.push(blocks(op, k, [pieces, 1], scratch, [&found, "p1[w] = (int)which;"]));
    out.scratch_bytes = rows * pieces * 4;
    out
}

/// Rows of `count` candidates in so many pieces each; `candidate` is where candidate `c` of a row stands, and `put` keeps what
/// was found.
fn blocks(
    op: &ArgReduce,
    k: &Operands<'_>,
    [count, pieces]: [usize; 2],
    scratch: Address,
    [candidate, put]: [&str; 2],
) -> Launch {
    let d = k.dtype(0);
    let (outer, n, inner) = around(k.sizes(0), op.axis);
    let rows = outer * inner;
    let length = count.div_ceil(pieces);
    let text = format!(
        "  typedef {} T;\n  constexpr word rows = {rows}, pieces = {pieces}, length = {length}, count = {count};\n\
         \x20 constexpr int threads = {THREADS}, warp = {WARP};\n\
         \x20 const auto value = [&](word row, word a) -> T {{ return {}; }};\n\
         \x20 const auto candidate = [&](word row, word c) -> word {{ return {candidate}; }};\n\
         \x20 const auto beats = [](T x, T y) {{ return {}; }};\n\
         \x20 const auto put = [&](word w, word which) {{ {put} }};\n{}",
        scalar::c_type(d),
        load(d, 0, &format!("row / {inner} * {n} * {inner} + row % {inner} + a * {inner}")),
        beats(op, d, "x", "y"),
        include_str!("arg_reduce/block.cu"),
    );
    let dtypes = [k.dtypes(), vec![DType::I32]].concat();
    let arguments = [k.arguments(), vec![scratch]].concat();
    launch(&dtypes, arguments, &text, largest(k), rows * pieces, THREADS as usize / WARP * 16)
}

/// Whether x takes the place of y, which stands before it.
fn beats(op: &ArgReduce, d: DType, x: &str, y: &str) -> String {
    let order = if op.kind == ArgKind::Max { ">" } else { "<" };
    match d.is_float() {
        true => format!("({y} == {y} && ({x} != {x} || {x} {order} {y}))"),
        false => format!("({x} {order} {y})"),
    }
}

/// Rows of a thread or a warp.
fn short(op: &ArgReduce, k: &Operands<'_>) -> Launch {
    let d = k.dtype(0);
    let (outer, n, inner) = around(k.sizes(0), op.axis);
    let rows = outer * inner;
    let t = scalar::c_type(d);
    let beats = |x: &str, y: &str| beats(op, d, x, y);
    let first = format!("row / {inner} * {n} * {inner} + row % {inner}");
    let value = load(d, 0, &format!("first + a * {inner}"));
    if n <= SHORT {
        let body = format!(
            "    const word row = i, first = {first};\n    {t} best = {};\n    int which = 0;\n\
             \x20   for (int a = 1; a < {n}; ++a) {{\n      const {t} x = {value};\n      if ({}) {{\n        best = x;\n        which = a;\n      }}\n    }}\n    p1[i] = which;\n",
            load(d, 0, "first"),
            beats("x", "best"),
        );
        return elementwise(k, rows, &body);
    }
    let body = format!(
        "  const int lane = threadIdx.x % {WARP};\n\
         \x20 for (word row = (word)blockIdx.x * {warps} + (word)threadIdx.x / {WARP}; row < {rows}; row += (word)gridDim.x * {warps}) {{\n\
         \x20   const word first = {first};\n    word which = lane;\n    {t} best;\n    {{\n      const word a = lane;\n      best = {value};\n    }}\n\
         \x20   for (word a = lane + {WARP}; a < {n}; a += {WARP}) {{\n      const {t} x = {value};\n      if ({wins}) {{\n        best = x;\n        which = a;\n      }}\n    }}\n\
         \x20   for (int offset = {half}; offset > 0; offset /= 2) {{\n\
         \x20     const {t} x = __shfl_down_sync(0xffffffffu, best, offset);\n      const word a = __shfl_down_sync(0xffffffffu, which, offset);\n\
         \x20     if ({wins} || (!{loses} && a < which)) {{\n        best = x;\n        which = a;\n      }}\n    }}\n\
         \x20   if (lane == 0) p1[row] = (int)which;\n  }}\n",
        warps = THREADS as usize / WARP,
        half = WARP / 2,
        wins = beats("x", "best"),
        loses = beats("best", "x"),
    );
    launch(&k.dtypes(), k.arguments(), &body, largest(k), rows.div_ceil(THREADS as usize / WARP), 0)
}
