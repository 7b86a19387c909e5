//! Kernels that training steps consist of, each a single loop kernel.

use crate::support::*;
use onestep_cpu::pool::Pool;
use onestep_cpu::tape::{Isa, Mode, Options};
use onestep_ir::DType::{self, F32, I32};
use onestep_ir::ops::{BinaryKind::*, CompareKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::{Affine, Expr, ExprId};
use std::collections::BTreeMap;

/// Against the reference, and every variant against every other.
fn check(b: &Builder, relative: f64, floor: f64) {
    let mut rng = Rng(7);
    let start = fill(b, &mut rng, false);
    let want = oracle(b, &start);
    let (one, two) = (Pool::serial(), Pool::new(2).expect("a worker starts"));
    let mut results = vec![];
    for mode in [None, Some(Mode::Row), Some(Mode::Column)] {
        for isa in [None, Some(Isa::Portable)] {
            for (pool, shuffle) in [(&one, 0), (&two, 3)] {
                let tape = b.tape(Options { isa, mode, ..Options::default() });
                let mut memory = start.clone();
                run(&tape, &mut memory, &BTreeMap::new(), pool, shuffle);
                results.push(memory);
            }
        }
    }
    close(b, &results[0], &want, relative, floor);
    for r in &results[1..] {
        same_bits(b, &results[0], r, "variants differ");
    }
}

pub fn softmax(rows: usize, n: usize, dtype: DType) -> Builder {
    let mut b = Builder::new(&[rows, n], 1);
    let mut x = b.load(dtype, &[n as i64, 1]);
    if dtype != F32 {
        x = b.cast(F32, x);
    }
    let max = b.reduce(ReduceKind::Max, x);
    let shifted = b.binary(Sub, x, max);
    let e = b.unary(UnaryKind::Exp, shifted);
    let sum = b.reduce(ReduceKind::Sum, e);
    let mut y = b.binary(Div, e, sum);
    if dtype != F32 {
        y = b.cast(dtype, y);
    }
    b.store(y, true);
    b
}

#[test]
fn softmax_rows() {
    for (rows, n) in [(1, 1), (3, 5), (200, 10), (9, 128), (5, 1000), (2, 5000)] {
        check(&softmax(rows, n, F32), 3e-6, 1e-30);
    }
    check(&softmax(7, 300, DType::BF16), 8e-3, 1e-30);
    check(&softmax(7, 300, DType::F16), 2e-3, 1e-6);
}

#[test]
fn softmax_down_columns() {
    let mut b = Builder::new(&[70, 300], 1);
    let x = b.load(F32, &[1, 70]);
    let max = b.reduce(ReduceKind::Max, x);
    let shifted = b.binary(Sub, x, max);
    let e = b.unary(UnaryKind::Exp, shifted);
    let sum = b.reduce(ReduceKind::Sum, e);
    let y = b.binary(Div, e, sum);
    b.store(y, true);
    check(&b, 3e-6, 1e-30);
}

#[test]
fn layer_norm() {
    for (rows, n) in [(4, 64), (3, 1500), (100, 8)] {
        let mut b = Builder::new(&[rows, n], 1);
        let x = b.load(F32, &[n as i64, 1]);
        let (gain, bias) = (b.load(F32, &[0, 1]), b.load(F32, &[0, 1]));
        let (count, epsilon) = (b.literal(1.0 / n as f32), b.literal(1e-5));
        let sum = b.reduce(ReduceKind::Sum, x);
        let mean = b.binary(Mul, sum, count);
        let centred = b.binary(Sub, x, mean);
        let square = b.binary(Mul, centred, centred);
        let variance = b.reduce(ReduceKind::Sum, square);
        let variance = b.binary(Mul, variance, count);
        let shifted = b.binary(Add, variance, epsilon);
        let scale = b.unary(UnaryKind::Rsqrt, shifted);
        let normal = b.binary(Mul, centred, scale);
        let scaled = b.binary(Mul, normal, gain);
        let y = b.binary(Add, scaled, bias);
        b.store(y, true);
        b.store(mean, false);
        b.store(scale, false);
        check(&b, 1e-5, 1.0);
    }
}

/// Mean-free cross-entropy with integer targets: `log Σ exp(x − max) + max − x[target]`, and its gradient.
#[test]
fn cross_entropy() {
    for (rows, n) in [(6, 100), (100, 10), (2, 3000)] {
        let mut b = Builder::new(&[rows, n], 1);
        let x = b.load(F32, &[n as i64, 1]);
        let target = b.load(I32, &[1, 0]);
        let columns = b.push(I32, Expr::Literal(n as u64));
        let target = b.binary(Rem, target, columns);
        let target = b.unary(UnaryKind::Abs, target);
        let column = b.push(I32, Expr::Index(Affine { offset: 0, coefs: vec![0, 1] }));
        let hit = b.compare(CompareKind::Eq, column, target);
        let (zero, one) = (b.literal(0.0), b.literal(1.0));
        let max = b.reduce(ReduceKind::Max, x);
        let shifted = b.binary(Sub, x, max);
        let e = b.unary(UnaryKind::Exp, shifted);
        let sum = b.reduce(ReduceKind::Sum, e);
        let chosen = b.push(F32, Expr::Select(hit, shifted, zero));
        let chosen = b.reduce(ReduceKind::Sum, chosen);
        let log = b.unary(UnaryKind::Log, sum);
        let loss = b.binary(Sub, log, chosen);
        let p = b.binary(Div, e, sum);
        let indicator = b.push(F32, Expr::Select(hit, one, zero));
        let gradient = b.binary(Sub, p, indicator);
        b.store(loss, false);
        b.store(gradient, true);
        check(&b, 1e-5, 1.0);
    }
}

pub fn adam(n: usize) -> Builder {
    let mut b = Builder::new(&[n], 1);
    let [p, g, m, v] = [(); 4].map(|_| b.load(F32, &[1]));
    let [rate, c1, c2] = [(); 3].map(|_| b.load(F32, &[0]));
    let [b1, a1, b2, a2, epsilon] = [0.9, 0.1, 0.999, 0.001, 1e-8].map(|x| b.literal(x));
    let (m, ga) = (b.binary(Mul, m, b1), b.binary(Mul, g, a1));
    let m = b.binary(Add, m, ga);
    let v = b.unary(UnaryKind::Abs, v);
    let (v, gg) = (b.binary(Mul, v, b2), b.binary(Mul, g, g));
    let gg = b.binary(Mul, gg, a2);
    let v = b.binary(Add, v, gg);
    let (mh, vh) = (b.binary(Mul, m, c1), b.unary(UnaryKind::Abs, c2));
    let vh = b.binary(Mul, v, vh);
    let root = b.unary(UnaryKind::Sqrt, vh);
    let root = b.binary(Add, root, epsilon);
    let step = b.binary(Div, mh, root);
    let step = b.binary(Mul, step, rate);
    let p = b.binary(Sub, p, step);
    for x in [p, m, v] {
        b.store(x, true);
    }
    b
}

#[test]
fn adam_in_place() {
    for n in [1, 37, 5000] {
        let b = adam(n);
        check(&b, 1e-5, 1e-3);
        let mut rng = Rng(1);
        let start = fill(&b, &mut rng, false);
        let (mut apart, mut place) = (start.clone(), start);
        let tape = b.tape(Options::default());
        run(&tape, &mut apart, &BTreeMap::new(), &Pool::serial(), 0);
        run(&tape, &mut place, &BTreeMap::from([(7, 0), (8, 2), (9, 3)]), &Pool::serial(), 0);
        for (new, old) in [(7, 0), (8, 2), (9, 3)] {
            assert_eq!(apart[new], place[old]);
        }
    }
}

/// Two stores that take each other's place.
#[test]
fn swap_in_place() {
    let mut b = Builder::new(&[3, 1000], 2);
    let (x, y) = (b.load(F32, &[1000, 1]), b.load(F32, &[1000, 1]));
    b.store(y, true);
    b.store(x, true);
    let start = fill(&b, &mut Rng(1), false);
    let mut place = start.clone();
    let tape = b.tape(Options::default());
    run(&tape, &mut place, &BTreeMap::from([(2, 0), (3, 1)]), &Pool::serial(), 0);
    assert_eq!((&place[0], &place[1]), (&start[1], &start[0]));
}

#[test]
fn sums_of_every_length() {
    for n in [0, 1, 15, 16, 17, 100, 511, 512, 513, 2000, 8192, 8193] {
        for rows in [1, 3, 130].into_iter().filter(|rows| rows * n < 30_000) {
            for transposed in [false, true] {
                for kind in [ReduceKind::Sum, ReduceKind::Max] {
                    let mut b = Builder::new(&[rows, n], 1);
                    let coefs = if transposed { [1, rows as i64] } else { [n as i64, 1] };
                    let x = b.load(F32, &coefs);
                    let y = b.reduce(kind, x);
                    b.store(y, false);
                    check(&b, 1e-5, n as f64 * 0.1 + 1e-9);
                }
            }
        }
    }
}

#[test]
fn long_sums_are_split() {
    for (rows, n, transposed) in
        [(1, 150_000, false), (2, 80_001, false), (40, 4000, true), (1, 90_000, true)]
    {
        for dtype in [F32, I32, DType::BF16] {
            let mut b = Builder::new(&[rows, n], 1);
            let x = b.load(dtype, &if transposed { [1, rows as i64] } else { [n as i64, 1] });
            let y = b.reduce(ReduceKind::Sum, x);
            let z = b.reduce(ReduceKind::Min, x);
            let half = b.binary(Mul, y, z);
            b.store(half, false);
            b.store(y, false);
            let tape = b.tape(Options::default());
            assert!(tape.phases() == 2 && tape.chunks(0) > 4, "{rows} {n} {}", tape.chunks(0));
            assert_eq!(b.tape(Options { whole_rows: true, ..Options::default() }).phases(), 1);
            check(&b, if dtype == F32 { 1e-5 } else { 2e-2 }, n as f64 * 0.01);
        }
    }
}

/// The same rows, one by one and many at a time, from layouts that give different modes: one set of bits.
#[test]
fn bits_do_not_depend_on_the_layout() {
    let (rows, n) = (64, 777);
    let kernel = |coefs: [i64; 2]| {
        let mut b = Builder::new(&[rows, n], 1);
        let x = b.load(F32, &coefs);
        let y = b.reduce(ReduceKind::Sum, x);
        b.store(y, false);
        b
    };
    let (along, across) = (kernel([n as i64, 1]), kernel([1, rows as i64]));
    let mut a = fill(&along, &mut Rng(5), false);
    let mut t = a.clone();
    let x = numbers(&along, &a, 0);
    let moved: Vec<u8> = (0..n * rows).flat_map(|i| encode(F32, x[i % rows * n + i / rows])).collect();
    t[0] = words(&moved);
    let (p, q) = (along.tape(Options::default()), across.tape(Options::default()));
    assert_ne!(p.mode(), q.mode());
    run(&p, &mut a, &BTreeMap::new(), &Pool::serial(), 0);
    run(&q, &mut t, &BTreeMap::new(), &Pool::serial(), 0);
    assert_eq!(a[1], t[1]);
}

#[test]
fn nothing_to_do() {
    for (extents, parallel) in
        [(vec![0, 5], 2), (vec![0, 5], 1), (vec![3, 0], 1), (vec![3, 0], 2), (vec![], 0)]
    {
        let mut b = Builder::new(&extents, parallel);
        let one = b.literal(1.0);
        let sum = b.reduce(ReduceKind::Sum, one);
        b.store(sum, false);
        check(&b, 0.0, 1.0);
    }
}

#[test]
fn refusals_name_the_reason() {
    let mut b = Builder::new(&[4], 1);
    let x = b.load(F32, &[1]);
    b.push(I32, Expr::Unary(UnaryKind::Exp, x));
    let y = ExprId(1);
    b.store(y, true);
    let refused = onestep_cpu::tape::LoopTape::new(&b.kernel, &|i| b.dtypes[i.index()]);
    assert!(refused.err().is_some_and(|e| e.to_string().contains("e1")));
    let refused = onestep_cpu::tape::LoopTape::new(&b.kernel, &|_| DType::U8);
    assert!(refused.err().is_some_and(|e| e.to_string().contains("insert a cast")));
}
