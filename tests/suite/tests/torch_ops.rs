//! PyTorch's own operator samples, result and gradient, on every runtime.

use onestep_ir::{Array, Graph};
use onestep_suite::samples::Samples;
use onestep_suite::{Interpreter, Runtime, Session, report, runtimes, spread, table, torch};
use std::io::Write;

/// How many samples pass at least; raised with every entry of the table.
const PASSED: usize = 6632;

#[test]
fn samples_of_pytorch() {
    let samples = Samples::read().unwrap();
    let whole = spread::part() == (0, 1);
    for runtime in runtimes::all() {
        let report = report::run(runtime, &samples);
        // Past the test harness's capture: how much is covered is for everyone to see.
        let _ = write!(std::io::stderr(), "{report}");
        let failures = report.failures();
        assert!(failures.is_empty(), "{} samples fail:\n{}", failures.len(), failures.join("\n"));
        assert!(!whole || report.stale.is_empty(), "exceptions that nothing needs: {:#?}", report.stale);
        assert!(!whole || report.passed() >= PASSED, "{} passed, {PASSED} did before", report.passed());
    }
    if !whole {
        return;
    }
    let page = table::page(&report::run(&Interpreter, &samples));
    let written = std::fs::read_to_string(table::path()).unwrap_or_default();
    assert!(page == written, "run cargo run -p onestep-suite --example torch_table");
}

/// Every output but the first as the interpreter gives it times 1.01: an error in gradients alone.
struct Wrong;

struct WrongSession(Box<dyn Session>);

impl Runtime for Wrong {
    fn name(&self) -> &str {
        "wrong"
    }
    fn open(&self, graph: &Graph) -> Result<Box<dyn Session>, String> {
        Ok(Box::new(WrongSession(Interpreter.open(graph)?)))
    }
}

impl Session for WrongSession {
    fn get(&self, name: &str) -> Result<Array, String> {
        self.0.get(name)
    }
    fn set(&mut self, name: &str, value: &Array) {
        self.0.set(name, value);
    }
    fn call(&mut self, inputs: &[Array]) -> Result<Vec<Array>, String> {
        let mut out = self.0.call(inputs)?;
        for a in out.iter_mut().skip(1).filter(|a| a.dtype().is_float()) {
            let scaled: Vec<f64> = a.to_f64().iter().map(|x| x * 1.01).collect();
            *a = Array::from_f64(a.dtype(), a.shape(), &scaled).map_err(|e| e.to_string())?;
        }
        Ok(out)
    }
}

/// Of the samples with a gradient, only those pass whose gradient is zero, near zero, or of no elements.
#[test]
fn a_gradient_that_is_off_by_a_hundredth_is_noticed() {
    let samples = Samples::read().unwrap();
    let report = report::run(&Wrong, &samples);
    let (passed, failed) = (report.with_gradient(), report.failures().len());
    assert!(failed > 6 * passed, "{failed} noticed, {passed} not");
}

/// The table names only operators of the suite, and every operator without an entry has a reason.
#[test]
fn table_and_suite_fit() {
    let suite = Samples::read().unwrap().suite;
    for name in torch::names() {
        let named = |key: &String| key == name || key.split('/').next() == Some(name);
        assert!(suite.keys().any(named), "{name} is no operator of the suite");
    }
    for key in suite.keys().filter(|key| torch::find(key).is_none()) {
        assert_ne!(torch::why_not(key), torch::NO_ENTRY, "{key} has neither an entry nor a reason");
    }
}
