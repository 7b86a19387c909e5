//! Matrix products: values against `f64` sums, and bits that no stride, thread, neighbour, epilogue or instruction set
//! may change.

mod common;

use common::{Case, bias_tanh, dense, noise, random};
use onestep_cpu::library::gemm::Isa;
use onestep_ir::ops::ReduceKind;
use onestep_ir::{Array, DType};
use onestep_passes::schedule::{
    Access, Affine, BufferId, Expr, ExprId, Kernel, LoopKernel, MatmulKernel, Store, TypedExpr, View,
};

/// How the factors are stored.
#[derive(Clone, Copy, Debug)]
struct Stored {
    lhs_transposed: bool,
    rhs_transposed: bool,
    /// Elements between the rows, beyond the row itself.
    gap: usize,
    shared_rhs: bool,
}

const PLAIN: Stored = Stored { lhs_transposed: false, rhs_transposed: false, gap: 0, shared_rhs: false };

/// A factor's storage and view for a given logical content.
fn factor(
    case: &mut Case,
    dtype: DType,
    [b, r, c]: [usize; 3],
    data: &[f64],
    transposed: bool,
    gap: usize,
) -> View {
    let (major, minor) = if transposed { (c, r) } else { (r, c) };
    let row = minor + gap;
    let mut stored = vec![f64::NAN; (b * major * row + 1).max(1)];
    for (at, &x) in data.iter().enumerate() {
        let (batch, i, j) = (at / (r * c), at / c % r, at % c);
        let (i, j) = if transposed { (j, i) } else { (i, j) };
        stored[1 + batch * major * row + i * row + j] = x;
    }
    let buffer = case.input(Array::from_f64(dtype, &[stored.len()], &stored).unwrap());
    let (rs, cs) = if transposed { (1, row) } else { (row, 1) };
    View { buffer, offset: 1, shape: vec![b, r, c], strides: vec![major * row, rs, cs] }
}

fn case(dtype: DType, [b, m, n, k]: [usize; 4], stored: Stored) -> Case {
    let mut case = Case::default();
    let lhs = noise(1, b * m * k);
    let lhs = factor(&mut case, dtype, [b, m, k], &lhs, stored.lhs_transposed, stored.gap);
    let copies = if stored.shared_rhs { 1 } else { b };
    let rhs = noise(2, copies * k * n);
    let mut rhs = factor(&mut case, dtype, [copies, k, n], &rhs, stored.rhs_transposed, stored.gap);
    if stored.shared_rhs {
        rhs.shape[0] = b;
        rhs.strides[0] = 0;
    }
    let out = case.temp(dtype, &[b, m, n]);
    case.push(Kernel::Matmul(MatmulKernel { lhs, rhs, out, epilogue: None }));
    case
}

fn reference(dtype: DType, [b, m, n, k]: [usize; 4], shared: bool) -> Vec<f64> {
    let round = |v: Vec<f64>| v.into_iter().map(|x| dtype.round(x)).collect::<Vec<_>>();
    let (lhs, rhs) = (round(noise(1, b * m * k)), round(noise(2, if shared { k * n } else { b * k * n })));
    let mut out = vec![];
    for batch in 0..b {
        let rhs = if shared { &rhs[..] } else { &rhs[batch * k * n..] };
        for i in 0..m {
            for j in 0..n {
                out.push((0..k).map(|p| lhs[(batch * m + i) * k + p] * rhs[p * n + j]).sum());
            }
        }
    }
    out
}

fn shapes() -> Vec<[usize; 4]> {
    let mut all = vec![];
    for m in [1, 2, 3, 8, 10, 17, 64] {
        for n in [1, 2, 3, 8, 10, 17, 64] {
            for k in [0, 1, 2, 3, 10, 64, 257] {
                all.push([1, m, n, k]);
            }
        }
    }
    all.extend([[3, 5, 7, 11], [2, 130, 33, 300], [1, 129, 70, 513], [1, 1, 300, 600], [4, 16, 16, 16]]);
    all.extend([[0, 3, 4, 5], [2, 0, 4, 5], [2, 3, 0, 5], [2, 3, 4, 0], [1, 5, 200, 257], [1, 200, 100, 30]]);
    all
}

fn every_storage() -> Vec<Stored> {
    let mut all = vec![];
    for bits in 0..8 {
        let [lhs_transposed, rhs_transposed, gap] = [1, 2, 4].map(|b| bits & b != 0);
        all.push(Stored { lhs_transposed, rhs_transposed, gap: if gap { 5 } else { 0 }, shared_rhs: false });
    }
    all
}

#[test]
fn values_are_those_of_f64_sums() {
    for dtype in [DType::F32, DType::F64] {
        let unit = if dtype == DType::F32 { 2f64.powi(-24) } else { 2f64.powi(-53) };
        for sizes in shapes() {
            for shared_rhs in [false, true] {
                let got = case(dtype, sizes, Stored { shared_rhs, ..PLAIN }).run();
                let want = reference(dtype, sizes, shared_rhs);
                let bound = unit * (sizes[3] as f64 + 1.0) * 2.0;
                for (g, w) in got.last().unwrap().to_f64().iter().zip(&want) {
                    assert!((g - w).abs() <= bound, "{dtype} {sizes:?}: {g} for {w}");
                }
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_strides_or_instructions() {
    for dtype in [DType::F32, DType::F64] {
        for sizes in shapes() {
            let want = case(dtype, sizes, PLAIN).run_with(1, Isa::detect()).pop().unwrap();
            for stored in every_storage() {
                let case = case(dtype, sizes, stored);
                for isa in Isa::available() {
                    let got = case.run_with(1, isa).pop().unwrap();
                    assert_eq!(got.bytes(), want.bytes(), "{dtype} {sizes:?} {stored:?} {isa:?}");
                }
            }
        }
    }
}

#[test]
fn a_row_alone_has_the_bits_of_the_row_in_a_batch() {
    let [_, m, n, k] = [1, 37, 130, 700];
    let data = noise(1, m * k);
    let all = case(DType::F32, [1, m, n, k], PLAIN).run_with(1, Isa::detect()).pop().unwrap();
    let all = all.as_slice::<f32>().unwrap();
    for i in 0..m {
        let mut alone = Case::default();
        let lhs = factor(&mut alone, DType::F32, [1, 1, k], &data[i * k..][..k], false, 0);
        let rhs = factor(&mut alone, DType::F32, [1, k, n], &noise(2, k * n), false, 0);
        let out = alone.temp(DType::F32, &[1, n]);
        alone.push(Kernel::Matmul(MatmulKernel { lhs, rhs, out, epilogue: None }));
        let alone = alone.run_with(1, Isa::detect()).pop().unwrap();
        assert_eq!(alone.as_slice::<f32>().unwrap(), &all[i * n..][..n], "row {i}");
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    for sizes in
        [[1, 1024, 96, 64], [1, 1, 4096, 300], [1, 10, 784, 128], [8, 64, 64, 64], [1, 700, 512, 128]]
    {
        case(DType::F32, sizes, PLAIN).run();
    }
}

#[test]
fn nan_stays_in_its_row_and_column_and_garbage_in_the_output_goes() {
    let mut case = Case::default();
    let mut lhs = noise(1, 9 * 5);
    lhs[7 * 5 + 2] = f64::NAN;
    let lhs = factor(&mut case, DType::F32, [1, 9, 5], &lhs, false, 0);
    let rhs = factor(&mut case, DType::F32, [1, 5, 17], &noise(2, 5 * 17), true, 0);
    let out = case.temp(DType::F32, &[9, 17]);
    case.push(Kernel::Matmul(MatmulKernel { lhs, rhs, out, epilogue: None }));
    let got = case.run().pop().unwrap();
    for (at, x) in got.to_f64().iter().enumerate() {
        assert_eq!(x.is_nan(), at / 17 == 7, "{at}");
    }
}

/// `store = Σ_column out`, one number for each row.
fn row_sums(rows: usize, n: usize, case: &mut Case, out: BufferId) -> LoopKernel {
    let result = case.temp(DType::F32, &[rows]);
    let at = |buffer, coefs| Access { buffer, place: Affine { offset: 0, coefs } };
    let load = Expr::Load { access: at(out, vec![n as i64, 1]), bounds: vec![], fill: 0 };
    let body = [load, Expr::Reduce(ReduceKind::Sum, ExprId(0))];
    let body = body.into_iter().map(|expr| TypedExpr { dtype: DType::F32, expr }).collect();
    let stores = vec![Store { value: ExprId(1), access: at(result, vec![1, 0]) }];
    LoopKernel { extents: vec![rows, n], parallel: 1, body, stores }
}

#[test]
fn an_epilogue_does_not_change_bits() {
    // Among them rows too few to share, and a sum so long that it is split over chunks.
    let sizes = [
        [1, 100, 96, 64],
        [2, 70, 40, 300],
        [1, 1, 6000, 640],
        [1, 1000, 128, 128],
        [1, 2, 90_000, 16],
        [0, 3, 4, 5],
    ];
    for make in [bias_tanh, row_sums] {
        for [b, m, n, k] in sizes {
            let mut apart = case(DType::F32, [b, m, n, k], PLAIN);
            let out = *apart.schedule.kernels[0].writes().first().unwrap();
            let kernel = make(b * m, n, &mut apart, out);
            let mut fused = Case { schedule: apart.schedule.clone(), values: apart.values.clone() };
            apart.push(Kernel::Loops(vec![kernel.clone()]));
            if let Kernel::Matmul(m) = &mut fused.schedule.kernels[0] {
                m.epilogue = Some(Box::new(kernel));
            }
            let (apart, fused) = (apart.run(), fused.run());
            for (a, f) in apart.iter().zip(&fused) {
                assert_eq!(a.bytes(), f.bytes(), "{:?}", [b, m, n, k]);
            }
        }
    }
}

#[test]
fn a_view_that_leaves_its_buffer_is_refused() {
    let mut case = Case::default();
    let (a, b) = (case.input(random(DType::F32, &[4, 4], 1)), case.input(random(DType::F32, &[4, 4], 2)));
    let out = case.temp(DType::F32, &[4, 4]);
    let mut lhs = dense(a, &[1, 4, 4]);
    lhs.offset = 1;
    case.push(Kernel::Matmul(MatmulKernel { lhs, rhs: dense(b, &[1, 4, 4]), out, epilogue: None }));
    let error = onestep_cpu::CpuProgram::new(&case.schedule).err().unwrap();
    assert!(error.to_string().contains("leaves its buffer"), "{error}");
}
