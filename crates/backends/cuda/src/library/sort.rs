//! `sort`: an element's place is the number of elements that stand before it, so each thread finds the place of one. Stable,
//! and without scratch; the cost is the square of the row's length (an axis of 4096: 16 million comparisons).

use super::Operands;
use super::text::{elementwise, load};
use crate::code::Launch;
use crate::render::scalar;
use onestep_ir::ops::Sort;
use onestep_ir::shape::around;

pub(super) fn compile(op: &Sort, k: &Operands<'_>) -> Launch {
    let d = k.dtype(0);
    let (_, n, inner) = around(k.sizes(0), op.axis);
    let t = scalar::c_type(d);
    // Whether x stands before y, whatever their places; NaN is above all numbers.
    let before = |x: &str, y: &str| match (d.is_float(), op.descending) {
        (true, false) => format!("({x} < {y} || ({y} != {y} && {x} == {x}))"),
        (true, true) => format!("({x} > {y} || ({x} != {x} && {y} == {y}))"),
        (false, false) => format!("({x} < {y})"),
        (false, true) => format!("({x} > {y})"),
    };
    let body = format!(
        "    const word a = i / {inner} % {n}, first = i - a * {inner};\n    const {t} own = {own};\n    word to = 0;\n\
         \x20   for (word b = 0; b < {n}; ++b) {{\n      const {t} x = {other};\n      to += {less} || (b < a && !{more});\n    }}\n\
         \x20   p1[first + to * {inner}] = p0[i];\n    p2[first + to * {inner}] = (int)a;\n",
        own = load(d, 0, "i"),
        other = load(d, 0, &format!("first + b * {inner}")),
        less = before("x", "own"),
        more = before("own", "x"),
    );
    elementwise(k, k.results[0].numel(), &body)
}
