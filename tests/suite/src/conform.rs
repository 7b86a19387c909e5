//! Runs one recorded sample on a runtime and compares: the outputs, then the gradients for the recorded cotangents.
//!
//! Tolerances are those of PyTorch's own tests for `f32` (1.3·10⁻⁶ relative, 10⁻⁵ absolute), and stricter for `f64`. NaN
//! equals NaN; integers and truth values are equal or wrong.

use crate::Runtime;
use crate::exceptions::{self, Allows};
use crate::samples::{Sample, Samples};
use crate::torch::{self, Call, Trouble};
use onestep_ir::interp::{Mode, run};
use onestep_ir::{Array, DType, Dense, Graph, GraphBuilder, Shape};
use std::collections::BTreeMap;

/// What became of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The result, and the gradient where there is one, are PyTorch's.
    Passed {
        /// Whether a gradient was compared.
        gradient: bool,
    },
    /// Passed or left out by the exception at this place of the list.
    Excepted {
        /// The place in [`exceptions::EXCEPTIONS`].
        exception: usize,
        /// Whether there is a gradient.
        gradient: bool,
    },
    /// Not run: the reason.
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
    let compared = Compared { samples, sample, case: &case, out: &out };
    let gradient = !sample.gradients.is_empty();
    let Some(mut fault) = compared.fault(None, None) else { return Verdict::Passed { gradient } };
    for exception in exceptions::of(runtime.name(), sample) {
        let allows = exceptions::EXCEPTIONS[exception].allows;
        let exact = if allows == Allows::Nearer { exact(&case, &fed) } else { None };
        match compared.fault(Some(allows), exact.as_deref()) {
            None => return Verdict::Excepted { exception, gradient },
            Some(what) => fault = format!("{what}, even with {allows:?}"),
        }
    }
    Verdict::Failed(fault)
}

/// The outputs that the graph has when nothing is rounded to `f32`.
fn exact(case: &Case, fed: &[Array]) -> Option<Vec<Dense>> {
    let fed: Vec<Dense> = fed.iter().map(Dense::from_array).collect();
    Some(run(&case.graph, &fed, &BTreeMap::new(), Mode::AllF64).ok()?.outputs)
}

/// What came out, beside what should.
struct Compared<'a> {
    samples: &'a Samples,
    sample: &'a Sample,
    case: &'a Case,
    out: &'a [Array],
}

impl Compared<'_> {
    /// The first difference that is not allowed.
    fn fault(&self, allows: Option<Allows>, exact: Option<&[Dense]>) -> Option<String> {
        let outputs = self.sample.outputs.iter().enumerate();
        let mut outputs = outputs.map(|(i, &want)| (format!("output {i}"), Some(i), want));
        let gradients = self.case.gradients.iter().zip(&self.sample.gradients);
        let mut gradients =
            gradients.map(|(&at, &(input, want))| (format!("gradient of tensor {input}"), at, want));
        let fault = |what: String, at: Option<usize>, want: usize, allows| {
            let want = &self.samples.tensors[want];
            let zeros = Array::zeros(want.dtype(), want.shape()).ok()?;
            let got = at.map_or(&zeros, |at| &self.out[at]);
            let exact = exact.zip(at).map(|(e, at)| &e[at]);
            Some(format!("{what}: {}", difference(got, want, allows, exact)?))
        };
        // A gradient of NaN belongs to a result of NaN; where that is a number, the gradient is 0.
        let in_gradients = match allows {
            Some(Allows::InsteadOfNan(_)) => Some(Allows::InsteadOfNan(0.0)),
            other => other,
        };
        outputs
            .find_map(|(what, at, want)| fault(what, at, want, allows))
            .or_else(|| gradients.find_map(|(what, at, want)| fault(what, at, want, in_gradients)))
    }
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
fn difference(got: &Array, want: &Array, allows: Option<Allows>, exact: Option<&Dense>) -> Option<String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        let ty = |a: &Array| format!("{}{:?}", a.dtype(), a.shape());
        return Some(format!("{}, not {}", ty(got), ty(want)));
    }
    let (rel, abs) = match allows {
        Some(Allows::Within(_, rel, abs)) => (rel, abs),
        _ => tolerance(want.dtype()),
    };
    let (a, b) = (got.to_f64(), want.to_f64());
    let exact = exact.filter(|e| e.dtype.is_float()).map(Dense::reals);
    let right = |i: usize| {
        let (x, y) = (a[i], b[i]);
        let near =
            x == y || x.is_nan() && y.is_nan() || x.is_finite() && (x - y).abs() <= abs + rel * y.abs();
        near || match allows {
            Some(Allows::InsteadOfNan(number)) => y.is_nan() && x == number,
            Some(Allows::Nearer) => exact.is_some_and(|e| (x - e[i]).abs() <= (y - e[i]).abs()),
            _ => false,
        }
    };
    let wrong: Vec<usize> = (0..a.len()).filter(|&i| !right(i)).collect();
    let at = *wrong.first()?;
    let truth = exact.map(|e| format!(", exactly {:e}", e[at])).unwrap_or_default();
    let many = wrong.len();
    Some(format!("element {at} is {:e}, not {:e}{truth} ({many} of {} differ)", a[at], b[at], a.len()))
}
