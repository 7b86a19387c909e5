//! Scans in forward mode and mapped over members: against the unrolled form, and against each member alone.

mod support;

use onestep_autodiff::{Names, Over, gradients, hvp, jvp, vmap};
use onestep_ir::interp::{Mode, run};
use onestep_ir::op::Range;
use onestep_ir::testing::{Rng, difference};
use onestep_ir::{DType, Dense, Graph, GraphBuilder, ScanOptions, Tensor, Type};
use std::collections::BTreeMap;

const LENGTH: usize = 4;

/// A recurrence with two carries, one of which counts; two sequences, a constant, and two outputs.
fn recurrence<'g>(
    g: &'g GraphBuilder,
    x: &[Tensor<'g>; 4],
    reverse: bool,
    unrolled: bool,
) -> Vec<Tensor<'g>> {
    let [h, a, b, w] = *x;
    let step = |c: &[Tensor<'g>], s: &[Tensor<'g>]| {
        let (h, n) = (c[0], c[1]);
        let next = (h.matmul(w) + s[0] * n.cast(DType::F64)).tanh();
        (vec![next, n + 1.0], vec![next * s[1], n])
    };
    let n = g.scalar(DType::I32, 1.0);
    if !unrolled {
        let options = ScanOptions { length: None, reverse };
        let s = g.scan(&[h, n], &[a, b], options, |c, s| step(c, s));
        return vec![s.carries[0], s.outputs[0], s.outputs[1].cast(DType::F64)];
    }
    let (mut carries, mut outputs) = (vec![h, n], vec![]);
    for i in 0..LENGTH {
        let at = if reverse { LENGTH - 1 - i } else { i };
        let slices = [a, b].map(|t| t.slice(0, at, at + 1).squeeze(0));
        let (next, given) = step(&carries, &slices);
        carries = next;
        outputs.push(given);
    }
    if reverse {
        outputs.reverse();
    }
    let stack = |k: usize| g.stack(&outputs.iter().map(|o| o[k]).collect::<Vec<_>>(), 0);
    vec![carries[0], stack(0), stack(1).cast(DType::F64)]
}

const SHAPES: [&[usize]; 4] = [&[2, 3], &[LENGTH, 2, 3], &[LENGTH, 2, 3], &[3, 3]];

fn inputs(g: &GraphBuilder) -> [Tensor<'_>; 4] {
    std::array::from_fn(|i| g.input(&format!("x{i}"), DType::F64, SHAPES[i]))
}

fn draw(seed: u64) -> Vec<Dense> {
    let mut rng = Rng::new(seed);
    let one = |shape: &&[usize]| {
        rng.dense(&Type::new(DType::F64, onestep_ir::Shape::fixed(shape)), Range::Real(-1.5, 1.5))
    };
    SHAPES.iter().map(one).collect()
}

fn outputs(graph: &Graph, inputs: &[Dense]) -> Vec<Dense> {
    graph.verify().unwrap_or_else(|e| panic!("{e}\n{graph}"));
    run(graph, inputs, &BTreeMap::new(), Mode::Declared).unwrap_or_else(|e| panic!("{e}\n{graph}")).outputs
}

#[track_caller]
fn same(a: &[Dense], b: &[Dense], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let gap = difference(a, b);
        assert!(gap <= tolerance, "result {i} differs by {gap}: {a:?} {b:?}");
    }
}

#[test]
fn tangents_are_those_of_the_unrolled_form() {
    let graph = |moving: &[usize], reverse: bool, unrolled: bool| {
        let g = GraphBuilder::new("tangents");
        let x = inputs(&g);
        let y = recurrence(&g, &x, reverse, unrolled);
        let given: Vec<_> =
            moving.iter().map(|&i| (x[i], g.input(&format!("t{i}"), DType::F64, SHAPES[i]))).collect();
        for (i, t) in jvp(&g, &y, &given).unwrap().into_iter().enumerate() {
            if let Some(t) = t {
                g.output(&format!("t{i}"), t);
            }
        }
        g.build().unwrap()
    };
    for reverse in [false, true] {
        for moving in [&[0][..], &[1], &[2], &[3], &[0, 1, 2, 3]] {
            let mut fed = draw(1);
            let directions = draw(2);
            fed.extend(moving.iter().map(|&i| directions[i].clone()));
            let named = |graph: Graph| -> BTreeMap<String, Dense> {
                let names: Vec<String> = graph.outputs.iter().map(|o| o.name.to_string()).collect();
                names.into_iter().zip(outputs(&graph, &fed)).collect()
            };
            let unrolled = named(graph(moving, reverse, true));
            for (name, t) in named(graph(moving, reverse, false)) {
                // Where the unrolled form has no path, a scan has zeros.
                let zeros = Dense::from_reals(DType::F64, &t.shape, vec![0.0; t.len()]);
                same(&[t], &[unrolled.get(&name).unwrap_or(&zeros).clone()], 1e-12);
            }
        }
    }
}

#[test]
fn hessian_vector_products_go_through_scans() {
    let graph = |unrolled: bool| {
        let g = GraphBuilder::new("curvature");
        let x = inputs(&g);
        let loss = recurrence(&g, &x, false, unrolled)[1].square().sum_all();
        let given: Vec<_> =
            [0, 3].map(|i| (x[i], g.input(&format!("t{i}"), DType::F64, SHAPES[i]))).into_iter().collect();
        for (i, t) in hvp(&g, loss, &given).unwrap().into_iter().enumerate() {
            g.output(&format!("h{i}"), t.unwrap());
        }
        g.build().unwrap()
    };
    let mut fed = draw(3);
    let directions = draw(4);
    fed.extend([0, 3].map(|i| directions[i].clone()));
    same(&outputs(&graph(false), &fed), &outputs(&graph(true), &fed), 1e-11);
}

#[test]
fn each_member_of_a_mapped_scan_goes_as_alone() {
    const MEMBERS: usize = 3;
    for reverse in [false, true] {
        let single = {
            let g = GraphBuilder::new("member");
            let x = inputs(&g);
            let y = recurrence(&g, &x, reverse, false);
            let loss = y[1].square().sum_all() + y[0].sum_all();
            for (i, d) in gradients(&g, loss, &x).unwrap().into_iter().enumerate() {
                g.output(&format!("d{i}"), d.unwrap());
            }
            y.iter().enumerate().for_each(|(i, y)| g.output(&format!("y{i}"), *y));
            g.build().unwrap()
        };
        let members: Vec<Vec<Dense>> = (0..MEMBERS as u64).map(|k| draw(10 + k)).collect();
        for mapped in [&[0][..], &[1], &[3], &[0, 2], &[0, 1, 2, 3]] {
            let names = mapped.iter().map(|i| format!("x{i}")).collect();
            let over = Over { inputs: Names::These(names), ..Over::default() };
            let graph = vmap(&single, MEMBERS, &over).unwrap();
            let of = |k: usize, i: usize| if mapped.contains(&i) { &members[k][i] } else { &members[0][i] };
            let fed: Vec<Dense> = (0..SHAPES.len())
                .map(|i| match mapped.contains(&i) {
                    false => members[0][i].clone(),
                    true => {
                        let all = (0..MEMBERS).flat_map(|k| members[k][i].reals().to_vec()).collect();
                        Dense::from_reals(DType::F64, &[&[MEMBERS], SHAPES[i]].concat(), all)
                    }
                })
                .collect();
            let found = outputs(&graph, &fed);
            for k in 0..MEMBERS {
                let alone =
                    outputs(&single, &(0..SHAPES.len()).map(|i| of(k, i).clone()).collect::<Vec<_>>());
                for (o, (all, alone)) in found.iter().zip(&alone).enumerate() {
                    let n = alone.len();
                    let own = Dense::from_reals(DType::F64, &alone.shape, all.reals()[k * n..][..n].to_vec());
                    let gap = difference(&own, alone);
                    assert!(gap <= 1e-12, "{mapped:?}: result {o} of member {k} differs by {gap}");
                }
            }
        }
    }
}
