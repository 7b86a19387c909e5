//! Linear algebra of small matrices: factors multiply to what they are of, systems are solved, and what is no matrix is
//! refused.

use onestep_ir::interp::{Mode, run};
use onestep_ir::testing::Rng;
use onestep_ir::{Array, DType, GraphBuilder, Tensor};
use std::collections::BTreeMap;

/// The elements of each tensor that `build` makes of random matrices of this shape.
fn of(shape: &[usize], build: impl for<'g> Fn(Tensor<'g>) -> Vec<Tensor<'g>>) -> Vec<Vec<f64>> {
    let mut rng = Rng::new(5);
    let x: Vec<f64> = (0..shape.iter().product()).map(|_| rng.real(-1.0, 1.0)).collect();
    given(shape, &x, build)
}

fn given(shape: &[usize], x: &[f64], build: impl for<'g> Fn(Tensor<'g>) -> Vec<Tensor<'g>>) -> Vec<Vec<f64>> {
    let g = GraphBuilder::new("case");
    let made = build(g.constant(Array::from_f64(DType::F64, shape, x).unwrap()));
    for (i, t) in made.into_iter().enumerate() {
        g.output(&format!("y{i}"), t.cast(DType::F64));
    }
    let graph = g.build().unwrap_or_else(|e| panic!("{e}"));
    let out = run(&graph, &[], &BTreeMap::new(), Mode::Declared).unwrap().outputs;
    out.iter().map(|d| d.reals().to_vec()).collect()
}

#[track_caller]
fn near(got: &[f64], want: &[f64]) {
    let gap = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(got.len() == want.len() && gap <= 1e-10, "{gap}: {got:?}, not {want:?}");
}

#[test]
fn factors_multiply_to_the_matrix() {
    for shape in [&[4, 4][..], &[5, 3], &[3, 5], &[2, 3, 6, 4], &[1, 1]] {
        let k = shape[shape.len() - 2].min(shape[shape.len() - 1]);
        let got = of(shape, |a| {
            let lu = a.lu();
            let eye = a.graph().eye(DType::F64, shape[shape.len() - 2], k);
            let l = lu.packed.slice(-1, 0, k).tril(-1) + eye;
            vec![l.matmul(lu.packed.slice(-2, 0, k).triu(0)), lu.permute(a), l.abs().flatten().max(&[0])]
        });
        near(&got[0], &got[1]);
        // The largest leads each column, so that no factor is above 1.
        assert!(got[2][0] <= 1.0);
    }
    let got = of(&[2, 5, 5], |a| {
        let positive = a.matmul_t(a, false, true) + a.graph().eye(DType::F64, 5, 5);
        let l = positive.cholesky();
        vec![l.matmul_t(l, false, true), positive, l.triu(1)]
    });
    near(&got[0], &got[1]);
    assert!(got[2].iter().all(|x| *x == 0.0));
    assert!(given(&[2, 2], &[1.0, 2.0, 2.0, 1.0], |a| vec![a.cholesky()])[0][3].is_nan());
}

#[test]
fn systems_and_determinants() {
    let got = of(&[3, 4, 4], |a| {
        let b = a.slice(-1, 0, 2);
        let lower = a.tril(0);
        let upper = a.triu(1) + a.graph().eye(DType::F64, 4, 4);
        vec![
            a.matmul(a.solve(b)) - b,
            a.matmul(a.inverse()) - a.graph().eye(DType::F64, 4, 4),
            // The other triangle is not read, nor a diagonal of ones.
            lower.matmul(a.solve_triangular(b, false, false)) - b,
            upper.matmul(a.solve_triangular(b, true, true)) - b,
            a.matmul(a.solve(b.at(-1, 0)).expand(2)).squeeze(-1) - b.at(-1, 0),
            a.det() - a.sign_log_det().0 * a.sign_log_det().1.exp(),
            a.matmul(a).det() - a.det().square(),
        ]
    });
    got.iter().for_each(|gap| near(gap, &vec![0.0; gap.len()]));
    let got = given(&[3, 3], &[0.0, 2.0, 1.0, 3.0, 0.0, 1.0, 0.0, 0.0, 4.0], |a| {
        let (sign, log) = a.sign_log_det();
        vec![a.det(), sign, log, a.lu().pivots]
    });
    near(&got.concat(), &[-24.0, -1.0, 24f64.ln(), 1.0, 1.0, 2.0]);
    assert_eq!(given(&[2, 2], &[1.0, 2.0, 2.0, 4.0], |a| vec![a.det()])[0], [0.0]);
    assert_eq!(given(&[2, 0, 0], &[], |a| vec![a.det(), a.inverse()]), [vec![1.0, 1.0], vec![]]);
}

#[test]
fn what_is_no_matrix_is_refused() {
    let refused = |shape: &[usize], dtype: DType, build: &dyn for<'g> Fn(Tensor<'g>) -> Tensor<'g>| {
        let g = GraphBuilder::new("case");
        g.output("y", build(g.input("x", dtype, shape)));
        g.build().unwrap_err().to_string()
    };
    assert!(refused(&[3], DType::F32, &|x| x.det()).contains("is no matrix"));
    assert!(refused(&[3, 3], DType::I32, &|x| x.lu().packed).contains("give floats"));
    assert!(refused(&[2, 3], DType::F32, &|x| x.inverse()).contains("not square"));
    assert!(refused(&[3, 3], DType::F32, &|x| x.solve(x.slice(0, 0, 2))).contains("as many rows"));
    assert!(
        refused(&[3, 3], DType::F32, &|x| x.solve_triangular(x.cast(DType::F64), true, true))
            .contains("dtype")
    );
}
