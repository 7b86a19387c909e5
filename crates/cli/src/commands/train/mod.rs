//! `onestep train`: a training run, from the data to the report.
//!
//! What differs between the models is a `Task`; the loop around it is one: feed, step, record, save, evaluate. Ctrl-C
//! ends it after the current step, and everything is kept as at its end, with a checkpoint, a quick evaluation and no
//! sample.

mod gpt;
mod images;
mod keep;
mod population;

pub use keep::RECORD;

use super::args::{Model, Network, TrainArgs};
use super::bench::peak_rss;
use super::facts::{self, plan_view};
use super::{CommandError, device, quantile};
use crate::interrupt::Interrupt;
use crate::progress::{Audience, Progress};
use crate::records::{EvalRecord, MetricsLine, StepRecord};
use crate::report::Report as RunReport;
use crate::run_folder::RunFolder;
use keep::{Keeper, Start};
use onestep::io::{Batches, Digest, Loader};
use onestep::prelude::*;
use onestep::{Executable, Options, store};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What is trained, and on what.
trait Task {
    /// Of the run's folder.
    fn name(&self) -> &'static str;
    /// The page's title.
    fn title(&self) -> String;
    /// What a step consumes, in the plural.
    fn unit(&self) -> &'static str;
    /// How many of them a step consumes.
    fn items(&self) -> usize;
    /// What is trained, as label and value.
    fn lines(&self) -> Vec<(String, String)>;
    /// The inputs of all steps.
    fn batches(&self) -> Result<Batches, CommandError>;
    /// What stands for the data that it learns from.
    fn data(&self) -> Digest;
    /// Samples of a batch.
    fn batch(&self) -> usize;
    /// Evaluates the state; `thorough` at the end of a run that was not interrupted.
    fn evaluate(&mut self, state: &mut State, thorough: bool) -> Result<EvalRecord, CommandError>;
    /// A loss to compare with, and whose it is.
    fn baseline(&self) -> Option<(String, f64)>;
    /// What the trained model has to show.
    fn sample(&mut self, state: &mut State) -> Result<Option<String>, CommandError>;
}

/// The figures of a run: the object that `--json` prints.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    model: &'static str,
    steps: u64,
    train_loss: Option<f64>,
    val_loss: Option<f64>,
    baseline_val_loss: Option<f64>,
    test_accuracy: Option<f64>,
    step_ms_median: Option<f64>,
    items_per_second: Option<f64>,
    compile_ms: f64,
    plan_peak_bytes: usize,
    rss_bytes: u64,
    threads: usize,
    seed: u64,
    interrupted: bool,
    out: String,
}

/// What the loop needs besides the task.
struct Plan {
    steps: u64,
    eval_every: u64,
    seed: u64,
}

/// Runs the command.
pub fn train(args: &TrainArgs) -> Result<(), CommandError> {
    let device = device(&args.machine)?;
    check(args)?;
    match args.model {
        Model::Gpt => {
            let steps = args.steps.unwrap_or(gpt::STEPS);
            let (step, task) = gpt::Text::new(args, steps, &device)?;
            run(args, &device, step, task, &Plan { steps, eval_every: 250, seed: args.seed })
        }
        Model::Digits | Model::Fashion => {
            let set = images::Set::of(args.model);
            let steps = args.steps.unwrap_or(set.steps);
            let (step, task) = images::Images::new(args, set, steps, &device)?;
            let plan = Plan { steps, eval_every: set.eval_every, seed: args.seed };
            match args.population {
                Some(members) => population::train(args, &device, step, task, &plan, members as usize),
                None => run(args, &device, step.compile(&device)?, task, &plan),
            }
        }
    }
}

/// Refuses an option that the model does not have.
fn check(args: &TrainArgs) -> Result<(), CommandError> {
    let gpt = args.model == Model::Gpt;
    let wrong = [
        ("--model", gpt && args.network.is_some(), "digits and fashion"),
        ("--population", gpt && args.population.is_some(), "digits and fashion"),
        ("--data", args.model != Model::Fashion && args.data.is_some(), "fashion"),
        ("--text", !gpt && args.text.is_some(), "gpt"),
    ];
    if let Some((option, _, owner)) = wrong.iter().find(|(_, wrong, _)| *wrong) {
        return Err(CommandError::Usage(format!("{option} belongs to `train {owner}`")));
    }
    let keep = &args.keep;
    let kept = [
        ("--resume", keep.resume.is_some()),
        ("--checkpoint-every", keep.checkpoint_every.is_some()),
        ("--record", keep.record),
        ("--record-values", keep.record_values.is_some()),
    ];
    match kept.iter().find(|(_, given)| *given && args.population.is_some()) {
        Some((option, _)) => {
            let what = format!("{option} is for one network, and --population trains several; leave out one");
            Err(CommandError::Usage(what))
        }
        None => Ok(()),
    }
}

fn run(
    args: &TrainArgs,
    device: &Device,
    mut step: CompiledStep,
    mut task: impl Task,
    plan: &Plan,
) -> Result<(), CommandError> {
    let interrupt = Interrupt::install()?;
    let (mut keeper, start) = Keeper::begin(args, device, &mut step, &task, plan)?;
    let Start { mut folder, mut state, done, mut steps, mut evals, data, notes } = start;
    let mut loader = Loader::start(task.batches()?, data)?;
    let audience = if args.json { Audience::Script } else { Audience::Person };
    let mut progress = Progress::new(audience, done, plan.steps, task.unit());
    progress.note(&format!("{} on {device:?}; keeping the run in {}", task.title(), folder.path().display()));
    notes.iter().for_each(|note| progress.note(note));

    let model = folder.path().join("model.safetensors");
    let (mut taken, mut diverged) = (done, None);
    for n in done + 1..=plan.steps {
        let inputs = loader.next()?;
        keeper.before(n, &mut step, &state, inputs)?;
        let start = Instant::now();
        let train_loss = step.run(&mut state, inputs)?.loss()?;
        let seconds = start.elapsed().as_secs_f64();
        keeper.after(n, &state)?;
        taken = n;
        let record = StepRecord {
            step: n,
            train_loss,
            lr: rate(&state, n, plan.steps)?,
            step_ms: seconds * 1e3,
            items_per_second: task.items() as f64 / seconds,
        };
        let stop = interrupt.requested();
        let last = n == plan.steps || stop;
        if last {
            // Before the evaluation, which takes a while: a second Ctrl-C loses nothing.
            state.save(&model)?;
        }
        if stop {
            keeper.checkpoint(n, loader.position(), &state)?;
        }
        let eval = match last || n % plan.eval_every == 0 {
            true => Some(EvalRecord { step: n, ..task.evaluate(&mut state, last && !stop)? }),
            false => None,
        };
        folder.append(&MetricsLine::new(record, eval))?;
        progress.step(&record);
        steps.push(record);
        if let Some(e) = eval {
            progress.note(&evaluation(&e, task.baseline()));
            evals.push(e);
        }
        if !train_loss.is_finite() {
            diverged = Some(CommandError::Diverged { step: n, loss: train_loss });
            break;
        }
        if keeper.due(n) && !stop {
            // After the line of its step, which a run that goes on from here then has.
            keeper.checkpoint(n, loader.position(), &state)?;
        }
        if stop {
            progress.note("stopped by Ctrl-C; --resume goes on from here");
            break;
        }
    }
    let interrupted = taken < plan.steps;
    if let Some(diverged) = diverged {
        state.save(&model)?;
        return Err(diverged);
    }
    // Who presses Ctrl-C does not want to wait for it.
    let sample = if interrupted { None } else { task.sample(&mut state)? };

    let times: Vec<f64> = steps.iter().map(|s| s.step_ms).collect();
    let median = quantile(&times, 0.5);
    let compile_ms = step.compilations().iter().map(|e| e.time.as_secs_f64() * 1e3).sum();
    let compiled = step.report();
    let last = evals.last().copied().unwrap_or_default();
    let figures = Figures {
        model: task.name(),
        steps: taken,
        train_loss: finite(tail_mean(&steps)),
        val_loss: last.val_loss.and_then(finite),
        baseline_val_loss: task.baseline().map(|(_, b)| b),
        test_accuracy: last.test_accuracy,
        step_ms_median: finite(median),
        items_per_second: finite(task.items() as f64 / median * 1e3),
        compile_ms,
        plan_peak_bytes: compiled.as_ref().map_or(0, |r| r.memory.peak()),
        rss_bytes: peak_rss().unwrap_or(0),
        threads: device.threads(),
        seed: plan.seed,
        interrupted,
        out: folder.path().display().to_string(),
    };
    let mut viewer = false;
    if let Some(e) = step.program().executable() {
        folder.write("step.onestep", e.graph().to_string().as_bytes())?;
        viewer = view(e, &mut folder)?;
    }
    let page = RunReport {
        title: task.title(),
        command: command(args, plan),
        device: device.name().to_string(),
        threads: device.threads(),
        model_lines: task.lines(),
        unit: task.unit().to_string(),
        steps,
        evals,
        baseline: task.baseline(),
        plan: compiled.map(plan_view).unwrap_or_default(),
        sample: sample.clone(),
        figures: vec![],
        viewer,
    };
    page.write(&folder.path().join("report.html"))?;
    finish(progress, &figures, sample.as_deref(), folder.path(), task.unit())
}

fn finish(
    mut progress: Progress,
    f: &Figures,
    sample: Option<&str>,
    folder: &Path,
    unit: &str,
) -> Result<(), CommandError> {
    if let Some(text) = sample {
        progress.note(&format!("\n{text}\n"));
    }
    if let (Some(v), Some(b)) = (f.val_loss, f.baseline_val_loss) {
        progress.note(&format!("validation loss {v:.4} nats a byte; a bigram model has {b:.4}"));
    }
    if let Some(a) = f.test_accuracy {
        progress.note(&format!("test accuracy {:.2}%", a * 100.0));
    }
    if let (Some(ms), Some(rate)) = (f.step_ms_median, f.items_per_second) {
        progress.note(&format!(
            "{} steps, {ms:.2} ms each (median), {rate:.0} {unit} a second; compiled in {:.0} ms; plan {:.1} MB",
            f.steps,
            f.compile_ms,
            f.plan_peak_bytes as f64 / 1e6
        ));
    }
    progress.note(&format!("report: {}", folder.join("report.html").display()));
    Ok(progress.finish(f)?)
}

/// Writes the viewer of the step beside the report, with the lines of source that built it; not if it is huge.
fn view(step: &Executable, folder: &mut RunFolder) -> Result<bool, CommandError> {
    const MOST: usize = 2 << 20;
    let allow_tf32 = step.compiled().schedule.allow_tf32;
    let options = Options { dump: true, allow_tf32, ..Options::default() };
    let again = Executable::compile(step.graph(), step.device(), &options)?;
    let page = facts::program(&again, None)?.to_html();
    let fits = page.len() <= MOST;
    if fits {
        folder.write("program.html", page.as_bytes())?;
    }
    Ok(fits)
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

/// The mean training loss of the last tenth of the steps, fifty at most.
fn tail_mean(steps: &[StepRecord]) -> f64 {
    let n = (steps.len() / 10).clamp(1, 50).min(steps.len());
    let tail = &steps[steps.len() - n..];
    tail.iter().map(|s| s.train_loss).sum::<f64>() / n as f64
}

/// The learning rate of step `n`: the state's base rate on the run's schedule.
fn rate(state: &State, n: u64, total: u64) -> Result<f64, CommandError> {
    Ok(state.scalar("opt/lr")? * schedule(total).multiplier(n.min(u32::MAX as u64) as u32))
}

/// Warm-up over the first twentieth of the steps, then a cosine to a tenth.
fn schedule(steps: u64) -> Schedule {
    let total = steps.clamp(2, i32::MAX as u64) as u32;
    Schedule::WarmupCosine { warmup: (total / 20).max(1), total, floor: 0.1 }
}

fn evaluation(e: &EvalRecord, baseline: Option<(String, f64)>) -> String {
    let mut text = format!("step {}:", e.step);
    if let Some(v) = e.val_loss {
        text += &format!(" validation loss {v:.4}");
    }
    if let Some((name, b)) = baseline {
        text += &format!(" ({name}: {b:.4})");
    }
    if let Some(a) = e.test_accuracy {
        text += &format!(" test accuracy {:.2}%", a * 100.0);
    }
    text
}

/// The command that repeats the run.
fn command(args: &TrainArgs, plan: &Plan) -> String {
    let name = match args.model {
        Model::Gpt => "gpt",
        Model::Digits => "digits",
        Model::Fashion => "fashion",
    };
    let mut text = format!("onestep train {name} --steps {} --seed {}", plan.steps, plan.seed);
    if let Some(network) = args.network {
        text += match network {
            Network::Mlp => " --model mlp",
            Network::Cnn => " --model cnn",
        };
    }
    for (option, path) in [("--data", &args.data), ("--text", &args.text)] {
        if let Some(path) = path {
            text += &format!(" {option} {}", path.display());
        }
    }
    if let Some(b) = args.batch {
        text += &format!(" --batch {b}");
    }
    if let Some(lr) = args.lr {
        text += &format!(" --lr {lr}");
    }
    if args.precision != Precision::F32 {
        text += &format!(" --precision {}", args.precision.name());
    }
    for (option, storage) in stored(args) {
        text += &format!(" {option} {}", storage.name());
    }
    text
}

/// What is not kept as exactly as it is computed, by option.
fn stored(args: &TrainArgs) -> impl Iterator<Item = (&'static str, Storage)> {
    let all = [("--parameters-in", args.parameters_in), ("--slots-in", args.slots_in)];
    all.into_iter().filter(|(_, storage)| *storage != Storage::Exact)
}

/// The step with what the options say of its numbers.
fn in_precision(step: TrainingStep, args: &TrainArgs) -> TrainingStep {
    step.precision(args.precision).parameters_in(args.parameters_in).slots_in(args.slots_in)
}

/// A program beside the step, which reads the parameters as that keeps them.
fn beside(graph: &Graph, args: &TrainArgs, device: &Device) -> Result<Program, Error> {
    match args.parameters_in {
        Storage::Exact => compile(graph, device),
        Storage::Bf16 => compile(&store(graph, Precision::Bf16)?, device),
    }
}
