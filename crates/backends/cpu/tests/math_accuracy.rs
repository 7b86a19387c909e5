//! Holds every f32 function to its documented ULP bound, against f64 from the crate `libm`.
//!
//! Every 251st bit pattern is tried (17 million arguments a function, covering each exponent and sign thousands of
//! times), and the edges by hand. `dense` tries every 17th and prints what it finds:
//! `cargo test -p onestep-cpu --release --test math_accuracy -- --ignored --nocapture`.

use onestep_cpu::math::{double, single};

struct Case {
    name: &'static str,
    fast: fn(f32) -> f32,
    exact: fn(f64) -> f64,
    bound: f64,
    /// Arguments above this magnitude are skipped.
    limit: f32,
}

const ALL: f32 = f32::INFINITY;
const CASES: [Case; 19] = [
    Case { name: "exp", fast: single::exp, exact: libm::exp, bound: 1.0, limit: ALL },
    Case { name: "log", fast: single::log, exact: libm::log, bound: 1.0, limit: ALL },
    Case { name: "tanh", fast: single::tanh, exact: libm::tanh, bound: 2.0, limit: ALL },
    Case { name: "erf", fast: single::erf, exact: libm::erf, bound: 2.0, limit: ALL },
    Case { name: "sigmoid", fast: single::sigmoid, exact: double::sigmoid, bound: 2.0, limit: ALL },
    Case { name: "sin", fast: single::sin, exact: libm::sin, bound: 1.0, limit: ALL },
    Case { name: "cos", fast: single::cos, exact: libm::cos, bound: 1.0, limit: ALL },
    Case {
        name: "sin_near",
        fast: single::sin_near,
        exact: libm::sin,
        bound: 1.0,
        limit: single::TRIG_LIMIT,
    },
    Case {
        name: "cos_near",
        fast: single::cos_near,
        exact: libm::cos,
        bound: 1.0,
        limit: single::TRIG_LIMIT,
    },
    Case { name: "tan", fast: single::tan, exact: libm::tan, bound: 1.0, limit: ALL },
    Case { name: "asin", fast: single::asin, exact: libm::asin, bound: 1.0, limit: ALL },
    Case { name: "acos", fast: single::acos, exact: libm::acos, bound: 1.0, limit: ALL },
    Case { name: "atan", fast: single::atan, exact: libm::atan, bound: 1.0, limit: ALL },
    Case { name: "sinh", fast: single::sinh, exact: libm::sinh, bound: 1.0, limit: ALL },
    Case { name: "cosh", fast: single::cosh, exact: libm::cosh, bound: 1.0, limit: ALL },
    Case { name: "asinh", fast: single::asinh, exact: libm::asinh, bound: 1.0, limit: ALL },
    Case { name: "acosh", fast: single::acosh, exact: double::acosh, bound: 1.0, limit: ALL },
    Case { name: "atanh", fast: single::atanh, exact: libm::atanh, bound: 1.0, limit: ALL },
    Case { name: "erfc", fast: single::erfc, exact: libm::erfc, bound: 1.0, limit: ALL },
];

/// The distance of `got` from `exact` in units of the last place that an f32 near `exact` has.
fn ulps(got: f32, exact: f64) -> f64 {
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if f64::from(got) == exact || got.is_infinite() && (exact as f32) == got {
        return 0.0;
    }
    if exact.is_infinite() {
        return f64::INFINITY;
    }
    // An overflow counts as if the exponent range went on.
    let got = if got.is_infinite() { 2f64.powi(128).copysign(got.into()) } else { f64::from(got) };
    let exponent = ((exact.to_bits() >> 52 & 0x7ff) as i32 - 1023).clamp(-126, 127);
    (got - exact).abs() / 2f64.powi(exponent - 23)
}

/// The worst argument among every `stride`-th bit pattern.
fn worst(case: &Case, stride: usize) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for bits in (0..=u32::MAX).step_by(stride) {
        let x = f32::from_bits(bits);
        if x.abs() > case.limit {
            continue;
        }
        let error = ulps((case.fast)(x), (case.exact)(x.into()));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

#[test]
fn within_the_documented_bounds() {
    for case in &CASES {
        let (error, x) = worst(case, 251);
        assert!(error <= case.bound, "{}({x:e}) is off by {error} ULP", case.name);
    }
}

#[test]
#[ignore = "minutes"]
fn dense() {
    for case in &CASES {
        let (error, x) = worst(case, 17);
        println!("{:10} {error:.3} ULP at {x:e}", case.name);
        assert!(error <= case.bound, "{}({x:e}) is off by {error} ULP", case.name);
    }
}

/// Neighbourhoods of 2000 floats on both sides of `x`, where rules change.
fn around(x: f32) -> impl Iterator<Item = f32> {
    (-2000..=2000).map(move |step: i32| f32::from_bits(x.to_bits().wrapping_add_signed(step)))
}

#[test]
fn within_the_bounds_where_rules_change() {
    let edges = [
        0.0,
        f32::MIN_POSITIVE,
        f32::MAX,
        1.0,
        0.5,
        2.0,
        std::f32::consts::FRAC_1_SQRT_2,
        std::f32::consts::SQRT_2,
        0.346_573_6,
        0.625,
        0.927_734_4,
        4.0,
        9.01,
        10.0,
        17.33,
        87.336_55,
        88.722_84,
        90.0,
        103.278_93,
        103.972_08,
        105.0,
        std::f32::consts::FRAC_PI_4,
        std::f32::consts::FRAC_PI_2,
        std::f32::consts::PI,
        100_000.0,
        single::TRIG_LIMIT,
    ];
    for case in &CASES {
        for x in edges.into_iter().flat_map(around).flat_map(|x| [x, -x]).filter(|x| x.abs() <= case.limit) {
            let error = ulps((case.fast)(x), (case.exact)(x.into()));
            assert!(error <= case.bound, "{}({x:e}) is off by {error} ULP", case.name);
        }
    }
}

#[test]
fn special_values() {
    use single::*;
    let inf = f32::INFINITY;
    for function in [exp, log, tanh, erf, sigmoid, sin, cos, sin_near, cos_near] {
        assert!(function(f32::NAN).is_nan());
        assert!(function(-f32::NAN).is_nan());
    }
    assert_eq!((exp(0.0), exp(-0.0), exp(inf), exp(-inf)), (1.0, 1.0, inf, 0.0));
    assert_eq!((exp(88.722_83).is_finite(), exp(88.722_84)), (true, inf));
    assert_eq!((exp(-103.972_07), exp(-103.972_09)), (f32::from_bits(1), 0.0));
    assert_eq!((log(1.0), log(0.0), log(-0.0), log(inf)), (0.0, -inf, -inf, inf));
    assert!(log(-1.0).is_nan() && log(-inf).is_nan() && log(-f32::from_bits(1)).is_nan());
    assert_eq!((sigmoid(0.0), sigmoid(inf), sigmoid(-inf), sigmoid(-104.0)), (0.5, 1.0, 0.0, 0.0));
    assert_eq!((tanh(inf), tanh(-inf), erf(inf), erf(-inf)), (1.0, -1.0, 1.0, -1.0));
    for odd in [tanh, erf, sin, sin_near] {
        assert_eq!(odd(0.0).to_bits(), 0.0f32.to_bits());
        assert_eq!(odd(-0.0).to_bits(), (-0.0f32).to_bits());
    }
    assert!(sin(inf).is_nan() && cos(-inf).is_nan());
    assert!([-7e4, -2.5, -1.0, 0.0, 0.999].iter().all(|&x| acosh(x).is_nan()) && acosh(1.0) == 0.0);
    assert!(asin(1.01).is_nan() && acos(-1.01).is_nan() && atanh(-1.01).is_nan());
    assert_eq!((atanh(1.0), atan2(0.0, -0.0)), (inf, std::f32::consts::PI));
    assert!(beyond_trig_limit(&[1.0, -2e6, 0.0]));
    assert!(!beyond_trig_limit(&[1.0, -inf, f32::NAN, TRIG_LIMIT]));
    assert_eq!((pow(2.0, 0.5), pow(0.0, 0.0), pow(-8.0, 3.0)), (std::f32::consts::SQRT_2, 1.0, -512.0));
    assert!(pow(-8.0, 0.5).is_nan());
}

#[test]
fn maximum_and_minimum() {
    use single::*;
    let nan = f32::NAN;
    for (a, b) in [(nan, 1.0), (1.0, nan), (nan, nan), (nan, f32::INFINITY)] {
        assert!(fmax_nan(a, b).is_nan() && fmin_nan(a, b).is_nan());
        assert!(
            double::fmax_nan(a.into(), b.into()).is_nan() && double::fmin_nan(a.into(), b.into()).is_nan()
        );
    }
    assert_eq!(
        (fmax_nan(-1.0, 2.0), fmax_nan(2.0, -1.0), fmin_nan(-1.0, 2.0), fmin_nan(2.0, -1.0)),
        (2.0, 2.0, -1.0, -1.0)
    );
    for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
        assert!(fmax_nan(a, b).is_sign_positive() && fmin_nan(a, b).is_sign_negative());
    }
    assert!(fmax_nan(-0.0, -0.0).is_sign_negative() && fmin_nan(0.0, 0.0).is_sign_positive());
}

#[test]
fn pow_agrees_with_f64() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f32::from_bits((state >> 32) as u32)
    };
    for _ in 0..200_000 {
        let (x, y) = (random(), random());
        // The bits of a random f32 are mostly extreme; a second exponent keeps results in range.
        for y in [y, 1.5, -0.37, 7.0] {
            let error = ulps(single::pow(x, y), libm::pow(x.into(), y.into()));
            assert!(error <= 1.0, "pow({x:e}, {y:e}) is off by {error} ULP");
        }
    }
}
