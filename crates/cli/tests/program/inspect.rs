//! `inspect`: of the program's own files, of dimension variables, and of files that nobody meant well.

use crate::common::{names, program, run};
use std::fs;

#[test]
fn the_kept_step() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "train digits --steps 2 --json --out kept").json();
    let said = run(folder.path(), "inspect kept/step.onestep");
    assert_eq!(said.code, Some(0), "{}", said.err);
    for part in ["graph \"mlp\"", "schedule", "plan \"mlp\"", "updated in place", "arena"] {
        assert!(said.out.contains(part), "no {part} in\n{}", said.out);
    }
    let json = run(folder.path(), "inspect kept/step.onestep --json").json();
    let kernels = json["kernels"].as_array().unwrap();
    assert!(kernels.len() > 5 && kernels.iter().all(|k| k["name"].is_string() && k["kind"].is_string()));
    assert!(json["peak_bytes"].as_u64().unwrap() >= json["state_bytes"].as_u64().unwrap());
    assert!(json["arena_bytes"].as_f64().unwrap() <= 1.05 * json["live_bytes"].as_f64().unwrap() + 64.0);
    assert_eq!(json["refusals"], serde_json::json!([]));
    // What it prints can be inspected again.
    fs::write(folder.path().join("again.onestep"), json["graph"].as_str().unwrap()).unwrap();
    let again = run(folder.path(), "inspect again.onestep --json").json();
    assert_eq!(again["schedule"], json["schedule"]);
}

#[test]
fn the_passes_are_dumped_where_asked() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("g.onestep"), text("../out of/it", "B")).unwrap();
    let mut command = program(folder.path());
    let status = command.args(["inspect", "g.onestep"]).env("ONESTEP_DUMP", "dump").output().unwrap().status;
    assert!(status.success());
    assert_eq!(names(folder.path()), ["dump", "g.onestep"]);
    let below = names(&folder.path().join("dump"));
    assert_eq!(below, ["___out_of_it"]);
    let files = names(&folder.path().join("dump").join(&below[0]));
    assert!(files.iter().any(|f| f.ends_with("-fuse.onestep")) && files.len() > 10, "{files:?}");
    // A folder that cannot be is reported, and stops nothing.
    let mut command = program(folder.path());
    let output = command.args(["inspect", "g.onestep"]).env("ONESTEP_DUMP", "g.onestep").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the dump"));
}

/// A graph with one dimension variable.
fn text(name: &str, size: &str) -> String {
    let g = onestep::GraphBuilder::new(name);
    let x = g.input("x", onestep::DType::F32, (onestep::dim("B").at_most(64), 3));
    g.output("sum", (x * 2.0).sum(&[1]));
    g.build().unwrap().to_string().replace("B", size)
}

#[test]
fn dimension_variables() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("g.onestep"), text("g", "B")).unwrap();
    let peak = |arguments: &str| {
        run(folder.path(), &format!("inspect g.onestep --json {arguments}")).json()["peak_bytes"]
            .as_u64()
            .unwrap()
    };
    assert!(peak("--dim B=8") < peak("--dim B=32") && peak("--dim B=32") < peak(""));
    assert_eq!(peak("--dim B=64"), peak(""));
    peak("--dim B=0");
    for (dim, words) in [
        ("B=65", &["'B'", "65", "64"][..]),
        ("B=18446744073709551615", &["'B'"]),
        ("b=3", &["'b'", "did you mean 'B'"]),
        ("T=3", &["'T'"]),
        ("B", &["NAME=SIZE"]),
        ("B=", &["NAME=SIZE"]),
        ("B=-1", &["NAME=SIZE"]),
        ("B=1e3", &["NAME=SIZE"]),
        ("=3", &[]),
    ] {
        run(folder.path(), &format!("inspect g.onestep --dim {dim}")).refused(words);
    }
}

#[test]
fn in_mixed_precision() {
    let folder = tempfile::tempdir().unwrap();
    let g = onestep::GraphBuilder::new("product");
    let x = g.input("x", onestep::DType::F32, [2, 2]);
    g.output("y", x.matmul(x));
    fs::write(folder.path().join("g.onestep"), g.build().unwrap().to_string()).unwrap();
    let said = run(folder.path(), "inspect g.onestep --precision bf16 --pass input");
    assert!(said.out.contains("transpose_b=false, dtype=bf16}"), "{}{}", said.out, said.err);
    // What a run keeps has an optimizer in it.
    run(folder.path(), "train digits --steps 1 --json --out kept").json();
    // A permission, which the graph does not show.
    let said = run(folder.path(), "inspect g.onestep --precision tf32");
    assert!(said.out.contains("products of f32 may be in tf32"), "{}", said.out);
    assert!(!run(folder.path(), "inspect g.onestep").out.contains("tf32"));
    run(folder.path(), "inspect kept/step.onestep --precision bf16").refused(&["differentiated", "forward"]);
}

#[test]
fn files_that_are_no_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    run(folder.path(), "inspect missing.onestep").refused(&["missing.onestep", "No such file"]);
    fs::create_dir(at("folder")).unwrap();
    run(folder.path(), "inspect folder").refused(&["folder", "directory"]);
    fs::write(at("binary"), (0..=255u8).cycle().take(100_000).collect::<Vec<u8>>()).unwrap();
    run(folder.path(), "inspect binary").refused(&["binary", "UTF-8"]);
    fs::write(at("empty"), "").unwrap();
    run(folder.path(), "inspect empty").refused(&["line 1"]);
    fs::write(at("prose"), "It was the best of times, it was the worst of times").unwrap();
    run(folder.path(), "inspect prose").refused(&["line 1, column 1", "graph"]);

    run(folder.path(), "train digits --steps 2 --json --out kept").json();
    let whole = fs::read_to_string(at("kept/step.onestep")).unwrap();
    for part in [1, 2, 3, 7, 30, 300] {
        let cut = whole.len() - whole.len() / (part + 1) - 2;
        fs::write(at("cut"), &whole[..cut]).unwrap();
        run(folder.path(), "inspect cut").refused(&["line ", "column "]);
    }
    for (old, new) in [
        ("f32[64, 64]", "f32[9223372036854775807, 64]"),
        ("f32[64, 64]", "f32[99999999999999999999, 64]"),
        ("f32[64, 64]", "f32[4294967296, 4294967296]"),
        ("f32[64, 64]", "f32[-1, 64]"),
        ("f32[64, 64]", "f33[64, 64]"),
        ("f32[64, 64]", "f32[64, 65]"),
        ("%0:", "%1:"),
        ("matmul", "matmull"),
    ] {
        assert!(whole.contains(old));
        fs::write(at("hostile"), whole.replace(old, new)).unwrap();
        run(folder.path(), "inspect hostile").refused(&[]);
    }
    let huge = "graph \"huge\" {\n  input \"x\" %0: f32[1099511627776, 1048576]\n";
    fs::write(
        at("huge"),
        format!("{huge}  %1 = mul(%0, %0): f32[1099511627776, 1048576]\n  output \"y\" %1\n}}\n"),
    )
    .unwrap();
    let said = run(folder.path(), "inspect huge");
    assert!(said.code == Some(0) || said.code == Some(1));
    fs::write(at("deep"), format!("graph \"deep\" {{\n{}", "  %1 = add(".repeat(100_000))).unwrap();
    run(folder.path(), "inspect deep").refused(&["line 2"]);
}
