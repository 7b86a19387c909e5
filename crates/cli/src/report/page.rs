//! The page: its order, its opening sentence, and the figures on top.

use std::fmt::Write;

use super::html::{POLICY, escape};
use super::sampling::{drawable, median};
use super::{Report, curves, format, kernels, plan_view};

pub(crate) const STYLE: &str = include_str!("style.css");
pub(crate) const SCRIPT: &str = include_str!("script.js");

pub(super) fn render(report: &Report) -> String {
    let title = if report.title.is_empty() { "Training run" } else { &report.title };
    let title = escape(title);
    let mut out = String::with_capacity(256 * 1024);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title} · Onestep</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n\
         <header><p class=\"mark\">Onestep <span>training report</span></p><h1>{title}</h1>\
         <p class=\"lead\">{}</p></header>\n",
        lead(report)
    );
    tiles(&mut out, report);
    let _ = write!(out, "<section id=\"curves\">{}<div class=\"pair\">", curves::loss(report).render());
    curves::others(report).iter().for_each(|chart| out.push_str(&chart.render()));
    out.push_str("</div></section>\n");
    what(&mut out, report);
    sample(&mut out, report);
    let _ = write!(
        out,
        "<section id=\"memory\"><h2>Memory plan of one step</h2><p class=\"intro\">Every buffer of the step has its \
         place before the first step runs. A rectangle is a buffer: its height is its size, its length is how long \
         it lives, and two that share a height take turns in the same bytes.</p>{}</section>\n\
         <section id=\"kernels\"><h2>Kernels of one step</h2>{}</section>\n\
         <footer>Every step is a line of <code>metrics.jsonl</code> beside this file{}.</footer>\n\
         </main>\n<div id=\"tip\" hidden></div>\n<script>\n{SCRIPT}</script></body></html>\n",
        plan_view::render(&report.plan),
        kernels::render(&report.plan),
        if report.viewer { "; <code>program.html</code> shows the compiled step, pass by pass" } else { "" },
    );
    out
}

/// What happened, in a sentence or three.
fn lead(report: &Report) -> String {
    let steps = format::counted(report.steps.len(), "step");
    let mut text = format!("Trained for <b>{steps}</b>");
    let device = escape(&report.device);
    match (device.is_empty(), report.threads) {
        (true, _) => {}
        (false, 0) => text.push_str(&format!(" on <b>{device}</b>")),
        (false, n) => text.push_str(&format!(" on <b>{device}</b> with {}", format::counted(n, "thread"))),
    }
    let time: f64 = report.steps.iter().filter_map(|s| drawable(s.step_ms)).sum();
    if time > 0.0 {
        let _ = write!(text, ", {} inside steps", format::duration(time / 1000.0));
    }
    text.push('.');
    let validation: Vec<f64> = report.evals.iter().filter_map(|e| e.val_loss).collect();
    if let (Some(&first), Some(&last), true) = (validation.first(), validation.last(), validation.len() > 1) {
        let (first, last) = (format::figure(first), format::figure(last));
        let _ = write!(text, " The validation loss went from {first} to <b>{last}</b>.");
    }
    if let (Some(&last), Some((name, baseline))) = (validation.last(), &report.baseline) {
        let baseline_is = format!("the baseline ({}, {})", escape(name), format::figure(*baseline));
        match baseline - last {
            gap if gap.is_nan() => {}
            gap if gap > 0.0 => {
                text.push_str(&format!(" That is {} below {baseline_is}.", format::figure(gap)))
            }
            gap if gap < 0.0 => {
                text.push_str(&format!(" That is {} above {baseline_is}.", format::figure(-gap)))
            }
            _ => text.push_str(&format!(" That equals {baseline_is}.")),
        }
    }
    if !report.plan.kernels.is_empty() {
        let kernels = format::counted(report.plan.kernels.len(), "kernel");
        let _ = write!(text, " Each step was one dispatch of {kernels}.");
    }
    text
}

fn tiles(out: &mut String, report: &Report) {
    let own;
    let figures = if report.figures.is_empty() {
        own = own_figures(report);
        &own
    } else {
        &report.figures
    };
    if figures.is_empty() {
        return;
    }
    out.push_str("<dl class=\"tiles\">");
    for (label, value) in figures {
        let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(label), escape(value));
    }
    out.push_str("</dl>\n");
}

/// The figures of a report that was given none.
fn own_figures(report: &Report) -> Vec<(String, String)> {
    let mut figures = Vec::new();
    let mut add = |label: &str, value: Option<String>| figures.extend(value.map(|v| (label.to_string(), v)));
    let best = |of: &dyn Fn(&crate::records::EvalRecord) -> Option<f64>, better: fn(f64, f64) -> f64| {
        report.evals.iter().filter_map(of).filter(|v| v.is_finite()).reduce(better)
    };
    add("Best validation loss", best(&|e| e.val_loss, f64::min).map(format::figure));
    let accuracy = best(&|e| e.test_accuracy, f64::max);
    add("Best test accuracy", accuracy.map(|a| format!("{:.2} %", a * 100.0)));
    add("Last training loss", report.steps.last().map(|s| format::figure(s.train_loss)));
    let speed = median(report.steps.iter().map(|s| s.items_per_second)).filter(|v| *v > 0.0);
    add(&format!("Median {} a second", report.unit()), speed.map(format::si));
    let step = median(report.steps.iter().map(|s| s.step_ms)).filter(|v| *v > 0.0);
    add("Median step", step.map(|ms| format::duration(ms / 1000.0)));
    let memory = report.plan.state_bytes.saturating_add(report.plan.arena_bytes);
    add("Memory, state and arena", (memory > 0).then(|| format::bytes(memory)));
    figures
}

fn what(out: &mut String, report: &Report) {
    if report.model_lines.is_empty() && report.command.is_empty() {
        return;
    }
    out.push_str("<section id=\"what\"><h2>What was trained</h2>");
    if !report.model_lines.is_empty() {
        out.push_str("<dl class=\"model\">");
        for (label, value) in &report.model_lines {
            let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(label), escape(value));
        }
        out.push_str("</dl>");
    }
    if !report.command.is_empty() {
        out.push_str("<h3>The command</h3><pre class=\"command\">");
        // A word is a box of its own, or a browser would break `--steps` after its first hyphen.
        for word in report.command.split_inclusive(char::is_whitespace) {
            let (word, space) = word.split_at(word.trim_end().len());
            let _ = write!(out, "<span>{}</span>{}", escape(word), escape(space));
        }
        out.push_str("</pre>");
    }
    out.push_str("</section>\n");
}

fn sample(out: &mut String, report: &Report) {
    if let Some(text) = &report.sample {
        let text = escape(text);
        let title = "<h2>What the model writes</h2>";
        let _ = writeln!(out, "<section id=\"sample\">{title}<pre class=\"sample\">{text}</pre></section>");
    }
}
