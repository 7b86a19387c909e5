//! The text form: what is printed reads back to the same graph, and no text makes the parser panic.

use onestep_ir::interp::run_arrays;
use onestep_ir::rewrite::{eliminate_dead, rewrite};
use onestep_ir::testing::{RandomOptions, random_graph, random_inputs, random_state};
use onestep_ir::{Array, DType, Graph, GraphBuilder, GraphError, Init, Op, Role, bind, inline_calls};
use std::collections::BTreeMap;

fn fault(text: &str) -> String {
    Graph::parse(text).expect_err(text).to_string()
}

/// Same structure, in the same order.
fn same(a: &Graph, b: &Graph) {
    assert_eq!((&a.name, &a.dims, &a.values), (&b.name, &b.dims, &b.values));
    assert_eq!((&a.inputs, &a.states, &a.outputs), (&b.inputs, &b.states, &b.outputs));
    assert_eq!((&a.updates, a.guard), (&b.updates, b.guard));
    assert_eq!((&a.body.params, &a.body.nodes), (&b.body.params, &b.body.nodes));
    assert_eq!(a.nodes.len(), b.nodes.len());
    for (a, b) in a.nodes.iter().zip(&b.nodes) {
        assert_eq!((&a.op, &a.operands, &a.results), (&b.op, &b.operands, &b.results));
        assert_eq!(format!("{:?}", a.regions), format!("{:?}", b.regions));
    }
}

fn round_trip(graph: &Graph) -> Graph {
    let text = graph.to_string();
    let read = Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(read.to_string(), text);
    // A node that was read knows its line, and so does every line of the text.
    for (n, (line, loc)) in (1..).zip(text.lines().zip(read.source_lines())) {
        if let Some(loc) = loc.filter(|_| line.contains(" = ")) {
            assert_eq!(loc.to_string(), format!("line {n} of the graph's text"), "{line}");
        }
    }
    assert_eq!(
        (graph.source_lines().len(), read.source_lines().len()),
        (text.lines().count(), text.lines().count())
    );
    read
}

#[test]
fn random_graphs_round_trip_and_compute_the_same_bits() {
    let mut regions = 0;
    for seed in 0..400 {
        let graph = random_graph(seed, RandomOptions::default());
        graph.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
        let read = round_trip(&graph);
        same(&graph, &read);
        regions += graph.nodes.iter().filter(|n| !n.regions.is_empty()).count();
        let inputs = random_inputs(&graph, seed);
        let run = |g: &Graph| {
            let mut state = random_state(&graph, seed);
            let outputs =
                run_arrays(g, &inputs, &mut state).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{g}"));
            (outputs, state)
        };
        let want = run(&graph);
        assert_eq!(want, run(&read), "seed {seed}");
        let finite = |a: &Array| a.to_f64().iter().all(|x| x.is_finite());
        assert!(want.0.iter().chain(want.1.values()).all(finite), "seed {seed}\n{graph}");
        same(&graph, &rewrite(&graph, &mut |_, _, _| None).unwrap());
        for changed in [inline_calls(&graph), eliminate_dead(&graph)] {
            changed.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{changed}"));
            assert_eq!(want, run(&changed), "seed {seed}");
        }
    }
    assert!(regions > 100, "only {regions} regions");
}

#[test]
fn graphs_with_variables_round_trip_and_bind() {
    for seed in 0..100 {
        let graph = random_graph(seed, RandomOptions { variables: true, ..RandomOptions::default() });
        graph.verify().unwrap();
        same(&graph, &round_trip(&graph));
        for size in [0, 1, 3] {
            let sizes = graph.dims.keys().map(|d| (d.clone(), size)).collect();
            let bound = bind(&graph, &sizes).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
            bound.verify().unwrap();
            let inputs = random_inputs(&bound, seed);
            let shapes: Vec<Vec<usize>> = inputs.iter().map(|a| a.shape().to_vec()).collect();
            assert_eq!(graph.binding_from_inputs(&shapes).unwrap(), sizes);
            run_arrays(&bound, &inputs, &mut random_state(&bound, seed)).unwrap();
        }
    }
}

/// Any change of a text gives a graph or an error.
#[test]
fn mutated_texts_never_panic() {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |n: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as usize % n.max(1)
    };
    let pieces = [
        "%",
        "%1",
        "\"",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ",",
        "=",
        "*",
        "-",
        "0x",
        "nan(",
        "99999999999",
        "1e999",
        "é",
        "region",
        "yield",
        "\\",
        ";",
        "\n",
        "f32[",
        "splat ",
    ];
    let mut read = 0;
    for seed in 0..60 {
        let options = RandomOptions { steps: 8, variables: seed % 2 == 0, ..RandomOptions::default() };
        let text = random_graph(seed, options).to_string();
        for _ in 0..200 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..1 + draw(3) {
                let at = draw(bytes.len());
                match draw(5) {
                    0 => bytes.truncate(at),
                    1 => bytes.splice(at..at, pieces[draw(pieces.len())].bytes()).for_each(drop),
                    2 => bytes[at] = draw(128) as u8,
                    3 => bytes.drain(at..(at + draw(20)).min(bytes.len())).for_each(drop),
                    _ => {
                        let from = draw(bytes.len());
                        let piece = bytes[from..(from + draw(40)).min(bytes.len())].to_vec();
                        bytes.splice(at..at, piece).for_each(drop);
                    }
                }
                if bytes.is_empty() {
                    break;
                }
            }
            if let Ok(graph) = Graph::parse(&String::from_utf8_lossy(&bytes)) {
                round_trip(&graph);
                read += 1;
            }
        }
    }
    assert!(read > 50, "only {read} mutated texts are graphs: the mutations are too coarse to test much");
}

#[test]
fn every_sample_of_the_op_table_round_trips() {
    for sample in Op::samples() {
        let g = GraphBuilder::new("sample");
        let operands: Vec<_> = (0..)
            .zip(&sample.operands)
            .map(|(i, (ty, _))| g.input(&format!("x{i}"), ty.dtype, &ty.shape))
            .collect();
        for (i, result) in g.emit(sample.op.clone(), &operands).into_iter().enumerate() {
            g.output(&format!("y{i}"), result);
        }
        let graph = g.build().unwrap();
        graph.verify().unwrap();
        same(&graph, &round_trip(&graph));
    }
}

#[test]
fn no_op_is_named_like_a_statement() {
    let words = ["graph", "dim", "input", "state", "output", "update", "guard", "yield", "region"];
    assert!(Op::names().iter().all(|n| !words.contains(n)));
}

#[test]
fn the_documented_form() {
    let text = r#"graph "mlp" {
  dim B <= 512
  input "x" %0: f32[B, 784]
  state "w" %1: f32[784, 10] parameter init=uniform(-0.03, 0.03)
  state "seed" %2: u32[2] rng init=seed
  %3 = matmul %0, %1 {transpose_a=false, transpose_b=false, dtype=f32} : f32[B, 10]
  %4 = call %3 {name=double} : f32[B, 10] region(%5: f32[B, 10]) {
    %6 = add %5, %5 : f32[B, 10]
    yield %6
  }
  %7 = constant {dims=[], value=bool[](true)} : bool[]
  output "y" %4
  update "w" %1 guarded
  update "seed" %2 always
  guard %7
}
"#;
    let graph = Graph::parse(text).unwrap();
    assert_eq!(graph.to_string(), text);
    assert_eq!(graph.states[1].init, Init::Seed);
    // Types may be left out, values named, and comments written.
    let brief = r#"graph mlp { ; the same
        dim B <= 512
        input "x" %x: f32[B, 784]  // a batch
        state "w" %w: f32[784, 10] parameter init=uniform(-3e-2, 0.03)
        state "seed" %seed: u32[2] rng init=seed
        %logits = matmul %x, %w {dtype=f32, transpose_a=false, transpose_b=false}
        %twice = call %logits {name="double"} region(%p: f32[B, 10]) { %sum = add %p, %p yield %sum }
        %go = constant {dims=[], value=bool[](true)}
        output "y" %twice
        update "w" %w guarded  update "seed" %seed always
        guard %go
    }"#;
    assert_eq!(Graph::parse(brief).unwrap().to_string(), text);
}

#[test]
fn bits_survive() {
    let g = GraphBuilder::new("odd \"name\"\n\\");
    let nans =
        [0x7fc0_0000u32, 0xffc0_0000, 0x7fc0_1234, 0x7f80_0001, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 1];
    let mut arrays = vec![
        Array::new(&[8], &nans.map(f32::from_bits)).unwrap(),
        Array::new(&[3], &[f64::from_bits(0x7ff0_0000_0000_0001), -0.0, 1e-310]).unwrap(),
        Array::new(&[65536], &(0..=u16::MAX).map(half::f16::from_bits).collect::<Vec<_>>()).unwrap(),
        Array::new(&[2], &[i64::MIN, i64::MAX]).unwrap(),
        Array::new(&[2], &[u32::MAX, 7]).unwrap(),
        Array::zeros(DType::U8, &[3, 0]).unwrap(),
        Array::zeros(DType::F32, &[1024]).unwrap(),
        Array::zeros(DType::F32, &[2000]).unwrap(),
    ];
    // Every half-precision number, in lists.
    for chunk in (0..=u16::MAX).collect::<Vec<_>>().chunks(64) {
        let f16s: Vec<half::f16> = chunk.iter().map(|&b| half::f16::from_bits(b)).collect();
        let bf16s: Vec<half::bf16> = chunk.iter().map(|&b| half::bf16::from_bits(b)).collect();
        arrays.push(Array::new(&[64], &f16s).unwrap());
        arrays.push(Array::new(&[64], &bf16s).unwrap());
    }
    for (i, array) in arrays.iter().enumerate() {
        g.output(&format!("a{i}"), g.constant(array.clone()));
    }
    for (i, x) in
        [f64::NAN, f64::from_bits(0xfff8_0000_0000_0007), f64::NEG_INFINITY, -0.0, 0.1].iter().enumerate()
    {
        g.state(&format!("s{i}"), Role::Scalar, DType::F32, &[], Init::Normal { mean: *x, std: 1e300 });
    }
    let graph = g.build().unwrap();
    let read = round_trip(&graph);
    for (i, array) in arrays.iter().enumerate() {
        let Some(Op::Constant(c)) = read.def(read.outputs[i].value).map(|n| &n.op) else { panic!() };
        assert_eq!(c.value, *array, "array {i}");
    }
    for (a, b) in graph.states.iter().zip(&read.states) {
        let (Init::Normal { mean: a, .. }, Init::Normal { mean: b, .. }) = (a.init, b.init) else { panic!() };
        assert_eq!(a.to_bits(), b.to_bits());
    }
    let text = graph.to_string();
    assert!(text.contains(
        "value=f32[8](nan, nan(0xffc00000), nan(0x7fc01234), nan(0x7f800001), -0.0, inf, -inf, 1e-45)"
    ));
    assert!(text.contains("value=f32[1024](splat 0.0)") && text.contains("value=u8[3, 0]()"));
}

#[test]
fn names_that_are_no_words_are_quoted() {
    let g = GraphBuilder::new("");
    let x = g.input(
        "an input",
        DType::F32,
        (onestep_ir::dim("batch size").at_most(4), onestep_ir::dim("true").at_most(2)),
    );
    let y =
        g.call("a b.c", &[x.reshape(onestep_ir::Shape(vec![x.shape().count().unwrap()]))], |p| vec![p[0]]);
    g.call("true", &[], |_| vec![]);
    g.output("y z", y[0]);
    let graph = g.build().unwrap();
    same(&graph, &round_trip(&graph));
    assert!(graph.to_string().contains(r#"{dims=["batch size"*"true"]}"#), "{graph}");
}

#[test]
fn errors_say_where_what_and_the_near_name() {
    let x = "graph g {\n  dim Batch <= 4\n  input \"x\" %0: f32[Batch, 2]\n  state \"weight\" %w: f32[2] parameter init=seed\n";
    let of = |line: &str| fault(&format!("{x}  {line}\n}}"));
    for (line, want) in [
        ("%1 = ad %0, %0", "line 5, column 8: there is no op 'ad'; did you mean 'add'?"),
        ("%1 = add %0", "line 5, column 8: add(f32[Batch, 2]): takes 2 operand(s), got 1"),
        (
            "%1 = exp %0 : f32[2]",
            "line 5, column 15: the text says (f32[2]) but exp(f32[Batch, 2]) gives (f32[Batch, 2])",
        ),
        ("%1 = exp %9", "line 5, column 12: %9 is not defined above"),
        ("%1, %2 = exp %0", "gives 1 result(s), but 2 name(s) are given"),
        ("%0 = exp %0", "line 5, column 3: %0 is defined twice"),
        ("%1 = exp %0 {fast=true}", "unknown attribute 'fast'"),
        ("%1 = sum %0", "attribute 'axes' is missing; write axes=… (attributes given: none)"),
        ("%1 = sum %0 {axes=[0], axes=[1]}", "attribute 'axes' of sum is given twice"),
        (
            "%1 = reshape %0 {dims=[2*batch]}",
            "dimension 'batch' is not declared; write 'dim batch <= N' first; did you mean 'Batch'?",
        ),
        (
            "input \"y\" %y: f33[2]",
            "there is no dtype 'f33'; dtypes are f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, u32, i8, u8, bool; did you mean 'f32'?",
        ),
        ("input \"x\" %y: f32[2]", "input 'x' exists already"),
        ("state \"b\" %b: f32[2] paramter init=seed", "did you mean 'parameter'?"),
        ("state \"b\" %b: f32[2] slot init=unifrm(1, 2)", "did you mean 'uniform'?"),
        ("state \"b\" %b: f32[2] slot init=uniform(1)", "uniform and normal take two"),
        ("state \"b\" %b: f32[Batch] slot init=seed", "state 'b' has a dimension variable"),
        ("update \"weigth\" %w guarded", "there is no state 'weigth' above; did you mean 'weight'?"),
        ("update \"weight\" %0 guarded", "state 'weight' is f32[2] but the new value is f32[Batch, 2]"),
        ("update \"weight\" %w sometimes", "expected 'guarded' or 'always', found 'sometimes'"),
        ("update \"weight\" %w always update \"weight\" %w always", "updated twice"),
        ("guard %0", "the guard is f32[Batch, 2]; it must be bool[]"),
        ("gaurd %0", "there is no op 'gaurd'; did you mean 'guard'?"),
        ("dim T <= 0", "the bound is 0"),
        ("dim Batch <= 5", "dimension 'Batch' is declared twice"),
        ("input \"y\" %y: f32[2", "expected ',' or ']', found '}'"),
        ("input y %y: f32[2]", "expected the input's name in double quotes, found 'y'"),
        ("%1 = call %0 {name=f}", "call has 1 region(s), but the text gives 0"),
        ("%1 = exp %0 region() { yield }", "exp has 0 region(s), but the text gives 1"),
        (
            "%1 = call %0 {name=f} region(%p: f32[2]) { yield %p }",
            "the operands are (f32[Batch, 2]) but the region takes (f32[2])",
        ),
        ("%1 = call {name=f} region() { yield %0 }", "%0 belongs to another region; pass it as an operand"),
        ("%1 = constant {dims=[2], value=f32[2](1.0)}", "the array does not fit"),
        ("%1 = constant {dims=[2], value=u8[2](1, 256)}", "256 is out of range for u8"),
        ("%1 = constant {dims=[2], value=f32[2](1, 1e39)}", "out of range for f32"),
        ("%1 = constant {dims=[2], value=f32[2](0x00)}", "the array does not fit"),
        ("%1 = constant {dims=[], value=f32[](nan(0x7f800000))}", "not the bits of a NaN of f32"),
        ("output \"o\" 3", "expected a value, such as %0, found '3'"),
        ("?", "unexpected character '?'"),
    ] {
        let got = of(line);
        assert!(got.contains(want), "{line}\n  gives {got}\n  not   {want}");
    }
    assert!(fault("grph x {}").starts_with("line 1, column 1: expected 'graph', found 'grph'"));
    assert!(fault("graph x {").contains("found the end of the text"));
    assert!(fault("graph x {} more").contains("expected the end of the text after the graph, found 'more'"));
}

#[test]
fn a_short_text_makes_a_small_graph() {
    let of = |line: &str| fault(&format!("graph g {{ dim B <= 4\n{line}\n}}"));
    assert!(
        of("%1 = constant {dims=[1000000000000], value=f32[1000000000000](splat 0)}")
            .contains("at most 1024")
    );
    assert!(
        of("%1 = constant {dims=[1000000000000], value=f32[1000000000000](0x00)}").contains("does not fit")
    );
    assert!(of("input \"x\" %0: f32[1000000000000, 1000000000000]").contains("more elements than memory"));
    assert!(of("input \"x\" %0: f32[99999999999999999999]").contains("too large for a size"));
    assert!(of(&format!("input \"x\" %0: f32[{}]", ["B"; 100_000].join("*"))).contains("too large"));
    assert!(of(&format!("input \"x\" %0: f32[{}]", ["B"; 100_000].join(", "))).contains("at most 64"));
    let long = "n".repeat(200_000);
    assert!(
        of(&format!("state \"{long}\" %0: f32[] slot init=seed update \"{long}m\" %0 always")).len() < 300
    );
    let fits =
        Graph::parse("graph g { %0 = constant {dims=[1000000000000], value=f32[](0)} output \"y\" %0 }")
            .unwrap();
    same(&fits, &round_trip(&fits));
}

#[test]
fn deep_nesting_is_an_error() {
    let nest = |depth: usize| {
        let mut text = "graph g {\n".to_string();
        (0..depth).for_each(|i| text += &format!("%r{i} = call {{name=f}} region() {{\n"));
        text += "%x = constant {dims=[], value=f32[](0)}\n yield %x }\n";
        (1..depth).rev().for_each(|i| text += &format!("yield %r{i} }}\n"));
        text + "output \"y\" %r0 }"
    };
    round_trip(&Graph::parse(&nest(Graph::MAX_NESTING)).unwrap());
    assert!(fault(&nest(Graph::MAX_NESTING + 1)).contains("nest more than 64 deep"));
    assert!(fault(&nest(1_000_000)).contains("nest more than 64 deep"));
    assert!(Graph::parse(&"[".repeat(1_000_000)).is_err());
    assert!(Graph::parse(&format!("graph g {{ %0 = iota {{dims={}", "[".repeat(1_000_000))).is_err());
}

#[test]
fn nothing_at_all() {
    assert!(matches!(Graph::parse(""), Err(GraphError::Parse { line: 1, column: 1, .. })));
    same(&Graph::default(), &round_trip(&Graph::default()));
    assert!(bind(&Graph::default(), &BTreeMap::new()).is_ok());
}

/// A node without attributes and types ends where the next begins.
#[test]
fn types_may_be_left_out_of_every_node() {
    let text = "graph g {\n input \"x\" %x: f32[2]\n %a = add %x, %x\n %b = exp %a\n output \"b\" %b\n}";
    let graph = Graph::parse(text).unwrap();
    assert_eq!(graph.nodes.len(), 2);
    fault(&text.replace("%x, %x", "%x %x"));
}

#[test]
fn every_first_value_survives() {
    let g = GraphBuilder::new("first");
    let all = [
        Init::Constant(0.5),
        Init::Uniform { low: -0.5, high: 0.25 },
        Init::Normal { mean: 0.0, std: 0.02 },
        Init::TruncatedNormal { mean: 0.0, std: 0.02, low: -0.04, high: 0.04 },
        Init::Orthogonal { gain: 2.0 },
    ];
    for (i, init) in all.into_iter().enumerate() {
        g.state(&format!("s{i}"), Role::Parameter, DType::F32, &[2, 2], init);
    }
    let read = round_trip(&g.build().unwrap());
    assert!(read.states.iter().map(|s| s.init).eq(all));
}
