//! `--population N`: N networks from N seeds, trained in one dispatch a step on the same batches; the best one is kept.
//!
//! Each goes as it would alone from its seed, on the batches of the first one's seed. The kept model, its step as a graph
//! and the report are those of a single run; a step's loss is the mean over the members whose loss is finite, and the run
//! ends when none is.

use super::super::args::TrainArgs;
use super::super::facts::plan_view;
use super::super::{CommandError, quantile};
use super::images::Images;
use super::{Plan, Task, command, evaluation, finite, schedule, tail_mean, view};
use crate::interrupt::Interrupt;
use crate::progress::{Audience, Progress};
use crate::records::{EvalRecord, MetricsLine, StepRecord};
use crate::report::Report as RunReport;
use crate::run_folder::RunFolder;
use onestep::CompiledPopulation;
use onestep::io::{Loader, Position};
use onestep::prelude::*;
use serde::Serialize;
use std::time::Instant;

/// One member at the end.
#[derive(Clone, Debug, Serialize)]
struct Member {
    seed: u64,
    val_loss: Option<f64>,
    test_accuracy: Option<f64>,
}

/// The figures of a run: the object that `--json` prints.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    model: &'static str,
    steps: u64,
    /// The mean over the members whose loss is finite.
    train_loss: Option<f64>,
    /// Of the best member.
    val_loss: Option<f64>,
    test_accuracy: Option<f64>,
    best_seed: u64,
    members: Vec<Member>,
    step_ms_median: Option<f64>,
    /// Of all members together.
    items_per_second: Option<f64>,
    compile_ms: f64,
    plan_peak_bytes: usize,
    threads: usize,
    interrupted: bool,
    out: String,
}

/// Runs the command.
pub fn train(
    args: &TrainArgs,
    device: &Device,
    step: TrainingStep,
    mut task: Images,
    plan: &Plan,
    members: usize,
) -> Result<(), CommandError> {
    let interrupt = Interrupt::install()?;
    let mut population = step.population(members).compile(device)?;
    let mut folder = RunFolder::create(task.name(), args.out.as_deref())?;
    let audience = if args.json { Audience::Script } else { Audience::Person };
    let mut progress = Progress::new(audience, 0, plan.steps, task.unit());
    let path = folder.path().display().to_string();
    progress.note(&format!(
        "{members} networks at once: {} on {device:?}; keeping the best in {path}",
        task.title()
    ));

    let seeds: Vec<u64> = (0..members as u64).map(|k| plan.seed.wrapping_add(k)).collect();
    let mut state = population.init(&seeds)?;
    let base_rate = state.get("opt/lr")?.to_f64().first().copied().unwrap_or_default();
    let (mut steps, mut evals): (Vec<StepRecord>, Vec<EvalRecord>) = (vec![], vec![]);
    let mut ranked = vec![];
    let mut loader = Loader::start(task.batches()?, Position::default())?;
    for n in 1..=plan.steps {
        let inputs = loader.next()?;
        let start = Instant::now();
        let losses = population.run(&mut state, inputs)?.array("loss")?.to_f64();
        let seconds = start.elapsed().as_secs_f64();
        let record = StepRecord {
            step: n,
            train_loss: mean_of_finite(&losses),
            lr: base_rate * schedule(plan.steps).multiplier(n.min(u32::MAX as u64) as u32),
            step_ms: seconds * 1e3,
            items_per_second: (task.items() * members) as f64 / seconds,
        };
        let stop = interrupt.requested();
        let last = n == plan.steps || stop;
        let mut eval = None;
        if last || n % plan.eval_every == 0 {
            ranked = rank(&population, &state, &mut task)?;
            eval = ranked.first().map(|(_, best)| EvalRecord { step: n, ..*best });
        }
        folder.append(&MetricsLine::new(record, eval))?;
        progress.step(&record);
        if !record.train_loss.is_finite() {
            // Their guards kept every parameter finite.
            population.member(&state, 0)?.save(folder.path().join("model.safetensors"))?;
            return Err(CommandError::Diverged { step: n, loss: record.train_loss });
        }
        steps.push(record);
        if let Some(e) = eval {
            progress.note(&format!("the best of {members} at {}", evaluation(&e, None)));
            evals.push(e);
        }
        if stop {
            progress.note("stopped by Ctrl-C");
            break;
        }
    }
    let Some(&(best, found)) = ranked.first() else { return Ok(()) };
    population.member(&state, best)?.save(folder.path().join("model.safetensors"))?;
    folder.write("step.onestep", population.single().to_string().as_bytes())?;

    let mut accounts: Vec<(usize, Member)> = ranked
        .iter()
        .map(|&(k, e)| (k, Member { seed: seeds[k], val_loss: e.val_loss, test_accuracy: e.test_accuracy }))
        .collect();
    accounts.sort_by_key(|(k, _)| *k);
    let members: Vec<Member> = accounts.into_iter().map(|(_, m)| m).collect();
    let times: Vec<f64> = steps.iter().map(|s| s.step_ms).collect();
    let median = quantile(&times, 0.5);
    let report = population.report();
    let figures = Figures {
        model: task.name(),
        steps: steps.len() as u64,
        train_loss: finite(tail_mean(&steps)),
        val_loss: found.val_loss.and_then(finite),
        test_accuracy: found.test_accuracy,
        best_seed: seeds[best],
        step_ms_median: finite(median),
        items_per_second: finite((task.items() * members.len()) as f64 / median * 1e3),
        compile_ms: population.step().compilations().iter().map(|e| e.time.as_secs_f64() * 1e3).sum(),
        plan_peak_bytes: report.as_ref().map_or(0, |r| r.memory.peak()),
        threads: device.threads(),
        interrupted: (steps.len() as u64) < plan.steps,
        out: path,
        members,
    };
    let mut viewer = false;
    if let Some(e) = population.step().program().executable() {
        viewer = view(e, &mut folder)?;
    }
    let mut lines = task.lines();
    lines.push(("members".into(), said(&figures.members)));
    let page = RunReport {
        title: task.title(),
        command: format!("{} --population {}", command(args, plan), figures.members.len()),
        device: device.name().to_string(),
        threads: device.threads(),
        model_lines: lines,
        unit: task.unit().to_string(),
        steps,
        evals,
        baseline: None,
        plan: report.map(plan_view).unwrap_or_default(),
        sample: None,
        figures: vec![],
        viewer,
    };
    page.write(&folder.path().join("report.html"))?;
    for m in &figures.members {
        let mark = if m.seed == figures.best_seed { "  kept" } else { "" };
        progress.note(&format!("seed {}: test accuracy {}{mark}", m.seed, percent(m.test_accuracy)));
    }
    progress.note(&format!(
        "{} steps of {} networks, {median:.2} ms each (median); compiled in {:.0} ms; plan {:.1} MB",
        figures.steps,
        figures.members.len(),
        figures.compile_ms,
        figures.plan_peak_bytes as f64 / 1e6
    ));
    progress.note(&format!("report: {}", folder.path().join("report.html").display()));
    Ok(progress.finish(&figures)?)
}

/// The mean over the members whose loss is still a number; NaN when none is.
fn mean_of_finite(losses: &[f64]) -> f64 {
    let finite: Vec<f64> = losses.iter().copied().filter(|l| l.is_finite()).collect();
    if finite.is_empty() { f64::NAN } else { finite.iter().sum::<f64>() / finite.len() as f64 }
}

/// The members with what an evaluation says of each, the best first: by accuracy, then by loss.
fn rank(
    population: &CompiledPopulation,
    state: &State,
    task: &mut Images,
) -> Result<Vec<(usize, EvalRecord)>, CommandError> {
    let mut all = vec![];
    for k in 0..population.members() {
        all.push((k, task.evaluate(&mut population.member(state, k)?, false)?));
    }
    let accuracy = |e: &EvalRecord| e.test_accuracy.filter(|a| !a.is_nan()).unwrap_or(-1.0);
    let loss = |e: &EvalRecord| e.val_loss.filter(|l| !l.is_nan()).unwrap_or(f64::INFINITY);
    all.sort_by(|(_, a), (_, b)| accuracy(b).total_cmp(&accuracy(a)).then(loss(a).total_cmp(&loss(b))));
    Ok(all)
}

fn percent(accuracy: Option<f64>) -> String {
    accuracy.map_or_else(|| "unknown".to_string(), |a| format!("{:.2}%", a * 100.0))
}

/// Every member's accuracy, in one line.
fn said(members: &[Member]) -> String {
    let one = |m: &Member| format!("seed {}: {}", m.seed, percent(m.test_accuracy));
    members.iter().map(one).collect::<Vec<_>>().join(", ")
}
