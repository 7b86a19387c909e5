//! What a training run keeps on its way: checkpoints to go on from, and a record to compare it by.
//!
//! Everything that decides the run is in the checkpoint's manifest under the name of the option that sets it, so that a
//! command that would go on otherwise is refused by that name. Threads are not among it: they change no bit.

use super::super::CommandError;
use super::super::args::{KeepArgs, Model, Network, TrainArgs};
use super::{Plan, Task, stored};
use crate::records::{EvalRecord, StepRecord};
use crate::run_folder::RunFolder;
use onestep::io::record::{FORMAT, Origin, RecordWriter, RecordedTensor, RecordedValue, RunLine, StepLine};
use onestep::io::{
    CheckpointError, CheckpointFolder, Digest, IoError, Manifest, Position, newest_checkpoint,
};
use onestep::prelude::*;
use std::path::{Path, PathBuf};

/// The folder of checkpoints in a run's folder.
const CHECKPOINTS: &str = "checkpoints";
/// The record in a run's folder.
pub const RECORD: &str = "record.jsonl";

/// Where a run begins, or goes on.
pub struct Start {
    pub folder: RunFolder,
    pub state: State,
    /// Steps taken already, and what they measured.
    pub done: u64,
    pub steps: Vec<StepRecord>,
    pub evals: Vec<EvalRecord>,
    /// The place of the next batch.
    pub data: Position,
    /// What to tell the user.
    pub notes: Vec<String>,
}

/// Writes down what is to be kept.
pub struct Keeper {
    identity: Manifest,
    checkpoints: PathBuf,
    most: usize,
    every: Option<u64>,
    recording: Option<Recording>,
}

impl Keeper {
    /// Makes or finds the run's folder and state.
    pub fn begin(
        args: &TrainArgs,
        device: &Device,
        step: &mut CompiledStep,
        task: &impl Task,
        plan: &Plan,
    ) -> Result<(Keeper, Start), CommandError> {
        let state = step.init(plan.seed)?;
        let identity = identity(args, step, task, plan, &state)?;
        let start = match &args.keep.resume {
            Some(folder) => resume(folder, state, &identity, args, plan)?,
            None => {
                check_values(args, 0, plan)?;
                Start {
                    folder: RunFolder::create(task.name(), args.out.as_deref())?,
                    state,
                    done: 0,
                    steps: vec![],
                    evals: vec![],
                    data: Position::default(),
                    notes: vec![],
                }
            }
        };
        let KeepArgs { checkpoint_every, checkpoints, record, record_values, .. } = args.keep;
        let recording = match record || record_values.is_some() {
            true => Some(Recording::new(&start, record_values, run_line(device, step, &identity))?),
            false => None,
        };
        let keeper = Keeper {
            identity,
            checkpoints: start.folder.path().join(CHECKPOINTS),
            most: checkpoints as usize,
            every: checkpoint_every,
            recording,
        };
        Ok((keeper, start))
    }

    /// Whether a checkpoint was asked for after step `n`.
    pub fn due(&self, n: u64) -> bool {
        self.every.is_some_and(|every| n.is_multiple_of(every))
    }

    /// Writes a checkpoint after step `n`; `data` is the place of the next batch.
    pub fn checkpoint(&self, n: u64, data: Position, state: &State) -> Result<(), CommandError> {
        let manifest = Manifest { step: n, data, ..self.identity.clone() };
        CheckpointFolder::open(&self.checkpoints, self.most)?.save(&manifest, &state.arrays()?)?;
        Ok(())
    }

    /// Notes what step `n` is about to compute.
    pub fn before(
        &mut self,
        n: u64,
        step: &mut CompiledStep,
        state: &State,
        inputs: &[Array],
    ) -> Result<(), CommandError> {
        let Some(recording) = &mut self.recording else { return Ok(()) };
        recording.inputs = inputs.iter().map(Digest::of_array).collect();
        if recording.values_of == Some(n) {
            let values = step.program().executable_for(inputs)?.values(state, inputs)?;
            let values = values.into_iter().map(|v| {
                let origin =
                    Origin { value: v.value, op: v.op.to_string(), at: v.loc.map(|at| at.to_string()) };
                RecordedValue { origin, ty: v.ty, digest: v.digest }
            });
            recording.values = values.collect();
        }
        Ok(())
    }

    /// Notes what step `n` has made of the state.
    pub fn after(&mut self, n: u64, state: &State) -> Result<(), CommandError> {
        match &mut self.recording {
            Some(recording) => recording.step(n, state),
            None => Ok(()),
        }
    }
}

/// A record that is being written. A run that fails before its first step leaves none.
struct Recording {
    path: PathBuf,
    run: RunLine,
    writer: Option<RecordWriter>,
    /// The state that the run begins with, until it is written.
    first: Option<StepLine>,
    /// The step whose values are recorded.
    values_of: Option<u64>,
    inputs: Vec<Digest>,
    values: Vec<RecordedValue>,
}

impl Recording {
    fn new(start: &Start, values_of: Option<u64>, run: RunLine) -> Result<Recording, CommandError> {
        let path = start.folder.path().join(RECORD);
        let writer = match start.done {
            0 => None,
            done => Some(RecordWriter::resume(&path, &run, done)?),
        };
        let state = digests(&start.state)?;
        let first = StepLine { step: start.done, inputs: vec![], state, values: vec![] };
        let known = writer.as_ref().is_some_and(|w| w.last() == Some(start.done));
        let first = (!known).then_some(first);
        Ok(Recording { path, run, writer, first, values_of, inputs: vec![], values: vec![] })
    }

    fn step(&mut self, n: u64, state: &State) -> Result<(), CommandError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(RecordWriter::create(&self.path, &self.run)?),
        };
        if let Some(first) = self.first.take() {
            writer.step(first)?;
        }
        let (inputs, values) = (std::mem::take(&mut self.inputs), std::mem::take(&mut self.values));
        Ok(writer.step(StepLine { step: n, inputs, state: digests(state)?, values })?)
    }
}

fn digests(state: &State) -> Result<Vec<Digest>, CommandError> {
    Ok(state.digests()?.into_iter().map(|(_, digest)| digest).collect())
}

/// What a checkpoint of this run says of it.
fn identity(
    args: &TrainArgs,
    step: &mut CompiledStep,
    task: &impl Task,
    plan: &Plan,
    state: &State,
) -> Result<Manifest, CommandError> {
    let network = args.network.unwrap_or(Network::Mlp);
    let network = (args.model != Model::Gpt).then(|| format!("{network:?}").to_lowercase());
    let mut identity = Manifest::new(task.name(), 0, Position::default())
        .graph(&step.program().interface().to_string())
        .setting("--steps", plan.steps)
        .setting("--seed", plan.seed)
        .setting("--batch", task.batch())
        // As the step has it, so that 1e-3 is 0.001.
        .setting("--lr", state.scalar("opt/lr")? as f32)
        .setting("--precision", args.precision.name())
        .setting("the data", task.data());
    if let Some(network) = network {
        identity = identity.setting("--model", network);
    }
    for (option, storage) in stored(args) {
        identity = identity.setting(option, storage.name());
    }
    Ok(identity)
}

/// The newest checkpoint of the run in `path`, if this run may go on from it.
fn resume(
    path: &Path,
    mut state: State,
    identity: &Manifest,
    args: &TrainArgs,
    plan: &Plan,
) -> Result<Start, CommandError> {
    let newest = newest_checkpoint(path.join(CHECKPOINTS)).map_err(|e| match e {
        IoError::Checkpoint { source: CheckpointError::None, .. } => CommandError::Usage(format!(
            "{e}; a run writes them with --checkpoint-every, and when Ctrl-C ends it"
        )),
        e => e.into(),
    })?;
    let mut notes: Vec<String> =
        newest.damaged.iter().map(|e| format!("passing over a checkpoint: {e}")).collect();
    let (file, manifest) = (newest.path, newest.checkpoint.manifest);
    manifest.check(identity).map_err(|source| IoError::Checkpoint { path: file.clone(), source })?;
    if manifest.onestep != identity.onestep {
        notes.push(format!(
            "the checkpoint is of Onestep {}, and this is {}: the bits may differ from those of a run that never stopped",
            manifest.onestep, identity.onestep
        ));
    }
    let done = manifest.step;
    if done >= plan.steps {
        return Err(CommandError::Usage(format!(
            "the run in {} has taken all of its {} steps already",
            path.display(),
            plan.steps
        )));
    }
    check_values(args, done, plan)?;
    state.restore(&newest.checkpoint.tensors)?;
    notes.push(format!("going on after step {done}"));
    let folder = RunFolder::resume(path, done)?;
    let (steps, evals) = RunFolder::read_metrics(path)?;
    Ok(Start { folder, state, done, steps, evals, data: manifest.data, notes })
}

/// Refuses to record the values of a step that this run does not take.
fn check_values(args: &TrainArgs, done: u64, plan: &Plan) -> Result<(), CommandError> {
    let steps = done + 1..=plan.steps;
    match args.keep.record_values.filter(|n| !steps.contains(n)) {
        Some(n) => Err(CommandError::Usage(format!(
            "--record-values {n} is none of the steps that this run takes, {} to {}",
            steps.start(),
            steps.end()
        ))),
        None => Ok(()),
    }
}

/// The line of a record that is for its run.
fn run_line(device: &Device, step: &mut CompiledStep, identity: &Manifest) -> RunLine {
    let graph = step.program().interface();
    let update = |state: usize| {
        let value = graph.updates.iter().find(|u| u.state == state)?.value;
        let node = graph.def(value)?;
        let at = node.loc.map(|at| at.to_string());
        Some(Origin { value: format!("%{}", value.0), op: node.op.rule().name().to_string(), at })
    };
    let tensors = graph.states.iter().enumerate().map(|(i, s)| RecordedTensor {
        name: s.name.to_string(),
        ty: graph.ty(s.value).to_string(),
        update: update(i),
    });
    let mut tensors: Vec<RecordedTensor> = tensors.collect();
    // As a state has them.
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    RunLine {
        format: FORMAT,
        onestep: identity.onestep.clone(),
        program: identity.program.clone(),
        device: device.name().to_string(),
        threads: device.threads(),
        settings: identity.settings.clone(),
        graph: identity.graph.unwrap_or_else(|| Digest::of_bytes(b"")),
        inputs: graph.inputs.iter().map(|p| p.name.to_string()).collect(),
        tensors,
    }
}
