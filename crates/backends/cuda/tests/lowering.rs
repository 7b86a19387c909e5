//! What a schedule becomes, without a device: which ops have kernels, which launches there are, and what is refused.

use onestep_cuda::code::{Code, MOST_STEPS, Space, Step};
use onestep_cuda::lower::lower;
use onestep_cuda::{CudaError, CudaTarget};
use onestep_ir::ops::{Attention, AttentionGrad, AttentionLayout, Matmul};
use onestep_ir::{DType, Graph, GraphBuilder, Init, Op, Role, ScanOptions, Shape, Type};
use onestep_optim::{AdamW, Params, StepOptions, Storage, training_step};
use onestep_passes::Target;
use onestep_passes::pipeline::{Compiled, Options, compile};
use onestep_passes::plan::{PlanOptions, plan};

fn compiled(graph: &Graph) -> Compiled {
    compile(graph, &CudaTarget::HOPPER, &Options::default()).unwrap()
}

#[test]
fn library_ops_have_kernels_and_composites_are_taken_apart() {
    let mut accepted: Vec<&str> = vec![];
    for sample in Op::samples() {
        let types: Vec<_> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
        if CudaTarget::HOPPER.accepts(&sample.op, &types) {
            accepted.push(sample.op.rule().name());
        }
    }
    accepted.sort();
    accepted.dedup();
    let want = [
        "argmax",
        "argmin",
        "attention",
        "attention_grad",
        "convolution",
        "convolution_input_grad",
        "convolution_weight_grad",
        "cummax",
        "cummin",
        "cumprod",
        "cumsum",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "gather_along",
        "matmul",
        "max_pool",
        "scatter_add",
        "scatter_add_along",
        "sort",
    ];
    assert_eq!(accepted, want);
}

/// Two layers of one size are one kernel, launched twice with other addresses.
#[test]
fn equal_kernels_are_one_text() {
    let g = GraphBuilder::new("twice");
    let x = g.input("x", DType::F64, [8, 8]);
    let w: Vec<_> = (0..2)
        .map(|i| g.state(&format!("w{i}"), Role::Parameter, DType::F64, &[8, 8], Init::ZEROS))
        .collect();
    g.output("y", x.matmul(w[0]).matmul(w[1]));
    let c = compiled(&g.build().unwrap());
    let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| false).unwrap();
    assert_eq!((code.steps.len(), code.kernels.len()), (2, 1));
    let states: Vec<_> = code
        .steps
        .iter()
        .flat_map(|(_, s)| match s {
            Step::Launch { arguments, .. } => arguments.clone(),
            _ => vec![],
        })
        .filter_map(|a| if let Space::State(n) = a.space { Some(n) } else { None })
        .collect();
    assert_eq!(states, [0, 1]);
    // The same program in texts of any number has the same kernels.
    let count = |n| code.texts(n).iter().map(|(held, _)| held).sum::<usize>();
    assert_eq!((count(1), count(16)), (1, 1));
}

/// Updates that are rounded by chance differ from path to path in data, not in text.
#[test]
fn rounded_updates_of_one_size_are_one_kernel() {
    let launches = |layers: usize, storage| {
        let g = GraphBuilder::new("layers");
        let mut x = g.input("x", DType::F32, [8, 8]);
        for i in 0..layers {
            x = x.matmul(g.parameter(&format!("w{i}"), &[8, 8], Init::ONES));
        }
        let graph = g.finish(x.sum_all()).unwrap();
        let options = StepOptions { parameters: storage, slots: storage, ..StepOptions::default() };
        let step = training_step(&graph, "loss", Params::All, &AdamW::new(1e-3), &options).unwrap();
        let c = compiled(&step.graph);
        let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| true).unwrap();
        let products = code.steps.iter().filter(|(_, s)| matches!(s, Step::Product(_))).count();
        (
            code.steps.len() - products,
            code.kernels.iter().map(|k| k.source.matches("philox_block(").count()).max(),
        )
    };
    let ((exact, _), (rounded, draws)) = (launches(6, Storage::Exact), launches(6, Storage::Bf16));
    // The keys of all paths are made in one launch more.
    assert!(rounded <= exact + 1, "{rounded} launches, not {exact}");
    // One definition, and a call each for the parameter and its two slots.
    assert_eq!(draws, Some(4));
}

/// The steps of causal attention over heads of a packed tensor, and of its gradient.
fn attention(dtype: DType, [batch, time, heads, size]: [usize; 4]) -> Code {
    let g = GraphBuilder::new("attention");
    let qkv = g.input("qkv", dtype, [batch, time, 3 * heads * size]);
    let dout = g.input("dout", dtype, [batch, time, heads, size]);
    let part = |n: usize| {
        qkv.slice(-1, n * heads * size, (n + 1) * heads * size).reshape([batch, time, heads, size])
    };
    let forward = Attention { causal: true, ..Attention::new(AttentionLayout::Bthd, 0.125) };
    let mut operands = vec![part(0), part(1), part(2)];
    operands.extend(g.emit(forward, &operands));
    g.output("out", operands[3]);
    operands.push(dout);
    for (n, x) in g.emit(AttentionGrad { forward, mask_grad: false }, &operands).into_iter().enumerate() {
        g.output(&format!("d{n}"), x);
    }
    let c = compiled(&g.build().unwrap());
    lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| false).unwrap()
}

/// Attention reads heads where they are: a launch, and two for its gradient. What is kept beside its results is two numbers
/// for each query.
#[test]
fn attention_in_16_bits_is_three_launches() {
    for dtype in [DType::BF16, DType::F16] {
        let code = attention(dtype, [8, 512, 3, 64]);
        assert_eq!((code.steps.len(), code.kernels.len()), (3, 3), "{dtype} {:?}", code.labels);
        assert_eq!(code.scratch_bytes, 8 * 512 * 3 * 2 * 4);
        // The sums of keys and of values do not fit a thread's registers at once.
        assert_eq!(attention(dtype, [8, 512, 3, 192]).steps.len(), 4);
        assert!(attention(dtype, [1, 64, 1, 264]).steps.len() > 4, "decomposed");
    }
    let code = attention(DType::F32, [8, 512, 3, 64]);
    assert!(
        code.steps.len() > 3 && code.scratch_bytes + code.arena_bytes > 4 * 8 * 3 * 512 * 512,
        "decomposed"
    );
}

/// Its kernels are written with instructions of one architecture.
#[test]
fn attention_is_taken_apart_where_there_are_no_products_of_a_warpgroup() {
    let of = |shape: &[usize]| Type::new(DType::BF16, Shape::fixed(shape));
    let attention: Op = Attention::new(AttentionLayout::Bthd, 0.125).into();
    let operands = [of(&[1, 8, 2, 64]), of(&[1, 8, 2, 64]), of(&[1, 8, 2, 64])];
    let matmul: Op = Matmul { transpose_a: false, transpose_b: false, dtype: DType::BF16 }.into();
    for (architecture, accepted) in [("sm_80", false), ("sm_90a", true), ("sm_100a", false)] {
        let target = CudaTarget::of(architecture);
        assert_eq!(target.accepts(&attention, &operands), accepted, "{architecture}");
        assert!(target.accepts(&matmul, &[of(&[8, 8]), of(&[8, 8])]), "{architecture}");
    }
}

/// A query over many keys: they are shared among blocks, whose parts a second launch adds.
#[test]
fn few_queries_share_the_keys_among_blocks() {
    let g = GraphBuilder::new("cache");
    let q = g.input("q", DType::BF16, [1, 1, 32, 64]);
    let [k, v] = ["k", "v"].map(|name| g.input(name, DType::BF16, [1, 2048, 4, 64]));
    let out = g.emit(Attention::new(AttentionLayout::Bthd, 0.125), &[q, k, v]);
    g.output("out", out[0]);
    let c = compiled(&g.build().unwrap());
    let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| false).unwrap();
    let grids = code.steps.iter().map(|(_, s)| match s {
        Step::Launch { grid, .. } => *grid,
        _ => 0,
    });
    // Eight heads share a key head, and a block.
    assert_eq!(grids.collect::<Vec<_>>(), [4 * 32, 32]);
}

#[test]
fn products_go_to_the_vendor_where_it_takes_them() {
    let g = GraphBuilder::new("product");
    let x = g.input("x", DType::BF16, [4, 6]);
    g.output("y", x.matmul_t(x, false, true));
    let c = compiled(&g.build().unwrap());
    let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| true).unwrap();
    let [(0, Step::Product(p))] = &code.steps[..] else { panic!("{:?}", code.steps) };
    assert_eq!(
        (p.sizes, p.lhs.1[1..].to_vec(), p.rhs.1[1..].to_vec()),
        ([1, 4, 4, 6], vec![6, 1], vec![1, 6])
    );
    assert_eq!(p.aligned, 256);
}

/// The permission reaches the library's products of `f32`, those in a scan too, and no others.
#[test]
fn products_in_tf32_where_they_may_be() {
    let g = GraphBuilder::new("products");
    let x = g.input("x", DType::F32, [2048, 2048]);
    let power =
        g.scan(&[x], &[], ScanOptions::times(2), |carry, _| (vec![carry[0].matmul(carry[0])], vec![]));
    g.output("power", power.carries[0]);
    let low = x.cast(DType::BF16);
    g.output("low", low.matmul(low));
    let graph = g.build().unwrap();
    for allow_tf32 in [false, true] {
        let options = Options { allow_tf32, ..Options::default() };
        let c = compile(&graph, &CudaTarget::HOPPER, &options).unwrap();
        let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| true).unwrap();
        let wide: Vec<bool> = code.products().filter(|p| p.dtype == DType::F32).map(|p| p.tf32).collect();
        assert_eq!(wide, [allow_tf32; 2]);
        assert!(code.products().any(|p| p.dtype == DType::BF16 && !p.tf32));
        assert_eq!(c.schedule.to_string().contains("products of f32 may be in tf32"), allow_tf32);
    }
}

/// Products of few rows are this crate's own, and those of one layer share a launch; what reads them has one of its own.
#[test]
fn products_of_few_rows_stand_side_by_side() {
    let g = GraphBuilder::new("layer");
    let x = g.input("x", DType::BF16, [1, 64]);
    let w = |name: &str, n: usize, k: usize| g.state(name, Role::Parameter, DType::BF16, &[n, k], Init::ONES);
    let [q, k, v] =
        [("q", 64), ("k", 16), ("v", 16)].map(|(name, n)| x.matmul_t(w(name, n, 64), false, true));
    for (name, y) in [("k", k), ("v", v), ("out", q.matmul_t(w("out", 64, 64), false, true))] {
        g.output(name, y);
    }
    let c = compiled(&g.build().unwrap());
    let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| true).unwrap();
    let parameters: Vec<usize> = code
        .steps
        .iter()
        .map(|(_, s)| if let Step::Launch { arguments, .. } = s { arguments.len() } else { 0 })
        .collect();
    assert_eq!(parameters, [7, 3], "three products of one row, then one");
    assert!(code.kernels[0].source.contains("gemv<1, 96, 64,"));
}

/// Nine rows, a sum across memory, or one whose rows are no whole loads: products for the vendor.
#[test]
fn other_products_are_the_vendors() {
    for (m, n, k, transpose) in [(9, 64, 64, true), (1, 64, 64, false), (1, 64, 60, true)] {
        let g = GraphBuilder::new("product");
        let x = g.input("x", DType::BF16, [m, k]);
        let w = g.input("w", DType::BF16, if transpose { [n, k] } else { [k, n] });
        g.output("y", x.matmul_t(w, false, transpose));
        let c = compiled(&g.build().unwrap());
        let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| true).unwrap();
        assert!(matches!(code.steps[..], [(0, Step::Product(_))]), "{m} {n} {k}: {:?}", code.steps);
    }
}

/// Which `f32` products are the crate's own follows from their sizes: the vendor's library is asked for the large ones alone.
#[test]
fn small_products_are_not_the_vendors() {
    for (size, own) in [(64, true), (256, true), (2048, false)] {
        let g = GraphBuilder::new("product");
        let x = g.input("x", DType::F32, [size, size]);
        g.output("y", x.matmul(x));
        let c = compiled(&g.build().unwrap());
        let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| true).unwrap();
        assert_eq!(matches!(code.steps[..], [(0, Step::Launch { .. })]), own, "{size}");
    }
}

/// What is done to each element of a small product is part of its launch, and to each row if that is short; a sum over columns
/// is not.
#[test]
fn small_products_take_the_work_on_their_elements_and_rows() {
    for (columns, sum, launches) in [(40, None, 1), (12, Some(1), 1), (40, Some(1), 2), (12, Some(0), 2)] {
        let g = GraphBuilder::new("product");
        let x = g.input("x", DType::F32, [36, 64]);
        let w = g.parameter("w", &[columns, 64], Init::ZEROS);
        let b = g.parameter("b", &[columns], Init::ZEROS);
        let y = (x.matmul_t(w, false, true) + b).relu();
        g.output("y", sum.map_or(y, |axis| y.sum(&[axis])));
        let c = compiled(&g.build().unwrap());
        let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| false).unwrap();
        assert_eq!(code.steps.len(), launches, "{}", c.schedule);
    }
}

/// A sum over 100,000 numbers is pieces and their sum; one over 1,000 is one launch.
#[test]
fn long_rows_are_reduced_in_pieces() {
    for (n, launches) in [(1000, 1), (100_000, 2)] {
        let g = GraphBuilder::new("sum");
        g.output("y", g.input("x", DType::F32, [n]).sum_all());
        let c = compiled(&g.build().unwrap());
        let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| false).unwrap();
        assert_eq!(code.steps.len(), launches, "{n}");
        assert_eq!(code.scratch_bytes > 0, launches == 2);
    }
}

fn scan(length: usize) -> Graph {
    let g = GraphBuilder::new("scan");
    let h = g.parameter("h", &[4], Init::ZEROS);
    let xs = g.input("xs", DType::F32, [length, 4]);
    let scanned = g.scan(&[h], &[xs], ScanOptions::default(), |carries, slices| {
        let next = (carries[0] + slices[0]).tanh();
        (vec![next], vec![])
    });
    g.output("last", scanned.carries[0]);
    g.build().unwrap()
}

#[test]
fn iterations_are_launches_of_one_kernel() {
    let c = compiled(&scan(7));
    let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| false).unwrap();
    let launches = code.steps.iter().filter(|(_, s)| matches!(s, Step::Launch { .. })).count();
    assert_eq!((launches, code.kernels.len()), (7, 1));
}

#[test]
fn too_many_iterations_are_refused_by_name() {
    let c = compiled(&scan(MOST_STEPS + 1));
    let error = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| false).unwrap_err();
    let CudaError::Kernel { source, .. } = &error else { panic!("{error}") };
    assert!(matches!(**source, CudaError::TooManySteps { .. }), "{error}");
    assert!(error.to_string().contains("run its iterations in several calls"), "{error}");
}

/// In an arena of a few megabytes no two buffers share storage, so that memory adds nothing to the order of values; a larger
/// one is packed as ever.
#[test]
fn small_arenas_do_not_share_storage() {
    for (size, shares) in [(64, false), (2048, true)] {
        let g = GraphBuilder::new("chain");
        let mut x = g.input("x", DType::F32, [size, size]);
        for _ in 0..4 {
            x = x.matmul(x);
        }
        g.output("y", x);
        let c = compiled(&g.build().unwrap());
        let options =
            PlanOptions { reuse: false, alignment: CudaTarget::HOPPER.alignment(), ..PlanOptions::default() };
        let apart = plan(&c.schedule, &options).unwrap();
        assert_eq!(c.plan.arena_bytes < apart.arena_bytes, shares, "{size}");
    }
}

/// The gradients of what one product gives for queries, keys and values are written where the product's gradient is.
#[test]
fn gradients_of_packed_attention_are_in_their_places() {
    let g = GraphBuilder::new("packed");
    let shape = [2, 70, 3, 64];
    let inputs: Vec<_> = (0..4).map(|i| g.input(&format!("x{i}"), DType::BF16, shape)).collect();
    let forward = Attention::new(AttentionLayout::Bthd, 0.125);
    let results = g.emit(forward, &inputs[..3]);
    let operands = [&inputs[..3], &results[..], &inputs[3..]].concat();
    let gradients = g.emit(AttentionGrad { forward, mask_grad: false }, &operands);
    let flat: Vec<_> = gradients.iter().map(|t| t.reshape([2, 70, 192])).collect();
    g.output("gradient", g.concat(&flat, -1));
    let c = compiled(&g.build().unwrap());
    let code = lower(&c.schedule, &c.plan, &CudaTarget::HOPPER, &|_| true).unwrap();
    let home = code.homes[c.schedule.outputs[0].1.index()];
    let [.., (_, queries), (_, keys)] = &code.steps[..] else { panic!("{}", c.schedule) };
    let at = |step: &Step, n: usize| match step {
        Step::Launch { arguments, .. } => arguments.contains(&home.plus(n * 192 * 2)),
        _ => false,
    };
    assert!(at(queries, 0) && at(keys, 1) && at(keys, 2), "{}", c.schedule);
}

/// A large product of 16-bit floats is Hopper's own kernel, with the work on its elements; the vendor's for other GPUs, where its
/// rows are not whole chunks, and where its left factor is contiguous across the sum.
#[test]
fn large_products_of_16_bits_are_made_by_warpgroups() {
    let steps = |target: &CudaTarget, [m, n, k]: [usize; 3], dtype, across| {
        let g = GraphBuilder::new("product");
        let x = g.input("x", dtype, if across { [k, m] } else { [m, k] });
        let (w, b) = (g.input("w", dtype, [n, k]), g.input("b", DType::F32, [n]));
        g.output("y", (x.matmul_t(w, across, true) + b.cast(dtype)).relu());
        let c = compile(&g.build().unwrap(), target, &Options::default()).unwrap();
        lower(&c.schedule, &c.plan, target, &|_| true).unwrap()
    };
    let (large, hopper) = ([2816, 2304, 512], &CudaTarget::HOPPER);
    for dtype in [DType::BF16, DType::F16] {
        let code = steps(hopper, large, dtype, false);
        assert!(matches!(code.steps[..], [(0, Step::Launch { .. })]), "{:?}", code.steps);
        let maps: Vec<_> = code.kernels[0].maps.iter().map(|m| (m.sizes, m.pitch)).collect();
        assert_eq!(maps, [([512, 2816], 512), ([512, 2304], 512)]);
    }
    // Work that takes longer than the next tile has a launch of its own.
    let activation = |depth: usize| {
        let g = GraphBuilder::new("product");
        let (x, w) = (g.input("x", DType::BF16, [2816, depth]), g.input("w", DType::BF16, [2304, depth]));
        g.output("y", x.matmul_t(w, false, true).gelu_tanh());
        let c = compiled(&g.build().unwrap());
        lower(&c.schedule, &c.plan, hopper, &|_| true).unwrap().steps.len()
    };
    assert_eq!((activation(512), activation(2048)), (2, 1));
    let vendor = |code: Code| code.products().count() == 1;
    assert!(vendor(steps(&CudaTarget::OTHER, large, DType::BF16, false)));
    assert!(vendor(steps(hopper, large, DType::F32, false)));
    assert!(vendor(steps(hopper, large, DType::BF16, true)));
    // A great depth is split, and its parts are added; the bias is a launch of its own.
    let code = steps(hopper, [768, 768, 8192], DType::BF16, true);
    assert_eq!((code.steps.len(), code.products().count()), (3, 0));
    // 36 tiles, and as many more of parts as there are tiles.
    assert_eq!(code.scratch_bytes, (132 + 36) * 128 * 128 * 4);
    // Tiles that leave much of the device idle.
    assert!(vendor(steps(hopper, [2176, 2304, 512], DType::BF16, false)));
    assert!(vendor(steps(hopper, [2816, 2300, 512], DType::BF16, false)));
    assert!(vendor(steps(hopper, [2816, 2304, 508], DType::BF16, false)));
}
