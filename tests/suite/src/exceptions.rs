//! What differs from the recorded reference on purpose: the one list, each entry with its reason.
//!
//! A difference that no entry names fails the suite, and so does an entry that names no sample any more.

use crate::samples::Sample;
use onestep_ir::DType;

/// What an exception allows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Allows {
    /// The gradient follows another convention and is not compared.
    OtherGradient,
    /// Neither the result nor the gradient is compared.
    OtherResult,
    /// Wider tolerances, relative and absolute, for samples of this dtype.
    Within(DType, f64, f64),
}

/// One exception.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The runtime that it is for; `*` for all: then it is our definition of an op that differs.
    pub runtime: &'static str,
    /// The operator's key.
    pub operator: &'static str,
    /// What is allowed.
    pub allows: Allows,
    /// Why.
    pub reason: &'static str,
}

/// The list.
pub const EXCEPTIONS: &[Exception] = &[];

/// The exceptions that hold for a sample on a runtime.
pub fn of<'a>(runtime: &'a str, sample: &'a Sample) -> impl Iterator<Item = &'static Exception> + 'a {
    let holds = move |e: &&Exception| {
        (e.runtime == "*" || e.runtime == runtime)
            && e.operator == sample.key
            && !matches!(e.allows, Allows::Within(dtype, _, _) if dtype != sample.dtype)
    };
    EXCEPTIONS.iter().filter(holds)
}
