//! Parts of the user's own in compiled programs: ops on any number of threads and in every way to compile, passes at their
//! places, and an error for each way in which one may be wrong.

use crate::common::{cpu, floats, random, snapshot};
use onestep::extend::*;
use onestep::ir::interp::run_arrays;
use onestep::ir::ops::{Unary, UnaryKind};
use onestep::ir::testing::{Horner, Peak, RandomOptions, random_graph, random_inputs, random_state};
use onestep::prelude::*;
use onestep::{Executable, Options};
use std::collections::BTreeMap;

fn graph_of(op: Custom, operands: &[(DType, &[usize])]) -> Result<Graph, GraphError> {
    let g = GraphBuilder::new("own");
    let operands: Vec<Tensor<'_>> =
        (0..).zip(operands).map(|(i, (d, shape))| g.input(&format!("x{i}"), *d, *shape)).collect();
    for (i, y) in g.emit(op, &operands).into_iter().enumerate() {
        g.output(&format!("y{i}"), y);
    }
    g.build()
}

fn run(graph: &Graph, inputs: &[Array], device: &Device) -> Result<Vec<Array>, Error> {
    let mut program = compile(graph, device)?;
    let mut state = program.init(0)?;
    let out = program.run(&mut state, inputs)?;
    let names: Vec<&str> = out.names().collect();
    names.into_iter().map(|name| out.array(name)).collect()
}

/// A NaN's bits are nobody's concern.
fn bits(arrays: &[Array]) -> Vec<Vec<u64>> {
    let bits = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    arrays.iter().map(|a| a.to_f64().into_iter().map(bits).collect()).collect()
}

#[test]
fn chunks_are_shared_and_the_bits_stay() {
    // Many chunks of the elementwise kernel; rows that do not divide evenly; a single row; none.
    for (rows, columns) in [(301, 97), (1, 40_000), (40_000, 1), (0, 5)] {
        for op in [Custom::new(Peak), Custom::new(Horner::new(&[0.5, -1.0, 0.25]))] {
            let graph = graph_of(op, &[(F32, &[rows, columns])]).unwrap();
            let inputs = [random(&[rows, columns], 7)];
            let alone = run(&graph, &inputs, &cpu(1)).unwrap();
            for threads in [2, 3] {
                assert_eq!(alone, run(&graph, &inputs, &cpu(threads)).unwrap(), "{rows} × {columns}");
            }
            let want = run_arrays(&graph, &inputs, &mut BTreeMap::new()).unwrap();
            for (got, want) in alone.iter().zip(&want) {
                assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()));
                let pairs = got.to_f64().into_iter().zip(want.to_f64());
                assert!(pairs.fold(0.0, |most: f64, (a, b)| most.max((a - b).abs())) < 1e-6);
            }
        }
    }
}

/// Own ops in random graphs, in place of negations: fused, unfused, on one thread and two.
#[test]
fn every_way_to_compile_gives_the_same_bits() {
    let neg = Op::from(Unary { kind: UnaryKind::Neg });
    let mut replaced = 0;
    for seed in 0..150 {
        let graph = random_graph(seed, RandomOptions::default());
        let own = rewrite(&graph, &mut |g, node, x| {
            (node.op == neg && x[0].dtype() == F32).then(|| {
                replaced += 1;
                vec![g.emit1(Custom::new(Horner::new(&[0.25, -1.0])), x)]
            })
        })
        .unwrap();
        if own.to_string() == graph.to_string() {
            continue;
        }
        let inputs = random_inputs(&own, seed);
        let first: BTreeMap<_, _> = random_state(&own, seed);
        let ways = [(true, 1), (true, 2), (false, 1)].map(|(fuse, threads)| {
            let options = Options { fuse, ..Options::default() };
            let executable = Executable::compile(&own, &cpu(threads), &options).unwrap();
            let mut state = State::new();
            for (name, d) in &first {
                state.set(name, d);
            }
            let mut bound = executable.bind(&state).unwrap();
            let out = bound.run(&mut state, &inputs).unwrap();
            let names: Vec<&str> = out.names().collect();
            let out: Vec<Array> = names.into_iter().map(|n| out.array(n).unwrap()).collect();
            (bits(&out), state.names().map(|n| bits(&[state.get(n).unwrap()])).collect::<Vec<_>>())
        });
        assert_eq!(ways[0], ways[1], "seed {seed}: threads");
        assert_eq!(ways[0], ways[2], "seed {seed}: fusion");
    }
    assert!(replaced > 20, "only {replaced} ops were replaced");
}

#[test]
fn variables_dtypes_and_names_go_through() {
    let g = GraphBuilder::new("own");
    let x = g.input("x", F32, (dim("B").at_most(64), 3));
    let y = g.emit(Custom::new(Peak), &[g.emit1(Custom::new(Horner::new(&[0.0, 2.0])), &[x])])[0];
    g.output("y", y);
    let mut program = compile(&g.build().unwrap(), &cpu(2)).unwrap();
    let mut state = program.init(0).unwrap();
    for rows in [2, 5] {
        let out = program.run(&mut state, [&random(&[rows, 3], 1)]).unwrap().array("y").unwrap();
        assert_eq!(out.shape(), [rows]);
    }
    let report = program.executable().unwrap().report().to_string();
    assert!(report.contains("testing.peak") && report.contains("testing.horner"), "{report}");
    // There is no kernel for 16-bit floats: the one for f32 runs, and the result is rounded once.
    let graph = graph_of(Custom::new(Peak), &[(BF16, &[2, 2])]).unwrap();
    let x = Array::from_f64(BF16, &[2, 2], &[1.0, 3.0, 5.0, -5.0]).unwrap();
    let out = run(&graph, &[x], &cpu(1)).unwrap();
    assert_eq!((out[0].to_f64(), out[1].to_f64()), (vec![3.0, 5.0], vec![1.0, 0.0]));
}

/// Twice each element, with whatever is asked for.
#[derive(Clone, Copy, Debug)]
struct Twice {
    kernel: Option<fn(usize) -> CpuKernel>,
    decomposes: bool,
}

impl CustomOp for Twice {
    fn name(&self) -> &'static str {
        "test.twice"
    }
    fn read(&self, _: &mut AttrReader) -> Result<Custom, Mistake> {
        Ok(Custom::new(*self))
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        Ok(vec![operands[0].clone()])
    }
    fn reference(&self, operands: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Ok(vec![operands[0].map_reals(|x| 2.0 * x)])
    }
    fn decompose<'g>(&self, _: &'g GraphBuilder, operands: &[Tensor<'g>]) -> Option<Vec<Tensor<'g>>> {
        self.decomposes.then(|| vec![operands[0] * 2.0])
    }
    fn cpu_kernel(&self, operands: &[Type]) -> Option<CpuKernel> {
        Some(self.kernel?(operands[0].numel()))
    }
}

#[test]
fn kernels_that_do_not_fit_are_errors_that_name_op_and_line() {
    let run = |kernel, decomposes| {
        let graph = graph_of(Custom::new(Twice { kernel, decomposes }), &[(F32, &[4])]).unwrap();
        run(&graph, &[floats(&[4], &[1.0, 2.0, 3.0, 4.0])], &cpu(1))
    };
    let twice = |n| {
        CpuKernel::new::<(f32,), (f32,)>(n, |part, (x,), (y,)| {
            y.iter_mut().zip(&x[part]).for_each(|(y, x)| *y = 2.0 * x);
        })
    };
    let doubled = floats(&[4], &[2.0, 4.0, 6.0, 8.0]);
    assert_eq!(run(Some(twice), false).unwrap()[0], doubled);
    assert_eq!(run(None, true).unwrap()[0], doubled, "the decomposition stands in");
    let error = run(None, false).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Compile(CompileError::Unsupported { .. })), "{text}");
    assert!(text.contains("no kernel for test.twice") && text.contains("extend.rs"), "{text}");
    let wrong: [(fn(usize) -> CpuKernel, &str); 4] = [
        (|n| CpuKernel::new::<(f64,), (f32,)>(n, |_, _, _| {}), "takes (f64), the op (f32[4])"),
        (|n| CpuKernel::new::<(f32, f32), (f32,)>(n, |_, _, _| {}), "takes (f32, f32)"),
        (|n| CpuKernel::new::<(f32,), (f32, f32)>(n, |_, _, _| {}), "writes (f32, f32)"),
        (|_| CpuKernel::new::<(f32,), (f32,)>(3, |_, _, _| {}), "3 parts do not divide"),
    ];
    for (kernel, says) in wrong {
        let text = run(Some(kernel), true).unwrap_err().to_string();
        assert!(text.contains(says) && text.contains("test.twice") && text.contains("extend.rs"), "{text}");
    }
}

fn small() -> Graph {
    let g = GraphBuilder::new("small");
    let (x, w) = (g.input("x", F32, [4, 2]), g.parameter("w", &[2, 2], Init::ONES));
    g.finish((x.matmul(w).gelu() * 0.5).square().mean_all()).unwrap()
}

fn step_with(options: Options) -> Result<onestep::CompiledStep, Error> {
    TrainingStep::new(small()).optimizer(Sgd::new(0.1)).options(options).compile(&cpu(1))
}

#[test]
fn passes_run_at_their_places_and_are_dumped() {
    let stages = [Stage::Input, Stage::Inline, Stage::Guard, Stage::Decompose, Stage::Cse, Stage::Last];
    let names = ["own-0", "own-1", "own-2", "own-3", "own-4", "own-5"];
    let mut options = Options { dump: true, ..Options::default() };
    for (name, stage) in names.into_iter().zip(stages) {
        options = options.pass(name, stage, |g| rewrite(g, &mut |_, _, _| None));
    }
    let mut step = step_with(options.pass("second", Stage::Cse, |g| Ok::<_, GraphError>(g.clone()))).unwrap();
    let compiled = step.program().executable().unwrap().compiled();
    let dumps: Vec<&str> = compiled.dumps.iter().map(|d| d.0).collect();
    for (name, stage) in names.into_iter().zip(stages) {
        let at = dumps.iter().position(|d| *d == name).unwrap();
        assert_eq!(dumps[at - 1], stage.pass());
        assert_eq!(compiled.dumps[at].1, compiled.dumps[at - 1].1, "{name} changes nothing");
        assert!(compiled.times.iter().any(|t| t.0 == name));
    }
    let at = dumps.iter().position(|d| *d == "second").unwrap();
    assert_eq!(dumps[at - 1], "own-4");
    // A step's results are those of one without the passes.
    let mut plain = step_with(Options::default()).unwrap();
    let (mut a, mut b) = (step.init(0).unwrap(), plain.init(0).unwrap());
    let x = random(&[4, 2], 3);
    step.run(&mut a, [&x]).unwrap();
    plain.run(&mut b, [&x]).unwrap();
    assert_eq!(snapshot(&a), snapshot(&b));
}

/// What is said of a pass.
fn fault(pass: impl Fn(&Graph) -> Result<Graph, GraphError> + Send + Sync + 'static) -> String {
    let error = step_with(Options::default().pass("mine", Stage::Inline, pass)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(&error, Error::Compile(CompileError::Pass { pass: "mine", .. })), "{text}");
    assert!(text.contains("pass 'mine'"), "{text}");
    text
}

/// What is said of a pass that does this to the graph.
fn edited(edit: fn(&mut Graph)) -> String {
    fault(move |g| {
        let mut out = g.clone();
        edit(&mut out);
        Ok(out)
    })
}

#[test]
fn a_pass_that_breaks_its_word_is_named() {
    assert!(fault(|_| Err(GraphError::Invalid(vec!["no".into()]))).contains("failed: "));
    assert!(edited(|g| g.nodes[0].operands.clear()).contains("not valid"));
    assert!(edited(|g| g.values.clear()).contains("not valid"));
    let text = edited(|g| g.outputs.clear());
    assert!(text.contains("changes the outputs: 'loss' of f32[]") && text.contains("missing"), "{text}");
    let text = edited(|g| {
        g.updates.remove(0);
    });
    assert!(text.contains("changes the updated states: 'w' guarded is missing"), "{text}");
    let text = edited(|g| g.updates[0].guarded = false);
    assert!(text.contains("'w' guarded became 'w' always"), "{text}");
    assert!(edited(|g| g.guard = None).contains("changes the guard"));
    let text = edited(|g| g.states[0].init = Init::ZEROS);
    assert!(text.contains("changes the states: 'w' of f32[2, 2]"), "{text}");
    let text = edited(|g| g.inputs[0].name = "y".into());
    assert!(text.contains("changes the inputs: 'x' of f32[4, 2] became 'y' of f32[4, 2]"), "{text}");
    // What is no primitive and has no kernel must not come after its decomposition.
    let late = |g: &Graph| {
        rewrite(g, &mut |_, node, x| (node.op.rule().name() == "tanh").then(|| vec![x[0].gelu()]))
    };
    let g = GraphBuilder::new("late");
    g.output("y", g.input("x", F32, [3]).tanh());
    let options = Options::default().pass("late", Stage::Decompose, late);
    let error = Executable::compile(&g.build().unwrap(), &cpu(1), &options).unwrap_err().to_string();
    assert!(error.contains("no kernel for gelu") && error.contains("extend.rs"), "{error}");
}

#[derive(Debug)]
struct Odd(usize);

impl UpdateRule for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }
    fn hyper(&self) -> Vec<Hyper> {
        vec![]
    }
    fn slots(&self, shape: &[usize]) -> Vec<SlotSpec> {
        vec![SlotSpec::zeros("m", shape)]
    }
    fn update<'g>(
        &self,
        ctx: &RuleContext<'g>,
        p: Tensor<'g>,
        g: Tensor<'g>,
        slots: &[Tensor<'g>],
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        match self.0 {
            0 => (p - g, vec![]),
            1 => (p.sum_all(), vec![slots[0]]),
            2 => (p, vec![slots[0].cast(F16)]),
            _ => (p - g * ctx.lr(), vec![slots[0]]),
        }
    }
}

#[test]
fn a_rule_that_breaks_its_word_is_an_error() {
    let fault = |how| {
        let step = TrainingStep::new(small()).optimizer(Odd(how)).compile(&cpu(1));
        step.unwrap_err().to_string()
    };
    assert!(fault(0).contains("rule 'odd' has 1 slot(s) but its update gave 0"));
    assert!(fault(1).contains("state 'w' is f32[2, 2] but the new value is f32[]"));
    assert!(fault(2).contains("state 'opt/w/m' is f32[2, 2] but the new value is f16[2, 2]"));
    assert!(fault(3).contains("the rule has no number 'lr'"));
}
