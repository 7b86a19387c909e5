//! Runs every recorded sample, on all cores, and counts.

use crate::Runtime;
use crate::conform::{Verdict, check};
use crate::exceptions::{Allows, EXCEPTIONS, Exception};
use crate::samples::Samples;
use crate::spread;
use crate::torch;
use std::collections::BTreeMap;
use std::fmt;

/// What became of the whole suite on one runtime.
#[derive(Clone, Debug)]
pub struct Report {
    /// The runtime.
    pub runtime: String,
    /// The operators, each with its verdicts and with how many samples the whole suite has of it.
    pub operators: BTreeMap<String, Operator>,
    /// How many samples the whole suite has.
    pub whole: usize,
    /// The exceptions that no sample needed.
    pub stale: Vec<String>,
}

/// What became of an operator's samples.
#[derive(Clone, Default, Debug)]
pub struct Operator {
    /// How many samples the whole suite has.
    pub whole: usize,
    /// How many passed.
    pub passed: usize,
    /// How many of these with a gradient.
    pub with_gradient: usize,
    /// How many were left out, by reason.
    pub left_out: BTreeMap<String, usize>,
    /// What failed: the place of the sample, and how.
    pub failed: Vec<(usize, String)>,
}

/// Runs every recorded sample.
pub fn run(runtime: &dyn Runtime, samples: &Samples) -> Report {
    let verdicts = spread::each(&samples.samples, |_, sample| check(runtime, samples, sample));
    let of = |(key, &whole): (&String, &usize)| (key.clone(), Operator { whole, ..Operator::default() });
    let mut operators: BTreeMap<String, Operator> = samples.suite.iter().map(of).collect();
    let mut used = [false; EXCEPTIONS.len()];
    let mut recorded: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in &samples.samples {
        *recorded.entry(&sample.key).or_default() += 1;
    }
    for (i, verdict) in verdicts {
        let key = &samples.samples[i].key;
        let operator = operators.entry(key.clone()).or_default();
        match verdict {
            Verdict::Passed { gradient } => {
                operator.passed += 1;
                operator.with_gradient += gradient as usize;
            }
            Verdict::Excepted { exception, gradient } => {
                used[exception] = true;
                let Exception { allows, reason, .. } = EXCEPTIONS[exception];
                if matches!(allows, Allows::InsteadOfNan(_)) {
                    *operator.left_out.entry(reason.to_string()).or_default() += 1;
                } else {
                    operator.passed += 1;
                    operator.with_gradient += gradient as usize;
                }
            }
            Verdict::LeftOut(reason) => *operator.left_out.entry(reason).or_default() += 1,
            Verdict::Failed(what) => operator.failed.push((i, what)),
        }
    }
    for (key, operator) in &mut operators {
        let missing = operator.whole - recorded.get(key.as_str()).copied().unwrap_or(0).min(operator.whole);
        if missing > 0 {
            // Of an operator that we have, only the samples that draw random numbers are not recorded.
            let reason = if torch::find(key).is_some() { torch::RANDOM } else { torch::why_not(key) };
            *operator.left_out.entry(reason.to_string()).or_default() += missing;
        }
    }
    let unused = |&(i, e): &(usize, &Exception)| !used[i] && ["*", runtime.name()].contains(&e.runtime);
    let stale = EXCEPTIONS.iter().enumerate().filter(unused).map(|(_, e)| format!("{e:?}")).collect();
    Report { runtime: runtime.name().to_string(), operators, whole: samples.whole(), stale }
}

impl Report {
    /// The sum of a count over all operators.
    fn total(&self, f: impl Fn(&Operator) -> usize) -> usize {
        self.operators.values().map(f).sum()
    }

    /// How many samples passed.
    pub fn passed(&self) -> usize {
        self.total(|o| o.passed)
    }

    /// How many of the samples that passed have a gradient.
    pub fn with_gradient(&self) -> usize {
        self.total(|o| o.with_gradient)
    }

    /// The failures, one line each.
    pub fn failures(&self) -> Vec<String> {
        let lines = |(key, o): (&String, &Operator)| {
            o.failed.iter().map(|(i, what)| format!("{key} (sample {i}): {what}")).collect::<Vec<_>>()
        };
        self.operators.iter().flat_map(lines).collect()
    }

    /// How many samples were left out, by reason, most first.
    pub fn left_out(&self) -> Vec<(String, usize)> {
        let mut all: BTreeMap<&str, usize> = BTreeMap::new();
        for (reason, n) in self.operators.values().flat_map(|o| &o.left_out) {
            *all.entry(reason).or_default() += n;
        }
        let mut all: Vec<_> = all.into_iter().map(|(r, n)| (r.to_string(), n)).collect();
        all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        all
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left_out();
        let out: usize = left.iter().map(|(_, n)| n).sum();
        writeln!(
            f,
            "{}: {} passed of {} ({} with gradient); {} failed; {out} left out:",
            self.runtime,
            self.passed(),
            self.whole,
            self.with_gradient(),
            self.total(|o| o.failed.len()),
        )?;
        left.iter().try_for_each(|(reason, n)| writeln!(f, "{n:6}  {reason}"))
    }
}
