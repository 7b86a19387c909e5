//! The op `scan`: its meaning, its shape rule with what it says of mistakes, its text form, and how it is built.

use onestep_ir::interp::run_arrays;
use onestep_ir::rewrite::rewrite;
use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, ScanOptions, Tensor, bind, dim};
use std::collections::BTreeMap;

fn run(graph: &Graph, inputs: &[Array]) -> Vec<Array> {
    run_arrays(graph, inputs, &mut BTreeMap::new()).unwrap_or_else(|e| panic!("{e}\n{graph}"))
}

fn row(values: &[f32]) -> Array {
    Array::new(&[values.len()], values).unwrap()
}

/// A product and a sum that depend on each other, with a weight from outside.
fn two<'g>(w: Tensor<'g>, c: &[Tensor<'g>], x: &[Tensor<'g>]) -> (Vec<Tensor<'g>>, Vec<Tensor<'g>>) {
    let a = (c[0] * w + x[0]).tanh();
    let b = c[1] + a.sum_all();
    (vec![a, b], vec![a * b, c[1]])
}

fn whole(length: usize, reverse: bool) -> Graph {
    let g = GraphBuilder::new("whole");
    let (a, b) = (g.input("a", DType::F32, [2]), g.input("b", DType::F32, ()));
    let (x, w) = (g.input("x", DType::F32, [length, 2]), g.input("w", DType::F32, [2]));
    let options = ScanOptions { reverse, length: None };
    let s = g.scan(&[a, b], &[x], options, |c, x| two(w, c, x));
    s.carries.iter().chain(&s.outputs).enumerate().for_each(|(i, t)| g.output(&i.to_string(), *t));
    g.build().unwrap()
}

fn unrolled(length: usize, reverse: bool) -> Graph {
    let g = GraphBuilder::new("unrolled");
    let (a, b) = (g.input("a", DType::F32, [2]), g.input("b", DType::F32, ()));
    let (x, w) = (g.input("x", DType::F32, [length, 2]), g.input("w", DType::F32, [2]));
    let (mut carries, mut outputs) = (vec![a, b], vec![vec![]; 2]);
    for i in 0..length {
        let at = if reverse { length - 1 - i } else { i };
        let slice = x.slice(0, at, at + 1).squeeze(0);
        let (next, given) = two(w, &carries, &[slice]);
        carries = next;
        outputs.iter_mut().zip(given).for_each(|(all, one)| all.push(one));
    }
    outputs.iter_mut().filter(|_| reverse).for_each(|all| all.reverse());
    let stacked = outputs.iter().map(|all| g.stack(all, 0));
    carries.into_iter().chain(stacked).enumerate().for_each(|(i, t)| g.output(&i.to_string(), t));
    g.build().unwrap()
}

fn inputs(length: usize) -> Vec<Array> {
    let x: Vec<f32> = (0..length * 2).map(|i| (i as f32 * 0.7).sin()).collect();
    vec![row(&[0.5, -1.0]), Array::scalar(0.25f32), Array::new(&[length, 2], &x).unwrap(), row(&[0.9, -0.3])]
}

#[test]
fn a_scan_is_its_unrolled_form() {
    for length in [1, 2, 5] {
        for reverse in [false, true] {
            let (a, b) = (whole(length, reverse), unrolled(length, reverse));
            a.verify().unwrap();
            assert_eq!(run(&a, &inputs(length)), run(&b, &inputs(length)), "{length} {reverse}");
        }
    }
}

#[test]
fn no_iteration_gives_the_first_values() {
    let got = run(&whole(0, false), &inputs(0));
    assert_eq!((&got[0], &got[1]), (&row(&[0.5, -1.0]), &Array::scalar(0.25f32)));
    assert_eq!((got[2].shape(), got[3].shape()), (&[0, 2][..], &[0][..]));
}

#[test]
fn the_text_form_reads_back() {
    let graph = whole(3, true);
    let text = graph.to_string();
    let line = "scan %0, %1, %2, %3 {carries=2, sequences=1, length=[3], reverse=true} : f32[2], f32[], f32[3, 2], f32[3]";
    assert!(text.contains(line), "{text}");
    let read = Graph::parse(&text).unwrap();
    assert_eq!(read.to_string(), text);
    assert_eq!(run(&graph, &inputs(3)), run(&read, &inputs(3)));
    let copied = rewrite(&graph, &mut |_, _, _| None).unwrap();
    assert_eq!(copied.to_string(), text);
}

#[test]
fn a_variable_length_is_bound() {
    let g = GraphBuilder::new("variable");
    let x = g.input("x", DType::F32, (dim("T").at_most(8), 2));
    let first = g.full(DType::F32, [2], 0.0);
    let s = g.scan(&[first], &[x], ScanOptions::default(), |c, x| (vec![c[0] + x[0]], vec![c[0]]));
    g.output("sum", s.carries[0]);
    g.output("before", s.outputs[0]);
    let graph = g.build().unwrap();
    assert!(graph.to_string().contains("length=[T]"));
    let bound = bind(&graph, &BTreeMap::from([("T".into(), 3)])).unwrap();
    bound.verify().unwrap();
    let x = Array::new(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let out = run(&bound, &[x]);
    assert_eq!(out[0], row(&[9.0, 12.0]));
    assert_eq!(out[1].as_slice::<f32>().unwrap(), [0.0, 0.0, 1.0, 2.0, 4.0, 6.0]);
}

/// Each inner scan captures from the outer region and from the body.
#[test]
fn scans_and_calls_nest() {
    let g = GraphBuilder::new("nested");
    let (x, w) = (g.input("x", DType::F32, [3, 4]), g.input("w", DType::F32, ()));
    let zero = g.scalar(DType::F32, 0.0);
    let s = g.scan(&[zero], &[x], ScanOptions::default(), |c, row| {
        let inner = g.scan(&[c[0]], &[row[0]], ScanOptions::reversed(), |d, e| {
            let next = g.call("part", &[d[0], e[0], w], |p| vec![p[0] * p[2] + p[1]])[0];
            (vec![next], vec![next + c[0]])
        });
        (inner.carries.clone(), vec![inner.outputs[0].sum_all()])
    });
    g.output("last", s.carries[0]);
    g.output("sums", s.outputs[0]);
    let graph = g.build().unwrap();
    graph.verify().unwrap();
    let flat = onestep_ir::inline_calls(&graph);
    flat.verify().unwrap();
    let x: Vec<f32> = (0..12).map(|i| i as f32 * 0.5).collect();
    let inputs = [Array::new(&[3, 4], &x).unwrap(), Array::scalar(0.5f32)];
    let (mut d, mut sums) = (0f32, vec![]);
    for row in x.chunks(4) {
        let (before, mut sum) = (d, 0.0);
        for e in row.iter().rev() {
            d = d * 0.5 + e;
            sum += d + before;
        }
        sums.push(sum);
    }
    for graph in [&graph, &flat] {
        let out = run(graph, &inputs);
        assert_eq!(out[0], Array::scalar(d));
        assert_eq!(out[1], row(&sums));
    }
}

#[test]
fn repeated_parameters_are_stacked() {
    let g = GraphBuilder::new("repeat");
    let x = g.input("x", DType::F32, [2]);
    let shared = g.parameter("shared", &[2], Init::ONES);
    let y = g.scope("block", || {
        g.repeat(3, x, |x, number| {
            let w = g.parameter("w", &[2], Init::ONES);
            let inner =
                g.repeat(2, x * w, |x, _| x + g.parameter("b", &[], Init::ZEROS).broadcast(&x.shape()));
            inner * shared + number.cast(DType::F32).broadcast(&x.shape())
        })
    });
    g.output("y", y);
    let graph = g.build().unwrap();
    graph.verify().unwrap();
    let states: Vec<String> =
        graph.states.iter().map(|s| format!("{} {}", s.name, graph.ty(s.value))).collect();
    assert_eq!(states, ["shared f32[2]", "block.w f32[3, 2]", "block.b f32[3, 2]"]);
    let w = Array::new(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let b = Array::new(&[3, 2], &[0.5f32, 1.0, 1.5, 2.0, 2.5, 3.0]).unwrap();
    let mut state =
        BTreeMap::from([("shared".into(), row(&[1.0, -1.0])), ("block.w".into(), w), ("block.b".into(), b)]);
    let out = run_arrays(&graph, &[row(&[1.0, 2.0])], &mut state).unwrap();
    let mut want = [1f32, 2.0];
    for i in 0..3 {
        for j in 0..2 {
            let w = [[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]][i][j];
            let b = [1.5f32, 3.5, 5.5][i];
            want[j] = (want[j] * w + b) * [1.0, -1.0][j] + i as f32;
        }
    }
    assert_eq!(out[0], row(&want));
}

#[test]
fn mistakes_are_named() {
    let fault = |build: &dyn for<'g> Fn(&'g GraphBuilder, Tensor<'g>, Tensor<'g>)| {
        let g = GraphBuilder::new("mistakes");
        build(&g, g.input("x", DType::F32, [3, 2]), g.input("c", DType::F32, [2]));
        g.build().expect_err("a mistake").to_string()
    };
    let plain = ScanOptions::default;
    for (want, text) in [
        (
            "carry 0 is f32[2] at first, but its next value is f32[]",
            fault(&|g, x, c| {
                drop(g.scan(&[c], &[x], plain(), |c, x| (vec![(c[0] + x[0]).sum_all()], vec![])))
            }),
        ),
        (
            "sequence 0 is f32[3, 2], whose first axis is not the length 4",
            fault(&|g, x, c| drop(g.scan(&[c], &[x], ScanOptions::times(4), |c, _| (c.to_vec(), vec![])))),
        ),
        (
            "neither a length nor a sequence",
            fault(&|g, _, c| drop(g.scan(&[c], &[], plain(), |c, _| (c.to_vec(), vec![])))),
        ),
        (
            "has 1 carries, but its body gives 0",
            fault(&|g, x, c| drop(g.scan(&[c], &[x], plain(), |_, x| (vec![], vec![x[0]])))),
        ),
        ("gives nothing", fault(&|g, x, _| drop(g.scan(&[], &[x], plain(), |_, _| (vec![], vec![]))))),
        (
            "a value of a region that is complete",
            fault(&|g, x, c| {
                let mut leaked = None;
                g.scan(&[c], &[x], plain(), |c, x| {
                    leaked = Some(x[0]);
                    (c.to_vec(), vec![])
                });
                g.scan(&[c], &[x], plain(), |c, _| (vec![c[0] + leaked.unwrap()], vec![]));
            }),
        ),
        (
            "the output stands in a nested region",
            fault(&|g, x, c| {
                g.scan(&[c], &[x], plain(), |c, x| {
                    g.output("y", x[0]);
                    (c.to_vec(), vec![])
                });
            }),
        ),
    ] {
        assert!(text.contains(want), "{text}");
    }
    // What follows from a mistake has as many handles, so that indexing them is safe.
    let g = GraphBuilder::new("poisoned");
    let x = g.input("x", DType::F32, [3, 2]);
    let s = g.scan(&[x.reshape([7])], &[x], plain(), |c, x| (vec![c[0]], vec![x[0], c[0]]));
    assert_eq!((s.carries.len(), s.outputs.len(), g.errors().len()), (1, 2, 1));
    // The verifier finds what the builder would not make.
    let mut graph = whole(3, false);
    let node = graph.nodes.iter().position(|n| !n.regions.is_empty()).unwrap();
    graph.nodes[node].regions[0].params.swap(0, 1);
    assert!(graph.verify().unwrap_err().to_string().contains("the region should take"));
}
