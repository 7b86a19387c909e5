//! The kernels that are checked: every expression on every dtype, every kind of access, each form of reduction, and the
//! kernels that a training step is made of.

use super::case::{Case, Fill};
use onestep_ir::DType::{self, *};
use onestep_ir::ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::{Affine, Bound, Expr};

const N: usize = 3000;

/// A few units in the last place of a dtype.
fn last_places(d: DType, n: f64) -> f64 {
    match d {
        F64 => n * 2.3e-16,
        F32 => n * 1.2e-7,
        F16 => 9.8e-4,
        BF16 => 7.9e-3,
        _ => 0.0,
    }
}

/// All dtypes but those of 8 bits, which are only cast, chosen and multiplied.
fn computed() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|d| !d.is_fp8())
}

/// Every case.
pub fn all() -> Vec<Case> {
    let mut all = vec![];
    all.extend(DType::ALL.map(casts));
    for d in computed() {
        all.extend(unaries(d));
        all.extend(binaries(d));
        all.push(comparisons(d));
        all.push(indices_and_literals(d));
    }
    all.extend(accesses());
    for d in computed() {
        for n in [1, 5, 8, 33, 300, 5000] {
            all.extend([reductions(d, 40, n, false), reductions(d, 40, n, true)]);
        }
    }
    all.extend([extremes(7), extremes(100), extremes(600)]);
    all.extend([F16, BF16, F32, F64].map(divided_rows));
    all.extend(programs());
    all
}

fn unaries(d: DType) -> Vec<Case> {
    let takes = |k: UnaryKind| match k {
        UnaryKind::Not => !d.is_float(),
        _ => d.is_float() || d.is_int() && k.takes_ints(),
    };
    let build = |name: &str, exact: bool| {
        let mut c = Case::new(format!("{name}_{d}"), &[N], &[]);
        let b = c.buffer(d, N, Fill::Edges);
        let x = c.load(b, &[1]);
        for &k in UnaryKind::ALL.iter().filter(|k| takes(**k) && k.is_exact() == exact) {
            let y = c.unary(k, x);
            c.store(y, N, &[1]);
        }
        (!c.kernel.stores.is_empty()).then_some(c)
    };
    let close = build("unary_close", false).map(|c| c.within(last_places(d, 4.0)));
    build("unary_exact", true).into_iter().chain(close).collect()
}

fn binaries(d: DType) -> Vec<Case> {
    let build = |name: &str, kinds: &dyn Fn(BinaryKind) -> bool| {
        let mut c = Case::new(format!("{name}_{d}"), &[N], &[]);
        let (a, b) = (c.buffer(d, N, Fill::Edges), c.buffer(d, N, Fill::Edges));
        let (x, y) = (c.load(a, &[1]), c.load(b, &[1]));
        for &k in BinaryKind::ALL.iter().filter(|k| k.takes(d) && kinds(**k)) {
            let z = c.binary(k, x, y);
            c.store(z, N, &[1]);
        }
        (!c.kernel.stores.is_empty()).then_some(c)
    };
    let order = |k| matches!(k, BinaryKind::Max | BinaryKind::Min);
    let mut extremes = build("max_min", &order);
    extremes.iter_mut().for_each(|c| c.zero_signs = false);
    let power = build("pow", &|k| !k.is_exact()).map(|c| c.within(last_places(d, 8.0)));
    let exact = build("binary", &|k| !order(k) && k.is_exact());
    exact.into_iter().chain(extremes).chain(power).collect()
}

/// Rows of numbers of any size, each divided by one that the row shares, and by a constant.
fn divided_rows(d: DType) -> Case {
    let (rows, n) = (400, 300);
    let mut c = Case::new(format!("divided_rows_{d}"), &[rows], &[n]);
    let (a, b) = (c.buffer(d, rows * n, Fill::Edges), c.buffer(d, rows, Fill::Edges));
    let (x, y) = (c.load(a, &[n as i64, 1]), c.load(b, &[1, 0]));
    let seven = c.number(d, 7.0);
    for by in [y, seven] {
        let z = c.binary(BinaryKind::Div, x, by);
        c.store(z, rows * n, &[n as i64, 1]);
    }
    c
}

fn comparisons(d: DType) -> Case {
    let mut c = Case::new(format!("compare_select_{d}"), &[N], &[]);
    let (a, b) = (c.buffer(d, N, Fill::Edges), c.buffer(d, N, Fill::Edges));
    let (x, y) = (c.load(a, &[1]), c.load(b, &[1]));
    for &k in CompareKind::ALL {
        let z = c.push(Bool, Expr::Compare(k, x, y));
        c.store(z, N, &[1]);
        let s = c.push(d, Expr::Select(z, x, y));
        c.store(s, N, &[1]);
    }
    c
}

fn casts(from: DType) -> Case {
    let mut c = Case::new(format!("cast_from_{from}"), &[2 * N], &[]);
    let short = if from.is_float() { Fill::Short } else { Fill::Uniform(-300.0, 300.0) };
    let (a, b) = (c.buffer(from, N, Fill::Edges), c.buffer(from, N, short));
    // The first half of the points from one, the second from the other.
    let within = |offset: i64| Bound { index: Affine { offset, coefs: vec![1] }, size: N as i64, step: 1 };
    let x = c.load_at(a, 0, &[1], vec![within(0)]);
    let y = c.load_at(b, -(N as i64), &[1], vec![within(-(N as i64))]);
    let first = c.index(I64, 0, &[1]);
    let half = c.number(I64, N as f64);
    let first = c.push(Bool, Expr::Compare(CompareKind::Lt, first, half));
    let v = c.push(from, Expr::Select(first, x, y));
    for to in DType::ALL {
        let r = c.cast(to, v);
        c.store(r, 2 * N, &[1]);
    }
    c
}

fn indices_and_literals(d: DType) -> Case {
    let mut c = Case::new(format!("index_literal_{d}"), &[30, 100], &[]);
    if d != Bool {
        let i = c.index(d, -700, &[7, 1]);
        c.store(i, N, &[100, 1]);
    }
    for x in [0.0, 1.0, -2.0, 0.3333, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40] {
        let x = c.number(d, x);
        c.store(x, N, &[100, 1]);
    }
    c
}

fn accesses() -> Vec<Case> {
    let bound = |offset, coefs: &[i64], size, step| Bound {
        index: Affine { offset, coefs: coefs.to_vec() },
        size,
        step,
    };
    let mut all = vec![];
    let (a, b, k) = (7usize, 12usize, 33usize);
    let n = a * b * k;
    let dense = [(b * k) as i64, k as i64, 1];

    let mut c = Case::new("transposed_broadcast", &[a, b, k], &[]);
    let x = c.buffer(F32, n, Fill::Edges);
    let (row, column) = (c.buffer(F32, k, Fill::Edges), c.buffer(F32, a, Fill::Edges));
    let t = c.load(x, &[1, a as i64, (a * b) as i64]);
    let (r, l) = (c.load(row, &[0, 0, 1]), c.load(column, &[1, 0, 0]));
    let s = c.binary(BinaryKind::Add, t, r);
    let s = c.binary(BinaryKind::Mul, s, l);
    c.store(s, n, &dense);
    all.push(c);

    let mut c = Case::new("strided_reversed", &[a, b, k], &[]);
    let x = c.buffer(I32, 4 * n, Fill::Edges);
    let last = (4 * n - 1) as i64;
    let back = c.load_at(x, last, &dense.map(|s| -2 * s), vec![]);
    let forward = c.load_at(x, 5, &dense.map(|s| 3 * s), vec![]);
    let d = c.binary(BinaryKind::Sub, back, forward);
    c.store(d, n, &dense);
    all.push(c);

    // Padding by 2 before, 3 after, and one zero between neighbours.
    let (rows, cols) = (20usize, 31usize);
    let (pr, pc) = (2 * rows + 4, 2 * cols + 4);
    let mut c = Case::new("padded_interior", &[pr, pc], &[]);
    let x = c.buffer(F32, rows * cols, Fill::Edges);
    let place = c.load_at(x, 0, &[0, 0], vec![]);
    let plain = vec![bound(-2, &[1, 0], rows as i64, 1), bound(-2, &[0, 1], cols as i64, 1)];
    let p = c.load_at(x, -2 * (cols as i64 + 1), &[cols as i64, 1], plain);
    // Every second point exists; the place counts points, so it is read through a stretched buffer.
    let wide = c.buffer(F32, pr * pc, Fill::Edges);
    let stretched = vec![bound(-2, &[1, 0], 2 * rows as i64, 2), bound(-3, &[0, 1], 2 * cols as i64, 2)];
    let q = c.load_at(wide, 0, &[pc as i64, 1], stretched);
    let s = c.binary(BinaryKind::Add, p, q);
    let s = c.binary(BinaryKind::Sub, s, place);
    c.store(s, pr * pc, &[pc as i64, 1]);
    all.push(c);

    let mut c = Case::new("no_points", &[0, 5], &[]);
    let x = c.buffer(F32, 4, Fill::Edges);
    let v = c.load(x, &[0, 0]);
    c.store(v, 0, &[5, 1]);
    all.push(c);

    let mut c = Case::new("no_terms", &[6], &[0]);
    let x = c.buffer(F32, 4, Fill::Edges);
    let v = c.load(x, &[0, 1]);
    for &kind in ReduceKind::ALL {
        let r = c.reduce(kind, v);
        c.store(r, 6, &[1, 0]);
    }
    all.push(c);

    let mut c = Case::new("rank_zero", &[], &[]);
    let x = c.buffer(F32, 1, Fill::Edges);
    let v = c.load(x, &[]);
    let w = c.binary(BinaryKind::Add, v, v);
    c.store(w, 1, &[]);
    all.push(c);

    // A row value stored at every point.
    let mut c = Case::new("spread_row_value", &[9], &[70]).within(last_places(F32, 8.0));
    let x = c.buffer(F32, 630, Fill::Uniform(0.5, 1.5));
    let v = c.load(x, &[70, 1]);
    let r = c.reduce(ReduceKind::Sum, v);
    c.store(r, 630, &[70, 1]);
    all.push(c);
    all
}

/// All reductions of a dtype over rows of `n`: along memory, or (columns) across it.
pub fn reductions(d: DType, rows: usize, n: usize, columns: bool) -> Case {
    let form = if columns { "columns" } else { "rows" };
    let mut c = Case::new(format!("reduce_{form}_{n}_{d}"), &[rows], &[n]);
    // For floats products stay near 1, so that errors are of the last places.
    let spread = if d.is_float() { Fill::Numbers(near_one(rows, n, columns)) } else { Fill::Edges };
    let b = c.buffer(d, rows * n, spread);
    let x = c.load(b, &if columns { [1, rows as i64] } else { [n as i64, 1] });
    for &kind in ReduceKind::ALL {
        if d != Bool || matches!(kind, ReduceKind::Max | ReduceKind::Min) {
            let r = c.reduce(kind, x);
            c.store(r, rows, &[1, 0]);
        }
    }
    let tolerance = match d {
        F32 => 6e-8 * (16.0 + n as f64 / 32.0),
        F64 => 2.3e-16 * (16.0 + n as f64),
        _ => last_places(d, 1.0),
    };
    c.within(tolerance)
}

/// The same rows, whichever way they lie in memory.
fn near_one(rows: usize, n: usize, columns: bool) -> Vec<f64> {
    let value = |row: usize, i: usize| {
        let h = (row as u64 * 1_000_003 + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        0.98 + 0.04 * h as f64 / 16_777_216.0
    };
    match columns {
        true => (0..n * rows).map(|p| value(p % rows, p / rows)).collect(),
        false => (0..n * rows).map(|p| value(p / n, p % n)).collect(),
    }
}

/// Max and min over rows with infinities and NaN.
fn extremes(n: usize) -> Case {
    let mut c = Case::new(format!("reduce_extremes_{n}"), &[60], &[n]);
    c.zero_signs = false;
    let mut numbers: Vec<f64> = near_one(60, n, false);
    for row in 0..60 {
        numbers[row * n + row % n] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e38, 0.0][row % 5];
    }
    let b = c.buffer(F32, 60 * n, Fill::Numbers(numbers));
    let x = c.load(b, &[n as i64, 1]);
    for kind in [ReduceKind::Max, ReduceKind::Min] {
        let r = c.reduce(kind, x);
        c.store(r, 60, &[1, 0]);
    }
    c
}

fn programs() -> Vec<Case> {
    let mut all = vec![];
    for (rows, n) in [(100, 7), (64, 300), (64, 1000), (8, 20000)] {
        all.push(softmax(format!("softmax_{rows}x{n}"), rows, n, [n as i64, 1]));
    }
    all.push(softmax("softmax_axis0_1000x64".into(), 64, 1000, [1, 64]));
    let mut big = softmax("softmax_8192x4096".into(), 8192, 4096, [4096, 1]);
    big.sample = Some(2);
    all.push(big);
    all.push(layer_norm(64, 768));
    let mut big = layer_norm(16384, 1024);
    big.sample = Some(2);
    all.push(big);
    all.extend([residual_norm(64, 768), residual_norm(3, 20_000)]);
    all.push(cross_entropy(128, 50));
    let mut big = cross_entropy(1024, 50257);
    big.sample = Some(2);
    all.push(big);
    for (rows, n) in [(3, 20_002), (600, 50_304)] {
        all.push(statistics(rows, n));
    }
    all.push(by_rows(5, 9000));
    all.push(adam(5000));
    let mut big = adam(1 << 24);
    big.sample = Some(100);
    all.push(big);
    all.push(dropout(30, 1000));
    let mut big = dropout(4096, 4096);
    big.sample = Some(100);
    all.push(big);
    let mut big = bias_gradient(16384, 1024);
    big.sample = Some(2);
    all.push(big);
    all
}

fn softmax(name: String, rows: usize, n: usize, coefs: [i64; 2]) -> Case {
    let mut c = Case::new(name, &[rows], &[n]).within(4e-6);
    let b = c.buffer(F32, rows * n, Fill::Uniform(-6.0, 6.0));
    let x = c.load(b, &coefs);
    let m = c.reduce(ReduceKind::Max, x);
    let d = c.binary(BinaryKind::Sub, x, m);
    let e = c.unary(UnaryKind::Exp, d);
    let s = c.reduce(ReduceKind::Sum, e);
    let y = c.binary(BinaryKind::Div, e, s);
    c.store(y, rows * n, &coefs);
    c.store(s, rows, &[1, 0]);
    c
}

/// bf16 in and out, f32 between.
fn layer_norm(rows: usize, n: usize) -> Case {
    let mut c = Case::new(format!("layer_norm_{rows}x{n}"), &[rows], &[n]).within(2.0 * 7.9e-3);
    let b = c.buffer(BF16, rows * n, Fill::Uniform(-3.0, 4.0));
    let (gain, bias) = (c.buffer(F32, n, Fill::Uniform(0.5, 1.5)), c.buffer(F32, n, Fill::Uniform(4.0, 5.0)));
    let x = c.load(b, &[n as i64, 1]);
    let x = c.cast(F32, x);
    let count = c.number(F32, n as f64);
    let sum = c.reduce(ReduceKind::Sum, x);
    let mean = c.binary(BinaryKind::Div, sum, count);
    let d = c.binary(BinaryKind::Sub, x, mean);
    let square = c.binary(BinaryKind::Mul, d, d);
    let sum = c.reduce(ReduceKind::Sum, square);
    let variance = c.binary(BinaryKind::Div, sum, count);
    let epsilon = c.number(F32, 1e-5);
    let v = c.binary(BinaryKind::Add, variance, epsilon);
    let inverse = c.unary(UnaryKind::Rsqrt, v);
    let (g, h) = (c.load(gain, &[0, 1]), c.load(bias, &[0, 1]));
    let y = c.binary(BinaryKind::Mul, d, inverse);
    let y = c.binary(BinaryKind::Mul, y, g);
    let y = c.binary(BinaryKind::Add, y, h);
    let y = c.cast(BF16, y);
    c.store(y, rows * n, &[n as i64, 1]);
    c.store(mean, rows, &[1, 0]);
    c.store(inverse, rows, &[1, 0]);
    c
}

fn cross_entropy(rows: usize, n: usize) -> Case {
    let mut c = Case::new(format!("cross_entropy_{rows}x{n}"), &[rows], &[n]).within(4e-6);
    let logits = c.buffer(F32, rows * n, Fill::Uniform(-4.0, 4.0));
    let target = c.buffer(I32, rows, Fill::Uniform(0.0, n as f64));
    let x = c.load(logits, &[n as i64, 1]);
    let m = c.reduce(ReduceKind::Max, x);
    let d = c.binary(BinaryKind::Sub, x, m);
    let e = c.unary(UnaryKind::Exp, d);
    let s = c.reduce(ReduceKind::Sum, e);
    let (t, i, zero) = (c.load(target, &[1, 0]), c.index(I32, 0, &[0, 1]), c.number(F32, 0.0));
    let here = c.push(Bool, Expr::Compare(CompareKind::Eq, i, t));
    let picked = c.push(F32, Expr::Select(here, d, zero));
    let picked = c.reduce(ReduceKind::Sum, picked);
    let l = c.unary(UnaryKind::Log, s);
    let loss = c.binary(BinaryKind::Sub, l, picked);
    c.store(loss, rows, &[1, 0]);
    c
}

/// The exponentials of long bf16 rows, less their maximum, and their sum.
/// `r / |a * w| + a * w`: a product of two loads that both passes need, and one load that the last alone does.
fn residual_norm(rows: usize, n: usize) -> Case {
    let mut c = Case::new(format!("residual_norm_{rows}x{n}"), &[rows], &[n]).within(4e-6);
    let (a, r) = (
        c.buffer(BF16, rows * n, Fill::Uniform(-3.0, 4.0)),
        c.buffer(F32, rows * n, Fill::Uniform(-3.0, 4.0)),
    );
    let w = c.buffer(F32, n, Fill::Uniform(0.5, 1.5));
    let (x, w) = (c.load(a, &[n as i64, 1]), c.load(w, &[0, 1]));
    let x = c.cast(F32, x);
    let x = c.binary(BinaryKind::Mul, x, w);
    let square = c.binary(BinaryKind::Mul, x, x);
    let sum = c.reduce(ReduceKind::Sum, square);
    let root = c.unary(UnaryKind::Sqrt, sum);
    let r = c.load(r, &[n as i64, 1]);
    let y = c.binary(BinaryKind::Div, r, root);
    let y = c.binary(BinaryKind::Add, y, x);
    c.store(y, rows * n, &[n as i64, 1]);
    c
}

fn statistics(rows: usize, n: usize) -> Case {
    let mut c = Case::new(format!("statistics_{rows}x{n}"), &[rows], &[n]).within(1e-5);
    let b = c.buffer(BF16, rows * n, Fill::Uniform(-4.0, 4.0));
    let x = c.load(b, &[n as i64, 1]);
    let x = c.cast(F32, x);
    let m = c.reduce(ReduceKind::Max, x);
    let d = c.binary(BinaryKind::Sub, x, m);
    let e = c.unary(UnaryKind::Exp, d);
    let s = c.reduce(ReduceKind::Sum, e);
    c.store(e, rows * n, &[n as i64, 1]);
    c.store(s, rows, &[1, 0]);
    c.sample = (rows > 10).then_some(2);
    c
}

/// Long rows divided by a number each, and how many places of each are those below another number.
fn by_rows(rows: usize, n: usize) -> Case {
    let mut c = Case::new(format!("by_rows_{rows}x{n}"), &[rows, n], &[]);
    let b = c.buffer(F32, rows * n, Fill::Edges);
    let (divisor, end) =
        (c.buffer(F32, rows, Fill::Edges), c.buffer(I32, rows, Fill::Uniform(0.0, n as f64)));
    let (x, d, end) = (c.load(b, &[n as i64, 1]), c.load(divisor, &[1, 0]), c.load(end, &[1, 0]));
    let q = c.binary(BinaryKind::Div, x, d);
    let i = c.index(I32, 0, &[0, 1]);
    let below = c.push(Bool, Expr::Compare(CompareKind::Lt, i, end));
    let y = c.push(F32, Expr::Select(below, q, x));
    c.store(y, rows * n, &[n as i64, 1]);
    c
}

fn adam(n: usize) -> Case {
    // Every operation of it is one of f32, so the bits are equal.
    let mut c = Case::new(format!("adam_{n}"), &[n], &[]);
    let wide = Fill::Uniform(1.0, 2.0);
    let (p, g) = (c.buffer(F32, n, wide.clone()), c.buffer(F32, n, wide.clone()));
    let (m, v) = (c.buffer(F32, n, wide.clone()), c.buffer(F32, n, wide));
    let rate = c.buffer(F32, 1, Fill::Numbers(vec![1e-3]));
    let [p, g, m, v] = [p, g, m, v].map(|b| c.load(b, &[1]));
    let rate = c.load(rate, &[0]);
    let [b1, c1, b2, c2, eps] = [0.9, 0.1, 0.999, 0.001, 1e-8].map(|x| c.number(F32, x));
    let (old, new) = (c.binary(BinaryKind::Mul, b1, m), c.binary(BinaryKind::Mul, c1, g));
    let m = c.binary(BinaryKind::Add, old, new);
    let square = c.binary(BinaryKind::Mul, g, g);
    let (old, new) = (c.binary(BinaryKind::Mul, b2, v), c.binary(BinaryKind::Mul, c2, square));
    let v = c.binary(BinaryKind::Add, old, new);
    let root = c.unary(UnaryKind::Sqrt, v);
    let root = c.binary(BinaryKind::Add, root, eps);
    let step = c.binary(BinaryKind::Div, m, root);
    let step = c.binary(BinaryKind::Mul, rate, step);
    let p = c.binary(BinaryKind::Sub, p, step);
    for x in [p, m, v] {
        c.store(x, n, &[1]);
    }
    c
}

fn dropout(rows: usize, n: usize) -> Case {
    let mut c = Case::new(format!("dropout_{rows}x{n}"), &[rows, n], &[]);
    let x = c.buffer(F32, rows * n, Fill::Uniform(-1.0, 1.0));
    let key = c.buffer(U32, 2, Fill::Edges);
    let counter = c.buffer(U32, 1, Fill::Numbers(vec![41.0]));
    let x = c.load(x, &[n as i64, 1]);
    let key = [c.load(key, &[0, 0]), c.load_at(key, 1, &[0, 0], vec![])];
    let counter = c.load(counter, &[0, 0]);
    let index = c.index(I64, 0, &[n as i64, 1]);
    let bits = c.push(U32, Expr::RandomBits { key, counter, index, stream: 0x0123_4567_89ab_cdef });
    let (least, scale, zero) = (c.number(U32, 429496729.0), c.number(F32, 1.0 / 0.9), c.number(F32, 0.0));
    let kept = c.push(Bool, Expr::Compare(CompareKind::Ge, bits, least));
    let y = c.binary(BinaryKind::Mul, x, scale);
    let y = c.push(F32, Expr::Select(kept, y, zero));
    c.store(y, rows * n, &[n as i64, 1]);
    c.store(bits, rows * n, &[n as i64, 1]);
    c
}

/// The sum of each column.
fn bias_gradient(rows: usize, n: usize) -> Case {
    let mut c = Case::new(format!("bias_gradient_{rows}x{n}"), &[n], &[rows]).within(1e-5);
    let b = c.buffer(F32, rows * n, Fill::Uniform(0.5, 1.5));
    let x = c.load(b, &[1, n as i64]);
    let s = c.reduce(ReduceKind::Sum, x);
    c.store(s, n, &[1, 0]);
    c
}
