//! The page and its facts: for programs of the compiler, for none, and for hostile names.

use super::Program;
use crate::commands::facts;
use onestep::prelude::*;
use onestep::{Executable, Options};

fn compiled(graph: &Graph) -> Executable {
    let device = Device::cpu_with(1).unwrap();
    Executable::compile(graph, &device, &Options { dump: true, ..Options::default() }).unwrap()
}

/// What holds for every page.
fn check(html: &str) {
    let page = html.split("<script").next().unwrap().to_string() + html.rsplit("</script>").next().unwrap();
    for name in
        ["section", "div", "dl", "table", "svg", "details", "ul", "span", "header", "nav", "main", "button"]
    {
        let opened = page.matches(&format!("<{name} ")).count() + page.matches(&format!("<{name}>")).count();
        assert_eq!(opened, page.matches(&format!("</{name}>")).count(), "<{name}> is balanced");
    }
    assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
    for url in ["http://", "https://", "url(", "@import", "src=", "href=", "<link", "<img"] {
        assert!(!html.contains(url), "the page loads nothing: {url}");
    }
}

fn facts_of(html: &str) -> serde_json::Value {
    let text = html.split("id=\"facts\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
fn an_empty_program_is_a_page() {
    let html = Program::default().to_html();
    check(&html);
    assert!(html.contains("<h1>program</h1>") && html.ends_with("</html>\n"));
    assert_eq!(facts_of(&html)["passes"], serde_json::json!([]));
}

#[test]
fn a_training_step_with_its_lines() {
    let g = GraphBuilder::new("mlp");
    let x = g.input("x", F32, [8, 6]);
    let y = g.input("y", I32, [8]);
    let line = line!() + 1;
    let hidden = nn::linear(&g, "fc1", x, 16).relu();
    let loss = nn::linear(&g, "fc2", hidden, 4).cross_entropy(y);
    let step = TrainingStep::new(g.finish(loss).unwrap()).optimizer(Adam::new(1e-3));
    let mut step = step.compile(&Device::cpu_with(1).unwrap()).unwrap();
    let executable = compiled(step.program().executable().unwrap().graph());
    let program = facts::program(&executable, None).unwrap();
    check(&program.to_html());
    assert_eq!(program.passes.len(), executable.compiled().dumps.len());
    for p in program.passes.iter().filter(|p| !p.lines.is_empty()) {
        assert_eq!(p.lines.len(), p.text.lines().count(), "{}", p.name);
    }
    let here = program.sources.iter().find(|s| s.place.contains(&format!("viewer/tests.rs:{line}:")));
    assert!(here.is_some(), "{:?}", program.sources);
    assert!(program.kernels.iter().any(|k| k.kind == "matmul" && k.flops >= 2 * 8 * 6 * 16));
    assert!(
        program.kernels.iter().all(|k| !k.values.is_empty() && !k.writes.is_empty() && k.written_bytes > 0)
    );
    assert!(program.states.iter().all(|s| s.update == "in place" || s.update == "kept" || !s.why.is_empty()));
    let stored = program.values.iter().filter(|v| v.role == "stored");
    assert!(stored.clone().count() > 0 && stored.clone().all(|v| v.kernel.is_some() && v.buffer.is_some()));
    assert!(stored.flat_map(|v| &v.waits).all(|w| w.1 < program.reasons.len()));
    let json = serde_json::to_value(&program).unwrap();
    assert_eq!(json["kernels"].as_array().unwrap().len(), program.kernels.len());
}

#[test]
fn hostile_names_stay_names() {
    let bad = "</script><img src=x onerror=alert(1)>&'";
    let g = GraphBuilder::new(bad);
    let x = g.input(bad, F32, [4]);
    let w = g.parameter(bad, &[4], Init::ONES);
    g.update(w, w * x, false);
    g.output(bad, (x + w).sum_all());
    let graph = g.build().unwrap();
    let text = graph.to_string();
    let program = facts::program(&compiled(&Graph::parse(&text).unwrap()), Some(&text)).unwrap();
    let html = program.to_html();
    check(&html.replace("src=x", ""));
    assert!(!html.contains("<img"));
    let facts = facts_of(&html);
    assert_eq!(facts["states"][0]["name"], bad);
    let node = program.sources.iter().find(|s| s.text.contains("mul")).unwrap();
    assert!(node.place.starts_with("line ") && text.lines().any(|l| l.trim() == node.text));
}

#[test]
fn many_layers_make_a_page_of_a_modest_size() {
    let g = GraphBuilder::new("deep");
    let x = g.input("x", F32, [32, 64]);
    let mut h = x;
    for i in 0..120 {
        h = nn::linear(&g, &format!("layer.{i}"), h, 64).gelu() + h;
    }
    g.output("y", h);
    let program = facts::program(&compiled(&g.build().unwrap()), None).unwrap();
    let html = program.to_html();
    let texts: usize = program.passes.iter().map(|p| p.text.len()).sum();
    assert!(html.len() < texts / 2 + 200_000, "{} bytes for {texts} of text", html.len());
}
