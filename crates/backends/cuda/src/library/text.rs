//! What the templates share: the frame of a kernel over flat indices, views as index expressions, and elements as values.

use super::Operands;
use crate::code::{Address, Launch, NAME, PROCESSORS, THREADS};
use crate::render::{prelude, scalar};
use onestep_ir::{DType, row_major};
use onestep_passes::schedule::View;

/// The most blocks of a launch; what is more is taken in a stride.
const MOST_BLOCKS: usize = PROCESSORS * 32;

/// The type of an index that `largest` fits with room for a stride.
pub(super) fn word(largest: usize) -> &'static str {
    if largest < 1 << 30 { "int" } else { "long long" }
}

/// A launch of a kernel whose parameters `p0`, `p1` … point to these dtypes. In `body`, `word` is the type of an index that
/// `largest` fits with room for a stride.
pub(super) fn launch(
    dtypes: &[DType],
    arguments: Vec<Address>,
    body: &str,
    largest: usize,
    blocks: usize,
    shared_bytes: usize,
) -> Launch {
    let list: Vec<String> =
        dtypes.iter().enumerate().map(|(i, d)| format!("{}* p{i}", scalar::storage(*d))).collect();
    let word = word(largest);
    let shared = if shared_bytes > 0 { "  extern __shared__ long long shared[];\n" } else { "" };
    let source = format!(
        "typedef {word} word;\n{}extern \"C\" __global__ void __launch_bounds__({THREADS}) {NAME}({}) {{\n{shared}{body}}}\n",
        prelude::of(body),
        list.join(", ")
    );
    Launch { source, grid: blocks.clamp(1, MOST_BLOCKS), threads: THREADS, shared_bytes, arguments }
}

/// A launch of a thread for each `i` below `count`, over the operands and results of a library kernel. `largest` is the
/// number of elements of its largest tensor.
pub(super) fn elementwise(k: &Operands<'_>, count: usize, body: &str) -> Launch {
    let body = format!(
        "  for (word i = (word)blockIdx.x * {THREADS} + (word)threadIdx.x; i < {count}; i += (word)gridDim.x * {THREADS}) {{\n{body}  }}\n"
    );
    launch(&k.dtypes(), k.arguments(), &body, largest(k), count.div_ceil(THREADS as usize), 0)
}

/// The largest number of elements, or place in a buffer, that an index of the kernel may be.
pub(super) fn largest(k: &Operands<'_>) -> usize {
    let views = k.kernel.operands.iter().chain(&k.kernel.results).map(|v| {
        let far = v
            .shape
            .iter()
            .zip(&v.strides)
            .map(|(&n, &s)| n.saturating_sub(1).saturating_mul(s))
            .sum::<usize>();
        far.max(v.shape.iter().product())
    });
    views.max().unwrap_or(0)
}

/// The place of element `index` (a variable) of a view, from its first element.
pub(super) fn place(view: &View, index: &str) -> String {
    if view.is_dense() {
        return index.into();
    }
    if view.shape.contains(&0) {
        return "0".into();
    }
    let dense = row_major(&view.shape);
    let mut terms = vec![];
    for (axis, (&n, &stride)) in view.shape.iter().zip(&view.strides).enumerate() {
        if n <= 1 || stride == 0 {
            continue;
        }
        let at = match (axis, dense[axis]) {
            (0, 1) => index.to_string(),
            (0, d) => format!("{index} / {d}"),
            (_, 1) => format!("{index} % {n}"),
            (_, d) => format!("{index} / {d} % {n}"),
        };
        terms.push(format!("({at}) * (word){stride}"));
    }
    if terms.is_empty() { "0".into() } else { terms.join(" + ") }
}

/// The value of element `at` of parameter `p`.
pub(super) fn load(d: DType, p: usize, at: &str) -> String {
    format!("({})", scalar::from_storage(d, &format!("p{p}[{at}]")))
}

/// A statement that stores a value as element `at` of parameter `p`.
pub(super) fn store(d: DType, p: usize, at: &str, value: &str) -> String {
    format!("p{p}[{at}] = {};", scalar::to_storage(d, &scalar::rounded(d, value.into())))
}

/// What stands in memory for "no such element": NaN, or 0 for integers and `bool`.
pub(super) fn absent(d: DType) -> &'static str {
    match d {
        DType::F64 => "__longlong_as_double(0x7ff8000000000000ll)",
        DType::F32 => "__uint_as_float(0x7fc00000u)",
        DType::F16 => "(unsigned short)0x7e00",
        DType::BF16 => "(unsigned short)0x7fc0",
        DType::F8E4M3 | DType::F8E5M2 => "(unsigned char)0x7f",
        _ => "0",
    }
}
