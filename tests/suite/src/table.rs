//! Writes `docs/torch-operators.md`: what of PyTorch's operator suite passes, operator by operator.

use crate::report::Report;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Where the page stands in the repository.
pub fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "torch-operators.md"].iter().collect()
}

/// The page.
pub fn page(report: &Report) -> String {
    let left: usize = report.left_out().iter().map(|(_, n)| n).sum();
    let (covered, open): (Vec<_>, Vec<_>) = report.operators.iter().partition(|(_, o)| o.passed > 0);
    let mut page = format!(
        "# PyTorch's operators\n\n\
         <!-- Written by `cargo run -p onestep-suite --example torch_table`. -->\n\n\
         PyTorch tests itself with samples of its operators: inputs, arguments and the gradients that come out. They \
         were recorded from PyTorch 2.15.0 (`tests/data`), and each is built here with the public builder, run on the \
         reference interpreter, and compared, result and gradient.\n\n\
         **{} of {} samples pass**, {} of them with a gradient, of {} operators (a variant counts as one). {} are left \
         out:\n\n| samples | why |\n|---:|---|\n",
        report.passed(),
        report.whole,
        report.with_gradient(),
        covered.len(),
        left
    );
    for (reason, n) in report.left_out() {
        let _ = writeln!(page, "| {n} | {reason} |");
    }
    page.push_str(
        "\nHow an operator is expressed is in `tests/suite/src/torch`, a few lines each.\n\n\
         ## Operators that pass\n\n| operator | passed | with gradient | left out |\n|---|---:|---:|---|\n",
    );
    for (key, o) in covered {
        let reasons: Vec<String> = o.left_out.iter().map(|(r, n)| format!("{n}: {r}")).collect();
        let (passed, gradient) = (o.passed, o.with_gradient);
        let _ = writeln!(page, "| `{key}` | {passed} of {} | {gradient} | {} |", o.whole, reasons.join("; "));
    }
    page.push_str("\n## Operators that are left out\n\n| why | operators |\n|---|---|\n");
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, o) in open {
        for reason in o.left_out.keys() {
            by_reason.entry(reason).or_default().push(key);
        }
    }
    for (reason, keys) in by_reason {
        let _ = writeln!(page, "| {reason} | `{}` |", keys.join("` `"));
    }
    page
}
