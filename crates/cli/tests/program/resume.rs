//! Runs that stop and go on: to the same bits, and never where they would not.

use crate::common::{copy, names, program, run};
use onestep::io::Checkpoint;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn file(step: u64) -> String {
    format!("step-{step:010}.safetensors")
}

fn model(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("model.safetensors")).unwrap()
}

/// The losses by step, without what depends on the clock.
fn losses(folder: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        (json["step"].as_u64().unwrap(), json["train_loss"].as_f64().unwrap())
    };
    text.lines().map(line).collect()
}

/// From each checkpoint in turn, on another number of threads, as if the run had been killed after it.
#[test]
fn digits_go_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let train = "train digits --steps 60 --seed 4 --json";
    // An epoch has 22 batches: the first checkpoint is of its middle, and the second of the third's.
    run(folder.path(), &format!("{train} --checkpoint-every 15 --keep 3 --threads 2 --out whole")).json();
    assert_eq!(names(&at("whole/checkpoints")), [30, 45, 60].map(file));
    for step in [45, 30] {
        copy(&at("whole"), &at("again"));
        for newer in [60, 45].into_iter().filter(|newer| *newer > step) {
            fs::remove_file(at("again/checkpoints").join(file(newer))).unwrap();
        }
        fs::remove_file(at("again/model.safetensors")).unwrap();
        let json = run(folder.path(), &format!("{train} --resume again --threads 1")).json();
        assert_eq!((&json["steps"], &json["interrupted"]), (&60.into(), &false.into()));
        assert!(model(&at("again")) == model(&at("whole")), "from step {step}");
        assert_eq!(losses(&at("again")), losses(&at("whole")));
        fs::remove_dir_all(at("again")).unwrap();
    }
}

#[test]
fn a_gpt_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("text"), "to be or not to be, that is the question ".repeat(280)).unwrap();
    let train = "train gpt --text text --steps 5 --batch 2 --json --threads 2";
    run(folder.path(), &format!("{train} --checkpoint-every 3 --out whole")).json();
    copy(&at("whole"), &at("again"));
    run(folder.path(), &format!("{train} --resume again")).json();
    assert!(model(&at("again")) == model(&at("whole")));
    let says = |arguments: &str, words: &[&str]| run(folder.path(), arguments).refused(words);
    says(&format!("{train} --lr 1e-3 --resume again"), &["--lr '0.002'", "here --lr is '0.001'"]);
    fs::write(at("text"), "to be or not to be, what is the question ".repeat(280)).unwrap();
    says(&format!("{train} --resume again"), &["the data"]);
    says("train digits --resume again", &["'gpt'", "'digits'"]);
}

/// A process that is killed at some moment, and one that was never killed.
#[test]
fn a_killed_run_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let train = "train digits --steps 1500 --json --threads 1 --checkpoint-every 20";
    let mut child = program(folder.path())
        .args(format!("{train} --out killed").split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let kept = at("killed/checkpoints");
    while !kept.exists() || names(&kept).iter().all(|name| name.starts_with('.')) {
        assert!(start.elapsed() < Duration::from_secs(60), "it writes no checkpoint");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!at("killed/model.safetensors").exists(), "it was killed on its way");
    run(folder.path(), &format!("{train} --resume killed")).json();
    run(folder.path(), &format!("{train} --out whole")).json();
    assert!(model(&at("killed")) == model(&at("whole")));
    assert_eq!(losses(&at("killed")), losses(&at("whole")));
    assert_eq!(names(&kept), names(&at("whole/checkpoints")), "nothing half-written is left");
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_on() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    // The second goes on where the first was stopped.
    let mut last = 0;
    for arguments in ["--out kept", "--resume kept"] {
        let train = format!("train digits --steps 50000000 --threads 1 --json {arguments}");
        let child = program(folder.path())
            .args(train.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let steps = || fs::read_to_string(kept.join("metrics.jsonl")).unwrap_or_default().lines().count();
        let start = Instant::now();
        while steps() < last + 5 {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not train");
            std::thread::sleep(Duration::from_millis(5));
        }
        let pressed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(pressed.unwrap().success());
        let json = crate::common::Said::of(child.wait_with_output().unwrap()).json();
        let taken = json["steps"].as_u64().unwrap() as usize;
        assert!(json["interrupted"] == true && taken >= last + 5, "{json}");
        assert_eq!(losses(&kept).len(), taken);
        assert!(names(&kept.join("checkpoints")).contains(&file(taken as u64)));
        let model = onestep::io::safetensors::load(kept.join("model.safetensors")).unwrap().0;
        let checkpoint = Checkpoint::load(kept.join("checkpoints").join(file(taken as u64))).unwrap();
        assert_eq!(checkpoint.tensors, model);
        last = taken;
    }
}

#[test]
fn what_is_refused_and_what_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    run(folder.path(), "train digits --steps 6 --checkpoint-every 2 --out kept --json").json();
    let before = fs::read(at("kept/metrics.jsonl")).unwrap();
    for (arguments, words) in [
        ("--steps 6", &["kept", "taken all of its 6 steps"][..]),
        ("--steps 7", &["--steps '6'", "here --steps is '7'"]),
        ("--steps 6 --seed 2", &["--seed '1'", "'2'"]),
        ("--steps 6 --batch 32", &["--batch '64'", "'32'"]),
        ("--steps 6 --lr 0.1", &["--lr '0.005'", "'0.1'"]),
        ("--steps 6 --model cnn", &["--model 'mlp'", "'cnn'"]),
    ] {
        run(folder.path(), &format!("train digits --resume kept {arguments}")).refused(words);
    }
    run(folder.path(), "train digits --steps 6 --out plain --json").json();
    run(folder.path(), "train digits --steps 6 --resume plain").refused(&[
        "plain",
        "no checkpoint",
        "--checkpoint-every",
    ]);
    assert_eq!(fs::read(at("kept/metrics.jsonl")).unwrap(), before, "nothing was written");
    // A damaged one is passed over, with a word.
    for (step, keep) in [(6, 100), (4, 1000)] {
        let path = at("kept/checkpoints").join(file(step));
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - keep]).unwrap();
    }
    let said = run(folder.path(), "train digits --steps 6 --resume kept");
    assert_eq!(said.code, Some(0), "{}", said.err);
    for words in [&file(6), &file(4), "passing over", "cut off", "going on after step 2"] {
        assert!(said.err.contains(words), "no {words} in {}", said.err);
    }
    assert!(model(&at("kept")) == model(&at("plain")));
    for step in [2, 4, 6] {
        let _ = fs::write(at("kept/checkpoints").join(file(step)), "x");
    }
    run(folder.path(), "train digits --steps 6 --resume kept")
        .refused(&["none of its 3 checkpoints", &file(6)]);
}
