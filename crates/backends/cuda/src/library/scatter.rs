//! `scatter_add` and `scatter_add_along`: each element of the result looks for what is added to it, in the order of the
//! indices. So equal indices need no atomics, and the result is the op's own sum, with one rounding for 16-bit floats.
//!
//! The cost is a look at every index for each row of the result: of `rows · indices` comparisons, a warp makes 32 at a time. An
//! embedding of 50,000 rows and 8,192 indices takes some tenths of a millisecond.

use super::Operands;
use super::text::{elementwise, largest, launch, load, place, store};
use crate::code::{Launch, THREADS};
use crate::render::scalar;
use onestep_ir::ops::{ReduceKind, ScatterAdd, ScatterAddAlong};
use onestep_ir::shape::around;

/// Columns of a row that a lane keeps in registers, at most.
const COLUMNS: usize = 8;
const WARP: usize = 32;

/// Adds whole slices: a warp takes up to 256 columns of a row.
pub(super) fn rows(s: &ScatterAdd, k: &Operands<'_>) -> Launch {
    let d = k.dtype(0);
    let (outer, axis, inner) = around(k.sizes(0), s.axis);
    let count: usize = k.sizes(1).iter().product();
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

/// Adds one element per index: a thread takes an element.
pub(super) fn along(s: &ScatterAddAlong, k: &Operands<'_>) -> Launch {
    let d = k.dtype(0);
    let (_, axis, inner) = around(k.sizes(0), s.axis);
    let count = k.sizes(1)[s.axis];
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
