//! `bisect`: equal runs, runs that part, and files that are no runs.

use crate::common::{copy, run};
use onestep::io::{CheckpointFolder, newest_checkpoint};
use std::fs;

#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, threads) in [("a", 1), ("b", 3)] {
        let train =
            format!("train digits --steps 8 --threads {threads} --record-values 2 --json --out {name}");
        run(folder.path(), &train).json();
    }
    let said = run(folder.path(), "bisect a b/record.jsonl");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(said.out, "identical: 8 steps, to step 8, have equal states bit for bit\n");
    let json = run(folder.path(), "bisect a b --json").json();
    assert_eq!(json, serde_json::json!({"identical": true, "steps": 8, "last": 8}));
    // Recording changes nothing either.
    run(folder.path(), "train digits --steps 8 --json --out plain").json();
    let model = |name: &str| fs::read(folder.path().join(name).join("model.safetensors")).unwrap();
    assert!(model("a") == model("plain"));
}

/// A parameter of which somebody changes one bit after step 3.
#[test]
fn one_bit_of_one_parameter() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let train = "train digits --steps 6 --json --record-values 4";
    run(folder.path(), &format!("{train} --checkpoint-every 3 --out a")).json();
    fs::remove_file(at("a/checkpoints/step-0000000006.safetensors")).unwrap();
    copy(&at("a"), &at("b"));
    let mut found = newest_checkpoint(at("b/checkpoints")).unwrap().checkpoint;
    assert_eq!(found.manifest.step, 3);
    let bytes = found.tensors.get_mut("fc1.weight").unwrap().bytes_mut();
    // High in the mantissa, of a pixel that has ink.
    bytes[4 * (20 * 256 + 3) + 2] ^= 0x40;
    CheckpointFolder::open(at("b/checkpoints"), 3).unwrap().save(&found.manifest, &found.tensors).unwrap();
    copy(&at("b"), &at("fresh"));
    fs::remove_file(at("fresh/record.jsonl")).unwrap();
    for name in ["b", "fresh"] {
        run(folder.path(), &format!("{train} --resume {name}")).json();
    }

    // Whoever records on sees the step that reads it, and the op in it that does.
    let said = run(folder.path(), "bisect a b");
    assert_eq!(said.code, Some(1), "{}", said.err);
    for words in [
        "the runs part at step 4; after step 3 they are equal",
        "tensor: ",
        "computed by %",
        "op: %",
        "matmul at ",
    ] {
        assert!(said.out.contains(words), "no {words} in {}", said.out);
    }
    let said = run(folder.path(), "bisect a b --json");
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &json["step"], &json["equal_step"]), (Some(1), &4.into(), &3.into()));
    assert_eq!(json["first_op"]["op"], "matmul");
    assert_eq!(json["runs"][1]["device"], "cpu");
    assert!(json["first_op"]["at"].as_str().unwrap().contains(".rs:"), "{json}");

    // Whoever begins to record after it sees the parameter itself.
    let json: serde_json::Value =
        serde_json::from_str(&run(folder.path(), "bisect a fresh --json").out).unwrap();
    assert_eq!((&json["step"], &json["tensor"]), (&3.into(), &"fc1.weight".into()));
    assert_eq!(json["tensors"], serde_json::json!(["fc1.weight"]));
    assert!(json["tensor_op"]["op"].is_string() && json["tensor_op"]["at"].is_string(), "{json}");
}

#[test]
fn other_data_and_other_first_values() {
    let folder = tempfile::tempdir().unwrap();
    for (name, arguments) in
        [("a", "--steps 3"), ("seed", "--steps 3 --seed 2"), ("lr", "--steps 3 --lr 0.1")]
    {
        run(folder.path(), &format!("train digits {arguments} --record --json --out {name}")).json();
    }
    let said = run(folder.path(), "bisect a seed");
    assert_eq!(said.code, Some(1));
    for words in ["from the beginning", "--seed is 1 in a, 2 in b", "its first value"] {
        assert!(said.out.contains(words), "no {words} in {}", said.out);
    }
    let said = run(folder.path(), "bisect a lr");
    assert!(said.code == Some(1) && said.out.contains("tensor: opt/lr"), "{}", said.out);
    assert!(
        said.out.contains("their graphs are different"),
        "the first value of opt/lr is in it: {}",
        said.out
    );
}

#[test]
fn what_cannot_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    run(folder.path(), "train digits --steps 3 --record --json --out a").json();
    run(folder.path(), "train digits --model cnn --steps 1 --record --json --out cnn").json();
    run(folder.path(), "train digits --steps 2 --json --out plain").json();
    fs::write(at("prose"), "It was the best of times\n").unwrap();
    let record = fs::read_to_string(at("a/record.jsonl")).unwrap();
    fs::write(at("later"), record.replacen("\"format\":1", "\"format\":9", 1)).unwrap();
    for (other, words) in [
        ("none", &["none", "cannot be read"][..]),
        ("plain", &["plain/record.jsonl", "cannot be read"]),
        ("prose", &["prose", "line 1"]),
        ("later", &["later", "format 9"]),
        ("cnn", &["different programs"]),
    ] {
        let said = run(folder.path(), &format!("bisect a {other}"));
        assert_eq!(said.code, Some(2), "{}", said.err);
        said.refused(words);
    }
    // A kill in the middle of a line costs that line only.
    fs::write(at("torn"), &record[..record.len() - 40]).unwrap();
    let json = run(folder.path(), "bisect a torn --json").json();
    assert_eq!(json["steps"], 2);
}
