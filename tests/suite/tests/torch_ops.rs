//! PyTorch's own operator samples, forward and gradient, on every runtime.

use onestep_suite::samples::Samples;
use onestep_suite::{Interpreter, Runtime, report};

/// How many samples pass at least; raised with every entry of the table.
const PASSED: usize = 0;

#[test]
fn samples_of_pytorch() {
    let samples = Samples::read().unwrap();
    let runtimes: [&dyn Runtime; 1] = [&Interpreter];
    for runtime in runtimes {
        let report = report::run(runtime, &samples);
        print!("{report}");
        let failures = report.failures();
        assert!(failures.is_empty(), "{} samples fail:\n{}", failures.len(), failures.join("\n"));
        assert!(report.stale.is_empty(), "exceptions that nothing needs: {:#?}", report.stale);
        assert!(report.passed() >= PASSED, "{} passed, {PASSED} did before", report.passed());
    }
}
