//! Rotary embedding against its formula in `f64`, at large positions, and as a rotation.

use onestep_ir::interp::{Mode, run};
use onestep_ir::ops::AttentionLayout;
use onestep_ir::testing::Rng;
use onestep_ir::{
    DType, Dense, GraphBuilder, RotaryOptions, RotaryPairing, RotaryScaling, Shape, Type, op::Range,
};
use std::collections::BTreeMap;

const BATCH: usize = 2;
const TIME: usize = 3;
const HEADS: usize = 2;
const SIZE: usize = 8;

/// Every layout and pairing, all features and some, with and without scaling.
fn options() -> Vec<RotaryOptions> {
    let mut all = vec![];
    for layout in [AttentionLayout::Bthd, AttentionLayout::Bhtd] {
        for pairing in [RotaryPairing::HalfSplit, RotaryPairing::Interleaved] {
            for dims in [None, Some(4)] {
                for scaling in [None, Some(RotaryScaling { context: 64, ..RotaryScaling::LLAMA_3_1 })] {
                    all.push(RotaryOptions { layout, pairing, dims, scaling, base: 500.0 });
                }
            }
        }
    }
    all
}

fn sizes(layout: AttentionLayout) -> [usize; 4] {
    layout.arrange([BATCH, HEADS, TIME, SIZE])
}

fn random(dtype: DType, shape: &[usize]) -> Dense {
    Rng::new(3).dense(&Type::new(dtype, Shape::fixed(shape)), Range::Real(-2.0, 2.0))
}

fn turned(x: &Dense, positions: &Dense, options: RotaryOptions, mode: Mode) -> Dense {
    let g = GraphBuilder::new("rotary");
    let input = g.input("x", x.dtype, &x.shape[..]);
    let places = g.input("positions", positions.dtype, &positions.shape[..]);
    g.output("y", input.rotary(places, options));
    let graph = g.build().unwrap();
    run(&graph, &[x.clone(), positions.clone()], &BTreeMap::new(), mode).unwrap().outputs.remove(0)
}

/// The formula, as the papers write it.
fn expected(x: &Dense, positions: &dyn Fn(usize, usize) -> i64, options: RotaryOptions) -> Vec<f64> {
    let dims = options.dims.unwrap_or(SIZE);
    let mut y = x.reals().to_vec();
    let place = |b: usize, t: usize, h: usize| match options.layout {
        AttentionLayout::Bthd => ((b * TIME + t) * HEADS + h) * SIZE,
        AttentionLayout::Bhtd => ((b * HEADS + h) * TIME + t) * SIZE,
    };
    for (b, t, h, i) in (0..BATCH * TIME * HEADS * dims / 2)
        .map(|n| (n / (dims / 2), n % (dims / 2)))
        .map(|(n, i)| (n / (TIME * HEADS), n / HEADS % TIME, n % HEADS, i))
    {
        let mut frequency = 500f64.powf(-2.0 * i as f64 / dims as f64);
        if let Some(s) = options.scaling {
            let wavelength = std::f64::consts::TAU / frequency;
            let context = s.context as f64;
            frequency = if wavelength < context / s.high {
                frequency
            } else if wavelength > context / s.low {
                frequency / s.factor
            } else {
                let smooth = (context / wavelength - s.low) / (s.high - s.low);
                (1.0 - smooth) * frequency / s.factor + smooth * frequency
            };
        }
        let (sin, cos) = (positions(b, t) as f64 * frequency).sin_cos();
        let (first, second) = match options.pairing {
            RotaryPairing::HalfSplit => (i, i + dims / 2),
            RotaryPairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let at = place(b, t, h);
        let (p, q) = (x.reals()[at + first], x.reals()[at + second]);
        (y[at + first], y[at + second]) = (p * cos - q * sin, q * cos + p * sin);
    }
    y
}

fn most(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).fold(0.0, |m, (a, b)| m.max((a - b).abs()))
}

#[test]
fn it_is_the_formula_in_every_form() {
    for options in options() {
        let shape = sizes(options.layout);
        let shared = Dense::from_ints(DType::I32, &[TIME], vec![0, 7, 63]);
        let own = Dense::from_ints(DType::I64, &[BATCH, TIME], vec![5, 6, 7, 100, 0, 2]);
        for positions in [&shared, &own] {
            let per = positions.shape.len() == 2;
            let at = |b: usize, t: usize| positions.ints()[if per { b * TIME + t } else { t }];
            let x = random(DType::F64, &shape);
            let exact =
                most(turned(&x, positions, options, Mode::Declared).reals(), &expected(&x, &at, options));
            assert!(exact < 1e-13, "{options:?}: {exact}");
            for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::BF16, 2e-2)] {
                let x = random(dtype, &shape);
                let y = turned(&x, positions, options, Mode::Declared);
                assert_eq!(y.ty(), x.ty());
                let off = most(y.reals(), &expected(&x, &at, options));
                assert!(off < tolerance, "{options:?} in {dtype}: {off}");
            }
        }
    }
}

/// An angle computed in `f32` would be off by 0.1 here.
#[test]
fn angles_are_exact_far_out() {
    let options = RotaryOptions { base: 500.0, ..RotaryOptions::default() };
    let x = random(DType::F32, &sizes(options.layout));
    for far in [131_071, 1_000_003, 123_456_789, i64::from(i32::MAX) - 1] {
        let positions = Dense::from_ints(DType::I32, &[TIME], vec![far - 1, far, far + 1]);
        let at = |_: usize, t: usize| far - 1 + t as i64;
        let off = most(turned(&x, &positions, options, Mode::Declared).reals(), &expected(&x, &at, options));
        // At the last, the expectation's own products are off by 10⁻⁷.
        assert!(off < 2e-6, "{far}: {off}");
    }
}

#[test]
fn a_product_depends_on_the_distance_alone() {
    let options = RotaryOptions::default();
    let x = random(DType::F64, &sizes(options.layout));
    let at = |from: i64| {
        let positions = Dense::from_ints(DType::I32, &[TIME], vec![from, from + 5, from + 9]);
        let y = turned(&x, &positions, options, Mode::Declared);
        let row = |t: usize| y.reals()[t * HEADS * SIZE..][..SIZE].to_vec();
        row(0).iter().zip(row(2)).map(|(a, b)| a * b).sum::<f64>()
    };
    assert!((at(0) - at(10_000)).abs() < 1e-12);
    assert!((at(0) - x.reals()[..SIZE].iter().map(|v| v * v).sum::<f64>()).abs() > 1e-3);
}

#[test]
fn mistakes_are_named_at_the_callers_line() {
    let text = |shape: &[usize], positions: (DType, &[usize]), options: RotaryOptions| {
        let g = GraphBuilder::new("mistakes");
        let x = g.input("x", DType::F32, shape);
        let places = g.input("positions", positions.0, positions.1);
        g.output("y", x.rotary(places, options));
        let text = g.build().unwrap_err().to_string();
        assert!(text.contains("tests/rotary.rs") && text.contains("rotary"), "{text}");
        text
    };
    let (good, plain) = ((DType::I32, &[3][..]), RotaryOptions::default());
    let with = |dims: usize| RotaryOptions { dims: Some(dims), ..plain };
    for (shape, positions, options, says) in [
        (&[3, 2, 8][..], good, plain, "give it four axes (bthd)"),
        (&[2, 4, 2, 8], good, plain, "give them shape [4] or [2, 4]"),
        (&[2, 3, 2, 8], (DType::F32, &[3][..]), plain, "cast them to i32"),
        (&[2, 3, 2, 7], good, plain, "7 of 7 features do not turn in pairs"),
        (&[2, 3, 2, 8], good, with(10), "10 of 8 features"),
        (&[2, 3, 2, 8], good, with(0), "0 of 8 features"),
        (&[2, 3, 2, 8], good, RotaryOptions { base: 0.5, ..plain }, "the base is 0.5"),
        (&[2, 3, 2, 8], good, RotaryOptions { base: f64::NAN, ..plain }, "the base is NaN"),
        (
            &[2, 3, 2, 8],
            good,
            RotaryOptions { scaling: Some(RotaryScaling { low: 4.0, ..RotaryScaling::LLAMA_3_1 }), ..plain },
            "0 < low < high",
        ),
    ] {
        let got = text(shape, positions, options);
        assert!(got.contains(says), "{got}");
    }
}
