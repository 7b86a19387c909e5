//! `argmax` and `argmin`: a thread takes a short row, a warp a long one. Which element wins does not depend on the order of
//! the comparisons, so both find the same one: the first NaN, else the first of the best.

use super::Operands;
use super::text::{elementwise, largest, launch, load};
use crate::code::{Launch, THREADS};
use crate::render::scalar;
use onestep_ir::ops::{ArgKind, ArgReduce};
use onestep_ir::shape::around;

/// The longest row of a thread.
const SHORT: usize = 64;
const WARP: usize = 32;

pub(super) fn compile(op: &ArgReduce, k: &Operands<'_>) -> Launch {
    let d = k.dtype(0);
    let (outer, n, inner) = around(k.sizes(0), op.axis);
    let rows = outer * inner;
    let t = scalar::c_type(d);
    // Whether x takes the place of y, which stands before it.
    let beats = |x: &str, y: &str| {
        let order = if op.kind == ArgKind::Max { ">" } else { "<" };
        match d.is_float() {
            true => format!("({y} == {y} && ({x} != {x} || {x} {order} {y}))"),
            false => format!("({x} {order} {y})"),
        }
    };
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
