//! Programs with inputs and the interpreter's answers: every sample of the op table, larger cases of the library kernels, random
//! graphs, and random training steps.

#[path = "attention.rs"]
pub mod attention;
#[path = "products.rs"]
pub mod products;

use onestep_cuda::CudaTarget;
use onestep_ir::interp::{self, Mode};
use onestep_ir::testing::{
    RandomOptions, Rng, difference, graph_of, operand_values, random_graph, random_inputs, random_state,
};
use onestep_ir::{Array, DType, Dense, Graph, GraphBuilder, Init, Op, Role, Tensor};
use onestep_optim::rules::RULES;
use onestep_optim::{Clip, Params, StepOptions, Storage, UnusedParameter, training_step};
use onestep_passes::CompileError;
use onestep_passes::pipeline::{Compiled, Options, compile};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A program under test.
pub struct Case {
    pub name: String,
    pub compiled: Compiled,
    pub inputs: Vec<Array>,
    pub states: Vec<Array>,
    /// Outputs of the graph, then states.
    pub wants: Vec<Dense>,
    /// The greatest difference, relative to the larger of 1 and the number.
    pub tolerance: f64,
    /// The least one, of what has to be rounded more than the interpreter does.
    pub least: f64,
}

impl Case {
    /// A graph on given inputs and state; the op that the target refuses.
    pub fn new(
        name: String,
        graph: &Graph,
        inputs: Vec<Array>,
        state: BTreeMap<Arc<str>, Array>,
        tolerance: f64,
    ) -> Result<Case, String> {
        Case::with(name, graph, inputs, state, tolerance, &Options::default())
    }

    /// The same with options of compilation.
    pub fn with(
        name: String,
        graph: &Graph,
        inputs: Vec<Array>,
        state: BTreeMap<Arc<str>, Array>,
        tolerance: f64,
        options: &Options,
    ) -> Result<Case, String> {
        let compiled = match compile(graph, &CudaTarget::HOPPER, options) {
            Ok(c) => c,
            Err(CompileError::Unsupported { op, .. }) => return Err(op),
            Err(e) => panic!("{name}: {e}\n{graph}"),
        };
        let dense: Vec<Dense> = inputs.iter().map(Dense::from_array).collect();
        let before = state.iter().map(|(n, a)| (n.clone(), Dense::from_array(a))).collect();
        let want =
            interp::run(graph, &dense, &before, Mode::Declared).unwrap_or_else(|e| panic!("{name}: {e}"));
        let s = &compiled.schedule;
        let states = s.states.iter().map(|p| state[&p.name].clone()).collect();
        let wants =
            want.outputs.iter().chain(s.states.iter().map(|p| &want.state[&p.name])).cloned().collect();
        Ok(Case { name, compiled, inputs, states, wants, tolerance, least: 0.0 })
    }

    fn random(name: String, graph: &Graph, seed: u64, tolerance: f64) -> Case {
        let state = random_state(graph, seed);
        Case::new(name, graph, random_inputs(graph, seed), state, tolerance).expect("every op has a kernel")
    }

    /// How far results (outputs of the graph, then states) are from the interpreter's.
    pub fn error(&self, got: &[Array]) -> f64 {
        assert_eq!(got.len(), self.wants.len());
        let one = |(got, want): (&Array, &Dense)| {
            difference(&Dense { shape: want.shape.clone(), ..Dense::from_array(got) }, want)
        };
        got.iter().zip(&self.wants).map(one).fold(0.0, f64::max)
    }

    /// Outputs of the graph itself: the pipeline may add one.
    pub fn outputs(&self) -> usize {
        self.wants.len() - self.states.len()
    }
}

/// By the widest rounding on the way.
fn tolerance(graph: &Graph) -> f64 {
    let of = |d: DType| match d {
        DType::BF16 => 0.05,
        DType::F16 => 0.01,
        DType::F32 => 1e-4,
        _ => 1e-9,
    };
    graph.values.iter().map(|v| of(v.ty.dtype)).fold(0.0, f64::max)
}

fn of_op(name: String, op: &Op, values: &[Dense]) -> Result<Case, String> {
    let types: Vec<_> = values.iter().map(|v| v.ty()).collect();
    let graph = graph_of(op, &types).unwrap_or_else(|e| panic!("{name}: {e}"));
    let inputs = values.iter().map(|v| v.to_array().expect("sizes agree")).collect();
    Case::new(name, &graph, inputs, BTreeMap::new(), tolerance(&graph))
}

/// Every sample of the op table, and the ops of those that the target refuses.
pub fn samples() -> (Vec<Case>, Vec<String>) {
    let (mut cases, mut refused) = (vec![], vec![]);
    for (i, sample) in Op::samples().iter().enumerate() {
        if sample.operands.iter().any(|(ty, _)| ty.shape.sizes().is_none()) {
            continue;
        }
        let values = operand_values(sample, i as u64);
        match of_op(format!("{} {i}", sample.op.rule().name()), &sample.op, &values) {
            Ok(case) => cases.push(case),
            Err(op) => refused.push(op),
        }
    }
    refused.dedup();
    (cases, refused)
}

/// Sizes at which library kernels take their other paths: long rows, pieces of `k`, squares of every size.
pub fn large() -> Vec<Case> {
    use onestep_ir::ops::*;
    let mut rng = Rng::new(5);
    let mut real = |d: DType, shape: &[usize]| {
        rng.dense(
            &onestep_ir::Type::new(d, onestep_ir::Shape::fixed(shape)),
            onestep_ir::op::Range::Real(-1.0, 1.0),
        )
    };
    let mut cases = vec![];
    let mut add = |name: &str, op: Op, values: &[Dense]| {
        let mut case = of_op(name.into(), &op, values).expect("every op has a kernel");
        case.tolerance = case.tolerance.max(1e-5);
        cases.push(case);
    };
    for (m, n, k) in [(32, 10, 300), (70, 33, 17), (5, 700, 1), (1, 40, 1000), (300, 260, 20)] {
        for d in [DType::F32, DType::F64, DType::BF16] {
            let op = Matmul { transpose_a: m % 2 == 1, transpose_b: n % 2 == 0, dtype: d };
            let a = if op.transpose_a { [k, m] } else { [m, k] };
            let b = if op.transpose_b { [n, k] } else { [k, n] };
            add(&format!("matmul {m}x{n}x{k} {d}"), op.into(), &[real(d, &a), real(d, &b)]);
        }
    }
    // Few rows: one warp for a sum and eight, whole rounds of loads and not, columns that fill no warp.
    for (m, n, k) in [(1, 300, 2048), (1, 3, 5640), (1, 37, 8), (2, 5, 264), (3, 70, 1032), (8, 9, 4104)] {
        for d in [DType::F32, DType::F16, DType::BF16] {
            let op = Matmul { transpose_a: false, transpose_b: true, dtype: d };
            add(&format!("matmul {m}x{n}x{k} {d}"), op.into(), &[real(d, &[m, k]), real(d, &[n, k])]);
        }
    }
    // Tiles and vectors of every size, several slabs, a batch, factors along `k` and across.
    for (batch, m, n, k) in [
        (1, 128, 256, 784),
        (1, 256, 196, 128),
        (3, 33, 70, 50),
        (1, 8, 9, 2100),
        (40, 24, 16, 12),
        (1, 1, 1, 6),
        (1, 3, 2100, 20),
        (133, 20, 18, 45),
    ] {
        for (transpose_a, transpose_b) in [(false, true), (true, false), (false, false)] {
            let d = if batch == 133 { DType::BF16 } else { DType::F32 };
            let op = Matmul { transpose_a, transpose_b, dtype: d };
            let a = if transpose_a { [batch, k, m] } else { [batch, m, k] };
            let b = if transpose_b { [batch, n, k] } else { [batch, k, n] };
            let values = [real(d, &a), real(d, &b)];
            add(&format!("matmul {batch}x{m}x{n}x{k} {transpose_a} {transpose_b}"), op.into(), &values);
        }
    }
    for reverse in [false, true] {
        let op = Cumulative { kind: ReduceKind::Sum, axis: 1, exclusive: reverse, reverse };
        add("cumsum 3x700x2", op.into(), &[real(DType::F32, &[3, 700, 2])]);
    }
    for kind in [ArgKind::Max, ArgKind::Min] {
        add("argreduce 3x1000", ArgReduce { kind, axis: 1 }.into(), &[real(DType::F32, &[3, 1000])]);
        add("argreduce 2x5001x2", ArgReduce { kind, axis: 1 }.into(), &[real(DType::BF16, &[2, 5001, 2])]);
    }
    for (d, kind) in
        [(DType::F32, ReduceKind::Sum), (DType::BF16, ReduceKind::Sum), (DType::F64, ReduceKind::Max)]
    {
        for (shape, axes) in
            [([1usize, 40_001, 1], vec![0, 1]), ([3, 16_500, 2], vec![1]), ([1000, 3, 20], vec![0, 2])]
        {
            let op = Reduce { kind, axes };
            add(&format!("{kind:?} {shape:?} {d}"), op.into(), &[real(d, &shape)]);
        }
    }
    for (taps, pad, channels, outputs) in [(3, 1, 8, 6), (3, 1, 40, 48), (1, 0, 40, 48), (1, 0, 144, 160)] {
        let window =
            Window { stride: vec![2, 1], low: vec![pad, 1], high: vec![pad, 1], dilation: vec![1, 2] };
        let convolution = Convolution { window: window.clone(), groups: 2 };
        let (input_size, kernel_size) = (vec![12, 11], vec![taps, 3]);
        let input_grad = ConvolutionInputGrad { window: window.clone(), groups: 2, input_size };
        let weight_grad = ConvolutionWeightGrad { window, groups: 2, kernel_size };
        for d in [DType::F32, DType::F16, DType::BF16] {
            let (x, w) = (real(d, &[5, channels, 12, 11]), real(d, &[outputs, channels / 2, taps, 3]));
            let y = real(d, &[5, outputs, 6, 9]);
            let name = format!("{channels} to {outputs} channels, {taps}x3, {d}");
            add(&format!("convolution {name}"), convolution.clone().into(), &[x.clone(), w.clone()]);
            add(&format!("convolution_input_grad {name}"), input_grad.clone().into(), &[y.clone(), w]);
            add(&format!("convolution_weight_grad {name}"), weight_grad.clone().into(), &[x, y]);
        }
    }
    let ids = Dense::from_ints(DType::I32, &[90], (0..90).map(|i| i * i % 7).collect());
    let (table, rows) = (real(DType::F32, &[7, 300]), real(DType::F32, &[90, 300]));
    add("scatter_add 7x300", ScatterAdd { axis: 0 }.into(), &[table, ids, rows]);
    cases.extend(ordered());
    cases
}

/// A product of `f32` that the library computes, exact unless TF32 is allowed: then each term is off by less than 2⁻⁹ of itself,
/// and some are.
pub fn tf32() -> Vec<Case> {
    let g = GraphBuilder::new("product");
    let (x, w) = (g.input("x", DType::F32, [1024, 512]), g.input("w", DType::F32, [512, 1024]));
    g.output("y", x.matmul(w));
    let graph = g.build().expect("shapes agree");
    let mut rng = Rng::new(7);
    let inputs: Vec<Array> = [x, w]
        .into_iter()
        .map(|t| {
            let ty = t.ty().expect("it has a type");
            rng.dense(&ty, onestep_ir::op::Range::Real(0.5, 1.0)).to_array().expect("sizes agree")
        })
        .collect();
    let case = |allow_tf32, tolerance, least| {
        let options = Options { allow_tf32, ..Options::default() };
        let name = format!("product of f32, TF32 allowed: {allow_tf32}");
        let case = Case::with(name, &graph, inputs.clone(), BTreeMap::new(), tolerance, &options);
        Case { least, ..case.expect("every op has a kernel") }
    };
    vec![case(false, 1e-5, 0.0), case(true, 2f64.powi(-9), 2e-5)]
}

/// What goes through an order of many items: sorts of rows of every size, and scatters into many rows.
fn ordered() -> Vec<Case> {
    use onestep_ir::ops::*;
    let mut rng = Rng::new(6);
    let mut drawn = |d: DType, shape: &[usize], range| {
        rng.dense(&onestep_ir::Type::new(d, onestep_ir::Shape::fixed(shape)), range)
    };
    let (few, real) = (onestep_ir::op::Range::Int(-40, 40), onestep_ir::op::Range::Real(-1.0, 1.0));
    let mut cases = vec![];
    let mut add = |name: &str, op: Op, values: &[Dense]| {
        cases.push(of_op(name.into(), &op, values).expect("every op has a kernel"));
    };
    // Several rows in a block, a block for a row, and runs that are merged once and twice.
    for (d, shape) in [
        (DType::F32, [40, 100, 3]),
        (DType::BF16, [2, 2048, 1]),
        (DType::F64, [2, 5000, 2]),
        (DType::I64, [1, 3000, 2]),
        (DType::I8, [1, 33_000, 1]),
        (DType::F32, [2, 40_000, 1]),
    ] {
        for descending in [false, true] {
            let op = Sort { axis: 1, descending };
            add(&format!("sort {shape:?} {d} {descending}"), op.into(), &[drawn(d, &shape, few)]);
        }
    }
    // All indices equal, and few of many, in whole pieces and not; columns that fill no tile; a base that is or is not
    // overwritten.
    for (d, outer, rows, count, inner, spread) in [
        (DType::F32, 1, 4100, 2100, 70, 4100),
        (DType::BF16, 1, 4200, 2048, 33, 50),
        (DType::F32, 2, 5000, 2500, 3, 1),
        (DType::F32, 1, 8200, 3000, 40, 7),
        (DType::F16, 1, 8200, 2048, 70, 2),
        (DType::I32, 1, 9000, 1000, 64, 9000),
    ] {
        let at = |i: usize| ((i * 7919 + i * i) % spread + rows - spread) as i64;
        let ids = Dense::from_ints(DType::I32, &[count], (0..count).map(at).collect());
        let range = if d.is_float() { real } else { few };
        let (base, updates) =
            (drawn(d, &[outer, rows, inner], range), drawn(d, &[outer, count, inner], range));
        let name = format!("scatter_add {outer}x{rows}x{inner} {d} of {count}, {spread} rows");
        add(&name, ScatterAdd { axis: 1 }.into(), &[base, ids, updates]);
    }
    for (rows, count, inner) in [(300, 700, 2), (5, 256, 1), (4000, 2500, 1)] {
        let at = |i: usize| ((i * 31 + i * i) % rows) as i64;
        let ids = Dense::from_ints(DType::I64, &[2, count, inner], (0..2 * count * inner).map(at).collect());
        let (base, updates) =
            (drawn(DType::F32, &[2, rows, inner], real), drawn(DType::F32, &[2, count, inner], real));
        let name = format!("scatter_add_along {rows} of {count}x{inner}");
        add(&name, ScatterAddAlong { axis: 1 }.into(), &[base, ids, updates]);
    }
    cases
}

/// A sum down the columns of `x`, and of `xt`, which is `x` transposed, along its rows; the same of what is stored too.
pub fn columns(d: DType, rows: usize, columns: usize) -> Case {
    let g = GraphBuilder::new("columns");
    let (x, xt) = (g.input("x", d, [rows, columns]), g.input("xt", d, [columns, rows]));
    g.output("down", x.sum(&[0]));
    g.output("along", xt.sum(&[1]));
    let kept = xt * xt;
    g.output("kept", kept);
    g.output("along_kept", kept.sum(&[1]));
    g.output("down_unkept", (x * x).sum(&[0]));
    let graph = g.build().expect("the graph is well formed");
    let mut inputs = random_inputs(&graph, 7);
    let numbers = inputs[0].to_f64();
    let turned: Vec<f64> = (0..rows * columns).map(|i| numbers[i % rows * columns + i / rows]).collect();
    inputs[1] = Array::from_f64(d, &[columns, rows], &turned).expect("sizes agree");
    Case::new(format!("columns {rows}x{columns} {d}"), &graph, inputs, BTreeMap::new(), tolerance(&graph))
        .expect("every op has a kernel")
}

/// What a guard does with gradients of many sizes: each is cast and kept, and all must be finite.
pub fn finite(sizes: &[usize]) -> Case {
    let g = GraphBuilder::new("finite");
    let mut finite: Option<onestep_ir::Tensor<'_>> = None;
    for (i, &n) in sizes.iter().enumerate() {
        let x = g.input(&format!("x{i}"), DType::BF16, [n]).cast(DType::F32);
        g.output(&format!("y{i}"), x);
        let own = x.is_finite().all();
        finite = Some(finite.map_or(own, |all| own.and(all)));
    }
    finite.into_iter().for_each(|all| g.output("finite", all));
    let graph = g.build().expect("the graph is well formed");
    let inputs = random_inputs(&graph, 9);
    Case::new(format!("finite {sizes:?}"), &graph, inputs, BTreeMap::new(), 0.0)
        .expect("every op has a kernel")
}

/// The reductions, scatters and sorts of a large language model's step, at its sizes: for a device.
pub fn realistic() -> Vec<Case> {
    use onestep_ir::ops::*;
    let mut rng = Rng::new(8);
    let mut drawn = |d: DType, shape: &[usize]| {
        rng.dense(
            &onestep_ir::Type::new(d, onestep_ir::Shape::fixed(shape)),
            onestep_ir::op::Range::Real(-1.0, 1.0),
        )
    };
    let mut cases = vec![
        columns(DType::F32, 16_384, 768),
        columns(DType::BF16, 16_384, 2304),
        columns(DType::F32, 4097, 771),
        columns(DType::F32, 20_001, 300),
        finite(&[38_633_472, 2_359_296, 1_769_472, 589_824, 786_432, 768, 40_001]),
    ];
    let mut add = |name: &str, op: Op, values: &[Dense]| {
        cases.push(of_op(name.into(), &op, values).expect("every op has a kernel"));
    };
    let sum = Reduce { kind: ReduceKind::Sum, axes: vec![0] };
    add("sum of 40 million", sum.clone().into(), &[drawn(DType::F32, &[40_000_000])]);
    add("sums of 16", sum.into(), &[drawn(DType::F32, &[16, 786_432])]);
    let at: [(&str, usize, fn(usize) -> usize); 4] = [
        ("any", 768, |i| i * 7919 % 50_304),
        ("few", 768, |i| (i * i) % 1000),
        ("in order", 100, |i| i * 3),
        ("equal", 100, |_| 17),
    ];
    for (name, n, at) in at {
        let ids = Dense::from_ints(DType::I32, &[16_384], (0..16_384).map(|i| at(i) as i64).collect());
        let (base, updates) = (drawn(DType::F32, &[50_304, n]), drawn(DType::F32, &[16_384, n]));
        add(&format!("scatter_add, {name}"), ScatterAdd { axis: 0 }.into(), &[base, ids, updates]);
    }
    for (shape, axis) in [([16, 8192], 1), ([2, 200_000], 1), ([3000, 100], 0)] {
        let op = Sort { axis, descending: false };
        add(&format!("sort {shape:?}"), op.into(), &[drawn(DType::F32, &shape)]);
    }
    for shape in [[1, 50_257], [4096, 1000], [64, 50_257]] {
        let op = ArgReduce { kind: ArgKind::Max, axis: 1 };
        add(&format!("argmax {shape:?}"), op.into(), &[drawn(DType::F32, &shape)]);
    }
    let op = Cumulative { kind: ReduceKind::Sum, axis: 1, exclusive: false, reverse: false };
    add("cumsum [1, 50257]", op.into(), &[drawn(DType::F32, &[1, 50_257])]);
    cases
}

/// Random graphs.
pub fn random(seeds: std::ops::Range<u64>) -> Vec<Case> {
    let one = |seed| {
        let graph = random_graph(seed, RandomOptions::default());
        Case::random(format!("random graph {seed}"), &graph, seed, 1e-3)
    };
    seeds.map(one).collect()
}

/// Training steps of random graphs, each rule in turn.
pub fn steps(seeds: std::ops::Range<u64>) -> Vec<Case> {
    let one = |seed: u64| {
        let options =
            RandomOptions { steps: 16, integers: seed.is_multiple_of(2), ..RandomOptions::default() };
        let mut graph = random_graph(seed, options);
        graph.updates.clear();
        graph.guard = None;
        let params: Vec<String> = graph.states.iter().map(|s| s.name.to_string()).collect();
        let rule = (RULES[seed as usize % RULES.len()].with_lr)(0.01);
        let clip = (seed % 5 < 3).then_some(Clip::GlobalNorm(1.0));
        let storage = if seed.is_multiple_of(3) { Storage::Bf16 } else { Storage::Exact };
        let unused = UnusedParameter::Zero;
        let options =
            StepOptions { clip, unused, parameters: storage, slots: storage, ..StepOptions::default() };
        let step = training_step(&graph, "loss", Params::Paths(params), &*rule, &options).ok()?;
        Some(Case::random(format!("training step {seed}"), &step.graph, seed, 2e-2))
    };
    seeds.filter_map(one).collect()
}

/// A gated layer in bf16 on few rows, and the sum around it: products side by side, and one that takes the work on its
/// elements along.
pub fn gated(rows: usize) -> Case {
    let g = GraphBuilder::new("gated");
    let x = g.input("x", DType::BF16, [rows, 264]);
    let init = Init::Uniform { low: -0.06, high: 0.06 };
    let w = |name: &str, n: usize, k: usize| g.state(name, Role::Parameter, DType::BF16, &[n, k], init);
    let [gate, up] = ["gate", "up"].map(|name| x.matmul_t(w(name, 520, 264), false, true));
    let down = (gate.silu() * up).matmul_t(w("down", 264, 520), false, true);
    g.output("y", down + x);
    let graph = g.build().expect("the graph is well formed");
    let (inputs, state) = (random_inputs(&graph, 3), first_values(&graph));
    Case::new(format!("gated layer of {rows} rows"), &graph, inputs, state, 0.02)
        .expect("every op has a kernel")
}

/// A layer of 8-bit floats with its gradients: products that sum over each of the sizes, and the transposed copies that these
/// take. The elements are few and small powers of two, so that every sum is exact.
pub fn eight_bits(rows: usize, inner: usize, columns: usize) -> Case {
    let g = GraphBuilder::new("eight bits");
    let x = g.input("x", DType::BF16, [rows, inner]);
    let w = g.input("w", DType::F32, [inner, columns]);
    let dy = g.input("dy", DType::BF16, [rows, columns]);
    let [(qx, sx), (qw, sw)] = [x, w].map(|t| t.quantize(DType::F8E4M3));
    let product = qx.matmul_t(qw.transpose_last(), false, true);
    let y = product * sx * sw;
    g.output("y", y);
    let back = onestep_autodiff::gradients(&g, (y * dy.cast(DType::F32)).sum_all(), &[x, w]);
    for (name, d) in ["dx", "dw"].iter().zip(back.expect("all have gradients")) {
        g.output(name, d.expect("the loss depends on it"));
    }
    let graph = g.build().expect("the graph is well formed");
    let mut rng = Rng::new(9);
    let mut draw = |dtype, shape: &[usize]| {
        let values: Vec<f64> = (0..shape.iter().product())
            .map(|_| [-1.0, -0.5, 0.0, 0.25, 0.5][rng.int(0, 5) as usize])
            .collect();
        Array::from_f64(dtype, shape, &values).expect("sizes agree")
    };
    let inputs = vec![
        draw(DType::BF16, &[rows, inner]),
        draw(DType::F32, &[inner, columns]),
        draw(DType::BF16, &[rows, columns]),
    ];
    let name = format!("8-bit layer {rows}x{inner}x{columns}");
    Case::new(name, &graph, inputs, BTreeMap::new(), 0.01).expect("every op has a kernel")
}

/// Random bits whose neighbours share a block, along memory and in reduced rows, and such as cannot: the transposed.
pub fn draws() -> Case {
    let g = GraphBuilder::new("draws");
    let (key, counter) =
        (g.input("key", DType::U32, [2]), g.input("counter", DType::U32, [1]).reshape([0usize; 0]));
    let x = g.input("x", DType::F32, [24, 40]);
    let draw = |name: &str, shape: [usize; 2]| g.random_bits(name, key, counter, shape);
    let whole = draw("whole", [24, 40]);
    g.output("whole", whole);
    g.output("odd", draw("odd", [24, 38]));
    g.output("aligned", whole.slice(-1, 8, 28).xor(draw("other", [24, 20])));
    g.output("within", whole.slice(-1, 3, 23).xor(draw("another", [24, 20])));
    g.output("transposed", whole.transpose(&[1, 0]));
    g.output("kept", x.dropout(0.3, draw("dropout", [24, 40])));
    g.output("sums", x.dropout(0.3, draw("summed", [24, 40])).sum(&[-1]));
    let graph = g.build().expect("the graph is well formed");
    let inputs = random_inputs(&graph, 4);
    Case::new("draws".into(), &graph, inputs, BTreeMap::new(), 1e-5).expect("every op has a kernel")
}

fn normed<'g>(g: &'g GraphBuilder, name: &str, x: Tensor<'g>) -> Tensor<'g> {
    let init = Init::Uniform { low: 0.5, high: 1.5 };
    x.rms_norm(g.state(name, Role::Parameter, DType::BF16, &[264], init), 1e-5)
}

/// A token's step of a decoder in bf16, on few rows at place `at` of caches of 9 rows: a sum and its norm before three products
/// of the same rows; of their results one goes within a cache, one does after more work, and one is added; then a norm again
/// before a gated layer.
pub fn decoder(rows: usize, at: i32) -> Case {
    let g = GraphBuilder::new("decoder");
    let [x, y] = ["x", "y"].map(|name| g.input(name, DType::BF16, [rows, 264]));
    let at_input = g.input("at", DType::I32, [0usize; 0]);
    let init = Init::Uniform { low: -0.06, high: 0.06 };
    let w = |name: &str, n: usize, k: usize| g.state(name, Role::Parameter, DType::BF16, &[n, k], init);
    let sum = x + y;
    let h = normed(&g, "norm1", sum);
    let [q, k, v] =
        [("q", 264), ("k", 40), ("v", 40)].map(|(name, n)| h.matmul_t(w(name, n, 264), false, true));
    for (name, new) in [("keys", k.softmax(-1)), ("values", v)] {
        let cache = g.state(name, Role::Buffer, DType::BF16, &[9, 40], init);
        let grown = cache.dynamic_update_slice(0, new, at_input);
        g.update(cache, grown, false);
    }
    let sum = sum + q;
    let h = normed(&g, "norm2", sum);
    let [gate, up] = ["gate", "up"].map(|name| h.matmul_t(w(name, 520, 264), false, true));
    let down = (gate.silu() * up).matmul_t(w("down", 264, 520), false, true);
    g.output("y", down + sum);
    let graph = g.build().expect("the graph is well formed");
    let mut inputs = random_inputs(&graph, 3);
    inputs[2] = Array::new(&[], &[at]).expect("sizes agree");
    Case::new(format!("decoder of {rows} rows at {at}"), &graph, inputs, first_values(&graph), 0.02)
        .expect("every op has a kernel")
}

/// The first values of a graph's state.
fn first_values(graph: &Graph) -> BTreeMap<Arc<str>, Array> {
    let first = |s: &onestep_ir::StatePort| {
        let ty = graph.ty(s.value);
        (s.name.clone(), s.init.array(ty.dtype, &ty.sizes(), 1, &s.name).expect("sizes agree"))
    };
    graph.states.iter().map(first).collect()
}

/// A classifier's training step by Adam: 784 pixels, `hidden` units, 10 classes.
pub fn classifier(batch: usize, hidden: usize) -> Case {
    let g = GraphBuilder::new("mlp");
    let x = g.input("x", DType::F32, [batch, 784]);
    let y = g.input("y", DType::I32, [batch]);
    let dense = [(784, hidden, "fc1"), (hidden, 10, "fc2")];
    let mut h = x;
    for (i, (from, to, name)) in dense.into_iter().enumerate() {
        let bound = (from as f64).powf(-0.5);
        let init = Init::Uniform { low: -bound, high: bound };
        let w = g.parameter(&format!("{name}.weight"), &[to, from], init);
        let b = g.parameter(&format!("{name}.bias"), &[to], init);
        h = h.matmul_t(w, false, true) + b;
        h = if i == 0 { h.relu() } else { h };
    }
    g.output("loss", h.cross_entropy(y));
    let graph = g.build().expect("the graph is well formed");
    let adam = RULES.iter().find(|r| r.name == "adam").expect("there is Adam");
    let options = StepOptions::default();
    let step = training_step(&graph, "loss", Params::All, &*(adam.with_lr)(1e-3), &options).expect("a step");
    let labels: Vec<i32> = (0..batch as i32).map(|i| i * 7 % 10).collect();
    let mut inputs = random_inputs(&step.graph, 3);
    inputs[1] = Array::new(&[batch], &labels).expect("sizes agree");
    let state = first_values(&step.graph);
    Case::new(format!("classifier 784-{hidden}-10, batch {batch}"), &step.graph, inputs, state, 1e-3)
        .expect("every op has a kernel")
}
