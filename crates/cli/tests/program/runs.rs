//! Runs that go well, and runs that are interrupted.

use crate::common::{Said, names, program, run};
use onestep::io::safetensors;
use onestep::{Graph, State};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: [&str; 5] =
    ["metrics.jsonl", "model.safetensors", "program.html", "report.html", "step.onestep"];

/// Whether all these keys hold finite numbers.
#[track_caller]
fn numbers(json: &serde_json::Value, keys: &[&str]) {
    for key in keys {
        assert!(json[key].as_f64().is_some_and(f64::is_finite), "{key}: {json}");
    }
}

/// What every run's folder holds.
#[track_caller]
fn whole(folder: &Path, steps: usize) {
    let names: Vec<String> = names(folder).into_iter().filter(|name| name != "checkpoints").collect();
    assert_eq!(names, FILES);
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    assert!(metrics.ends_with('\n'));
    let lines: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), steps);
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(line["step"], i + 1);
        numbers(line, &["train_loss", "lr", "step_ms", "items_per_second"]);
    }
    numbers(lines.last().unwrap(), &["val_loss"]);
    let mut state = State::new();
    state.load(folder.join("model.safetensors")).unwrap();
    assert_eq!(state.scalar("opt/step").unwrap(), steps as f64);
    // The kept graph is the step that the kept state fits.
    let graph = Graph::parse(&std::fs::read_to_string(folder.join("step.onestep")).unwrap()).unwrap();
    assert_eq!(graph.states.len(), state.len());
    assert!(graph.states.iter().all(|s| state.contains(&s.name)));
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for outside in ["src=", "href=", "url(", "@import", "<link", "<iframe", "fetch("] {
        assert!(!page.contains(outside), "the page refers to something outside itself: {outside}");
    }
}

#[test]
fn digits_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), "train digits --steps 5 --json --out kept");
    assert_eq!(said.out.lines().count(), 1, "{}", said.out);
    assert_eq!(said.err, "");
    let json = said.json();
    numbers(
        &json,
        &[
            "steps",
            "train_loss",
            "val_loss",
            "test_accuracy",
            "step_ms_median",
            "items_per_second",
            "compile_ms",
            "plan_peak_bytes",
        ],
    );
    assert!(json.as_object().unwrap().contains_key("baseline_val_loss"));
    assert_eq!(
        (&json["steps"], &json["interrupted"], &json["out"]),
        (&5.into(), &false.into(), &"kept".into())
    );
    whole(&folder.path().join("kept"), 5);
}

/// Products in 16 bits; what is kept is `f32`.
#[test]
fn digits_in_mixed_precision() {
    let folder = tempfile::tempdir().unwrap();
    for precision in ["bf16", "f16"] {
        let json = run(
            folder.path(),
            &format!("train digits --steps 200 --precision {precision} --json --out {precision}"),
        );
        let json = json.json();
        assert!(json["test_accuracy"].as_f64().unwrap() > 0.85, "{json}");
        let kept = folder.path().join(precision);
        let (tensors, _) = safetensors::load(kept.join("model.safetensors")).unwrap();
        assert!(tensors.iter().all(|(_, t)| !["bf16", "f16"].contains(&t.dtype().name())));
        let graph = std::fs::read_to_string(kept.join("step.onestep")).unwrap();
        assert!(
            graph.contains(&format!("transpose_b=true, dtype={precision}}}")),
            "no low product in\n{graph}"
        );
        let page = std::fs::read_to_string(kept.join("report.html")).unwrap();
        assert!(page.contains(&format!("<span>--precision</span> <span>{precision}</span>")));
    }
    run(folder.path(), "train digits --precision f64").refused(&["--precision", "f64", "bf16"]);
}

/// Parameters and slots without masters: learned all the same, and taken up again to the same bits.
#[test]
fn digits_without_masters() {
    let folder = tempfile::tempdir().unwrap();
    let train = "train digits --steps 200 --precision bf16 --parameters-in bf16 --slots-in bf16 --json";
    let json = run(folder.path(), &format!("{train} --checkpoint-every 150 --out kept")).json();
    assert!(json["test_accuracy"].as_f64().unwrap() > 0.85, "{json}");
    let kept = folder.path().join("kept");
    let tensors = || safetensors::load(kept.join("model.safetensors")).unwrap().0;
    let first = tensors();
    for path in ["fc1.weight", "opt/fc1.weight/m", "opt/fc1.weight/v"] {
        let (_, tensor) = first.iter().find(|(name, _)| *name == path).unwrap();
        assert_eq!(tensor.dtype().name(), "bf16", "{path}");
    }
    let page = std::fs::read_to_string(kept.join("report.html")).unwrap();
    assert!(
        page.contains("<span>--parameters-in</span> <span>bf16</span>"),
        "the command that repeats the run"
    );
    std::fs::remove_file(kept.join("checkpoints/step-0000000200.safetensors")).ok();
    let other = train.replace(" --slots-in bf16", "");
    run(folder.path(), &format!("{other} --resume kept")).refused(&["--slots-in", "'bf16'", "not set"]);
    run(folder.path(), &format!("{train} --resume kept")).json();
    assert!(tensors() == first);
    // The evaluation and the writer read what is kept.
    std::fs::write(folder.path().join("text"), "To be, or not to be? ".repeat(600)).unwrap();
    let gpt = "train gpt --text text --steps 2 --batch 1 --parameters-in bf16 --json --out gpt";
    assert!(run(folder.path(), gpt).json()["val_loss"].as_f64().unwrap() > 0.0);
    run(folder.path(), "train digits --slots-in f8").refused(&["--slots-in", "exact or bf16"]);
}

#[test]
fn digits_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    let json = run(folder.path(), "train digits --json --out kept").json();
    assert!(json["test_accuracy"].as_f64().unwrap() >= 0.97, "{json}");
    whole(&folder.path().join("kept"), 1000);
}

/// Each member is the network of its own seed; the best one is kept, and is the single run's where that is the first.
#[test]
fn a_population_of_digits() {
    let folder = tempfile::tempdir().unwrap();
    let json = run(folder.path(), "train digits --steps 60 --population 3 --json --out kept").json();
    numbers(&json, &["steps", "train_loss", "val_loss", "test_accuracy", "step_ms_median", "compile_ms"]);
    let members = json["members"].as_array().unwrap();
    let seeds: Vec<u64> = members.iter().map(|m| m["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [1, 2, 3]);
    let accuracy = |m: &serde_json::Value| m["test_accuracy"].as_f64().unwrap();
    let best = members.iter().map(accuracy).fold(0.0, f64::max);
    assert!(best > 0.8, "{json}");
    assert_eq!(accuracy(&json), best);
    let kept = members.iter().find(|m| m["seed"] == json["best_seed"]).unwrap();
    assert_eq!(accuracy(kept), best);
    whole(&folder.path().join("kept"), 60);
    let alone = run(folder.path(), "train digits --steps 60 --json --out alone").json();
    assert_eq!(accuracy(&members[0]), accuracy(&alone));
    let said = run(folder.path(), "train digits --steps 2 --population 2");
    assert!(said.err.contains("seed 2: test accuracy") && said.err.contains("kept"), "{}", said.err);
}

#[test]
fn a_run_for_a_person_has_its_own_folder_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), "train digits --steps 3");
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""));
    assert!(said.err.contains("test accuracy") && said.err.contains("report: runs/digits-"), "{}", said.err);
    let runs = names(&folder.path().join("runs"));
    assert_eq!(runs.len(), 1);
    whole(&folder.path().join("runs").join(&runs[0]), 3);
}

#[test]
fn a_seed_decides_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let model = |name: &str, arguments: &str| {
        run(folder.path(), &format!("train digits --steps 40 --json --out {name} {arguments}")).json();
        std::fs::read(folder.path().join(name).join("model.safetensors")).unwrap()
    };
    let first = model("a", "--seed 1 --threads 2");
    assert!(first == model("b", "--seed 1 --threads 2"), "again");
    assert!(first == model("c", "--seed 1 --threads 1"), "on one thread");
    assert!(first == model("d", "--threads 3"), "1 is the seed unless told otherwise");
    assert!(first != model("e", "--seed 2 --threads 2"));
}

/// To its end, with the evaluation on the whole held-out text and a sample.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes half a minute without optimisation")]
fn a_gpt_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let json = run(folder.path(), "train gpt --steps 2 --batch 1 --json --out kept").json();
    assert_eq!(json["interrupted"], false);
    whole(&folder.path().join("kept"), 2);
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = "train gpt --batch 1 --steps 100000 --json --out kept";
    let child = program(folder.path())
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let metrics = folder.path().join("kept/metrics.jsonl");
    let lines = || std::fs::read_to_string(&metrics).unwrap_or_default().lines().count();
    let start = Instant::now();
    while lines() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not train");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let json = Said::of(child.wait_with_output().unwrap()).json();
    assert_eq!(json["interrupted"], true);
    let steps = json["steps"].as_u64().unwrap() as usize;
    assert!((2..100_000).contains(&steps));
    whole(&folder.path().join("kept"), steps);
    assert_eq!(names(&folder.path().join("kept/checkpoints")), [format!("step-{steps:010}.safetensors")]);
    numbers(&json, &["train_loss", "val_loss", "baseline_val_loss", "compile_ms", "plan_peak_bytes"]);
    assert!(json.as_object().unwrap().contains_key("test_accuracy"));
    let (model, _) = safetensors::load(folder.path().join("kept/model.safetensors")).unwrap();
    assert!(model.iter().any(|(name, _)| name == "block.3.attn.q.weight"));
}

#[test]
fn benches_in_json() {
    let folder = tempfile::tempdir().unwrap();
    for bench in ["mlp --batch 16", "gpt-mini --batch 1"] {
        let said = run(folder.path(), &format!("bench {bench} --seconds 0.05 --threads 2 --json"));
        let json = said.json();
        let keys = [
            "ms_median",
            "ms_p10",
            "ms_p90",
            "ms_queued",
            "first_ms",
            "gflops",
            "rss_bytes",
            "threads",
            "loss_first",
            "loss_last",
        ];
        numbers(&json, &keys);
        assert_eq!(json["threads"], 2);
        numbers(&json["memory"], &["peak", "state", "arena", "scratch"]);
        let ms = |key: &str| json[key].as_f64().unwrap();
        assert!(0.0 < ms("ms_p10") && ms("ms_p10") <= ms("ms_median") && ms("ms_median") <= ms("ms_p90"));
        assert!(ms("loss_last") < ms("loss_first"), "it trains: {json}");
    }
    let said = run(folder.path(), "bench mlp --batch 4 --seconds 0.01 --profile");
    assert!(
        said.out.contains("GFLOP/s") && said.out.contains("kernels") && said.out.contains('%'),
        "{}",
        said.out
    );
    assert_eq!(names(folder.path()), [""; 0], "a bench keeps nothing");
}

/// The graph of a model that writes: nothing is fed, and what is large is in 16 bits.
#[test]
fn a_bench_writes_its_graph() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), "bench decode-1b --graph writer.onestep");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let text = std::fs::read_to_string(folder.path().join("writer.onestep")).unwrap();
    let graph = onestep::Graph::parse(&text).unwrap();
    assert!(graph.inputs.is_empty() && graph.outputs.len() == 1);
    assert!(graph.state("token").is_some_and(|s| graph.ty(s.value).to_string() == "i32[1]"));
    for s in &graph.states {
        let ty = graph.ty(s.value);
        assert!(ty.numel() == 1 || ty.dtype == onestep::DType::BF16, "'{}' is {ty}", s.name);
    }
}

#[test]
fn help_texts() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        ("--help", &["train", "inspect", "bench", "bisect", "ONESTEP_DUMP"][..]),
        ("train --help", &["gpt", "digits", "--steps", "--seed", "--threads", "--out", "--json", "Ctrl-C"]),
        ("train --help", &["--resume", "--checkpoint-every", "--keep", "--record", "--record-values"]),
        ("bisect --help", &["RUN_A", "RUN_B", "--json", "Exit code", "--record"]),
        ("inspect --help", &["--json", "--dim", "NAME=SIZE", "step.onestep"]),
        ("bench --help", &["mlp", "gpt-mini", "--seconds", "--profile", "--json"]),
        ("--version", &["onestep 0."]),
    ] {
        let said = run(folder.path(), arguments);
        assert_eq!(said.code, Some(0), "{arguments}");
        assert!(words.iter().all(|w| said.out.contains(w)), "{arguments}: {}", said.out);
    }
    let said = run(folder.path(), "");
    assert!(said.code == Some(2) && said.err.contains("Usage"), "{}", said.err);
}
