//! What is differentiated and what is not: paths, several uses, intermediate values, errors, and a small network.

mod support;

use onestep_autodiff::{AutodiffError, gradients, vjp};
use onestep_ir::interp::{Mode, run};
use onestep_ir::{DType, Dense, Graph, GraphBuilder, Init, Role, Tensor, dim};
use support::{agree, draw, outputs, slopes};

fn dense(v: &[f64]) -> Dense {
    Dense::from_reals(DType::F64, &[v.len()], v.to_vec())
}

fn names(graph: &Graph) -> Vec<&'static str> {
    graph.body_nodes().map(|n| n.op.rule().name()).collect()
}

#[test]
fn tied_frozen_and_unused() {
    let g = GraphBuilder::new("tied");
    let x = g.input("x", DType::F64, [2]);
    let (tied, frozen, unused) =
        (g.input("t", DType::F64, [2]), g.input("f", DType::F64, [2]), g.input("u", DType::F64, [2]));
    let _ = unused.exp();
    let loss = (tied * x + tied * frozen + tied).sum_all();
    let before = g.with_graph(|graph| graph.body.nodes.len());
    let found = gradients(&g, loss, &[tied, unused]).unwrap();
    assert!(found[1].is_none());
    g.output("d", found[0].unwrap());
    let graph = g.build().unwrap();
    assert!(!names(&graph)[before..].contains(&"exp"));
    let out =
        outputs(&graph, &[dense(&[2.0, 3.0]), dense(&[0.0; 2]), dense(&[10.0, 20.0]), dense(&[0.0; 2])]);
    assert_eq!(out[0], [13.0, 24.0]);
}

/// The gradient of a table that is looked up and multiplied with is one scatter onto the product's part.
#[test]
fn a_tied_table_is_scattered_onto() {
    let g = GraphBuilder::new("table");
    let (table, ids) = (g.input("w", DType::F64, [3, 2]), g.input("i", DType::I32, [4]));
    let logits = table.gather(0, ids).matmul_t(table, false, true);
    let d = gradients(&g, (logits * logits).sum_all(), &[table]).unwrap()[0].unwrap();
    g.output("d", d);
    let graph = g.build().unwrap();
    let last = graph.def(graph.outputs[0].value).unwrap();
    let base = graph.def(last.operands[0]).unwrap();
    assert_eq!([last.op.rule().name(), base.op.rule().name()], ["scatter_add", "matmul"]);

    let w = [0.5, -1.0, 2.0, 0.25, 1.5, 0.75];
    let ids = [2usize, 0, 2, 2];
    let loss = |w: &[f64]| {
        let row = |i: usize| &w[2 * i..2 * i + 2];
        let dot = |i: usize, j: usize| row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum::<f64>();
        ids.iter().flat_map(|&i| (0..3).map(move |j| (i, j))).map(|(i, j)| dot(i, j).powi(2)).sum::<f64>()
    };
    let integers = Dense::from_ints(DType::I32, &[4], ids.iter().map(|&i| i as i64).collect());
    let got = &outputs(&graph, &[Dense::from_reals(DType::F64, &[3, 2], w.to_vec()), integers])[0];
    for (n, got) in got.iter().enumerate() {
        let at = |h: f64| {
            loss(&w.iter().enumerate().map(|(i, x)| if i == n { x + h } else { *x }).collect::<Vec<_>>())
        };
        let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
        assert!((got - slope).abs() < 1e-6 * slope.abs().max(1.0), "{got} not {slope}");
    }
}

/// Only what lies between is visited: no cotangent for the data, none behind it.
#[test]
fn only_paths_are_visited() {
    let g = GraphBuilder::new("data");
    let (x, w) = (g.input("x", DType::F64, [4, 3]), g.input("w", DType::F64, [3, 2]));
    let loss = x.exp().matmul(w).sum_all();
    let found = gradients(&g, loss, &[w]).unwrap();
    g.output("d", found[0].unwrap());
    let count = names(&g.build().unwrap()).iter().filter(|n| **n == "matmul").count();
    assert_eq!(count, 2);
}

#[test]
fn intermediate_values_have_total_derivatives() {
    let g = GraphBuilder::new("middle");
    let x = g.input("x", DType::F64, [1]);
    let y = x * x;
    let z = y * x;
    let loss = (z * y).sum_all();
    let found = gradients(&g, loss, &[x, y, z, loss]).unwrap();
    for (i, d) in found.iter().enumerate() {
        g.output(&format!("d{i}"), d.unwrap());
    }
    // loss = x⁵; z·y with z = y·x: d/dy = 2·y·x; d/dz = y.
    let out = outputs(&g.build().unwrap(), &[dense(&[2.0])]);
    assert_eq!(out, [vec![80.0], vec![16.0], vec![4.0], vec![1.0]]);
}

/// A parameter that the loss depends on only through steps and integers: zeros for the former, nothing for the latter.
#[test]
fn flat_and_integer_paths() {
    let g = GraphBuilder::new("flat");
    let (x, y) = (g.input("x", DType::F64, [3]), g.input("y", DType::F64, [3]));
    let loss = (x.exp().floor() + y.cast(DType::I32).cast(DType::F64)).sum_all();
    let chosen = y.greater(0.0).select(1.0, loss);
    let found = gradients(&g, chosen.sum_all(), &[x, y]).unwrap();
    assert!(found[1].is_none());
    g.output("dx", found[0].unwrap());
    assert_eq!(outputs(&g.build().unwrap(), &[dense(&[1.0; 3]), dense(&[1.0; 3])])[0], [0.0; 3]);
}

#[test]
fn vjp_of_several_outputs() {
    let g = GraphBuilder::new("vjp");
    let x = g.input("x", DType::F64, [2]);
    let ones = g.full(DType::F64, [2], 1.0);
    let (a, b) = (x * 3.0, x.square());
    let found = vjp(&g, &[(a, ones), (b, ones * 0.5), (a, ones)], &[x, ones]).unwrap();
    assert!(found[1].is_none());
    g.output("d", found[0].unwrap());
    assert_eq!(outputs(&g.build().unwrap(), &[dense(&[1.0, 5.0])])[0], [7.0, 11.0]);
}

/// A call is differentiated as its body is, also with calls inside and with one value for two parameters.
#[test]
fn calls_are_seen_through() {
    let build = |called: bool| {
        let g = GraphBuilder::new("calls");
        let (x, y) = (g.input("x", DType::F64, [2]), g.input("y", DType::F64, [2]));
        let inner = |a: Tensor<'_>, b: Tensor<'_>| g.tensor((a * b.exp()).value().unwrap());
        let z = if called {
            let outer = g.call("outer", &[x, x, y], |p| {
                let z = g.call("inner", &[p[0], p[1]], |q| vec![inner(q[0], q[1])])[0];
                vec![z * p[2], p[2]]
            });
            outer[0] + outer[1]
        } else {
            inner(x, x) * y + y
        };
        for (i, d) in gradients(&g, z.sum_all(), &[x, y]).unwrap().into_iter().enumerate() {
            g.output(&format!("d{i}"), d.unwrap());
        }
        outputs(&g.build().unwrap(), &[dense(&[0.5, -1.0]), dense(&[2.0, 3.0])])
    };
    assert_eq!(build(true), build(false));
}

#[test]
fn errors_say_what_to_do() {
    let g = GraphBuilder::new("wrong");
    let x = g.input("x", DType::F32, [2, 3]);
    let n = g.input("n", DType::I32, [2]);
    let text = |e: Result<_, AutodiffError>| e.map(|_: Vec<_>| ()).unwrap_err().to_string();
    assert!(text(gradients(&g, x, &[x])).contains("f32[2, 3], not a scalar; reduce it with"));
    assert!(text(gradients(&g, n.sum_all(), &[x])).contains("the loss is i32[]"));
    let loss = x.sum_all();
    assert!(text(gradients(&g, loss, &[x, n])).contains("wrt[1] is i32[2]"));
    let wrong = g.full(DType::F32, [3, 2], 1.0);
    assert!(text(vjp(&g, &[(x, wrong)], &[x])).contains("its cotangent is f32[3, 2]"));
    let other = GraphBuilder::new("other");
    let foreign = other.input("x", DType::F32, [2]);
    assert!(text(gradients(&g, loss, &[g.tensor(x.value().unwrap()), foreign])).contains("another graph"));
    let h = GraphBuilder::new("open");
    let open = h.input("x", DType::F32, [dim("B").at_most(8)]);
    assert!(text(gradients(&h, open.exp().sum_all(), &[open])).contains("bind the dimension variables"));
    let poisoned = x.matmul(x);
    assert!(text(gradients(&g, poisoned.sum_all(), &[x])).contains("inner sizes"));
}

/// The backward pass is found by the line of the forward op that it belongs to.
#[test]
fn backward_nodes_carry_the_users_line() {
    let g = GraphBuilder::new("lines");
    let x = g.input("x", DType::F32, [2]);
    let (y, line) = (x.tanh(), line!());
    let loss = y.sum_all();
    let before = g.with_graph(|graph| graph.body.nodes.len());
    gradients(&g, loss, &[x]).unwrap();
    g.with_graph(|graph| {
        let lines: Vec<u32> = graph.body_nodes().skip(before).map(|n| n.loc.unwrap().line()).collect();
        assert!(lines.contains(&line));
        assert!(
            graph.body_nodes().skip(before).all(|n| n
                .loc
                .unwrap()
                .file()
                .is_some_and(|f| f.contains("structure.rs")))
        );
    });
}

/// A chain deeper than any stack.
#[test]
fn deep_graphs() {
    let g = GraphBuilder::new("deep");
    let x = g.input("x", DType::F64, [1]);
    let y = (0..20_000).fold(x, |y, _| y + x);
    let d = gradients(&g, y.sum_all(), &[x]).unwrap()[0].unwrap();
    g.output("d", d);
    assert_eq!(outputs(&g.build().unwrap(), &[dense(&[1.0])])[0], [20_001.0]);
}

#[test]
fn a_small_network() {
    let g = GraphBuilder::new("mlp");
    let x = g.input("x", DType::F64, [5, 4]);
    let shapes: [&[usize]; 4] = [&[4, 6], &[6], &[6, 3], &[3]];
    let p: Vec<_> =
        shapes.iter().enumerate().map(|(i, s)| g.input(&format!("p{i}"), DType::F64, *s)).collect();
    let hidden = (x.matmul(p[0]) + p[1]).tanh();
    let logits = hidden.matmul(p[2]) + p[3];
    let loss = (logits.square() * hidden.sum_keep(&[1])).sum_all();
    g.output("loss", loss);
    for (i, d) in gradients(&g, loss, &p).unwrap().into_iter().enumerate() {
        g.output(&format!("d{i}"), d.unwrap());
    }
    let graph = g.build().unwrap();
    let fed: Vec<Dense> = graph
        .inputs
        .iter()
        .enumerate()
        .map(|(i, port)| draw(graph.ty(port.value), onestep_ir::op::Range::Real(-1.0, 1.0), i as u64))
        .collect();
    let out = outputs(&graph, &fed);
    for i in 0..p.len() {
        assert!(agree(&out[i + 1], &slopes(&graph, &fed, i + 1), 1e-7), "p{i}");
    }
}

/// w = [0], loss (w − 1)², rate 0.1, five calls.
#[test]
fn five_steps_of_descent() {
    let g = GraphBuilder::new("descent");
    let w = g.state("w", Role::Parameter, DType::F32, &[1], Init::ZEROS);
    let loss = (w - 1.0).square().sum_all();
    let d = gradients(&g, loss, &[w]).unwrap()[0].unwrap();
    g.update(w, w - d * 0.1, true);
    let graph = g.finish(loss).unwrap();
    let mut state = [("w".into(), Dense::full(DType::F32, &[1], 0.0))].into();
    for want in [0.2, 0.36, 0.488, 0.5904, 0.67232] {
        state = run(&graph, &[], &state, Mode::Declared).unwrap().state;
        assert!((state["w"].reals()[0] - want).abs() < 1e-6);
    }
}

/// What is cut into parts gets their gradients side by side: no zeros are added.
#[test]
fn slices_that_lie_side_by_side_are_put_together() {
    let of = |cuts: &[(usize, usize)]| {
        let g = GraphBuilder::new("cut");
        let x = g.input("x", DType::F64, [2, 6]);
        let parts = cuts.iter().enumerate();
        let loss = parts.map(|(i, &(a, b))| x.slice(1, a, b).square().sum_all() * (i + 1) as f64);
        let loss = loss.reduce(|a, b| a + b).unwrap();
        let before = g.with_graph(|graph| graph.body.nodes.len());
        g.output("d", gradients(&g, loss, &[x]).unwrap()[0].unwrap());
        let graph = onestep_ir::rewrite::eliminate_dead(&g.build().unwrap());
        let x: Vec<f64> = (0..12).map(|i| i as f64).collect();
        let factor =
            |i: usize, j: usize| if (cuts[i].0..cuts[i].1).contains(&j) { 2.0 * (i + 1) as f64 } else { 0.0 };
        let want: Vec<f64> =
            (0..12).map(|n| (0..cuts.len()).map(|i| factor(i, n % 6)).sum::<f64>() * x[n]).collect();
        assert_eq!(outputs(&graph, &[Dense::from_reals(DType::F64, &[2, 6], x)])[0], want, "{cuts:?}");
        let count = |op| names(&graph)[before..].iter().filter(|n| **n == op).count();
        [count("concat"), count("pad")]
    };
    assert_eq!(of(&[(0, 2), (2, 3), (3, 6)]), [1, 0]);
    // In whatever order they are used.
    assert_eq!(of(&[(0, 2), (3, 6), (2, 3)]), [1, 0]);
    // With zeros around, and between.
    assert_eq!(of(&[(1, 2), (2, 5)]), [1, 1]);
    assert_eq!(of(&[(0, 2), (4, 6)]), [0, 2]);
    // What overlaps is added.
    assert_eq!(of(&[(0, 4), (2, 6)]), [0, 2]);
}
