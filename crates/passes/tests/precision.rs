//! The table of precisions: complete, without repetition, and the one that the documentation shows.

use onestep_ir::testing::{RandomOptions, random_graph};
use onestep_ir::{AttentionOptions, DType, Graph, GraphBuilder, Init, Op, Role};
use onestep_optim::{Params, Sgd, StepOptions, training_step};
use onestep_passes::precision::{Precision, Rule, markdown, precision, rule, table};

#[test]
fn every_op_has_one_row() {
    let listed: Vec<&str> = table().iter().flat_map(|row| row.ops).copied().collect();
    for name in Op::names() {
        let times = listed.iter().filter(|n| **n == name).count();
        assert_eq!(times, 1, "'{name}' is in {times} rows of the table of precisions; give it one");
    }
    for name in listed {
        assert!(Op::names().contains(&name), "the table has '{name}', which is no op");
    }
}

/// `ONESTEP_BLESS=1` writes the table into the page anew.
#[test]
fn the_page_shows_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/precision.md");
    let page = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = page.lines().collect();
    let start = lines.iter().position(|l| l.starts_with("| runs |")).expect("a table in docs/precision.md");
    let rows = lines[start..].iter().take_while(|l| l.starts_with('|')).count();
    let shown = lines[start..start + rows].join("\n") + "\n";
    if shown != markdown() && std::env::var_os("ONESTEP_BLESS").is_some() {
        std::fs::write(path, page.replace(&shown, &markdown())).unwrap();
    } else {
        assert_eq!(shown, markdown(), "ONESTEP_BLESS=1 writes the page anew");
    }
}

/// The gradient of attention takes the log-sum-exp in `f32`; what has an optimizer is refused.
#[test]
fn graphs_that_are_differentiated() {
    let g = GraphBuilder::new("by hand");
    let q = g.input("q", DType::F32, [1, 2, 3, 4]);
    let w = g.parameter("w", &[4, 4], Init::ONES);
    let k = q.matmul(w);
    let loss = q.attention(k, q, None, AttentionOptions::default()).square().sum_all();
    let forward = g.finish(loss).unwrap();
    let found = onestep_autodiff::gradients(&g, loss, &[w]).unwrap();
    g.output("gradient", found[0].unwrap());
    for low in [Precision::Bf16, Precision::F16] {
        let mixed = precision(&g.build().unwrap(), low).unwrap();
        mixed.verify().unwrap();
        assert!(low_ops(&mixed, low.low().unwrap()).contains(&("attention_grad", Rule::Low)));
    }
    let step = training_step(&forward, "loss", Params::All, &Sgd::new(0.1), &StepOptions::default()).unwrap();
    let refused = precision(&step.graph, Precision::Bf16).unwrap_err().to_string();
    assert!(refused.contains("updates 'w'") && refused.contains("forward graph"), "{refused}");
}

fn low_ops(graph: &Graph, low: DType) -> Vec<(&'static str, Rule)> {
    let is_low = |n: &&onestep_ir::Node| n.results.iter().any(|v| graph.ty(*v).dtype == low);
    graph.nodes.iter().filter(is_low).map(|n| (n.op.rule().name(), rule(&n.op))).collect()
}

/// Random graphs keep their interface; the products are low, and nothing is low that the table keeps in f32.
#[test]
fn random_graphs_keep_their_interface() {
    let mut products = 0;
    for seed in 0..200 {
        let mut graph = random_graph(seed, RandomOptions::default());
        // What it updates is no parameter: it has no optimizer.
        for u in &graph.updates {
            graph.states[u.state].role = Role::Buffer;
        }
        for (name, low) in [(Precision::Bf16, DType::BF16), (Precision::F16, DType::F16)] {
            let before = low_ops(&graph, low).len();
            let mixed = precision(&graph, name).unwrap();
            mixed.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{mixed}"));
            let ports = |g: &Graph| -> Vec<_> {
                let ports = g.inputs.iter().chain(&g.outputs).map(|p| (p.name.to_string(), p.value));
                let states = g.states.iter().map(|s| (s.name.to_string(), s.value));
                ports.chain(states).map(|(n, v)| (n, g.ty(v).clone())).collect()
            };
            assert_eq!(ports(&graph), ports(&mixed), "seed {seed}");
            if before > 0 {
                continue;
            }
            for (op, rule) in low_ops(&mixed, low).into_iter().filter(|(op, _)| *op != "cast") {
                assert_ne!(rule, Rule::F32, "seed {seed}: {op} is low");
                products += (rule == Rule::Low) as usize;
            }
            let wide = |n: &&onestep_ir::Node| {
                rule(&n.op) == Rule::Low && n.operands.iter().any(|v| mixed.ty(*v).dtype == DType::F32)
            };
            assert_eq!(mixed.nodes.iter().filter(wide).count(), 0, "seed {seed}:\n{mixed}");
        }
        let same = precision(&graph, Precision::F32).unwrap();
        assert_eq!(same.to_string(), graph.to_string());
    }
    assert!(products > 100, "only {products} low products");
}
