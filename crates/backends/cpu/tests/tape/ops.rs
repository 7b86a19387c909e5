//! Every kind of expression on every dtype that has it, over edge values, as blocks and as scalars.

use crate::support::*;
use onestep_cpu::pool::Pool;
use onestep_cpu::tape::{Isa, Options};
use onestep_ir::DType::{self, *};
use onestep_ir::ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::reference::Number;
use onestep_passes::schedule::{Affine, Expr, ExprId};
use std::collections::BTreeMap;

const N: usize = 700;

/// Numbers of a dtype: the edges, then random ones of every magnitude.
fn edges(dtype: DType, rng: &mut Rng) -> Vec<u64> {
    let floats = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3e-41, 1e30, -1e30, 88.0, -104.0, 7e4, -7e4];
    let special =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 255.4, 256.0, -0.4, 2147483648.0, 9.3e18, 4.3e9];
    let ints =
        [0, 1, -1, 2, 255, 256, -128, i32::MIN as i64, i32::MAX as i64, i64::MIN, i64::MAX, 1 << 53, 3];
    let mut all: Vec<u8> = vec![];
    let mut push = |x| all.extend(encode(dtype, x));
    if dtype.is_float() {
        floats.iter().chain(&special).for_each(|&x| push(Number::Real(x)));
    } else {
        ints.iter().for_each(|&x| push(Number::Int(dtype.wrap(x))));
    }
    while all.len() < N * dtype.size() {
        let x = match dtype.is_float() {
            true => Number::Real((rng.unit() - 0.5) * (rng.below(40) as f64 - 20.0).exp2()),
            false => Number::Int(dtype.wrap(rng.next() as i64 >> rng.below(64))),
        };
        all.extend(encode(dtype, x));
    }
    words(&all[..N * dtype.size()])
}

/// Runs a kernel over vectors of edge values, in both instruction sets, and compares in units of the last place.
fn check(b: &Builder, ulps: f64) {
    let mut rng = Rng(3);
    let start: Memory = b.dtypes.iter().map(|&d| edges(d, &mut rng)).collect();
    let want = oracle(b, &start);
    let mut results = vec![];
    for isa in [None, Some(Isa::Portable)] {
        let mut memory = start.clone();
        run(
            &b.tape(Options { isa, ..Options::default() }),
            &mut memory,
            &BTreeMap::new(),
            &Pool::serial(),
            0,
        );
        results.push(memory);
    }
    same_bits(b, &results[0], &results[1], "instruction sets differ");
    for i in 0..b.dtypes.len() {
        for (k, (p, q)) in numbers(b, &results[0], i).iter().zip(&want[i]).enumerate() {
            let fine = match (p, q) {
                (Number::Real(p), Number::Real(q)) => {
                    p == q || (p.is_nan() && q.is_nan()) || (p - q).abs() <= ulps * ulp(b.dtypes[i], *q)
                }
                _ => p == q,
            };
            assert!(fine, "b{i}[{k}] is {p:?}, the reference says {q:?} in\n{}", b.kernel);
        }
    }
}

/// The distance of a number's neighbours.
fn ulp(dtype: DType, x: f64) -> f64 {
    let (digits, least) = match dtype {
        F64 => (52, -1074),
        F32 => (23, -149),
        F16 => (10, -24),
        F8E4M3 => (3, -9),
        F8E5M2 => (2, -16),
        _ => (7, -133),
    };
    let exponent = x.abs().log2().floor().clamp(-1080.0, 1023.0) as i32;
    2f64.powi((exponent - digits).max(least))
}

fn vector(dtypes: &[DType]) -> (Builder, Vec<ExprId>) {
    let mut b = Builder::new(&[N], 1);
    let loads = dtypes.iter().map(|&d| b.load(d, &[1])).collect();
    (b, loads)
}

/// All dtypes but those of 8 bits, which are only cast and chosen.
fn computed() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|d| !d.is_fp8())
}

#[test]
fn unary_functions() {
    for dtype in computed() {
        for &kind in UnaryKind::ALL {
            let exists = match dtype {
                Bool => kind == UnaryKind::Not,
                d if d.is_float() => kind != UnaryKind::Not,
                _ => kind.takes_ints(),
            };
            if !exists {
                continue;
            }
            let (mut b, x) = vector(&[dtype]);
            let y = b.unary(kind, x[0]);
            b.store(y, true);
            // The reference computes in f64; f64 itself is the same library, or a different form of sigmoid.
            check(&b, if kind.is_exact() { 0.0 } else { 2.0 });
        }
    }
}

#[test]
fn binary_functions_and_comparisons() {
    for dtype in computed() {
        // Blocks, and a scalar on either side.
        for coefs in [[1, 1], [0, 1], [1, 0], [0, 0]] {
            let operands = |b: &mut Builder| coefs.map(|c| b.load(dtype, &[c]));
            for &kind in BinaryKind::ALL.iter().filter(|k| k.takes(dtype)) {
                let mut b = Builder::new(&[N], 1);
                let [x, y] = operands(&mut b);
                let z = b.binary(kind, x, y);
                b.store(z, true);
                b.sizes = vec![N; 3];
                check(&b, if kind.is_exact() { 0.0 } else { 2.0 });
            }
            for &kind in CompareKind::ALL {
                let mut b = Builder::new(&[N], 1);
                let [x, y] = operands(&mut b);
                let z = b.compare(kind, x, y);
                b.store(z, true);
                b.sizes = vec![N; 3];
                check(&b, 0.0);
            }
        }
    }
}

#[test]
fn casts_between_all() {
    for from in DType::ALL {
        for to in DType::ALL {
            let (mut b, x) = vector(&[from]);
            let y = b.cast(to, x[0]);
            b.store(y, true);
            check(&b, 0.0);
        }
    }
}

#[test]
fn selections() {
    for dtype in DType::ALL {
        for scalars in 0..8 {
            let mut b = Builder::new(&[N], 1);
            let coef = |k: i32| [i64::from(scalars >> k & 1 == 0)];
            let (c, x, y) = (b.load(Bool, &coef(0)), b.load(dtype, &coef(1)), b.load(dtype, &coef(2)));
            let z = b.push(dtype, Expr::Select(c, x, y));
            b.store(z, true);
            b.sizes = vec![N; 4];
            check(&b, 0.0);
        }
    }
}

/// Two functions of which one is used by the other alone, every mix of scalars: two roundings, like the two apart.
#[test]
fn pairs_of_functions() {
    let kinds = [BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul, BinaryKind::Div];
    for scalars in 0..8 {
        for (inner, outer) in kinds.iter().flat_map(|i| kinds.map(|o| (*i, o))) {
            for flipped in [false, true] {
                let mut b = Builder::new(&[N], 1);
                let [x, y, z] = [0, 1, 2].map(|k| b.load(F32, &[i64::from(scalars >> k & 1 == 0)]));
                let p = b.binary(inner, x, y);
                let s = if flipped { b.binary(outer, z, p) } else { b.binary(outer, p, z) };
                b.store(s, true);
                b.sizes = vec![N; 4];
                check(&b, 0.0);
            }
        }
    }
}

#[test]
fn functions_of_functions() {
    for scalars in 0..4 {
        for inner in [BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul] {
            for outer in [UnaryKind::Relu, UnaryKind::Exp] {
                let mut b = Builder::new(&[N], 1);
                let [x, y] = [0, 1].map(|k| b.load(F32, &[i64::from(scalars >> k & 1 == 0)]));
                let p = b.binary(inner, x, y);
                let z = b.unary(outer, p);
                b.store(z, true);
                b.sizes = vec![N; 3];
                check(&b, if outer == UnaryKind::Exp { 2.0 } else { 0.0 });
            }
        }
    }
}

#[test]
fn quotients_by_a_root() {
    for scalars in 0..8 {
        for flipped in [false, true] {
            let mut b = Builder::new(&[N], 1);
            let [x, y, z] = [0, 1, 2].map(|k| b.load(F32, &[i64::from(scalars >> k & 1 == 0)]));
            let root = b.unary(UnaryKind::Sqrt, y);
            let sum =
                if flipped { b.binary(BinaryKind::Add, z, root) } else { b.binary(BinaryKind::Add, root, z) };
            let q = b.binary(BinaryKind::Div, x, sum);
            b.store(q, true);
            b.sizes = vec![N; 4];
            check(&b, 0.0);
        }
    }
}

#[test]
fn indices() {
    for dtype in computed().filter(|&d| d != Bool) {
        let mut b = Builder::new(&[4, 5, N / 20], 3);
        let coefs = [3, -7, 100_000_007];
        let x = b.push(dtype, Expr::Index(Affine { offset: -5, coefs: coefs.to_vec() }));
        b.store(x, true);
        check(&b, 0.0);
    }
}

#[test]
fn bits_under_another_dtype() {
    for (from, to) in [(F32, U32), (F32, I32), (U32, F32), (I32, U32), (F64, I64), (I64, F64)] {
        let (mut b, x) = vector(&[from]);
        let y = b.push(to, Expr::Bitcast(x[0]));
        b.store(y, true);
        check(&b, 0.0);
    }
}

#[test]
fn random_bits() {
    for (offset, step, vary) in
        [(0, 1, false), (4, 1, false), (3, 1, false), (0, 3, false), (1 << 33, 1, true)]
    {
        let mut b = Builder::new(&[N], 1);
        let coef = [i64::from(vary)];
        let words = [b.load(U32, &coef), b.load(U32, &[0]), b.load(U32, &[0])];
        let index = b.push(I64, Expr::Index(Affine { offset, coefs: vec![step] }));
        let [a, c, counter] = words;
        let x = b.push(U32, Expr::RandomBits { key: [a, c], counter, index, stream: 0x1234_5678_9abc_def0 });
        b.store(x, true);
        b.sizes = vec![N; 4];
        check(&b, 0.0);
    }
}

#[test]
fn reductions_of_every_dtype() {
    for dtype in computed() {
        for &kind in ReduceKind::ALL {
            for extents in [[1, N], [N / 10, 10]] {
                let mut b = Builder::new(&extents, 1);
                let x = b.load(dtype, &[extents[1] as i64, 1]);
                // Of tame numbers: sums of 1e30 and -1e30 say nothing.
                let x = match dtype.is_float() {
                    true if kind != ReduceKind::Max => b.unary(UnaryKind::Tanh, x),
                    _ => x,
                };
                let y = b.reduce(kind, x);
                b.store(y, false);
                let start = vec![edges(dtype, &mut Rng(3)), vec![0; N]];
                let want = oracle(&b, &start);
                let mut got = start.clone();
                run(&b.tape(Options::default()), &mut got, &BTreeMap::new(), &Pool::serial(), 0);
                let loose = if matches!(dtype, F16 | BF16) { 1e-2 } else { 1e-3 };
                close(&b, &got, &want, loose, 1.0);
            }
        }
    }
}
