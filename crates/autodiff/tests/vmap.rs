//! Mapping over the op table: for every sample and every choice of mapped operands, the mapped op gives for each member
//! what the op gives for that member's slices; then regions, state, updates and guards.

use onestep_autodiff::{Names, Over, VmapError, gradients, hvp, vmap};
use onestep_ir::interp::{Mode, run};
use onestep_ir::op::{Range, Sample};
use onestep_ir::testing::{
    RandomOptions, Rng, difference, graph_of, random_graph, random_inputs, random_state,
};
use onestep_ir::{DType, Dense, Graph, GraphBuilder, Init, Op, Role, Type, dim};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn stacked(members: &[Dense]) -> Dense {
    let shape = [&[members.len()], &members[0].shape[..]].concat();
    if members[0].dtype.is_float() {
        let all = members.iter().flat_map(|m| m.reals().to_vec()).collect();
        Dense::from_reals(members[0].dtype, &shape, all)
    } else {
        let all = members.iter().flat_map(|m| m.ints().to_vec()).collect();
        Dense::from_ints(members[0].dtype, &shape, all)
    }
}

fn outputs(graph: &Graph, inputs: &[Dense]) -> Vec<Dense> {
    let outcome = run(graph, inputs, &BTreeMap::new(), Mode::Declared);
    outcome.unwrap_or_else(|e| panic!("{e}\n{graph}")).outputs
}

/// Compares one choice of mapped operands.
fn check(sample: &Sample, mapped: &[usize], size: usize) {
    let types: Vec<Type> = sample.operands.iter().map(|o| o.0.clone()).collect();
    let single = graph_of(&sample.op, &types).unwrap();
    let names = mapped.iter().map(|i| format!("x{i}")).collect();
    let over = Over { inputs: Names::These(names), ..Over::default() };
    let graph = vmap(&single, size, &over).unwrap_or_else(|e| panic!("{:?} {mapped:?}: {e}", sample.op));
    graph.verify().unwrap();
    let mut rng = Rng::new(7);
    let mut draw = |i: usize| rng.dense(&sample.operands[i].0, sample.operands[i].1);
    let members: Vec<Vec<Dense>> = (0..types.len())
        .map(|i| if mapped.contains(&i) { (0..size).map(|_| draw(i)).collect() } else { vec![draw(i); size] })
        .collect();
    let fed: Vec<Dense> = members
        .iter()
        .enumerate()
        .map(|(i, m)| if mapped.contains(&i) { stacked(m) } else { m[0].clone() })
        .collect();
    let found = outputs(&graph, &fed);
    let alone: Vec<Vec<Dense>> = (0..size)
        .map(|k| outputs(&single, &members.iter().map(|m| m[k].clone()).collect::<Vec<_>>()))
        .collect();
    for (o, found) in found.iter().enumerate() {
        let want = stacked(&alone.iter().map(|a| a[o].clone()).collect::<Vec<_>>());
        let gap = difference(found, &want);
        assert!(gap == 0.0, "{:?} {mapped:?}, result {o}: {gap}\n{found:?}\n{want:?}\n{graph}", sample.op);
    }
}

/// Every choice of at least one of `n` operands.
fn choices(n: usize) -> impl Iterator<Item = Vec<usize>> {
    (1usize..1 << n).map(move |bits| (0..n).filter(|i| bits >> i & 1 == 1).collect())
}

#[test]
fn every_op_gives_each_member_its_own_result() {
    let (mut compared, mut seen) = (0, BTreeSet::new());
    for sample in Op::samples() {
        for mapped in choices(sample.operands.len()) {
            for size in [1, 3] {
                check(&sample, &mapped, size);
            }
            compared += 1;
            seen.insert(sample.op.rule().name());
        }
    }
    // Without an operand there is nothing to map; a call has no sample, and a test of its own below.
    let left: Vec<&str> = Op::names().into_iter().filter(|name| !seen.contains(name)).collect();
    assert_eq!(left, ["constant", "iota", "call", "scan"]);
    assert!(compared > 1000, "{compared}");
}

/// An index out of range of one member is one of all, and never an element of its neighbour.
#[test]
fn bad_indices_stay_bad() {
    let over = |names: &[&str]| Over {
        inputs: Names::These(names.iter().map(|n| n.to_string()).collect()),
        ..Over::default()
    };
    let bad = |build: &dyn for<'g> Fn(&'g GraphBuilder) -> onestep_ir::Tensor<'g>, names: &[&str]| {
        let g = GraphBuilder::new("bad");
        let y = build(&g);
        g.output("y", y);
        let graph = vmap(&g.build().unwrap(), 2, &over(names)).unwrap();
        // Good for the first member, one beyond the end for the second: where its neighbour's elements are not.
        let fed: Vec<Dense> = graph
            .inputs
            .iter()
            .map(|p| {
                let ty = graph.ty(p.value);
                match &*p.name {
                    "i" => Dense::from_ints(
                        DType::I32,
                        &ty.sizes(),
                        (0..ty.numel() as i64).map(|k| k * 4).collect(),
                    ),
                    _ => Dense::from_reals(DType::F32, &ty.sizes(), vec![1.0; ty.numel()]),
                }
            })
            .collect();
        run(&graph, &fed, &BTreeMap::new(), Mode::Declared).unwrap_err().to_string()
    };
    let x = |g: &'_ GraphBuilder| g.input("x", DType::F32, [4, 2]).value().unwrap();
    let i = |g: &'_ GraphBuilder| g.input("i", DType::I32, ()).value().unwrap();
    let both = ["x", "i"];
    assert!(bad(&|g| g.tensor(x(g)).gather(0, g.tensor(i(g))), &both).contains("index -1"));
    assert!(bad(&|g| g.tensor(x(g)).gather(0, g.tensor(i(g))), &["i"]).contains("index 4"));
    assert!(bad(&|g| g.tensor(x(g)).dynamic_slice(0, g.tensor(i(g)), 2), &both).contains("index -1"));
    assert!(
        bad(
            &|g| {
                let u = g.input("u", DType::F32, [2, 2]);
                g.tensor(x(g)).dynamic_update_slice(0, u, g.tensor(i(g)))
            },
            &both
        )
        .contains("index -1")
    );
}

#[test]
fn calls_are_mapped_inside() {
    let build = |called: bool| {
        let g = GraphBuilder::new("calls");
        let (x, w) = (g.input("x", DType::F64, [2, 3]), g.input("w", DType::F64, [3, 2]));
        let shared = g.input("s", DType::F64, [2]);
        let part = |x: onestep_ir::Tensor<'_>, w: onestep_ir::Tensor<'_>, s: onestep_ir::Tensor<'_>| {
            g.tensor((x.matmul(w).softmax(-1) + s).value().unwrap())
        };
        let (y, z) = if called {
            let r = g.call("outer", &[x, w, shared], |p| {
                let inner = g.call("inner", &[p[2]], |q| vec![q[0] * 2.0]);
                vec![part(p[0], p[1], inner[0]), inner[0]]
            });
            let only = g.call("shared", &[shared], |p| vec![p[0].exp()]);
            (r[0] * only[0], r[1])
        } else {
            (part(x, w, shared * 2.0) * shared.exp(), shared * 2.0)
        };
        g.output("y", y);
        g.output("z", z);
        let over = Over { inputs: ["w"].into(), ..Over::default() };
        let graph = vmap(&g.build().unwrap(), 4, &over).unwrap();
        graph.verify().unwrap();
        let mut rng = Rng::new(1);
        let fed: Vec<Dense> =
            graph.inputs.iter().map(|p| rng.dense(graph.ty(p.value), Range::Real(-1.0, 1.0))).collect();
        (outputs(&graph, &fed), graph.nodes.iter().filter(|n| matches!(n.op, Op::Call(_))).count())
    };
    let ((called, calls), (flat, none)) = (build(true), build(false));
    assert_eq!((calls, none), (3, 0));
    called.iter().zip(&flat).for_each(|(a, b)| assert_eq!(difference(a, b), 0.0));
}

/// Twice mapped, and mapped behind a gradient: the member (i, j) is what it is alone.
#[test]
fn maps_nest() {
    let g = GraphBuilder::new("nest");
    let (x, w) = (g.input("x", DType::F64, [2, 3]), g.input("w", DType::F64, [3, 2]));
    let loss = x.matmul(w).tanh().square().sum_all();
    g.output("dw", gradients(&g, loss, &[w]).unwrap()[0].unwrap());
    let single = g.build().unwrap();
    let once = vmap(&single, 2, &Over { inputs: ["w"].into(), ..Over::default() }).unwrap();
    let twice = vmap(&once, 3, &Over { inputs: ["x"].into(), ..Over::default() }).unwrap();
    assert_eq!(twice.ty(twice.outputs[0].value).to_string(), "f64[3, 2, 3, 2]");
    let mut rng = Rng::new(2);
    let fed: Vec<Dense> =
        twice.inputs.iter().map(|p| rng.dense(twice.ty(p.value), Range::Real(-1.0, 1.0))).collect();
    let found = outputs(&twice, &fed);
    for (i, j) in (0..3).flat_map(|i| (0..2).map(move |j| (i, j))) {
        let x = Dense::from_reals(DType::F64, &[2, 3], fed[0].reals()[i * 6..][..6].to_vec());
        let w = Dense::from_reals(DType::F64, &[3, 2], fed[1].reals()[j * 6..][..6].to_vec());
        let alone = outputs(&single, &[x, w]);
        assert_eq!(alone[0].reals(), &found[0].reals()[(i * 2 + j) * 6..][..6]);
    }
}

/// The whole Hessian: its product with every basis vector at once. That of x₀²x₁ + x₁x₂³.
#[test]
fn a_hessian_by_mapping_its_products() {
    let g = GraphBuilder::new("hessian");
    let (x, v) = (g.input("x", DType::F64, [3]), g.input("v", DType::F64, [3]));
    let (a, b, c) = (x.at(0, 0), x.at(0, 1), x.at(0, 2));
    g.output("hv", hvp(&g, a * a * b + b * c * c * c, &[(x, v)]).unwrap()[0].unwrap());
    let graph = vmap(&g.build().unwrap(), 3, &Over { inputs: ["v"].into(), ..Over::default() }).unwrap();
    let x = Dense::from_reals(DType::F64, &[3], vec![2.0, 3.0, 5.0]);
    let basis = Dense::from_reals(DType::F64, &[3, 3], vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let hessian = outputs(&graph, &[x, basis]);
    assert_eq!(hessian[0].reals(), [6.0, 4.0, 0.0, 4.0, 0.0, 75.0, 0.0, 75.0, 90.0]);
}

/// w ← w·(1 + x) under the guard "w < 3", and a count of refused steps.
fn guarded() -> Graph {
    let g = GraphBuilder::new("guarded");
    let x = g.input("x", DType::F32, ());
    let w = g.state("w", Role::Parameter, DType::F32, &[2], Init::ONES);
    let skipped = g.state("skipped", Role::Scalar, DType::I32, &[], Init::ZEROS);
    let fine = w.less(3.0).all();
    g.update(w, w * (x + 1.0), true);
    g.update(skipped, skipped + fine.not().cast(DType::I32), false);
    g.set_guard(fine);
    g.output("w", w);
    g.build().unwrap()
}

#[test]
fn each_member_has_its_own_guard() {
    let graph = vmap(&guarded(), 3, &Over { states: Names::All, ..Over::default() }).unwrap();
    graph.verify().unwrap();
    let w = Dense::from_reals(DType::F32, &[3, 2], vec![1.0, 2.0, 1.0, 5.0, 0.5, f64::NAN]);
    let state: BTreeMap<Arc<str>, Dense> =
        [("w".into(), w), ("skipped".into(), Dense::from_ints(DType::I32, &[3], vec![0, 7, 0]))].into();
    let x = Dense::from_reals(DType::F32, &[], vec![1.0]);
    let after = run(&graph, &[x], &state, Mode::Declared).unwrap().state;
    let w = after["w"].reals();
    assert_eq!(w[..5], [2.0, 4.0, 1.0, 5.0, 0.5]);
    assert!(w[5].is_nan());
    assert_eq!(after["skipped"].ints(), [0, 8, 1]);
}

#[test]
fn errors_say_what_to_do() {
    let text = |graph: &Graph, size, over: Over| vmap(graph, size, &over).unwrap_err().to_string();
    let graph = guarded();
    assert_eq!(vmap(&graph, 0, &Over::default()).unwrap_err(), VmapError::Empty);
    let wrong = Over { inputs: ["xx"].into(), ..Over::default() };
    assert!(text(&graph, 2, wrong).contains("no input 'xx'; did you mean 'x'?"));
    let shared = Over { inputs: ["x"].into(), ..Over::default() };
    assert!(text(&graph, 2, shared).contains("state 'w' is shared by all members, but its update differs"));
    let g = GraphBuilder::new("open");
    g.output("y", g.input("x", DType::F32, [dim("B").at_most(4)]));
    assert!(text(&g.build().unwrap(), 2, Over::default()).contains("dimension 'B' has no size"));
}

/// What is shared is computed once.
#[test]
fn shared_values_stay_single() {
    let g = GraphBuilder::new("shared");
    let (x, w) = (g.input("x", DType::F32, [4]), g.input("w", DType::F32, [4]));
    g.output("y", x.exp() * w);
    let graph = vmap(&g.build().unwrap(), 5, &Over { inputs: ["w"].into(), ..Over::default() }).unwrap();
    let exp = graph.nodes.iter().find(|n| n.op.rule().name() == "exp").unwrap();
    assert_eq!(graph.ty(exp.results[0]).to_string(), "f32[4]");
}

/// Random graphs with state, guards and calls, some inputs mapped: outputs and new state of each member are those that it
/// has alone.
#[test]
fn random_graphs() {
    let options = RandomOptions::default();
    for seed in 0..150 {
        let single = random_graph(seed, options);
        let chosen = |i: usize| (seed >> i) & 1 == 1;
        let some =
            single.inputs.iter().enumerate().filter(|(i, _)| chosen(*i)).map(|(_, p)| p.name.to_string());
        let over = Over { inputs: Names::These(some.collect()), states: Names::All };
        let graph = vmap(&single, 2, &over).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{single}"));
        graph.verify().unwrap();
        let draws = |draw: u64| random_inputs(&single, seed + 1000 * draw);
        let dense = |a: &onestep_ir::Array| Dense::from_array(a);
        let inputs: Vec<Vec<Dense>> = (0..2)
            .map(|k| {
                let (shared, own) = (draws(0), draws(k));
                (0..shared.len()).map(|i| dense(if chosen(i) { &own[i] } else { &shared[i] })).collect()
            })
            .collect();
        let states: Vec<BTreeMap<Arc<str>, Dense>> = (0..2)
            .map(|k| {
                random_state(&single, seed + 500 * k).iter().map(|(n, a)| (n.clone(), dense(a))).collect()
            })
            .collect();
        let both = |a: &Dense, b: &Dense| stacked(&[a.clone(), b.clone()]);
        let fed: Vec<Dense> = (0..inputs[0].len())
            .map(|i| if chosen(i) { both(&inputs[0][i], &inputs[1][i]) } else { inputs[0][i].clone() })
            .collect();
        let state = states[0].iter().map(|(n, a)| (n.clone(), both(a, &states[1][n]))).collect();
        let found = run(&graph, &fed, &state, Mode::Declared);
        let alone: Vec<_> = (0..2).map(|k| run(&single, &inputs[k], &states[k], Mode::Declared)).collect();
        let (Ok(a), Ok(b)) = (&alone[0], &alone[1]) else {
            // A bad index of one member is one of all.
            assert!(found.is_err(), "seed {seed}");
            continue;
        };
        let found = found.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let results = found.outputs.iter().zip(a.outputs.iter().zip(&b.outputs));
        let states = found.state.iter().map(|(n, s)| (s, (&a.state[n], &b.state[n])));
        for (i, (found, (a, b))) in results.chain(states).enumerate() {
            let gap = difference(found, &both(a, b));
            assert!(gap == 0.0, "seed {seed}, {i}: {gap}\n{single}\n{graph}");
        }
    }
}
