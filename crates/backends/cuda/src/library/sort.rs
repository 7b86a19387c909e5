//! `sort`: [`order`](super::order) of keys that compare as the elements do. Bits of the elements, made ascending: −0 has the key
//! of 0, NaN the largest. The other way round all bits of the key are turned.

use super::order::Order;
use super::text::load;
use super::{Launches, Operands};
use crate::render::scalar;
use onestep_ir::DType;
use onestep_ir::ops::Sort;
use onestep_ir::shape::around;

pub(super) fn compile(op: &Sort, k: &Operands<'_>) -> Launches {
    let d = k.dtype(0);
    let (outer, n, inner) = around(k.sizes(0), op.axis);
    let at = |place: &str| format!("row / {inner} * {n} * {inner} + row % {inner} + {place} * {inner}");
    let bits = if d.size() == 8 { 64 } else { 32 };
    let turned = if op.descending { "~" } else { "" };
    let order = Order {
        rows: outer * inner,
        length: n,
        bits,
        key: format!(
            "    const word at = {};\n    const {} x = {};\n    return {turned}({});\n",
            at("a"),
            scalar::c_type(d),
            load(d, 0, "at"),
            key(d)
        ),
        take: Some(format!(
            "    const word at = {};\n    p1[at] = p0[{}];\n    p2[at] = (int)x.at();\n",
            at("to"),
            at("(word)x.at()")
        )),
    };
    let mut out = Launches::default();
    order.launches(k, &mut out);
    out
}

/// The key of an element `x`: unsigned, and in the order of the elements.
fn key(d: DType) -> &'static str {
    match d {
        DType::F64 => {
            "x != x ? ~0ull : x == 0 ? 1ull << 63 : x < 0 ? ~(unsigned long long)__double_as_longlong(x) : (unsigned long long)__double_as_longlong(x) | 1ull << 63"
        }
        DType::F32 | DType::F16 | DType::BF16 => {
            "x != x ? ~0u : x == 0 ? 1u << 31 : x < 0 ? ~__float_as_uint(x) : __float_as_uint(x) | 1u << 31"
        }
        DType::I64 => "(unsigned long long)x ^ 1ull << 63",
        DType::U32 => "x",
        _ => "(unsigned int)(int)x ^ 1u << 31",
    }
}
