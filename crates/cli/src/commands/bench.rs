//! `onestep bench`: the time of the steady training step.

use super::args::{Bench, BenchArgs};
use super::inspect::memory;
use super::models::{GPT2, cnn_graph, cnn_training_flops, gpt_graph, gpt_training_flops, mlp_graph};
use super::{CommandError, device, print, profile, quantile};
use onestep::ir::random;
use onestep::nn::Gpt;
use onestep::prelude::*;
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Figures {
    bench: &'static str,
    batch: usize,
    threads: usize,
    ms_median: f64,
    ms_p10: f64,
    ms_p90: f64,
    /// A step among many that are started one after the other and waited for once.
    ms_queued: f64,
    first_ms: f64,
    gflops: f64,
    rss_bytes: u64,
    /// What the program takes of its device's memory.
    memory: Value,
    steps: usize,
    loss_first: f64,
    loss_last: f64,
}

/// Deterministic numbers for inputs: 24 bits of a Philox stream.
fn numbers(n: usize, stream: &str) -> impl Iterator<Item = f64> {
    let stream = random::stream_id(stream);
    (0..n).map(move |i| random::unit(random::draw([0, 0], stream, 0, i as u64)))
}

fn integers(shape: &[usize], below: usize, stream: &str) -> Result<Array, onestep::ir::ArrayError> {
    let n = shape.iter().product();
    Array::new(shape, &numbers(n, stream).map(|u| (u * below as f64) as i32).collect::<Vec<_>>())
}

/// A model's name, batch, FLOPs a step, step and inputs.
type Work = (&'static str, usize, f64, TrainingStep, [Array; 2]);

/// A GPT's training step on random tokens.
fn gpt(
    name: &'static str,
    gpt: &Gpt,
    batch: u64,
    rule: AdamW,
    precision: Precision,
) -> Result<Work, CommandError> {
    let batch = batch as usize;
    let graph = gpt_graph(gpt, batch)?;
    let step = TrainingStep::new(graph).optimizer(rule).precision(precision);
    let ids = |stream| integers(&[batch, gpt.context], gpt.vocab, stream);
    Ok((name, batch, gpt_training_flops(gpt, batch * gpt.context), step, [ids("x")?, ids("y")?]))
}

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<(), CommandError> {
    let start = Instant::now();
    let (name, batch, flops, step, inputs): Work = match args.model {
        Bench::Mlp => {
            let batch = args.batch.unwrap_or(128) as usize;
            let graph = mlp_graph(784, 256, 10, batch)?;
            let step = TrainingStep::new(graph).optimizer(Adam::new(1e-3));
            let x: Vec<f32> = numbers(batch * 784, "x").map(|u| (u * 2.0 - 1.0) as f32).collect();
            let inputs = [Array::new(&[batch, 784], &x)?, integers(&[batch], 10, "y")?];
            let (a, b) = (2.0 * (batch * 784 * 256) as f64, 2.0 * (batch * 256 * 10) as f64);
            ("mlp", batch, 2.0 * a + 3.0 * b, step, inputs)
        }
        Bench::Cnn => {
            let batch = args.batch.unwrap_or(64) as usize;
            let rule = Sgd::new(0.01).momentum(0.9);
            let step = TrainingStep::new(cnn_graph(28, batch)?).optimizer(rule);
            let x: Vec<f32> = numbers(batch * 784, "x").map(|u| (u * 2.0 - 1.0) as f32).collect();
            let inputs = [Array::new(&[batch, 784], &x)?, integers(&[batch], 10, "y")?];
            ("cnn", batch, cnn_training_flops(28, batch), step, inputs)
        }
        Bench::GptMini => {
            let rule = AdamW::new(3e-4).weight_decay(0.01);
            gpt("gpt-mini", &Gpt::MINI, args.batch.unwrap_or(8), rule, Precision::F32)?
        }
        Bench::Gpt2 => {
            let rule = AdamW::new(3e-4).betas(0.9, 0.95).weight_decay(0.1);
            gpt("gpt2-124m", &GPT2, args.batch.unwrap_or(16), rule, Precision::Bf16)?
        }
    };
    if let Some(path) = &args.graph {
        let write = |source| CommandError::Write { path: path.clone(), source };
        return std::fs::write(path, step.graph()?.to_string()).map_err(write);
    }
    let device = device(&args.machine)?;
    let mut step = step.compile(&device)?;
    let mut state = step.init(0)?;
    let loss_first = step.run(&mut state, &inputs)?.loss()?;
    let first_ms = start.elapsed().as_secs_f64() * 1e3;
    let limit = Duration::from_secs_f64(args.seconds);
    let warm = Instant::now();
    let mut warm_steps = 0;
    while warm.elapsed() < limit / 5 || warm_steps < 3 {
        step.run(&mut state, &inputs)?;
        warm_steps += 1;
    }
    let (mut times, mut loss_last) = (vec![], f64::NAN);
    let begin = Instant::now();
    while begin.elapsed() < limit || times.len() < 5 {
        let t = Instant::now();
        loss_last = step.run(&mut state, &inputs)?.loss()?;
        times.push(t.elapsed().as_secs_f64() * 1e3);
    }
    let ms_median = quantile(&times, 0.5);
    let count = (args.seconds * 500.0 / ms_median).clamp(5.0, 1e5) as usize;
    let ms_queued = queued(&mut step, &mut state, &inputs, count)?;
    let needs = step.report().map(|r| r.memory).unwrap_or_default();
    let figures = Figures {
        bench: name,
        batch,
        threads: device.threads(),
        ms_median,
        ms_p10: quantile(&times, 0.1),
        ms_p90: quantile(&times, 0.9),
        ms_queued,
        first_ms,
        gflops: flops / ms_median / 1e6,
        rss_bytes: peak_rss().unwrap_or(0),
        memory: memory(&needs),
        steps: times.len(),
        loss_first,
        loss_last,
    };
    let mut text = String::new();
    if !args.json {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        let (host, on) = (mb(figures.rss_bytes as usize), device.name());
        let (state, arena, peak) = (mb(needs.state), mb(needs.arena), mb(needs.peak()));
        text += &format!(
            "{name}, batch {batch}, {} threads: {} steps\n\
            \x20 step       {ms_median:.3} ms  (p10 {:.3}, p90 {:.3})\n\
            \x20 queued     {ms_queued:.3} ms  (the mean of {count} steps that are waited for once)\n\
             \x20 rate       {:.1} GFLOP/s\n\
            \x20 first call {first_ms:.0} ms, compilation included\n\
            \x20 memory     the process {host:.1} MB; the program on '{on}' {peak:.1} MB: state {state:.1}, arena {arena:.1}\n",
            figures.threads, figures.steps, figures.ms_p10, figures.ms_p90, figures.gflops
        );
    }
    if args.profile || args.trace.is_some() {
        let spans = profile::measure(&mut step, &mut state, &inputs, times.len().clamp(5, 200))?;
        if let Some(path) = &args.trace {
            profile::write_trace(path, name, &device, &spans)?;
        }
        if args.profile {
            text += &profile::table(&spans);
        }
    }
    if args.json {
        text += &serde_json::to_string(&figures).map_err(std::io::Error::from)?;
        text.push('\n');
    }
    print(&text)
}

/// Milliseconds of a step, the mean of some that are started one after the other and waited for once.
fn queued(
    step: &mut CompiledStep,
    state: &mut State,
    inputs: &[Array; 2],
    count: usize,
) -> Result<f64, CommandError> {
    let begin = Instant::now();
    for _ in 1..count {
        step.run(state, inputs)?;
    }
    step.run(state, inputs)?.loss()?;
    Ok(begin.elapsed().as_secs_f64() * 1e3 / count as f64)
}

/// The most memory that this process has held, in bytes, where the system says so.
pub fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
