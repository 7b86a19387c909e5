//! What differs from the recorded reference on purpose: the one list, each entry with its reason.
//!
//! A difference that no entry names fails the suite, and so does an entry that names no sample any more.

use crate::samples::Sample;
use onestep_ir::DType;

/// What an exception allows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Allows {
    /// Where PyTorch's result is NaN, ours is this number. The sample counts as left out.
    InsteadOfNan(f64),
    /// Tolerances, relative and absolute, for samples of this dtype.
    Within(DType, f64, f64),
    /// In `f32`: ours is no further from the exact result, which is the same graph computed in `f64`, than PyTorch's.
    Nearer,
}

/// One exception.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The runtime that it is for; `*` for all: then it is our definition of an op that differs.
    pub runtime: &'static str,
    /// The operator's key; a name without a variant stands for all its variants.
    pub operator: &'static str,
    /// What is allowed.
    pub allows: Allows,
    /// Why.
    pub reason: &'static str,
}

const NOTHING_TAKES_PART: &str = "a softmax over nothing, where PyTorch gives NaN and we 0 by definition";
const ORDER: &str = "PyTorch rounds intermediate results in another order";

const REFLECTED: &str = "PyTorch reflects a negative argument by a sine of single precision";

const fn any(operator: &'static str, allows: Allows, reason: &'static str) -> Exception {
    Exception { runtime: "*", operator, allows, reason }
}

const SCORES: &str = "scores of ±10² are rounded to f32 before their exponential";
const CANCELS: &str = "products that cancel are summed in f32, in another order than PyTorch's";

const fn on(
    runtime: &'static str,
    operator: &'static str,
    rtol: f64,
    atol: f64,
    reason: &'static str,
) -> Exception {
    Exception { runtime, operator, allows: Allows::Within(DType::F32, rtol, atol), reason }
}

/// The list.
pub const EXCEPTIONS: &[Exception] = &[
    any("masked.softmax", Allows::InsteadOfNan(0.0), NOTHING_TAKES_PART),
    any("masked.softmin", Allows::InsteadOfNan(0.0), NOTHING_TAKES_PART),
    any("masked.log_softmax", Allows::InsteadOfNan(f64::NEG_INFINITY), NOTHING_TAKES_PART),
    any(
        "nn.functional.hardsigmoid",
        Allows::Within(DType::F64, 1e-7, 0.0),
        "PyTorch's backward kernel holds 1/6 in single precision",
    ),
    any("asin", Allows::Nearer, "PyTorch's gradient squares x, which loses digits near 1"),
    any("atanh", Allows::Nearer, "PyTorch's gradient squares x, which loses digits near 1"),
    any("logcumsumexp", Allows::Nearer, "PyTorch's gradient is taken through logarithms, which loses digits"),
    Exception { runtime: "interpreter", operator: "linalg.multi_dot", allows: Allows::Nearer, reason: ORDER },
    Exception { runtime: "rewritten", operator: "linalg.multi_dot", allows: Allows::Nearer, reason: ORDER },
    any("linalg.householder_product", Allows::Nearer, ORDER),
    any("triangular_solve", Allows::Nearer, ORDER),
    any("digamma", Allows::Nearer, REFLECTED),
    any("polygamma", Allows::Nearer, REFLECTED),
    any("special.polygamma", Allows::Nearer, REFLECTED),
    any(
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
        Allows::Nearer,
        "PyTorch's kernel has an approximate exponential",
    ),
    on("rewritten", "nn.functional.scaled_dot_product_attention", 5e-6, 5e-5, SCORES),
    on("rewritten", "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu", 5e-6, 5e-5, SCORES),
    on("cpu", "nn.functional.scaled_dot_product_attention", 5e-6, 5e-5, SCORES),
    on("cpu", "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu", 5e-6, 5e-5, SCORES),
    on("cuda", "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu", 5e-6, 5e-5, SCORES),
    on("cuda", "nn.functional.scaled_dot_product_attention", 5e-6, 5e-5, SCORES),
    on("cuda", "linalg.multi_dot", 2e-4, 3e-4, CANCELS),
    on("cuda", "nn.functional.conv_transpose3d", 1e-5, 1e-4, CANCELS),
    on("cuda", "fft.fft2", 1.3e-6, 3e-5, CANCELS),
    on("cuda", "fft.rfft2", 1.3e-6, 3e-5, CANCELS),
    on("cpu", "addbmm", 1e-5, 1e-5, CANCELS),
    on("cpu", "linalg.multi_dot", 2e-4, 3e-4, CANCELS),
    any("nn.functional.conv_transpose3d", Allows::Within(DType::F32, 5e-6, 3e-5), ORDER),
    any("fft.hfft2", Allows::Within(DType::F32, 1.3e-6, 3e-5), "sums of 210 terms of up to 10 that cancel"),
    any(
        "pow",
        Allows::Within(DType::F32, 1.3e-6, 2e-2),
        "sums of terms of 10⁵ that cancel: one rounding of a term is 10⁻²",
    ),
];

/// The exceptions for a sample on a runtime, by their place in the list.
pub fn of<'a>(runtime: &'a str, sample: &'a Sample) -> impl Iterator<Item = usize> + 'a {
    let holds = move |&(_, e): &(usize, &Exception)| {
        (e.runtime == "*" || e.runtime == runtime)
            && (e.operator == sample.key || sample.key.split('/').next() == Some(e.operator))
            && match e.allows {
                Allows::Within(dtype, _, _) => dtype == sample.dtype,
                Allows::Nearer => sample.dtype == DType::F32,
                Allows::InsteadOfNan(_) => true,
            }
    };
    EXCEPTIONS.iter().enumerate().filter(holds).map(|(i, _)| i)
}
