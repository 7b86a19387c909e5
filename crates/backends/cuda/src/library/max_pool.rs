//! `max_pool`: a thread for each window, which looks at its elements in order.

use super::Operands;
use super::text::{elementwise, load, store};
use crate::code::Launch;
use crate::render::scalar;
use onestep_ir::ops::MaxPool;
use std::fmt::Write;

pub(super) fn compile(op: &MaxPool, k: &Operands<'_>) -> Launch {
    let d = k.dtype(0);
    let axes = op.kernel.len();
    let lead = k.sizes(0).len() - axes;
    let input = &k.sizes(0)[lead..];
    let sizes = k.results[0].sizes();
    let (out, t) = (&sizes[lead..], scalar::c_type(d));
    let (pixels, places): (usize, usize) = (input.iter().product(), out.iter().product());
    let mut body = format!("    const word plane = i / {places};\n    {t} best = 0;\n    int which = -1;\n");
    let (mut below, mut pixel) = (places, String::from("0"));
    for a in 0..axes {
        below /= out[a];
        let w = &op.window;
        let _ = write!(
            body,
            "    for (int k{a} = 0; k{a} < {}; ++k{a}) {{\n    const word x{a} = i / {below} % {} * {} + k{a} * {} - {};\n    if (x{a} < 0 || x{a} >= {}) continue;\n",
            op.kernel[a], out[a], w.stride[a], w.dilation[a], w.low[a], input[a]
        );
        pixel = format!("({pixel}) * {} + x{a}", input[a]);
    }
    let _ = write!(
        body,
        "    const word at = {pixel};\n    const {t} x = {};\n    if (which < 0 || (best == best && (x != x || x > best))) {{\n      best = x;\n      which = (int)at;\n    }}\n{}",
        load(d, 0, &format!("plane * {pixels} + at")),
        "    }\n".repeat(axes)
    );
    let _ = write!(body, "    {}\n    p2[i] = which;\n", store(d, 1, "i", "best"));
    elementwise(k, k.results[0].numel(), &body)
}
