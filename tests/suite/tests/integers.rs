//! Integers at the ends of their dtypes, on every runtime, against arithmetic in 128 bits: results wrap, a quotient by 0 is
//! 0, the remainder by 0 is the dividend, and a shift by a negative number or by all bits leaves 0 or the sign.

use onestep_ir::ops::{BinaryKind, UnaryKind};
use onestep_ir::testing::graph_of;
use onestep_ir::{Array, DType, Op, Shape, Type};
use onestep_suite::runtimes;

const DTYPES: [DType; 5] = [DType::I8, DType::U8, DType::I32, DType::U32, DType::I64];

/// The smallest and the largest number, and how many bits there are.
fn range(dtype: DType) -> (i128, i128, u32) {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::U8 | DType::U32 => (0, (1 << bits) - 1, bits),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1, bits),
    }
}

/// The number of a dtype that equals `x` modulo 2 to the bits.
fn wrap(x: i128, dtype: DType) -> i128 {
    let (low, _, bits) = range(dtype);
    (x - low).rem_euclid(1 << bits) + low
}

/// Numbers at and around the ends, and small ones.
fn numbers(dtype: DType) -> Vec<i128> {
    let (low, high, bits) = range(dtype);
    let all = [low, low + 1, high, high - 1, -1, 0, 1, 2, 3, 7, bits as i128 - 1, bits as i128, 64, 100];
    let mut all: Vec<i128> = all.into_iter().filter(|x| (low..=high).contains(x)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn array(dtype: DType, numbers: &[i128]) -> Array {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()[..dtype.size()].to_vec()).collect();
    Array::from_bytes(dtype, &[numbers.len()], &bytes).unwrap()
}

fn check(op: impl Into<Op>, dtype: DType, operands: &[Vec<i128>], want: &[i128]) {
    let op = op.into();
    let ty = Type::new(dtype, Shape::fixed(&[want.len()]));
    let graph = graph_of(&op, &vec![ty; operands.len()]).unwrap();
    let fed: Vec<Array> = operands.iter().map(|x| array(dtype, x)).collect();
    for runtime in runtimes::all() {
        let got = runtime.run(&graph, &fed).unwrap();
        let want = array(dtype, want);
        assert_eq!(got[0], want, "{op:?} of {operands:?} in {dtype:?} on {}", runtime.name());
    }
}

/// The quotient towards zero.
fn quotient(a: i128, b: i128) -> i128 {
    if b == 0 { 0 } else { a / b }
}

#[test]
fn two_operands() {
    for dtype in DTYPES {
        let (_, _, bits) = range(dtype);
        let within = move |b: i128| (0..bits as i128).contains(&b);
        let pairs: Vec<(i128, i128)> =
            numbers(dtype).iter().flat_map(|&a| numbers(dtype).into_iter().map(move |b| (a, b))).collect();
        let (a, b): (Vec<i128>, Vec<i128>) = pairs.iter().copied().unzip();
        let same = |kind: BinaryKind, f: &dyn Fn(i128, i128) -> i128| {
            let want: Vec<i128> = pairs.iter().map(|&(a, b)| wrap(f(a, b), dtype)).collect();
            check(kind, dtype, &[a.clone(), b.clone()], &want);
        };
        same(BinaryKind::Add, &|a, b| a + b);
        same(BinaryKind::Sub, &|a, b| a - b);
        same(BinaryKind::Mul, &|a, b| a * b);
        same(BinaryKind::Div, &quotient);
        same(BinaryKind::Rem, &|a, b| a - quotient(a, b) * b);
        same(BinaryKind::Max, &|a, b| a.max(b));
        same(BinaryKind::Min, &|a, b| a.min(b));
        same(BinaryKind::And, &|a, b| a & b);
        same(BinaryKind::Or, &|a, b| a | b);
        same(BinaryKind::Xor, &|a, b| a ^ b);
        same(BinaryKind::Shl, &|a, b| if within(b) { a << b } else { 0 });
        same(BinaryKind::Shr, &|a, b| if within(b) { a >> b } else { -((a < 0) as i128) });
    }
}

#[test]
fn one_operand() {
    for dtype in DTYPES {
        let x = numbers(dtype);
        let same = |kind: UnaryKind, f: &dyn Fn(i128) -> i128| {
            let want: Vec<i128> = x.iter().map(|&x| wrap(f(x), dtype)).collect();
            check(kind, dtype, std::slice::from_ref(&x), &want);
        };
        same(UnaryKind::Neg, &|x| -x);
        same(UnaryKind::Abs, &|x| x.abs());
        same(UnaryKind::Sign, &|x| x.signum());
        same(UnaryKind::Relu, &|x| x.max(0));
        same(UnaryKind::Not, &|x| !x);
    }
}
