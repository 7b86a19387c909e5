//! What a schedule becomes, without a device: which ops have kernels, which launches there are, and what is refused.

use onestep_cuda::code::{MOST_STEPS, Space, Step};
use onestep_cuda::lower::lower;
use onestep_cuda::{CudaError, CudaTarget};
use onestep_ir::{DType, Graph, GraphBuilder, Init, Op, Role, ScanOptions};
use onestep_passes::Target;
use onestep_passes::pipeline::{Compiled, Options, compile};
use onestep_passes::plan::{PlanOptions, plan};

fn compiled(graph: &Graph) -> Compiled {
    compile(graph, &CudaTarget, &Options::default()).unwrap()
}

#[test]
fn library_ops_have_kernels_and_composites_are_taken_apart() {
    let mut accepted: Vec<&str> = vec![];
    for sample in Op::samples() {
        let types: Vec<_> = sample.operands.iter().map(|(ty, _)| ty.clone()).collect();
        if CudaTarget.accepts(&sample.op, &types) {
            accepted.push(sample.op.rule().name());
        }
    }
    accepted.sort();
    accepted.dedup();
    let want = [
        "argmax",
        "argmin",
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
    let code = lower(&c.schedule, &c.plan, &|_| false).unwrap();
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

#[test]
fn products_go_to_the_vendor_where_it_takes_them() {
    let g = GraphBuilder::new("product");
    let x = g.input("x", DType::BF16, [4, 6]);
    g.output("y", x.matmul_t(x, false, true));
    let c = compiled(&g.build().unwrap());
    let code = lower(&c.schedule, &c.plan, &|_| true).unwrap();
    let [(0, Step::Product(p))] = &code.steps[..] else { panic!("{:?}", code.steps) };
    assert_eq!(
        (p.sizes, p.lhs.1[1..].to_vec(), p.rhs.1[1..].to_vec()),
        ([1, 4, 4, 6], vec![6, 1], vec![1, 6])
    );
    assert_eq!(p.aligned, 256);
}

/// Which `f32` products are the crate's own follows from their sizes: the vendor's library is asked for the large ones alone.
#[test]
fn small_products_are_not_the_vendors() {
    for (size, own) in [(64, true), (256, true), (2048, false)] {
        let g = GraphBuilder::new("product");
        let x = g.input("x", DType::F32, [size, size]);
        g.output("y", x.matmul(x));
        let c = compiled(&g.build().unwrap());
        let code = lower(&c.schedule, &c.plan, &|_| true).unwrap();
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
        let code = lower(&c.schedule, &c.plan, &|_| false).unwrap();
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
        let code = lower(&c.schedule, &c.plan, &|_| false).unwrap();
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
    let code = lower(&c.schedule, &c.plan, &|_| false).unwrap();
    let launches = code.steps.iter().filter(|(_, s)| matches!(s, Step::Launch { .. })).count();
    assert_eq!((launches, code.kernels.len()), (7, 1));
}

#[test]
fn too_many_iterations_are_refused_by_name() {
    let c = compiled(&scan(MOST_STEPS + 1));
    let error = lower(&c.schedule, &c.plan, &|_| false).unwrap_err();
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
            PlanOptions { reuse: false, alignment: CudaTarget.alignment(), ..PlanOptions::default() };
        let apart = plan(&c.schedule, &options).unwrap();
        assert_eq!(c.plan.arena_bytes < apart.arena_bytes, shares, "{size}");
    }
}
