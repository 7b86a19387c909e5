//! `onestep inspect` as it is run: the page, its JSON twin, one pass, and answers.

use std::process::{Command, Output};

const GRAPH: &str = "graph \"rows\" {
  input \"x\" %0: f32[64, 32]
  state \"scale\" %1: f32[32] parameter init=constant(1)
  %2 = softmax %0 {axis=1} : f32[64, 32]
  %3 = broadcast %1 {dims=[64, 32]} : f32[64, 32]
  %4 = mul %2, %3 : f32[64, 32]
  output \"y\" %4
}
";

fn inspect(folder: &std::path::Path, args: &[&str]) -> Output {
    let file = folder.join("rows.onestep");
    std::fs::write(&file, GRAPH).unwrap();
    Command::new(env!("CARGO_BIN_EXE_onestep"))
        .current_dir(folder)
        .arg("inspect")
        .arg(&file)
        .args(args)
        .output()
        .unwrap()
}

fn text(out: &Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout.clone()).unwrap()
}

#[test]
fn the_page_and_its_twin_have_the_same_facts() {
    let folder = tempfile::tempdir().unwrap();
    let json = text(&inspect(folder.path(), &["--json", "--html", "rows.html"]));
    let facts: serde_json::Value = serde_json::from_str(&json).unwrap();
    let page = std::fs::read_to_string(folder.path().join("rows.html")).unwrap();
    assert!(page.contains("<h1>rows</h1>"));
    let order = facts["order"].as_array().unwrap();
    assert_eq!(order[0], "input");
    for name in order.iter().map(|n| n.as_str().unwrap()) {
        assert!(!facts["passes"][name].as_str().unwrap().is_empty(), "{name}");
    }
    let kernel = &facts["kernels"][0];
    assert!(kernel["flops"].as_u64().unwrap() > 64 * 32 && kernel["read_bytes"].as_u64().unwrap() > 0);
    assert!(kernel["reads"].is_array() && kernel["writes"].is_array());
    // The graph is text: its lines are the source.
    let sources = facts["sources"].as_array().unwrap();
    let softmax = sources.iter().find(|s| s["place"] == "line 4").unwrap();
    assert!(softmax["text"].as_str().unwrap().starts_with("%2 = softmax"));
    assert_eq!(facts["states"][0]["update"], "kept");
}

#[test]
fn questions_and_single_passes() {
    let folder = tempfile::tempdir().unwrap();
    let why = text(&inspect(folder.path(), &["--explain", "k0", "--explain", "y"]));
    assert!(why.starts_with("k0: one loop") && why.contains("It is the output 'y'."), "{why}");
    assert!(why.contains("from line 4 of the graph's text"), "{why}");
    let pass = text(&inspect(folder.path(), &["--pass", "decompose"]));
    assert!(pass.starts_with("graph \"rows\"") && pass.contains(" exp "), "{pass}");
    for args in [["--explain", "k99"], ["--pass", "magic"]] {
        let out = inspect(folder.path(), &args);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && error.contains(args[1]), "{error}");
    }
}

/// A GPU need not be there: schedule, launches, texts and memory are known without one, and so are the answers.
#[test]
fn for_a_gpu_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let whole = text(&inspect(folder.path(), &["--device", "cuda"]));
    for part in ["graph \"rows\"", "schedule", "plan \"rows\"", " x 256>", "1 launches of 1 texts", "memory "]
    {
        assert!(whole.contains(part), "no {part} in\n{whole}");
    }
    let short = text(&inspect(folder.path(), &["--device", "cuda", "--short", "--text", "texts"]));
    assert!(short.contains("texts: 1 texts") && !short.contains("graph \"rows\""), "{short}");
    let json = text(&inspect(folder.path(), &["--device", "cuda", "--json", "--html", "rows.html"]));
    let facts: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(facts["device"], "cuda");
    let launch = &facts["kernels"][0]["launches"][0];
    let named = &facts["texts"][launch["text"].as_u64().unwrap() as usize];
    assert_eq!(named["name"], launch["what"]);
    let written = folder.path().join("texts").join(format!("{}.cu", named["name"].as_str().unwrap()));
    assert_eq!(named["source"], std::fs::read_to_string(written).unwrap());
    assert!(launch["grid"].as_u64().unwrap() > 0 && launch["threads"] == 256);
    let memory = |name: &str| facts["memory"][name].as_u64().unwrap();
    let parts = ["state", "inputs", "constants", "arena", "scratch", "workspace"].map(memory);
    assert_eq!(memory("peak"), parts.iter().sum::<u64>());
    // Two areas for the inputs, which runs take in turn.
    assert_eq!((memory("state"), memory("inputs")), (32 * 4, 2 * 64 * 32 * 4));
    let page = std::fs::read_to_string(folder.path().join("rows.html")).unwrap();
    assert!(page.contains(launch["what"].as_str().unwrap()));
    let why = text(&inspect(folder.path(), &["--device", "cuda", "--explain", "k0"]));
    assert!(why.starts_with("k0: one loop"), "{why}");
    let pass = text(&inspect(folder.path(), &["--device", "cuda", "--pass", "fuse"]));
    assert!(pass.contains("schedule"), "{pass}");
    // The CPU's kernels are no text.
    let out = inspect(folder.path(), &["--text", "texts"]);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && error.contains("--device cuda"), "{error}");
}
