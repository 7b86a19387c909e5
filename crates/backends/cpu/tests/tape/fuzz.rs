//! Random kernels: domains, accesses (broadcast, transposed, strided, reversed, bounded), several stages.

use crate::support::*;
use onestep_cpu::pool::Pool;
use onestep_cpu::tape::{Isa, Mode, Options};
use onestep_ir::DType::{self, *};
use onestep_ir::ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind};
use onestep_passes::schedule::{Access, Affine, Expr, ExprId, Store};
use std::collections::BTreeMap;

/// A load with a random map and bounds.
fn load(b: &mut Builder, rng: &mut Rng, dtype: DType) -> ExprId {
    let rank = b.kernel.extents.len();
    let keep: Vec<bool> = (0..rank).map(|_| rng.chance(75)).collect();
    let mut coefs = b.dense(&keep);
    match rng.below(6) {
        // Another order of the axes.
        0 if rank > 1 => {
            let (x, y) = (rng.below(rank), rng.below(rank));
            coefs.swap(x, y);
        }
        1 => coefs.iter_mut().for_each(|c| *c *= 2),
        2 if rank > 0 => {
            let axis = rng.below(rank);
            coefs[axis] = -coefs[axis];
        }
        _ => {}
    }
    let (place, size) = b.place(&coefs);
    let buffer = b.buffer(dtype, size);
    let mut bounds = vec![];
    let mut fill = 0;
    while rank > 0 && rng.chance(25) {
        let axis = rng.below(rank);
        let n = b.kernel.extents[axis];
        let (lo, hi) = (rng.below(n) as i64, rng.below(n + 2) as i64);
        let mut new = bound(axis, rank, lo, hi, 1 + rng.below(5).saturating_sub(2) as i64);
        if rng.chance(30) {
            // Counted from the other end.
            new.index =
                Affine { offset: n as i64 - 1 - lo, coefs: new.index.coefs.iter().map(|c| -c).collect() };
        }
        if rng.chance(20) {
            // A diagonal, as a causal mask.
            let other = rng.below(rank);
            new.index.coefs[other] -= 1;
        }
        bounds.push(new);
        fill = if dtype == F32 { (-1.5f32).to_bits() as u64 } else { 1 };
    }
    b.push(dtype, Expr::Load { access: Access { buffer, place }, bounds, fill })
}

/// A random kernel of a few stages.
fn kernel(rng: &mut Rng) -> Builder {
    let (parallel, reduced) = (rng.below(4), rng.below(3));
    let size = |rng: &mut Rng| match rng.below(8) {
        0 => 1,
        1 | 2 => 2 + rng.below(3),
        3..=6 => 3 + rng.below(20),
        _ => 20 + rng.below(150),
    };
    let mut extents: Vec<usize> = (0..parallel + reduced).map(|_| size(rng)).collect();
    if rng.chance(10) && !extents.is_empty() {
        let last = extents.len() - 1;
        extents[last] = 600 + rng.below(1500);
    }
    while extents.iter().product::<usize>() > 20_000 {
        let widest = extents.iter_mut().max().expect("the product is not 1");
        *widest = (*widest / 2).max(1);
    }
    let mut b = Builder::new(&extents, parallel);
    let mut reals: Vec<ExprId> = (0..1 + rng.below(3)).map(|_| load(&mut b, rng, F32)).collect();
    let mut ints = vec![load(&mut b, rng, I32)];
    let mut truths: Vec<ExprId> = vec![load(&mut b, rng, Bool)];
    if rng.chance(30) {
        let dtype = rng.pick(&[BF16, F16]);
        let narrow = load(&mut b, rng, dtype);
        reals.push(b.cast(F32, narrow));
    }
    for _ in 0..3 + rng.below(14) {
        // Mostly the latest, so that chains grow.
        let recent = |rng: &mut Rng, all: &[ExprId]| all[all.len() - 1 - rng.below(all.len().min(4))];
        let (x, y) = (recent(rng, &reals), recent(rng, &reals));
        let (i, t) = (recent(rng, &ints), recent(rng, &truths));
        match rng.below(14) {
            0 => reals.push(b.reduce(ReduceKind::Max, x)),
            1 => {
                let tame = b.unary(UnaryKind::Tanh, x);
                reals.push(b.reduce(rng.pick(&[ReduceKind::Sum, ReduceKind::Min]), tame));
            }
            2 => {
                let kind = rng.pick(&[UnaryKind::Tanh, UnaryKind::Sigmoid, UnaryKind::Erf, UnaryKind::Sin]);
                reals.push(b.unary(kind, x));
            }
            3 => reals.push(b.unary(rng.pick(&[UnaryKind::Neg, UnaryKind::Abs, UnaryKind::Relu]), x)),
            4..=6 => {
                let kind = rng.pick(&[BinaryKind::Add, BinaryKind::Sub, BinaryKind::Max, BinaryKind::Min]);
                reals.push(b.binary(kind, x, y));
            }
            7 => {
                let product = b.binary(BinaryKind::Mul, x, y);
                reals.push(b.unary(UnaryKind::Tanh, product));
            }
            8 => truths.push(b.compare(rng.pick(CompareKind::ALL), x, y)),
            9 => reals.push(b.push(F32, Expr::Select(t, x, y))),
            10 => {
                let coefs: Vec<i64> = extents.iter().map(|_| rng.below(7) as i64 - 3).collect();
                let index = b.push(I32, Expr::Index(Affine { offset: 4, coefs }));
                ints.push(b.binary(BinaryKind::Add, i, index));
            }
            11 => ints.push(b.reduce(rng.pick(&[ReduceKind::Sum, ReduceKind::Min, ReduceKind::Prod]), i)),
            12 => truths.push(b.reduce(rng.pick(&[ReduceKind::Max, ReduceKind::Min]), t)),
            _ => {
                let small = b.push(I32, Expr::Literal(63));
                let small = b.binary(BinaryKind::And, i, small);
                let real = b.cast(F32, small);
                let scale = b.literal(0.05);
                reals.push(b.binary(BinaryKind::Mul, real, scale));
            }
        }
    }
    let varies = b.kernel.varies();
    let last = |all: &[ExprId]| all[all.len() - 1];
    let mut stored = vec![last(&reals), last(&ints), last(&truths)];
    stored.push(rng.pick(&reals));
    stored.push(rng.pick(&reals));
    for value in stored.into_iter().take(1 + rng.below(5)) {
        let everywhere = varies[value.index()] || rng.chance(20);
        if everywhere && rng.chance(20) && extents.len() > 1 {
            // Transposed: row-major over the axes in another order.
            let mut coefs = vec![0; extents.len()];
            let mut step = 1;
            for (axis, c) in coefs.iter_mut().enumerate() {
                *c = step;
                step *= extents[axis] as i64;
            }
            let (place, size) = b.place(&coefs);
            let buffer = b.buffer(b.dtype(value), size);
            b.kernel.stores.push(Store { value, access: Access { buffer, place } });
        } else {
            b.store(value, everywhere);
        }
    }
    b
}

fn options(isa: Option<Isa>, mode: Option<Mode>, block: Option<usize>) -> Options {
    Options { isa, mode, block, whole_rows: false }
}

#[test]
fn random_kernels() {
    let cases = std::env::var("TAPE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let (one, two) = (Pool::serial(), Pool::new(2).expect("a worker starts"));
    for seed in 0..cases {
        let mut rng = Rng(seed);
        let b = kernel(&mut rng);
        let special = rng.chance(20);
        let start = fill(&b, &mut rng, special);
        let want = oracle(&b, &start);
        let default = b.tape(Options::default());
        let mut first = start.clone();
        run(&default, &mut first, &BTreeMap::new(), &one, 0);
        // A comparison may fall the other way for numbers that differ by a rounding: such kernels are held to
        // themselves alone.
        let discrete = b.kernel.body.iter().any(|e| matches!(e.expr, Expr::Compare(..)));
        if !discrete && !special {
            close(&b, &first, &want, 1e-4, 1.0);
        }
        for mode in [None, Some(Mode::Row), Some(Mode::Column)] {
            for (isa, block) in
                [(None, None), (Some(Isa::Portable), None), (None, Some(16)), (None, Some(64))]
            {
                let tape = b.tape(options(isa, mode, block));
                let mut other = start.clone();
                let pool = if rng.chance(50) { &one } else { &two };
                run(&tape, &mut other, &BTreeMap::new(), pool, 1 + seed);
                same_bits(&b, &first, &other, &format!("seed {seed}, {mode:?} {isa:?} {block:?}"));
            }
        }
        {
            let k = &b.kernel;
            let whole = b.tape(Options { whole_rows: true, ..Options::default() });
            let leading = k.extents.first().copied().unwrap_or(1);
            let rows = if k.parallel == k.extents.len() { leading } else { k.rows() };
            let mut other = start.clone();
            run_rows(&whole, rows, &mut other, &mut rng);
            same_bits(&b, &first, &other, &format!("seed {seed}, rows in pieces"));
        }
        in_place(&b, &start, &first, seed);
    }
}

/// Lets each store, alone, take the place of a load with the same map that is last used in no later stage.
fn in_place(b: &Builder, start: &Memory, apart: &Memory, seed: u64) {
    let stages = b.kernel.stages();
    for s in &b.kernel.stores {
        for (l, e) in b.kernel.body.iter().enumerate() {
            let Expr::Load { access, .. } = &e.expr else { continue };
            let users = b
                .kernel
                .body
                .iter()
                .enumerate()
                .filter(|(_, u)| u.expr.operands().contains(&ExprId(l as u32)));
            // A reduction reads its operand in the pass before it is known.
            let used_in = users.map(|(u, e)| stages[u] - matches!(e.expr, Expr::Reduce(..)) as usize).max();
            let same_size = b.sizes[access.buffer.index()] == b.sizes[s.access.buffer.index()];
            let stage = stages[s.value.index()];
            if access.place != s.access.place || !same_size || e.dtype != b.dtype(s.value) {
                continue;
            }
            if used_in.is_some_and(|u| u > stage) {
                continue;
            }
            let mut place = start.clone();
            let (new, old) = (s.access.buffer.index(), access.buffer.index());
            for (mode, block) in [(None, None), (Some(Mode::Column), Some(32)), (Some(Mode::Row), Some(32))] {
                place.clone_from(start);
                let tape = b.tape(options(None, mode, block));
                run(&tape, &mut place, &BTreeMap::from([(new, old)]), &Pool::serial(), 0);
                place.swap(new, old);
                place[old] = apart[old].clone();
                same_bits(b, apart, &place, &format!("seed {seed}, b{new} in the place of b{old}, {mode:?}"));
            }
        }
    }
}
