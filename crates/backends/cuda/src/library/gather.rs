//! `gather` and `gather_along`: a thread for each element of the result.

use super::Operands;
use super::text::{absent, elementwise, place};
use crate::code::Launch;
use onestep_ir::ops::{Gather, GatherAlong};
use onestep_ir::shape::around;

/// Whole slices, chosen by indices.
pub(super) fn rows(g: &Gather, k: &Operands<'_>) -> Launch {
    let (_, axis, inner) = around(k.sizes(0), g.axis);
    let count: usize = k.sizes(1).iter().product();
    let body = format!(
        "    const word c = i % {inner}, j = i / {inner} % {count}, o = i / {inner} / {count};\n\
         \x20   const long long a = (long long)p1[{}];\n",
        place(k.view(1), "j")
    );
    elementwise(k, k.results[0].numel(), &(body + &pick(k, axis, inner)))
}

/// One element per index.
pub(super) fn along(g: &GatherAlong, k: &Operands<'_>) -> Launch {
    let (_, axis, inner) = around(k.sizes(0), g.axis);
    let count = k.sizes(1)[g.axis];
    let body = format!(
        "    const word c = i % {inner}, o = i / {inner} / {count};\n\
         \x20   const long long a = (long long)p1[{}];\n",
        place(k.view(1), "i")
    );
    elementwise(k, k.results[0].numel(), &(body + &pick(k, axis, inner)))
}

/// Element `i` of the result is the one at place `a` of the axis, if there is such a place.
fn pick(k: &Operands<'_>, axis: usize, inner: usize) -> String {
    format!(
        "    if (a < 0 || a >= {axis}) {{\n      p2[i] = {};\n      continue;\n    }}\n\
         \x20   const word from = (o * {axis} + (word)a) * {inner} + c;\n    p2[i] = p0[{}];\n",
        absent(k.dtype(0)),
        place(k.view(0), "from")
    )
}
