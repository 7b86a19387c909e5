//! Several f32 functions in one instruction, each with its own rounding: no bit differs from the instructions apart.
//!
//! A simple instruction costs what its loads and stores cost, so that two in one take little more time than one; and
//! what a square root and a division leave idle is put to use only within one loop.

use super::{Arg, Block, Isa, Lane, instantiate, two};
use crate::math::single;
use onestep_ir::ops::{BinaryKind, UnaryKind};

/// Two functions in one instruction: `(a ∘ b) ∗ c`, each with its own rounding, for the common pairs. `INNER` and `OUTER`
/// are places in [`INNERS`] and [`OUTERS`]; operands are scalars by their flags.
struct Pair<const INNER: usize, const OUTER: usize, const A: bool, const B: bool, const C: bool>;

/// The functions that stand inside of a pair.
const INNERS: [BinaryKind; 3] = [BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul];
/// The functions that stand outside, and whether the inner result is their second operand.
const OUTERS: [(BinaryKind, bool); 4] =
    [(BinaryKind::Add, false), (BinaryKind::Sub, false), (BinaryKind::Sub, true), (BinaryKind::Mul, false)];

impl<const INNER: usize, const OUTER: usize, const A: bool, const B: bool, const C: bool> Lane
    for Pair<INNER, OUTER, A, B, C>
{
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements of the destination, disjoint from the operands.
        let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<f32>(), n) };
        // SAFETY: and `n` of each block, one of each scalar.
        let (a, b, c) =
            unsafe { (Arg::<f32, A>::new(a, n), Arg::<f32, B>::new(b, n), Arg::<f32, C>::new(c, n)) };
        for i in 0..n {
            let (x, y, z) = (a.at(i), b.at(i), c.at(i));
            let inner = match INNER {
                0 => x + y,
                1 => x - y,
                _ => x * y,
            };
            d[i] = match OUTER {
                0 => inner + z,
                1 => inner - z,
                2 => z - inner,
                _ => inner * z,
            };
        }
    }
}

/// Whether [`pair`] has an instruction.
pub fn pairs(inner: BinaryKind, outer: BinaryKind, second: bool) -> bool {
    INNERS.contains(&inner) && OUTERS.contains(&(outer, second))
}

/// The instruction for two functions of f32, `second` when the inner result is the outer one's second operand.
pub fn pair(
    inner: BinaryKind,
    outer: BinaryKind,
    second: bool,
    scalar: [bool; 3],
    isa: Isa,
) -> Option<Block> {
    fn flags<const I: usize, const O: usize>(scalar: [bool; 3], isa: Isa) -> Block {
        match scalar {
            [true, false, false] => instantiate::<Pair<I, O, true, false, false>>(isa),
            [true, false, true] => instantiate::<Pair<I, O, true, false, true>>(isa),
            [false, true, false] => instantiate::<Pair<I, O, false, true, false>>(isa),
            [false, true, true] => instantiate::<Pair<I, O, false, true, true>>(isa),
            [false, false, true] => instantiate::<Pair<I, O, false, false, true>>(isa),
            [true, true, false] => instantiate::<Pair<I, O, true, true, false>>(isa),
            // All scalars: blocks of one.
            _ => instantiate::<Pair<I, O, false, false, false>>(isa),
        }
    }
    fn outer_of<const I: usize>(outer: usize, scalar: [bool; 3], isa: Isa) -> Block {
        match outer {
            0 => flags::<I, 0>(scalar, isa),
            1 => flags::<I, 1>(scalar, isa),
            2 => flags::<I, 2>(scalar, isa),
            _ => flags::<I, 3>(scalar, isa),
        }
    }
    let inner = INNERS.iter().position(|&k| k == inner)?;
    let outer = OUTERS.iter().position(|&k| k == (outer, second))?;
    Some(match inner {
        0 => outer_of::<0>(outer, scalar, isa),
        1 => outer_of::<1>(outer, scalar, isa),
        _ => outer_of::<2>(outer, scalar, isa),
    })
}

/// `a / (√b + c)`: the step of Adam and its kin. `a` and `c` are scalars by their flags.
struct RootQuotient<const A: bool, const C: bool>;

impl<const A: bool, const C: bool> Lane for RootQuotient<A, C> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements of the destination, disjoint from the operands.
        let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<f32>(), n) };
        // SAFETY: and `n` of each block, one of each scalar.
        let (a, b, c) =
            unsafe { (Arg::<f32, A>::new(a, n), Arg::<f32, false>::new(b, n), Arg::<f32, C>::new(c, n)) };
        for i in 0..n {
            d[i] = a.at(i) / (b.at(i).sqrt() + c.at(i));
        }
    }
}

/// The instruction of [`RootQuotient`].
pub fn root_quotient(scalar: [bool; 3], isa: Isa) -> Block {
    match scalar {
        [true, false, true] => instantiate::<RootQuotient<true, true>>(isa),
        [true, false, false] => instantiate::<RootQuotient<true, false>>(isa),
        [false, false, true] => instantiate::<RootQuotient<false, true>>(isa),
        // All scalars: blocks of one. (`b` is a scalar only with the whole.)
        _ => instantiate::<RootQuotient<false, false>>(isa),
    }
}

/// The instruction of a unary function of a binary one's result, for those that follow each other often: a bias and a
/// relu, a shift and an exponential.
pub fn composed(outer: UnaryKind, inner: BinaryKind, scalar: [bool; 2], isa: Isa) -> Option<Block> {
    macro_rules! inner {
        (|$x:ident| $outer:expr) => {
            match inner {
                BinaryKind::Add => two!(isa, scalar, f32 => f32, |a, b| { let $x = a + b; $outer }),
                BinaryKind::Sub => two!(isa, scalar, f32 => f32, |a, b| { let $x = a - b; $outer }),
                BinaryKind::Mul => two!(isa, scalar, f32 => f32, |a, b| { let $x = a * b; $outer }),
                _ => return None,
            }
        };
    }
    Some(match outer {
        UnaryKind::Relu => inner!(|x| if x < 0.0 { 0.0 } else { x }),
        UnaryKind::Exp => inner!(|x| single::exp(x)),
        _ => return None,
    })
}

/// Whether [`composed`] has an instruction.
pub fn composes(outer: UnaryKind, inner: BinaryKind) -> bool {
    matches!(outer, UnaryKind::Relu | UnaryKind::Exp) && INNERS.contains(&inner)
}
