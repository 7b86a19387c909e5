//! Stopping and going on: Adam, dropout, a schedule and shuffled data, bit for bit as if the run had never stopped.

use crate::common::*;
use onestep::io::{
    Batches, CheckpointFolder, Last, Loader, Manifest, Position, Tokens, newest_checkpoint, safetensors,
};
use onestep::prelude::*;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "ONESTEP_CASES_CHECKPOINTS";
const RESULT: &str = "ONESTEP_CASES_CHECKPOINTS_RESULT";
/// Eleven batches an epoch, so that the run stops in the middle of its second and ends in its third.
const STOP: u64 = 16;
const END: u64 = 25;

fn step(threads: usize) -> CompiledStep {
    let schedule = Schedule::WarmupCosine { warmup: 3, total: END as u32, floor: 0.1 };
    let step = TrainingStep::new(language_model(2, 0.2)).optimizer(Adam::new(1e-2));
    step.clip_global_norm(1.0).schedule(schedule).compile(&cpu(threads)).unwrap()
}

fn loader(at: Position) -> Loader {
    let [x, _] = tokens(2, 0);
    let length = x.shape()[1];
    let text: Vec<u8> = (0..length + 22).map(|i| (i * i % 7) as u8).collect();
    let windows = Tokens::bytes(text).windows(length, 1).unwrap();
    Loader::start(Batches::new(windows, 2, Last::Drop).unwrap().shuffled(3), at).unwrap()
}

fn manifest(step: u64, data: Position) -> Manifest {
    Manifest::new("language model", step, data).setting("seed", 11)
}

/// Takes the steps up to one, with a checkpoint after `keep`.
fn train(
    state: &mut State,
    at: Position,
    numbers: std::ops::RangeInclusive<u64>,
    threads: usize,
    keep: Option<&Path>,
) {
    let (mut step, mut loader) = (step(threads), loader(at));
    for n in numbers {
        assert!(step.run(state, loader.next().unwrap()).unwrap().loss().unwrap().is_finite());
        if let Some(folder) = keep.filter(|_| n == STOP) {
            let folder = CheckpointFolder::open(folder, 1).unwrap();
            folder.save(&manifest(n, loader.position()), &state.arrays().unwrap()).unwrap();
        }
    }
}

/// Not a test of its own: the process that goes on with a run that another began.
#[test]
fn go_on_in_a_new_process() {
    let (Some(folder), Some(result)) = (std::env::var_os(FOLDER), std::env::var_os(RESULT)) else { return };
    let found = newest_checkpoint(folder).unwrap().checkpoint;
    found.manifest.check(&manifest(0, Position::default())).unwrap();
    assert_eq!(found.manifest.data, Position { epoch: 1, batch: 5 });
    // From another seed, so that everything that matters must be in the checkpoint.
    let mut state = step(1).init(99).unwrap();
    state.restore(&found.tensors).unwrap();
    train(&mut state, found.manifest.data, found.manifest.step + 1..=END, 1, None);
    state.save(Path::new(&result)).unwrap();
}

#[test]
fn a_run_goes_on_bit_for_bit() {
    let root = tempfile::tempdir().unwrap();
    let (folder, result) = (root.path().join("kept"), root.path().join("result.safetensors"));
    let mut straight = step(2).init(11).unwrap();
    train(&mut straight, Position::default(), 1..=END, 2, Some(&folder));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["checkpoints::go_on_in_a_new_process", "--exact", "--nocapture"])
        .envs([(FOLDER, &folder), (RESULT, &result)])
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let (resumed, _) = safetensors::load(&result).unwrap();
    let straight = straight.arrays().unwrap();
    assert_eq!(resumed.keys().collect::<Vec<_>>(), straight.keys().collect::<Vec<_>>());
    for (name, array) in &straight {
        assert!(resumed[name] == *array, "{name} differs");
    }
    assert_eq!(straight["opt/step"].to_f64(), [END as f64]);
    // And the test would notice: the data's position alone changes the result.
    let found = newest_checkpoint(&folder).unwrap().checkpoint;
    let mut other = step(1).init(11).unwrap();
    other.restore(&found.tensors).unwrap();
    train(&mut other, Position { epoch: 1, batch: 6 }, STOP + 1..=END, 1, None);
    assert!(straight.iter().any(|(name, array)| other.get(name).unwrap() != *array));
}

#[test]
fn another_optimizers_checkpoint_is_refused() {
    let adam = step(1).init(1).unwrap().arrays().unwrap();
    let sgd = TrainingStep::new(language_model(2, 0.2)).optimizer(Sgd::new(0.1)).compile(&cpu(1)).unwrap();
    let error = sgd.init(1).unwrap().restore(&adam).unwrap_err();
    assert!(
        matches!(&error, Error::Restore { unknown, .. } if unknown.iter().any(|n| n.ends_with("/m"))),
        "{error}"
    );
    assert!(error.to_string().contains("it does not have opt/"), "{error}");
}
