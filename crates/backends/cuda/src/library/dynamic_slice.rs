//! `dynamic_slice` and `dynamic_update_slice`: a thread for each element. An update in place writes its range alone.

use super::text::{absent, elementwise, place};
use super::{Launches, Operands};
use crate::code::Launch;
use onestep_ir::ops::{DynamicSlice, DynamicUpdateSlice};
use onestep_ir::shape::around;

/// A range of an axis.
pub(super) fn slice(d: &DynamicSlice, k: &Operands<'_>) -> Launch {
    let (_, axis, inner) = around(k.sizes(0), d.axis);
    let size = d.size;
    let body = format!(
        "    const long long start = (long long)p1[0];\n    if (start < 0 || start > {}) {{\n      p2[i] = {};\n      continue;\n    }}\n\
         \x20   const word c = i % {inner}, j = i / {inner} % {size}, o = i / {inner} / {size};\n\
         \x20   const word from = (o * {axis} + (word)start + j) * {inner} + c;\n    p2[i] = p0[{}];\n",
        axis - size,
        absent(k.dtype(0)),
        place(k.view(0), "from")
    );
    elementwise(k, k.results[0].numel(), &body)
}

/// The operand with a range replaced; as it is where the range does not lie in the axis.
pub(super) fn update(d: &DynamicUpdateSlice, k: &Operands<'_>) -> Launches {
    let (_, axis, inner) = around(k.sizes(0), d.axis);
    let size = k.sizes(1)[d.axis];
    let count: usize = k.sizes(1).iter().product();
    let start = format!(
        "    const long long start = (long long)p2[0];\n    const bool fits = start >= 0 && start <= {};\n",
        axis - size
    );
    let in_place = k.in_place(0);
    if in_place && count == 0 {
        return Launches::default();
    }
    if in_place {
        let body = format!(
            "{start}    if (!fits) continue;\n\
             \x20   const word c = i % {inner}, j = i / {inner} % {size}, o = i / {inner} / {size};\n\
             \x20   p3[(o * {axis} + (word)start + j) * {inner} + c] = p1[{}];\n",
            place(k.view(1), "i")
        );
        return elementwise(k, count, &body).into();
    }
    let body = format!(
        "{start}    const word c = i % {inner}, a = i / {inner} % {axis}, o = i / {inner} / {axis};\n\
         \x20   if (fits && a >= start && a < start + {size}) {{\n\
         \x20     const word from = (o * {size} + a - (word)start) * {inner} + c;\n      p3[i] = p1[{}];\n    }} else {{\n      p3[i] = p0[{}];\n    }}\n",
        place(k.view(1), "from"),
        place(k.view(0), "i")
    );
    elementwise(k, k.results[0].numel(), &body).into()
}
