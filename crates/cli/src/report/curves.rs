//! Which charts a run gets: loss, accuracy if it was measured, throughput, learning rate.

use super::Report;
use super::chart::{Chart, Mark, Series};
use super::format;
use super::sampling::{Point, drawable, smooth};
use super::scale::Labels;
use crate::records::StepRecord;

/// The large chart: losses, with the baseline.
pub(super) fn loss(report: &Report) -> Chart {
    let raw = points(&report.steps, |s| s.train_loss);
    let (mut series, mut note) = smoothed("training", "train", raw);
    let validation: Vec<Point> =
        report.evals.iter().filter_map(|e| Some((e.step as f64, e.val_loss?))).collect();
    if !validation.is_empty() {
        let name = "validation".into();
        series.push(Series { name, class: "val", mark: Mark::Dots, points: validation });
    }
    if let Some(broken) = not_finite(&report.steps) {
        note = format!("{note} {broken}");
    }
    let baseline = report.baseline.as_ref().filter(|b| drawable(b.1).is_some());
    let level = baseline.map(|(name, value)| (format!("{name} ({})", format::figure(*value)), *value));
    chart("Loss", "large", series, level, note, Labels::Plain)
}

/// The small charts.
pub(super) fn others(report: &Report) -> Vec<Chart> {
    let mut charts = Vec::new();
    let accuracy: Vec<Point> =
        report.evals.iter().filter_map(|e| Some((e.step as f64, e.test_accuracy?))).collect();
    if !accuracy.is_empty() {
        let series = Series { name: "accuracy".into(), class: "val", mark: Mark::Dots, points: accuracy };
        charts.push(chart("Test accuracy", "", vec![series], None, String::new(), Labels::Percent));
    }
    let (series, _) = smoothed("throughput", "rate", points(&report.steps, |s| s.items_per_second));
    let title = format!("Throughput, {} a second", report.unit());
    charts.push(Chart { from_zero: true, ..chart(&title, "", series, None, String::new(), Labels::Si) });
    let lr = points(&report.steps, |s| s.lr);
    let series = Series { name: "learning rate".into(), class: "lr", mark: Mark::Line, points: lr };
    let lr = chart("Learning rate", "", vec![series], None, String::new(), Labels::Plain);
    charts.push(Chart { from_zero: true, ..lr });
    charts
}

fn chart(
    title: &str,
    class: &'static str,
    series: Vec<Series>,
    level: Option<(String, f64)>,
    note: String,
    labels: Labels,
) -> Chart {
    Chart { title: title.into(), class, series, level, from_zero: false, labels, note }
}

fn points(steps: &[StepRecord], of: impl Fn(&StepRecord) -> f64) -> Vec<Point> {
    steps.iter().map(|s| (s.step as f64, of(s))).collect()
}

/// A noisy curve as two series: itself, faint, and its mean. A short one is drawn as it is.
fn smoothed(name: &str, class: &'static str, raw: Vec<Point>) -> (Vec<Series>, String) {
    let line = |name: String, class, mark, points| Series { name, class, mark, points };
    if raw.len() < 40 {
        let mark = if raw.len() < 20 { Mark::Dots } else { Mark::Line };
        return (vec![line(name.into(), class, mark, raw)], String::new());
    }
    let window = (raw.len() / 50).clamp(4, 500);
    let mean = smooth(&raw, window);
    let note = format!("The strong line is a running mean over about {window} steps.");
    let faint = line(format!("{name}, each step"), class, Mark::Faint, raw);
    (vec![faint, line("mean".into(), class, Mark::Line, mean)], note)
}

/// What to say of steps whose loss was NaN or infinite.
fn not_finite(steps: &[StepRecord]) -> Option<String> {
    let broken = || steps.iter().filter(|s| !s.train_loss.is_finite());
    let first = broken().next()?;
    let steps = format::counted(broken().count(), "step");
    let first = format::count(first.step);
    Some(format!(
        "<strong class=\"warn\">The loss was not finite in {steps}, first at step {first}.</strong>"
    ))
}
