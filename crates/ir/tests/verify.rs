//! The verifier: for each of its bullets a graph that fails it, and no broken graph makes it (or the printer) panic.

use onestep_ir::ops::{Call, Constant, Reduce, ReduceKind, UnaryKind};
use onestep_ir::testing::{RandomOptions, random_graph};
use onestep_ir::{
    Array, DType, Def, Dim, Graph, GraphBuilder, Init, NodeId, Op, Port, Region, Role, Shape, Type, ValueId,
    dim,
};

/// `n0` = square of x, `n1` = a call with an exp in it, `n2` = a sum over x, `n3` = whether it is finite.
fn sample() -> Graph {
    let g = GraphBuilder::new("sample");
    let x = g.input("x", DType::F32, (dim("B").at_most(4), 3));
    let w = g.parameter("w", &[3], Init::ONES);
    let n = g.state("n", Role::Scalar, DType::I32, &[], Init::ZEROS);
    let square = x * x;
    let called = g.call("part", &[square], |p| vec![p[0].exp()]);
    let loss = called[0].sum_all();
    g.update(w, w, true);
    g.update(n, n, false);
    g.set_guard(loss.is_finite());
    g.finish(loss).unwrap()
}

fn node(g: &Graph, name: &str) -> usize {
    g.nodes.iter().position(|n| n.op.rule().name() == name).unwrap()
}

/// A value that the nested region defines.
fn inner(g: &Graph) -> ValueId {
    g.nodes[node(g, "call")].regions[0].params[0]
}

/// Applies a change to the sample; the verifier must list a fault with this text.
#[track_caller]
fn refuse<R>(want: &str, change: impl FnOnce(&mut Graph) -> R) {
    let mut g = sample();
    change(&mut g);
    let got = g.verify().expect_err(want).to_string();
    assert!(got.contains(want), "wanted '{want}', got: {got}");
    let _ = g.to_string();
}

#[test]
fn the_sample_is_valid() {
    sample().verify().unwrap();
    Graph::default().verify().unwrap();
}

#[test]
fn values_are_defined_once() {
    refuse("is defined twice", |g| {
        let v = g.nodes[0].results[0];
        let call = node(g, "call");
        g.nodes[call].results = vec![v];
    });
    refuse("is defined twice", |g| g.body.params.push(g.body.params[0]));
    refuse("is defined nowhere", |g| g.add_value(Type::new(DType::F32, Shape::scalar()), Def::Param));
}

#[test]
fn nodes_stand_in_one_region() {
    refuse("stands in two places", |g| g.body.nodes.push(g.body.nodes[0]));
    refuse("stands in no region", |g| g.body.nodes.pop());
    refuse("node 99 does not exist", |g| g.body.nodes.push(NodeId(99)));
    refuse("stands in two places", |g| {
        let call = node(g, "call");
        g.nodes[call].regions[0].nodes.push(NodeId(call as u32));
    });
    refuse("nest more than 64 deep", |g| {
        for i in 0..200 {
            let id = g.nodes.len() as u32;
            let mut new = g.nodes[0].clone();
            new.op = Call::new("deep").into();
            new.operands.clear();
            new.results.clear();
            new.regions = vec![Region { nodes: vec![NodeId(id + 1)], ..Region::default() }];
            if i == 199 {
                new.regions[0].nodes.clear();
            }
            g.nodes.push(new);
            if i == 0 {
                g.body.nodes.push(NodeId(id));
            }
        }
    });
}

#[test]
fn nodes_and_values_agree() {
    refuse("says that it is", |g| {
        let v = g.nodes[0].results[0];
        g.values[v.index()].def = Def::Param;
    });
    refuse("says that it is", |g| {
        let v = g.inputs[0].value;
        g.values[v.index()].def = Def::Node(NodeId(0), 0);
    });
    refuse("%77 does not exist", |g| g.nodes[0].results[0] = ValueId(77));
}

#[test]
fn operands_come_before_and_from_the_same_region() {
    refuse("not defined before it", |g| g.body.nodes.swap(0, 1));
    refuse("uses %99", |g| g.nodes[0].operands[0] = ValueId(99));
    refuse("(exp) uses %0", |g| {
        let exp = node(g, "exp");
        g.nodes[exp].operands[0] = g.inputs[0].value;
    });
    refuse("(sum) uses", |g| {
        let sum = node(g, "sum");
        g.nodes[sum].operands[0] = inner(g);
    });
    refuse("a region's result uses %0", |g| {
        let call = node(g, "call");
        g.nodes[call].regions[0].results[0] = g.inputs[0].value;
    });
}

#[test]
fn attributes_are_valid() {
    refuse("attribute 'axes' has the wrong form", |g| {
        let sum = node(g, "sum");
        g.nodes[sum].op = Reduce { kind: ReduceKind::Sum, axes: vec![usize::MAX] }.into();
    });
}

#[test]
fn regions_fit_the_op() {
    refuse("has 0 region(s) instead of 1", |g| {
        let call = node(g, "call");
        g.nodes[call].regions.clear();
    });
    refuse("has 1 region(s) instead of 0", |g| {
        g.nodes[0].regions = vec![Region::default()];
    });
    refuse("the operands are (f32[B, 3]) but the region takes (f32[3])", |g| {
        let v = inner(g);
        g.values[v.index()].ty.shape.0.remove(0);
    });
}

#[test]
fn result_types_are_inferred() {
    refuse("(mul) has results (f32[3]) instead of (f32[B, 3])", |g| {
        let v = g.nodes[0].results[0];
        g.values[v.index()].ty.shape.0.remove(0);
    });
    refuse("has results () instead of (f32[B, 3])", |g| g.nodes[0].results.clear());
    refuse("takes 2 operand(s), got 1", |g| g.nodes[0].operands.pop());
    refuse("more than memory can address", |g| {
        let v = g.inputs[0].value;
        g.values[v.index()].ty.shape = Shape::fixed(&[1 << 40, 1 << 40]);
    });
}

#[test]
fn inputs_and_states_are_the_parameters() {
    let want = "are not the parameters of the body";
    refuse(want, |g| g.inputs.pop());
    refuse(want, |g| g.states[0].value = g.states[1].value);
    refuse(want, |g| g.body.params.pop());
    refuse("the body has results", |g| g.body.results.push(g.body.params[0]));
}

#[test]
fn states_have_fixed_sizes() {
    refuse("state 'w' has a dimension variable", |g| {
        let v = g.states[0].value;
        g.values[v.index()].ty.shape = Shape(vec![Dim::var("B")]);
    });
}

#[test]
fn a_caches_sizes_may_be_variables() {
    let g = GraphBuilder::new("cache");
    let cache = g.cache("cache", DType::F32, (dim("T").at_most(8), 2));
    g.update(cache, cache + 1.0, false);
    let graph = g.build().unwrap();
    graph.verify().unwrap();
    assert_eq!(Graph::parse(&graph.to_string()).unwrap().to_string(), graph.to_string());

    let size = |n: usize| graph.binding_with_state(&[], |name| (name == "cache").then(|| vec![n, 2]));
    assert_eq!(size(5).unwrap()["T"], 5);
    assert!(size(9).unwrap_err().to_string().contains("size 9 is above its bound 8"));
    let unread = graph.binding_from_inputs(&[]).unwrap_err().to_string();
    assert!(unread.contains("no input or cache has it as a whole dimension"), "{unread}");

    let g = GraphBuilder::new("two");
    let x = g.input("x", DType::F32, [dim("T").at_most(8)]);
    g.output("y", g.cache("cache", DType::F32, [dim("T")]) + x);
    let graph = g.build().unwrap();
    let error = graph.binding_with_state(&[vec![3]], |_| Some(vec![4])).unwrap_err().to_string();
    assert!(error.contains("T is 3 here but 4 in state 'cache'"), "{error}");
}

#[test]
fn the_interface_uses_values_of_the_body() {
    refuse("output 'loss' uses", |g| g.outputs[0].value = inner(g));
    refuse("the update of 'w' uses", |g| g.updates[0].value = inner(g));
    refuse("the guard uses", |g| g.guard = Some(inner(g)));
    refuse("output 'loss' uses %99", |g| g.outputs[0].value = ValueId(99));
    refuse("the guard is f32[] instead of bool[]", |g| g.guard = Some(g.outputs[0].value));
}

#[test]
fn updates_fit_their_states() {
    refuse("the update of 'w' is i32[] instead of f32[3]", |g| g.updates[0].value = g.states[1].value);
    refuse("state 'n' is updated twice", |g| g.updates.push(g.updates[1]));
    refuse("is of state 9, which does not exist", |g| g.updates[0].state = 9);
}

#[test]
fn names_are_unique_and_well_formed() {
    refuse("there are two outputs 'loss'", |g| g.outputs.push(g.outputs[0].clone()));
    refuse("there are two states 'w'", |g| g.states[1].name = "w".into());
    refuse("there are two inputs 'x'", |g| g.inputs.push(Port { name: "x".into(), value: ValueId(0) }));
    refuse("input name \"\" is not well formed", |g| g.inputs[0].name = "".into());
    refuse("state name \"a\\n\" is not well formed", |g| g.states[0].name = "a\n".into());
    refuse("dimension name \"\\\"\" is not well formed", |g| g.dims.insert("\"".into(), 1));
}

#[test]
fn dimensions_are_declared() {
    refuse("%0 has dimension 'B', which is not declared", |g| g.dims.clear());
    refuse("dimension 'B' has bound 0", |g| g.dims.insert("B".into(), 0));
    refuse("(constant) has dimension 'T', which is not declared", |g| {
        let value = Array::scalar(1f32);
        g.nodes[0].op = Constant { value, dims: vec![Dim::var("T")] }.into();
    });
}

/// Every field of a random graph, replaced by something from elsewhere.
#[test]
fn broken_graphs_never_panic() {
    let mut x = 0x2545_f491_4f6c_dd1du64;
    let mut draw = |n: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as usize % n.max(1)
    };
    let mut refused = 0;
    for seed in 0..40 {
        let good =
            random_graph(seed, RandomOptions { steps: 10, variables: seed % 2 == 0, ..Default::default() });
        for _ in 0..100 {
            let mut g = good.clone();
            for _ in 0..1 + draw(2) {
                let value = ValueId(draw(g.values.len() + 2) as u32);
                let (v, n) = (draw(g.values.len()), draw(g.nodes.len()));
                let other = g.nodes[draw(g.nodes.len())].clone();
                let id = NodeId(draw(g.nodes.len() + 2) as u32);
                let node = &mut g.nodes[n];
                match draw(16) {
                    0 => node.operands.push(value),
                    1 => node.operands.iter_mut().take(1).for_each(|o| *o = value),
                    2 => drop(node.operands.pop()),
                    3 => node.results.push(value),
                    4 => node.results[0] = value,
                    5 => node.op = other.op,
                    6 => node.regions = other.regions,
                    7 => node.regions.push(Region {
                        params: vec![value],
                        nodes: vec![id],
                        results: vec![value],
                    }),
                    8 => node.op = Op::from(UnaryKind::ALL[draw(UnaryKind::ALL.len())]),
                    9 => g.values[v].ty = g.values[draw(v + 1)].ty.clone(),
                    10 => g.values[v].def = Def::Node(id, 3),
                    11 => drop(g.values.pop()),
                    12 => drop(g.nodes.pop()),
                    13 => g.body.nodes.push(id),
                    14 => g.body.params.push(value),
                    _ => g.guard = Some(value),
                }
                if g.nodes.is_empty() || g.values.is_empty() || g.nodes.iter().any(|n| n.results.is_empty()) {
                    break;
                }
            }
            let text = g.to_string();
            match g.verify() {
                Ok(()) => drop(Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 2000, "{refused}");
}
