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
