//! `cumsum`, `cumprod`, `cummax` and `cummin`: a thread takes a short row in order; of a long one each thread of a block takes
//! a segment, twice: for its total, and with what stands before it.

use super::Operands;
use super::text::{elementwise, largest, launch, load, store};
use crate::code::{Launch, THREADS};
use crate::render::scalar;
use onestep_ir::ops::Cumulative;
use onestep_ir::shape::around;

/// The longest row of a thread.
const SHORT: usize = 64;

pub(super) fn compile(op: &Cumulative, k: &Operands<'_>) -> Launch {
    let d = k.dtype(0);
    let (outer, n, inner) = around(k.sizes(0), op.axis);
    let rows = outer * inner;
    let (t, identity) = (scalar::c_type(d), scalar::identity(op.kind, d));
    let first = format!("row / {inner} * {n} * {inner} + row % {inner}");
    let step = if op.reverse { format!("{n} - 1 - step") } else { "step".into() };
    let at = format!("const word at = first + ({step}) * {inner};");
    let next = scalar::combine(op.kind, d, "total", &load(d, 0, "at"));
    let kept = if op.exclusive { "total" } else { "next" };
    let pass = format!(
        "{at}\n      const {t} next = {next};\n      {}\n      total = next;\n    }}\n",
        store(d, 1, "at", kept)
    );
    if n <= SHORT {
        let body = format!(
            "    const word row = i, first = {first};\n    {t} total = {identity};\n    for (word step = 0; step < {n}; ++step) {{\n      {pass}"
        );
        return elementwise(k, rows, &body);
    }
    let segment = n.div_ceil(THREADS as usize);
    let body = format!(
        "  {t}* totals = ({t}*)shared;\n  for (word row = (word)blockIdx.x; row < {rows}; row += (word)gridDim.x) {{\n\
         \x20   const word first = {first}, from = (word)threadIdx.x * {segment}, to = from + {segment} < {n} ? from + {segment} : {n};\n\
         \x20   {t} total = {identity};\n    for (word step = from; step < to; ++step) {{\n      {at}\n      total = {next};\n    }}\n\
         \x20   totals[threadIdx.x] = total;\n    __syncthreads();\n    if (threadIdx.x == 0) {{\n      {t} before = {identity};\n\
         \x20     for (int q = 0; q < {THREADS}; ++q) {{\n        const {t} own = totals[q];\n        totals[q] = before;\n        before = {joined};\n      }}\n    }}\n\
         \x20   __syncthreads();\n    total = totals[threadIdx.x];\n    for (word step = from; step < to; ++step) {{\n      {pass}    __syncthreads();\n  }}\n",
        joined = scalar::combine(op.kind, d, "before", "own"),
    );
    launch(&k.dtypes(), k.arguments(), &body, largest(k), rows, THREADS as usize * 8)
}
