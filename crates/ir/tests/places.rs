//! Methods that write to and read from places that are data: unpooling, scatters, grids, histograms, modes, quantiles.

use onestep_ir::interp::{Mode, run};
use onestep_ir::ops::Window;
use onestep_ir::{
    Array, DType, GraphBuilder, GridSample, Interpolation, Meeting, Outside, QuantileKind, Tensor,
};
use std::collections::BTreeMap;

const NAN: f64 = f64::NAN;

fn floats<'g>(g: &'g GraphBuilder, shape: &[usize], x: &[f64]) -> Tensor<'g> {
    g.constant(Array::from_f64(DType::F32, shape, x).unwrap())
}

fn ints<'g>(g: &'g GraphBuilder, shape: &[usize], x: &[i32]) -> Tensor<'g> {
    g.constant(Array::new(shape, x).unwrap())
}

/// The elements of each tensor that `build` makes.
fn of(build: impl for<'g> Fn(&'g GraphBuilder) -> Vec<Tensor<'g>>) -> Vec<Vec<f64>> {
    let g = GraphBuilder::new("case");
    for (i, t) in build(&g).into_iter().enumerate() {
        g.output(&format!("y{i}"), t.cast(DType::F64));
    }
    let graph = g.build().unwrap_or_else(|e| panic!("{e}"));
    let out = run(&graph, &[], &BTreeMap::new(), Mode::Declared).unwrap().outputs;
    out.iter().map(|d| d.reals().to_vec()).collect()
}

fn refused(build: impl for<'g> Fn(&'g GraphBuilder) -> Tensor<'g>) -> String {
    let g = GraphBuilder::new("case");
    g.output("y", build(&g));
    g.build().unwrap_err().to_string()
}

#[track_caller]
fn near(got: &[f64], want: &[f64]) {
    let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-6;
    assert!(got.len() == want.len() && got.iter().zip(want).all(same), "{got:?}, not {want:?}");
}

#[test]
fn unpooling_puts_maxima_back() {
    let got = of(|g| {
        let x = floats(g, &[1, 6], &[1.0, 5.0, 2.0, 7.0, 0.5, 3.0]);
        let (y, at) = x.max_pool_with_indices(&[2], Window::tiles(&[2]));
        let twice = floats(g, &[3], &[4.0, 4.0, 1.0]).max_unpool(ints(g, &[3], &[2, 2, 0]), &[4]);
        vec![y.max_unpool(at, &[6]), twice]
    });
    assert_eq!(got, [vec![0.0, 5.0, 0.0, 7.0, 0.0, 3.0], vec![1.0, 0.0, 4.0, 0.0]]);
    let text = refused(|g| floats(g, &[3], &[0.0; 3]).max_unpool(ints(g, &[2], &[0, 1]), &[4]));
    assert!(text.contains("max_unpool") && text.contains("one shape"), "{text}");
}

#[test]
fn norms_of_windows() {
    let got = of(|g| {
        let x = floats(g, &[1, 4], &[3.0, -4.0, 0.0, 0.0]);
        let by = |p| x.lp_pool(p, &[2], Window::tiles(&[2]));
        vec![by(1.0), by(2.0), by(3.0), by(f64::INFINITY)]
    });
    near(&got.concat(), &[7.0, 0.0, 5.0, 0.0, 91f64.cbrt(), 0.0, 4.0, 0.0]);
    assert!(
        refused(|g| floats(g, &[1, 2], &[0.0; 2]).lp_pool(0.0, &[2], Window::plain(1))).contains("above 0")
    );
}

#[test]
fn values_meet() {
    let by = |meeting, own| {
        of(|g| {
            let x = floats(g, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let at = ints(g, &[2, 4], &[0, 0, 2, 9, 1, 1, 1, -1]);
            let values = floats(g, &[2, 4], &[10.0, 20.0, -1.0, 99.0, 3.0, 4.0, 8.0, 99.0]);
            vec![x.scatter_reduce_along(1, at, values, meeting, own)]
        })
        .concat()
    };
    assert_eq!(by(Meeting::Sum, true), [31.0, 2.0, 2.0, 4.0, 20.0, 6.0]);
    assert_eq!(by(Meeting::Sum, false), [30.0, 2.0, -1.0, 4.0, 15.0, 6.0]);
    assert_eq!(by(Meeting::Mean, false), [15.0, 2.0, -1.0, 4.0, 5.0, 6.0]);
    assert_eq!(by(Meeting::Mean, true), [31.0 / 3.0, 2.0, 1.0, 4.0, 5.0, 6.0].map(|x| x as f32 as f64));
    assert_eq!(by(Meeting::Prod, true), [200.0, 2.0, -3.0, 4.0, 480.0, 6.0]);
    assert_eq!(by(Meeting::Max, true), [20.0, 2.0, 3.0, 4.0, 8.0, 6.0]);
    assert_eq!(by(Meeting::Min, false), [10.0, 2.0, -1.0, 4.0, 3.0, 6.0]);
    let text = refused(|g| {
        let x = floats(g, &[2], &[0.0; 2]);
        x.scatter_reduce_along(0, x, x, Meeting::Max, true)
    });
    assert!(text.contains("scatter_reduce_along") && text.contains("integers"), "{text}");
}

#[test]
fn grids_between_elements() {
    let read = |options: GridSample, at: [f64; 2]| {
        of(|g| {
            let x = floats(g, &[1, 1, 2, 3], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
            vec![x.grid_sample(floats(g, &[1, 1, 1, 2], &at), options)]
        })
        .concat()[0]
    };
    let linear = |outside, align_corners| GridSample { kind: Interpolation::Linear, outside, align_corners };
    // The first number goes along the last axis.
    near(&[read(linear(Outside::Zeros, true), [-1.0, 1.0])], &[10.0]);
    near(&[read(linear(Outside::Zeros, true), [0.5, 0.0])], &[6.5]);
    near(&[read(linear(Outside::Zeros, false), [-1.0, -1.0])], &[0.0]);
    near(&[read(linear(Outside::Zeros, false), [1.0, 1.0])], &[3.0]);
    near(&[read(linear(Outside::Edge, false), [1.0, 1.0])], &[12.0]);
    near(&[read(linear(Outside::Mirror, true), [1.5, -1.0])], &[1.5]);
    let nearest = GridSample { kind: Interpolation::Nearest, outside: Outside::Zeros, align_corners: true };
    near(&[read(nearest, [0.4, 0.9]), read(nearest, [2.1, 0.0])], &[11.0, 0.0]);
    let cubic = GridSample { kind: Interpolation::Cubic, outside: Outside::Edge, align_corners: true };
    near(&[read(cubic, [0.0, -1.0])], &[1.0]);
    let text = refused(|g| {
        let x = floats(g, &[1, 1, 2, 2], &[0.0; 4]);
        x.grid_sample(floats(g, &[1, 1, 1, 3], &[0.0; 3]), linear(Outside::Zeros, true))
    });
    assert!(text.contains("a place for each spatial axis"), "{text}");
}

#[test]
fn counts() {
    let got = of(|g| {
        let x = floats(g, &[6], &[0.0, 0.5, 1.0, 2.9, 3.0, 7.0]);
        let edges = floats(g, &[4], &[0.0, 1.0, 2.0, 3.0]);
        let (value, place) = floats(g, &[2, 5], &[3.0, 1.0, 3.0, 1.0, 2.0, 5.0, 4.0, 4.0, 9.0, 4.0]).mode(1);
        vec![x.histogram(edges, None), x.histogram(edges, Some(x)), x.bins(edges), value, place]
    });
    assert_eq!(got[0], [2.0, 1.0, 2.0]);
    near(&got[1], &[0.5, 1.0, 5.9]);
    assert_eq!(got[2], [0.0, 0.0, 1.0, 2.0, 2.0, -1.0]);
    assert_eq!((&got[3][..], &got[4][..]), (&[1.0, 4.0][..], &[3.0, 4.0][..]));
    assert!(
        refused(|g| floats(g, &[2], &[0.0; 2]).histogram(floats(g, &[1], &[0.0]), None)).contains("edges")
    );
    assert!(refused(|g| floats(g, &[0], &[]).mode(0).0).contains("no known elements"));
}

#[test]
fn quantiles_between_two_elements() {
    use QuantileKind::*;
    let by = |q: f64, kind| {
        of(|g| {
            let x = floats(g, &[5], &[8.0, NAN, 0.0, 4.0, 2.0]);
            let numbers = floats(g, &[4], &[8.0, 0.0, 4.0, 2.0]);
            vec![numbers.quantile_by(q, 0, kind), x.nan_quantile_by(q, 0, kind), x.quantile_by(q, 0, kind)]
        })
        .concat()
    };
    // Ranks 1.5, 0.75 and 2: between 2 and 4, between 0 and 2, and at 4.
    for (q, want) in [(0.5, [3.0, 2.0, 4.0, 4.0, 3.0]), (0.25, [1.5, 0.0, 2.0, 2.0, 1.0])] {
        for (kind, want) in [Linear, Lower, Higher, Nearest, Midpoint].into_iter().zip(want) {
            near(&by(q, kind), &[want, want, NAN]);
        }
    }
    near(&by(1.0, Midpoint), &[8.0, 8.0, NAN]);
}
