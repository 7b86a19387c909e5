//! The viewer's page: the frame of its four parts, the facts as packed JSON, and the memory plan's picture.

use super::Program;
use super::pack::{Packer, runs};
use crate::report::format;
use crate::report::html::{POLICY, escape, script_json};
use crate::report::{SCRIPT as PLAN_SCRIPT, STYLE as REPORT_STYLE, plan_picture};
use serde_json::{Value, json};
use std::fmt::Write;

const STYLE: &str = include_str!("viewer.css");
const TEXTS: &str = include_str!("texts.js");
const SCRIPT: &str = include_str!("viewer.js");

pub(super) fn render(p: &Program) -> String {
    let name = if p.name.is_empty() { "program" } else { &p.name };
    let name = escape(name);
    let mut out = String::with_capacity(1 << 20);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{name} · Onestep</title>\n<style>\n{REPORT_STYLE}{STYLE}</style></head>\n<body>\n\
         <header id=\"top\"><h1>{name}</h1><nav>\
         <button type=\"button\" data-tab=\"passes\">Passes</button>\
         <button type=\"button\" data-tab=\"kernels\">Kernels</button>\
         <button type=\"button\" data-tab=\"memory\">Memory</button>\
         <button type=\"button\" data-tab=\"state\">State</button></nav>\
         <label id=\"find\"><input type=\"search\" placeholder=\"Search: op, %12, k7, a path\" \
         aria-label=\"Search\" spellcheck=\"false\"><output></output></label></header>\n"
    );
    let _ = write!(out, "<p id=\"lead\">{}</p>\n<noscript>{}</noscript>\n", lead(p), noscript());
    out.push_str(
        "<section id=\"passes\" class=\"tab\"><div class=\"bar\"></div><div class=\"code view\" tabindex=\"0\"></div>\
         <p class=\"foot\"></p></section>\n\
         <section id=\"kernels\" class=\"tab\" hidden><div class=\"list view\" tabindex=\"0\"></div>\
         <article class=\"detail\"></article></section>\n",
    );
    let _ = write!(
        out,
        "<section id=\"memory\" class=\"tab\" hidden><main><p class=\"intro\">Every buffer has its place before the \
         first call runs. The schedule runs to the right, the arena's offsets upward: a rectangle is a buffer, and two \
         that share a height take turns in the same bytes.</p>{}<h3 class=\"all\">All buffers</h3>\
         <div class=\"rows\"></div></main></section>\n\
         <section id=\"state\" class=\"tab\" hidden><main><div class=\"rows\"></div></main></section>\n",
        plan_picture(&p.plan)
    );
    let _ = write!(
        out,
        "<div id=\"tip\" hidden></div>\n<script type=\"application/onestep\" id=\"facts\">{}</script>\n\
         <script>\n{PLAN_SCRIPT}</script>\n<script>\n\"use strict\";\n(() => {{\n{TEXTS}\n{SCRIPT}}})();\n</script>\n</body></html>\n",
        script_json(&facts(p))
    );
    out
}

fn noscript() -> &'static str {
    "The viewer unpacks the program with the script in this page; without it only the memory plan can be seen."
}

fn lead(p: &Program) -> String {
    let flops: u64 = p.kernels.iter().fold(0, |n, k| n.saturating_add(k.flops));
    let moved = |k: &super::Kernel| k.read_bytes.saturating_add(k.written_bytes);
    let bytes: u64 = p.kernels.iter().fold(0, |n, k| n.saturating_add(moved(k)));
    let nodes = p.values.iter().filter(|v| v.role != "given").count();
    let copied = p.states.iter().filter(|s| s.update == "copied").count();
    let in_place = p.states.iter().filter(|s| s.update == "in place").count();
    let mut text = format!(
        "<b>{}</b> of the graph became <b>{}</b>: about {} and {} of traffic a call. State {}, scratch {}.",
        format::counted(nodes, "value"),
        format::counted(p.kernels.len(), "kernel"),
        operations(flops),
        format::bytes(bytes),
        format::bytes(p.plan.state_bytes),
        format::bytes(p.plan.arena_bytes),
    );
    if in_place + copied > 0 {
        let _ = write!(text, " {} in place", format::counted(in_place, "state update"));
        let _ = match copied {
            0 => write!(text, ", none copied."),
            n => write!(text, ", <b class=\"warn\">{n} copied</b>."),
        };
    }
    text
}

/// `3.04 GFLOP`.
fn operations(flops: u64) -> String {
    let text = format::si(flops as f64);
    let digits = text.trim_end_matches(char::is_alphabetic);
    format!("{digits} {}FLOP", &text[digits.len()..])
}

/// The facts as the script reads them.
fn facts(p: &Program) -> Value {
    let mut packer = Packer::default();
    let mut passes: Vec<Value> = vec![];
    for (i, pass) in p.passes.iter().enumerate() {
        // A pass that changed nothing is told, and takes no space.
        let same = i > 0 && pass.text == p.passes[i - 1].text && pass.lines == p.passes[i - 1].lines;
        let graph = !pass.lines.is_empty();
        passes.push(match same {
            true => json!({ "name": pass.name, "graph": graph, "same": true }),
            false => {
                let (text, lines) = (packer.text(&pass.text), runs(&pass.lines));
                json!({ "name": pass.name, "graph": graph, "text": text, "lines": lines })
            }
        });
    }
    let kernels: Vec<Value> = p
        .kernels
        .iter()
        .map(|k| {
            let body = packer.text(&k.body);
            json!([
                k.kind,
                k.name,
                k.note,
                k.flops,
                k.read_bytes,
                k.written_bytes,
                k.reads,
                k.writes,
                k.values,
                body,
                launches(k)
            ])
        })
        .collect();
    let buffers: Vec<Value> = p
        .buffers
        .iter()
        .map(|b| json!([b.name, b.ty, b.bytes, b.place, b.at, b.first, b.last, b.value]))
        .collect();
    let values: Vec<Value> = p
        .values
        .iter()
        .map(|v| {
            let waits: Vec<usize> = v.waits.iter().flat_map(|&(r, why)| [r, why]).collect();
            json!([v.role, v.op, v.kernel, v.buffer, v.source, waits])
        })
        .collect();
    let sources: Vec<Value> = p.sources.iter().map(|s| json!([s.place, s.text])).collect();
    let texts: Vec<Value> = p.texts.iter().map(|t| json!([t.name, packer.text(&t.source)])).collect();
    json!({
        "texts": texts,
        "passes": passes, "kernels": kernels, "buffers": buffers, "values": values, "sources": sources,
        "reasons": p.reasons, "states": p.states, "aliases": p.aliases, "forms": packer.forms,
    })
}

fn launches(k: &super::Kernel) -> Value {
    k.launches.iter().map(|l| json!([l.what, l.text, l.grid, l.threads, l.shared_bytes])).collect()
}
