//! What the program refuses: with one clear message, a code that is not 0, and nothing half-written.

use crate::common::{Said, names, program, run};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn absurd_arguments() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        ("train digits --steps 0", &["--steps", "0"][..]),
        ("train digits --steps -3", &["--steps"]),
        ("train digits --steps many", &["--steps", "many"]),
        ("train digits --steps 99999999999999999999", &["--steps"]),
        ("train digits --batch 0", &["--batch"]),
        ("train digits --batch 1e9", &["--batch", "1e9"]),
        ("train gpt --batch 1000000000", &["--batch", "65536"]),
        ("train digits --lr nan", &["--lr", "nan"]),
        ("train digits --lr inf", &["--lr", "inf"]),
        ("train digits --lr 0", &["--lr", "above 0"]),
        ("train digits --lr=-1", &["--lr", "above 0"]),
        ("train digits --lr 1e300", &["--lr", "1e6"]),
        ("train digits --seed -1", &["--seed"]),
        ("train digits --population 0", &["--population", "0"]),
        ("train gpt --population 2", &["--population", "digits"]),
        ("train digits --threads 0", &["--threads"]),
        ("train digits --threads 5000", &["--threads", "1024"]),
        ("train digits --device metal", &["'metal'", "cpu"]),
        ("train digits --device", &["--device"]),
        ("bench mlp --device cuda", &["'cuda'", "cpu"]),
        ("train mnist", &["mnist", "digits"]),
        ("train digits extra", &["extra"]),
        ("train digits --checkpoint-every 0", &["--checkpoint-every", "0"]),
        ("train digits --keep 0", &["--keep", "0"]),
        ("train digits --record-values 0", &["--record-values"]),
        ("train digits --steps 4 --record-values 5", &["--record-values 5", "1 to 4"]),
        ("train digits --resume none", &["none", "holds no checkpoint", "--checkpoint-every"]),
        ("train digits --resume none --out other", &["--resume", "--out"]),
        ("bisect", &["RUN_A"]),
        ("bisect one", &["RUN_B"]),
        ("bench resnet", &["resnet", "gpt-mini"]),
        ("bench mlp --seconds 0", &["--seconds"]),
        ("bench decode-1b --batch 2", &["one text", "--batch"]),
        ("bench mlp --seconds nan", &["--seconds"]),
        ("bench", &["MODEL"]),
        ("inspect", &["FILE"]),
        ("trian", &["trian", "train"]),
        ("train digits --stesp 3", &["--stesp", "--steps"]),
    ] {
        run(folder.path(), arguments).refused(words);
    }
    assert_eq!(names(folder.path()), [""; 0], "something was written");
}

/// More memory than there is: an error before the first step, and the folder may be used by the next try.
#[cfg(target_os = "linux")]
#[test]
fn more_memory_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let exe = env!("CARGO_BIN_EXE_onestep");
    // So that the answer does not depend on the machine.
    let limited =
        format!("ulimit -v 4000000; exec '{exe}' train gpt --batch 4096 --threads 2 --json --out kept");
    let said = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
    Said::of(said).refused(&["cannot allocate", "bytes", "batch"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn folders_that_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("full")).unwrap();
    fs::write(at("full/thesis.txt"), "years").unwrap();
    fs::write(at("file"), "x").unwrap();
    run(folder.path(), "train digits --steps 2 --out full").refused(&["full", "already holds", "--out"]);
    run(folder.path(), "train digits --steps 2 --out file").refused(&["file", "--out"]);
    run(folder.path(), "train digits --steps 2 --out file/below").refused(&["file", "--out"]);
    assert_eq!(
        (names(&at("full")), fs::read(at("file")).unwrap()),
        (vec!["thesis.txt".to_string()], b"x".to_vec())
    );
    // A second run never touches the first.
    run(folder.path(), "train digits --steps 2 --json --out once").json();
    let first = fs::read(at("once/metrics.jsonl")).unwrap();
    run(folder.path(), "train digits --steps 3 --json --out once").refused(&["already holds"]);
    assert_eq!(fs::read(at("once/metrics.jsonl")).unwrap(), first);
}

#[cfg(target_os = "linux")]
#[test]
fn places_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "train digits --steps 2 --json --out /proc/onestep")
        .refused(&["/proc/onestep", "written"]);
    run(folder.path(), "train digits --steps 2 --json --out /dev/null/x").refused(&["/dev/null"]);
    // A folder without permission to write; the superuser is never refused.
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let mut permissions = fs::metadata(&closed).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o555);
    fs::set_permissions(&closed, permissions).unwrap();
    if fs::write(closed.join("probe"), "").is_err() {
        run(folder.path(), "train digits --steps 2 --json --out closed").refused(&["closed", "written"]);
        run(folder.path(), "train digits --steps 2 --json --out closed/run").refused(&["closed", "written"]);
    }
}

/// A disk that fills while the run is saved: an error, and no half of a file stands for a whole one.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let exe = env!("CARGO_BIN_EXE_onestep");
    // No file may grow beyond 16 KiB: enough for the metrics, not for the model.
    let limited =
        format!("trap '' XFSZ; ulimit -f 32; exec '{exe}' train digits --steps 3 --json --out kept");
    let said = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
    let said = Said::of(said);
    said.refused(&["model.safetensors"]);
    assert_eq!(names(&folder.path().join("kept")), ["metrics.jsonl"], "{}", said.err);
    // Not even the metrics.
    let limited = format!("trap '' XFSZ; ulimit -f 0; exec '{exe}' train digits --steps 3 --json --out none");
    let said = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
    Said::of(said).refused(&["metrics.jsonl"]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_is_full_or_gone() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "train digits --steps 2 --json --out kept").json();
    for arguments in [
        "inspect kept/step.onestep",
        "inspect kept/step.onestep --json",
        "bench mlp --batch 2 --seconds 0.01",
        "bench mlp --batch 2 --seconds 0.01 --json",
        "train digits --steps 2 --json --out again",
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let start = |out: Stdio| {
            let mut command = program(folder.path());
            command.args(arguments.split_whitespace()).stdout(out).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let said = Said::of(start(full.into()).wait_with_output().unwrap());
        said.refused(&["cannot write the result"]);
        let _ = fs::remove_dir_all(folder.path().join("again"));
        // A reader that goes away at once.
        let mut child = start(Stdio::piped());
        drop(child.stdout.take());
        Said::of(child.wait_with_output().unwrap());
        let _ = fs::remove_dir_all(folder.path().join("again"));
    }
    // Nobody hears the complaint either.
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = program(folder.path()).args(["inspect", "missing"]).stdout(full()).stderr(full()).status();
    assert_eq!(status.unwrap().code(), Some(1));
}

#[test]
fn a_run_that_diverges() {
    diverges("");
}

#[test]
fn a_population_that_diverges() {
    diverges("--population 2");
}

/// A loss that is not a number any more: the run stops, and the state that is kept is the last finite one.
#[track_caller]
fn diverges(more: &str) {
    let folder = tempfile::tempdir().unwrap();
    let arguments = format!("train digits --lr 1e6 --steps 200 --json --out kept {more}");
    run(folder.path(), &arguments).refused(&["the loss became", "at step", "--lr"]);
    let kept = folder.path().join("kept");
    assert_eq!(names(&kept), ["metrics.jsonl", "model.safetensors"]);
    let metrics = fs::read_to_string(kept.join("metrics.jsonl")).unwrap();
    assert!(metrics.lines().last().unwrap().contains("\"train_loss\":null"), "{metrics}");
    let mut state = onestep::State::new();
    state.load(kept.join("model.safetensors")).unwrap();
    for name in state.names() {
        assert!(state.get(name).unwrap().to_f64().iter().all(|x| x.is_finite()), "{name}");
    }
}

/// Every device has a line, and one that is not in the build says what to do.
#[test]
fn the_doctor_names_devices_and_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), "doctor");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines[0].starts_with("cpu") && lines[0].contains("threads"), "{}", said.out);
    assert!(lines[1].starts_with("cuda"), "{}", said.out);
    #[cfg(not(feature = "cuda"))]
    assert!(lines[1].contains("build with the feature `cuda`"), "{}", said.out);
}
