//! `onestep bench`: the time of the steady call of a program.

mod work;

use super::args::BenchArgs;
use super::inspect::memory;
use super::{CommandError, device, print, profile, quantile};
use onestep::prelude::*;
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, Instant};
use work::{Cost, Work};

/// What is printed as JSON. A writer has no loss.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    gflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_gbs: Option<f64>,
    rss_bytes: u64,
    /// What the program takes of its device's memory.
    memory: Value,
    #[serde(skip)]
    needs: onestep::Memory,
    #[serde(skip)]
    device: &'static str,
    steps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_first: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_last: Option<f64>,
}

/// A program on its state, called again and again.
struct Calls {
    program: Program,
    state: State,
    inputs: Vec<Array>,
    /// Calls after which a text is full, and how many there were since it began.
    text: Option<usize>,
    written: usize,
}

impl Calls {
    /// One call, and its loss where it gives one. A text that is full begins anew.
    fn call(&mut self) -> Result<Option<f64>, Error> {
        if self.text == Some(self.written) {
            self.restart()?;
        }
        self.written += 1;
        let out = self.program.run(&mut self.state, &self.inputs)?;
        match self.text {
            None => out.loss().map(Some),
            Some(_) => out.array("next").map(|_| None),
        }
    }

    /// Milliseconds of a call, the mean of some that are started one after the other and waited for once.
    fn queued(&mut self, count: usize) -> Result<f64, Error> {
        self.restart()?;
        let begin = Instant::now();
        for _ in 1..count {
            self.written += 1;
            self.program.run(&mut self.state, &self.inputs)?;
        }
        self.call()?;
        Ok(begin.elapsed().as_secs_f64() * 1e3 / count as f64)
    }

    /// Begins a new text.
    fn restart(&mut self) -> Result<(), Error> {
        self.written = 0;
        if self.text.is_some() { self.state.set_scalar("cache/length", 0.0) } else { Ok(()) }
    }
}

/// Runs the command.
pub fn bench(args: &BenchArgs) -> Result<(), CommandError> {
    let start = Instant::now();
    let Work { name, batch, source, inputs, resident, cost } = Work::of(args)?;
    if let Some(path) = &args.graph {
        let write = |source| CommandError::Write { path: path.clone(), source };
        return std::fs::write(path, source.graph()?.to_string()).map_err(write);
    }
    let device = device(&args.machine)?;
    let source = match args.fit_in {
        Some(mib) => source.fit_in((mib as usize) << 20),
        None => source,
    };
    let (program, text) = source.compile(&device)?;
    let mut state = program.init(0)?;
    resident.iter().for_each(|(name, array)| state.set(name, array));
    let mut calls = Calls { program, state, inputs, text, written: 0 };
    let loss_first = calls.call()?;
    let first_ms = start.elapsed().as_secs_f64() * 1e3;
    let limit = Duration::from_secs_f64(args.seconds);
    let warm = Instant::now();
    let mut warm_steps = 0;
    while warm.elapsed() < limit / 5 || warm_steps < 3 {
        calls.call()?;
        warm_steps += 1;
    }
    let (mut times, mut loss_last) = (vec![], None);
    let begin = Instant::now();
    while begin.elapsed() < limit || times.len() < 5 {
        let t = Instant::now();
        loss_last = calls.call()?;
        times.push(t.elapsed().as_secs_f64() * 1e3);
    }
    let ms_median = quantile(&times, 0.5);
    let most = calls.text.unwrap_or(usize::MAX);
    let count = ((args.seconds * 500.0 / ms_median).clamp(5.0, 1e5) as usize).min(most);
    let ms_queued = calls.queued(count)?;
    let needs = calls.program.executable().map(|e| e.report().memory).unwrap_or_default();
    let rate = |cost: f64| Some(cost / ms_median / 1e6);
    let (gflops, weight_gbs) = match cost {
        Cost::Flops(flops) => (rate(flops), None),
        Cost::Weights(bytes) => (None, rate(bytes)),
    };
    let figures = Figures {
        bench: name,
        batch,
        threads: device.threads(),
        ms_median,
        ms_p10: quantile(&times, 0.1),
        ms_p90: quantile(&times, 0.9),
        ms_queued,
        first_ms,
        gflops,
        weight_gbs,
        rss_bytes: peak_rss().unwrap_or(0),
        memory: memory(&needs),
        needs,
        device: device.name(),
        steps: times.len(),
        loss_first,
        loss_last,
    };
    let mut text = if args.json { String::new() } else { figures.text() };
    if args.profile || args.trace.is_some() {
        calls.restart()?;
        let runs = times.len().clamp(5, 200);
        let spans = profile::measure(&mut calls.program, &mut calls.state, &calls.inputs, runs)?;
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

impl Figures {
    /// The figures for people.
    fn text(&self) -> String {
        let Figures { bench, batch, threads, steps, ms_median, ms_queued, first_ms, device, needs, .. } =
            self;
        let mb = |bytes: usize| bytes as f64 / 1e6;
        let (state, arena, peak) = (mb(needs.state), mb(needs.arena), mb(needs.peak()));
        let rate = match (self.gflops, self.weight_gbs) {
            (Some(gflops), _) => format!("{gflops:.1} GFLOP/s"),
            (_, Some(gbs)) => format!("{:.1} tokens/s, {gbs:.1} GB/s of weights", 1e3 / ms_median),
            _ => String::new(),
        };
        format!(
            "{bench}, batch {batch}, {threads} threads: {steps} steps\n\
            \x20 step       {ms_median:.3} ms  (p10 {:.3}, p90 {:.3})\n\
            \x20 queued     {ms_queued:.3} ms  (the mean of steps that are waited for once)\n\
            \x20 rate       {rate}\n\
            \x20 first call {first_ms:.0} ms, compilation included\n\
            \x20 memory     the process {:.1} MB; the program on '{device}' {peak:.1} MB: state {state:.1}, arena {arena:.1}\n",
            self.ms_p10,
            self.ms_p90,
            self.rss_bytes as f64 / 1e6,
        )
    }
}

/// The most memory that this process has held, in bytes, where the system says so.
pub fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
