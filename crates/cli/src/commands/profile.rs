//! Where a step's time goes: each kernel's, and that of the kernels of a kind together; as a table or as a timeline.

use super::{CommandError, facts};
use crate::run_folder::write_atomic;
use crate::trace::{Span, trace};
use onestep::Executable;
use onestep::passes::schedule::{Expr, Kernel};
use onestep::prelude::*;
use std::fmt::Write;
use std::path::Path;

/// The kernels of a step, each with its median time over some steps.
pub fn measure(
    program: &mut Program,
    state: &mut State,
    inputs: &[Array],
    steps: usize,
) -> Result<Vec<Span>, CommandError> {
    let mut times: Vec<(String, Vec<u64>)> = vec![];
    for _ in 0..steps {
        program.run_timed(state, inputs)?;
        let now = program.kernel_times();
        if times.is_empty() {
            times = now.iter().map(|(name, _)| (name.clone(), vec![])).collect();
        }
        times.iter_mut().zip(now).for_each(|((_, all), (_, ns))| all.push(ns));
    }
    let Some(executable) = program.executable() else { return Ok(vec![]) };
    Ok(spans(executable, times))
}

fn spans(executable: &Executable, mut times: Vec<(String, Vec<u64>)>) -> Vec<Span> {
    let compiled = executable.compiled();
    let live = facts::live_bytes(compiled);
    let notes = executable.report().kernels;
    for ((name, _), k) in times.iter_mut().zip(notes).filter(|(_, k)| !k.note.is_empty()) {
        *name += &format!(": {}", k.note);
    }
    let kernels = compiled.schedule.kernels.iter().zip(times).zip(live);
    let span = |((k, (name, mut all)), live): ((&Kernel, (String, Vec<u64>)), u64)| {
        let cost = k.cost(&compiled.schedule);
        all.sort_unstable();
        let nanoseconds = all.get(all.len() / 2).copied().unwrap_or(0);
        Span { name, kind: kind(k), nanoseconds, flops: cost.flops, bytes: cost.bytes(), live }
    };
    kernels.map(span).collect()
}

/// The kind that a kernel counts with.
fn kind(k: &Kernel) -> String {
    let reduces = |e: &Expr| matches!(e, Expr::Reduce(..));
    match k {
        Kernel::Loops(parts) if parts.iter().any(|p| p.body.iter().any(|e| reduces(&e.expr))) => {
            "loop with a reduction".to_string()
        }
        Kernel::Loops(_) => "elementwise loop".to_string(),
        Kernel::Matmul(m) if m.epilogue.is_some() => "matmul with an epilogue".to_string(),
        Kernel::Matmul(_) => "matmul".to_string(),
        Kernel::Library(l) => l.op.rule().name().to_string(),
        Kernel::Scan(_) => "scan".to_string(),
    }
}

/// The table: kinds first, then kernels, the longest first.
pub fn table(spans: &[Span]) -> String {
    let total: u64 = spans.iter().map(|s| s.nanoseconds).sum();
    let us = |ns: u64| ns as f64 / 1e3;
    let share = |ns: u64| 100.0 * ns as f64 / total.max(1) as f64;
    let rates = |s: &Span| (Span::rate(s.flops, s.nanoseconds), Span::rate(s.bytes, s.nanoseconds));
    let mut kinds: Vec<(Span, usize)> = vec![];
    for s in spans {
        match kinds.iter_mut().find(|(k, _)| k.kind == s.kind) {
            Some((k, n)) => {
                k.nanoseconds += s.nanoseconds;
                k.flops = k.flops.saturating_add(s.flops);
                k.bytes = k.bytes.saturating_add(s.bytes);
                *n += 1;
            }
            None => kinds.push((s.clone(), 1)),
        }
    }
    kinds.sort_by_key(|(k, _)| std::cmp::Reverse(k.nanoseconds));
    let mut out = format!("  {} kernels, {:.0} µs in all, by kind:\n", spans.len(), us(total));
    let _ = writeln!(out, "  {:>12} {:>6}  {:>8} {:>7}  count", "time", "share", "GFLOP/s", "GB/s");
    for (k, n) in &kinds {
        let (time, part, (flops, bytes)) = (us(k.nanoseconds), share(k.nanoseconds), rates(k));
        let _ = writeln!(out, "  {time:>9.1} µs {part:>5.1}%  {flops:>8.1} {bytes:>7.1}  {n:>5}  {}", k.kind);
    }
    out.push_str("  and each:\n");
    let mut order: Vec<(usize, &Span)> = spans.iter().enumerate().collect();
    order.sort_by_key(|(_, s)| std::cmp::Reverse(s.nanoseconds));
    for (i, s) in order {
        let (time, part, (flops, bytes)) = (us(s.nanoseconds), share(s.nanoseconds), rates(s));
        let _ =
            writeln!(out, "  {time:>9.1} µs {part:>5.1}%  {flops:>8.1} {bytes:>7.1}  k{i:<4}  {}", s.name);
    }
    out
}

/// Writes the timeline.
pub fn write_trace(path: &Path, program: &str, device: &Device, spans: &[Span]) -> Result<(), CommandError> {
    let text = trace(program, device.name(), spans).to_string();
    Ok(write_atomic(path, text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_a_trace_of_a_real_step() {
        let device = Device::cpu_with(1).unwrap();
        let graph = super::super::models::mlp_graph(8, 16, 4, 4).unwrap();
        let mut step = TrainingStep::new(graph).optimizer(Adam::new(1e-3)).compile(&device).unwrap();
        let mut state = step.init(0).unwrap();
        let inputs = [Array::zeros(F32, &[4, 8]).unwrap(), Array::zeros(I32, &[4]).unwrap()];
        let spans = measure(step.program(), &mut state, &inputs, 3).unwrap();
        let kernels = step.program().executable().unwrap().compiled().schedule.kernels.len();
        assert_eq!(spans.len(), kernels);
        assert!(spans.iter().any(|s| s.kind.starts_with("matmul") && s.flops >= 2 * 4 * 8 * 16));
        let text = table(&spans);
        assert!(text.contains("by kind") && text.contains("GFLOP/s"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        write_trace(&path, "mlp", &device, &spans).unwrap();
        let back: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let complete = back["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").count();
        assert_eq!(complete, kernels);
    }
}
