//! Runs one recorded sample on a runtime and compares: the outputs, then the gradients for the recorded cotangents.
//!
//! Tolerances are those of PyTorch's own tests for `f32` (1.3·10⁻⁶ relative, 10⁻⁵ absolute), and stricter for `f64`. NaN
//! equals NaN; integers and truth values are equal or wrong.

use crate::Runtime;
use crate::exceptions::{self, Allows};
use crate::samples::{Sample, Samples};
use crate::torch::{self, Call, Trouble};
use onestep_ir::{Array, DType, Graph, GraphBuilder, Shape};
use std::collections::BTreeMap;

/// What became of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The result, and the gradient where there is one, are PyTorch's.
    Passed {
        /// Whether a gradient was compared.
        gradient: bool,
    },
    /// Not run, or not compared in full: the reason.
    LeftOut(String),
    /// Something differs, or cannot be built: what.
    Failed(String),
}

/// A sample's graph: the call, and its backward pass. Its inputs are the call's tensors and then the cotangents; its
/// outputs are the call's results and then the gradients.
#[derive(Debug)]
pub struct Case {
    /// The graph.
    pub graph: Graph,
    /// The numbers of the tensors to feed.
    pub inputs: Vec<usize>,
    /// For each of the sample's gradients, the output that holds it; `None` where nothing depends on the tensor, which
    /// is a gradient of zeros.
    pub gradients: Vec<Option<usize>>,
}

/// Builds a sample's graph.
pub fn case(samples: &Samples, sample: &Sample) -> Result<Case, Trouble> {
    let build = torch::find(&sample.key).ok_or(Trouble::Refused(torch::why_not(&sample.key)))?;
    let g = GraphBuilder::new("sample");
    let mut inputs = vec![];
    let mut feed = |n: usize, kind: &str| {
        let array = &samples.tensors[n];
        inputs.push(n);
        g.input(&format!("{kind}{}", inputs.len()), array.dtype(), Shape::fixed(array.shape()))
    };
    let tensors: BTreeMap<_, _> = sample.inputs().into_iter().map(|n| (n, feed(n, "x"))).collect();
    let results = build(&Call { g: &g, sample, tensors: &tensors })?;
    if results.len() != sample.outputs.len() {
        let (got, want) = (results.len(), sample.outputs.len());
        return Err(Trouble::Malformed(format!("gives {got} results, PyTorch {want}")));
    }
    let mut outputs = 0;
    let mut output = |t| {
        outputs += 1;
        g.output(&format!("y{outputs}"), t);
        outputs - 1
    };
    for t in &results {
        output(*t);
    }
    let mistakes = |g: &GraphBuilder| {
        let list: Vec<String> = g.errors().iter().map(|e| e.to_string()).collect();
        if list.is_empty() { Ok(()) } else { Err(Trouble::Malformed(list.join("; "))) }
    };
    mistakes(&g)?;
    let paired = results.iter().zip(&sample.cotangents);
    let pulled: Vec<_> = paired.filter_map(|(y, c)| c.map(|c| (*y, feed(c, "c")))).collect();
    let wrt: Vec<_> = sample.gradients.iter().map(|(n, _)| tensors[n]).collect();
    let found = onestep_autodiff::vjp(&g, &pulled, &wrt).map_err(|e| Trouble::Malformed(e.to_string()))?;
    let gradients = found.into_iter().map(|d| d.map(&mut output)).collect();
    mistakes(&g)?;
    let graph = g.build().map_err(|e| Trouble::Malformed(e.to_string()))?;
    Ok(Case { graph, inputs, gradients })
}

/// Runs a sample and compares.
pub fn check(runtime: &dyn Runtime, samples: &Samples, sample: &Sample) -> Verdict {
    let case = match case(samples, sample) {
        Ok(case) => case,
        Err(Trouble::Refused(why)) => return Verdict::LeftOut(why.to_string()),
        Err(Trouble::Malformed(what)) => return Verdict::Failed(what),
    };
    let fed: Vec<Array> = case.inputs.iter().map(|&n| samples.tensors[n].clone()).collect();
    let out = match runtime.run(&case.graph, &fed) {
        Ok(out) => out,
        Err(e) => return Verdict::Failed(e),
    };
    let (mut gradient, mut result, mut wider) = (true, true, None);
    let mut reason = String::new();
    for e in exceptions::of(runtime.name(), sample) {
        match e.allows {
            Allows::OtherGradient => gradient = false,
            Allows::OtherResult => (result, gradient) = (false, false),
            Allows::Within(_, rel, abs) => wider = Some((rel, abs)),
        }
        reason = e.reason.to_string();
    }
    for (i, &want) in sample.outputs.iter().enumerate().filter(|_| result) {
        if let Some(fault) = difference(&out[i], &samples.tensors[want], wider) {
            return Verdict::Failed(format!("output {i}: {fault}"));
        }
    }
    for ((at, &(input, want)), i) in case.gradients.iter().zip(&sample.gradients).zip(0..) {
        let want = &samples.tensors[want];
        let zeros = || Array::zeros(want.dtype(), want.shape());
        let got = match at.map_or_else(zeros, |at| Ok(out[at].clone())) {
            Ok(got) => got,
            Err(e) => return Verdict::Failed(e.to_string()),
        };
        if gradient && let Some(fault) = difference(&got, want, wider) {
            return Verdict::Failed(format!("gradient {i} (of tensor {input}): {fault}"));
        }
    }
    if !gradient {
        return Verdict::LeftOut(reason);
    }
    Verdict::Passed { gradient: !sample.gradients.is_empty() }
}

/// The tolerances of a dtype: relative and absolute.
fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (1e-9, 1e-9),
        DType::F32 => (1.3e-6, 1e-5),
        DType::F16 => (1e-3, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        _ => (0.0, 0.0),
    }
}

/// What is wrong with `got`, if anything.
fn difference(got: &Array, want: &Array, wider: Option<(f64, f64)>) -> Option<String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        let ty = |a: &Array| format!("{}{:?}", a.dtype(), a.shape());
        return Some(format!("{}, not {}", ty(got), ty(want)));
    }
    let (rel, abs) = wider.unwrap_or(tolerance(want.dtype()));
    let (a, b) = (got.to_f64(), want.to_f64());
    let wrong = |(x, y): (f64, f64)| {
        let near = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= abs + rel * y.abs();
        !near || x.is_infinite() && x != y || y.is_infinite() && x != y
    };
    let at = a.iter().zip(&b).position(|(&x, &y)| wrong((x, y)))?;
    let many = a.iter().zip(&b).filter(|&(&x, &y)| wrong((x, y))).count();
    Some(format!("element {at} is {:e}, not {:e} ({many} of {} differ)", a[at], b[at], a.len()))
}
