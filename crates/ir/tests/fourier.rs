//! Fourier transforms against the sum that defines them, and back again.

use onestep_ir::interp::{Mode, run};
use onestep_ir::testing::Rng;
use onestep_ir::{Array, Complex, DType, FourierNorm, GraphBuilder, Tensor};
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// The elements of what `build` makes of constant real and imaginary parts.
fn of(
    shape: &[usize],
    re: &[f64],
    im: &[f64],
    build: impl for<'g> Fn(Complex<'g>) -> Tensor<'g>,
) -> Vec<f64> {
    let g = GraphBuilder::new("case");
    let constant = |x: &[f64]| g.constant(Array::from_f64(DType::F64, shape, x).unwrap());
    g.output("y", build(Complex { re: constant(re), im: constant(im) }));
    let graph = g.build().unwrap_or_else(|e| panic!("{e}"));
    run(&graph, &[], &BTreeMap::new(), Mode::Declared).unwrap().outputs[0].reals().to_vec()
}

fn drawn(n: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.real(-1.0, 1.0)).collect()
}

/// Σⱼ xⱼ·e^(∓2πi·jk/n) as pairs.
fn defined(re: &[f64], im: &[f64], sign: f64) -> Vec<f64> {
    let n = re.len();
    let term = |k: usize| {
        (0..n).fold((0.0, 0.0), |(a, b), j| {
            let (sin, cos) = (sign * 2.0 * PI * (j * k % n) as f64 / n as f64).sin_cos();
            (a + re[j] * cos - im[j] * sin, b + re[j] * sin + im[j] * cos)
        })
    };
    (0..n).map(term).flat_map(|(a, b)| [a, b]).collect()
}

#[track_caller]
fn near(got: &[f64], want: &[f64]) {
    let gap = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(got.len() == want.len() && gap <= 1e-11, "{gap}: {got:?}, not {want:?}");
}

#[test]
fn transforms_are_their_sums() {
    // Short ones, one with a prime above the length of one table, and ones that are split once and twice.
    for n in [1, 2, 3, 5, 8, 64, 65, 67, 96, 128, 130, 4096] {
        let (re, im) = (drawn(n, 1), drawn(n, 2));
        let got = of(&[n], &re, &im, |z| z.fft(0, None, FourierNorm::Backward).pairs());
        if n <= 130 {
            near(&got, &defined(&re, &im, -1.0));
        }
        let back = of(&[n], &re, &im, |z| {
            z.fft(0, None, FourierNorm::Ortho).ifft(-1, None, FourierNorm::Ortho).pairs()
        });
        near(&back, &re.iter().zip(&im).flat_map(|(a, b)| [*a, *b]).collect::<Vec<_>>());
    }
}

#[test]
fn real_transforms_and_back() {
    for n in [1, 2, 5, 6, 70] {
        let x = drawn(n, 3);
        let half = of(&[n], &x, &x, |z| z.re.rfft(0, None, FourierNorm::Backward).pairs());
        near(&half, &defined(&x, &vec![0.0; n], -1.0)[..2 * (n / 2 + 1)]);
        let back = of(&[n], &x, &x, |z| {
            z.re.rfft(0, None, FourierNorm::Forward).irfft(0, Some(n), FourierNorm::Forward)
        });
        near(&back, &x);
    }
}

#[test]
fn along_any_axis_cut_and_filled() {
    let x = drawn(24, 4);
    let zeros = vec![0.0; 24];
    let middle = of(&[2, 3, 4], &x, &zeros, |z| z.fft(1, Some(2), FourierNorm::Backward).re);
    let want: Vec<f64> = (0..2)
        .flat_map(|i| (0..2).flat_map(move |k| (0..4).map(move |j| (i, k, j))))
        .map(|(i, k, j)| x[i * 12 + j] + if k == 0 { 1.0 } else { -1.0 } * x[i * 12 + 4 + j])
        .collect();
    near(&middle, &want);
    let filled = of(&[3], &x[..3], &zeros[..3], |z| z.fft(0, Some(5), FourierNorm::Backward).pairs());
    near(&filled, &defined(&[x[0], x[1], x[2], 0.0, 0.0], &[0.0; 5], -1.0));
}

#[test]
fn what_has_no_transform_is_refused() {
    let refused = |shape: &[usize], dtype: DType, n: Option<usize>| {
        let g = GraphBuilder::new("case");
        let x = g.input("x", dtype, shape);
        g.output("y", x.complex().fft(-1, n, FourierNorm::Backward).pairs());
        g.build().unwrap_err().to_string()
    };
    assert!(refused(&[4], DType::F32, Some(0)).contains("a transform of 0 elements"));
    assert!(refused(&[4], DType::F32, Some(4099)).contains("prime factors up to 4096"));
    assert!(refused(&[4], DType::I32, None).contains("give floats"));
}
