//! `argmax` and `argmin`: a thread takes a short row, a warp a long one, and a block one of the longest. Which element wins does
//! not depend on the order of the comparisons, so all find the same one: the first NaN, else the first of the best.

use super::Operands;
use super::text::{elementwise, largest, launch, load};
use crate::code::{Launch, THREADS};
use crate::render::scalar;
use onestep_ir::ops::{ArgKind, ArgReduce};
use onestep_ir::shape::around;

/// The longest row of a thread, and of a warp.
const SHORT: usize = 64;
const LONG: usize = 2048;
/// Elements that a thread of a block loads before it compares the first.
const AHEAD: usize = 32;
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
    let (wins, loses) = (beats("x", "best"), beats("best", "x"));
    // The best of a warp, in lane 0.
    let warp = format!(
        "    for (int offset = {half}; offset > 0; offset /= 2) {{\n\
         \x20     const {t} x = __shfl_down_sync(0xffffffffu, best, offset);\n      const word a = __shfl_down_sync(0xffffffffu, which, offset);\n\
         \x20     if ({wins} || (!{loses} && a < which)) {{\n        best = x;\n        which = a;\n      }}\n    }}\n",
        half = WARP / 2,
    );
    let start = |lane: &str| {
        format!(
            "    const word first = {first};\n    word which = {lane};\n    {t} best;\n    {{\n      const word a = {lane};\n      best = {value};\n    }}\n"
        )
    };
    if n > LONG {
        let (threads, warps) = (THREADS as usize, THREADS as usize / WARP);
        let body = format!(
            "  {t}* bests = ({t}*)shared;\n  word* places = (word*)(shared + {warps});\n\
             \x20 for (word row = (word)blockIdx.x; row < {rows}; row += (word)gridDim.x) {{\n{start}\
             \x20   for (word begin = (word)threadIdx.x + {threads}; begin < {n}; begin += {step}) {{\n      {t} ahead[{AHEAD}];\n\
             #pragma unroll\n      for (int u = 0; u < {AHEAD}; ++u) {{\n        const word a = {place};\n        ahead[u] = {value};\n      }}\n\
             #pragma unroll\n      for (int u = 0; u < {AHEAD}; ++u) {{\n        const {t} x = ahead[u];\n        if ({wins}) {{\n          best = x;\n          which = {place};\n        }}\n      }}\n    }}\n{warp}\
             \x20   if (threadIdx.x % {WARP} == 0) {{\n      bests[threadIdx.x / {WARP}] = best;\n      places[threadIdx.x / {WARP}] = which;\n    }}\n    __syncthreads();\n\
             \x20   if (threadIdx.x == 0) {{\n      for (int w = 1; w < {warps}; ++w) {{\n        const {t} x = bests[w];\n        const word a = places[w];\n\
             \x20       if ({wins} || (!{loses} && a < which)) {{\n          best = x;\n          which = a;\n        }}\n      }}\n      p1[row] = (int)which;\n    }}\n    __syncthreads();\n  }}\n",
            start = start("threadIdx.x"),
            step = AHEAD * threads,
            // Behind the end the last element is compared again, which changes nothing.
            place = format!("begin + u * {threads} < {n} ? begin + u * {threads} : {n} - 1"),
        );
        return launch(&k.dtypes(), k.arguments(), &body, largest(k), rows, 2 * 8 * warps);
    }
    let body = format!(
        "  const int lane = threadIdx.x % {WARP};\n\
         \x20 for (word row = (word)blockIdx.x * {warps} + (word)threadIdx.x / {WARP}; row < {rows}; row += (word)gridDim.x * {warps}) {{\n{start}\
         \x20   for (word a = lane + {WARP}; a < {n}; a += {WARP}) {{\n      const {t} x = {value};\n      if ({wins}) {{\n        best = x;\n        which = a;\n      }}\n    }}\n{warp}\
         \x20   if (lane == 0) p1[row] = (int)which;\n  }}\n",
        warps = THREADS as usize / WARP,
        start = start("lane"),
    );
    launch(&k.dtypes(), k.arguments(), &body, largest(k), rows.div_ceil(THREADS as usize / WARP), 0)
}
