//! The tape's instructions: functions over one block of elements, type-erased.
//!
//! Each is a [`Lane`]: a loop body written once, inlined into a portable function and into one under
//! `#[target_feature(enable = "avx2,fma")]`. Nothing in a body lets the two differ in a bit: IEEE operations in a fixed
//! order, no contraction. Operands are blocks or, by a const parameter, scalars that the loop reads once.

pub mod cast;
pub mod convert;
pub mod copy;
pub mod elementwise;
pub mod float;
pub mod joined;
pub mod random;

use std::marker::PhantomData;

/// An instruction over a block: destination, up to three operands, number of elements.
///
/// The destination overlaps no operand. Unused operands are ignored.
pub type Block = unsafe fn(*mut u8, *const u8, *const u8, *const u8, usize);

/// Which copy of the instructions runs. They give the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// What every processor of the architecture has.
    Portable,
    /// AVX2 and FMA (the latter unused: nothing is contracted).
    Avx2,
}

impl Isa {
    /// The best that this processor has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Isa::Avx2;
        }
        Isa::Portable
    }
}

/// The body of an instruction.
pub trait Lane {
    /// Runs it.
    ///
    /// # Safety
    ///
    /// The pointers are aligned for their element types; block operands and the destination have `n` elements, scalar
    /// operands one; the destination overlaps no operand.
    unsafe fn run(d: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize);
}

unsafe fn portable<L: Lane>(d: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
    // SAFETY: the caller's promise is `Lane::run`'s.
    unsafe { L::run(d, a, b, c, n) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn wide<L: Lane>(d: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
    // SAFETY: the caller's promise is `Lane::run`'s.
    unsafe { L::run(d, a, b, c, n) }
}

/// The copy of an instruction for an instruction set.
pub fn instantiate<L: Lane>(isa: Isa) -> Block {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => wide::<L>,
        _ => portable::<L>,
    }
}

/// An operand: a block, or a scalar when `S`.
#[derive(Clone, Copy)]
pub struct Arg<'a, T, const S: bool> {
    block: &'a [T],
    first: T,
}

impl<T: Copy + Default, const S: bool> Arg<'_, T, S> {
    /// # Safety
    ///
    /// `p` is aligned and valid for reads of `n` elements (of one when `S`), while the result lives.
    #[inline(always)]
    pub unsafe fn new(p: *const u8, n: usize) -> Self {
        let p: *const T = p.cast();
        if S {
            // SAFETY: one element is readable.
            Arg { block: &[], first: unsafe { *p } }
        } else {
            // SAFETY: `n` elements are readable and nothing writes them meanwhile.
            Arg { block: unsafe { std::slice::from_raw_parts(p, n) }, first: T::default() }
        }
    }

    /// Element `i`.
    #[inline(always)]
    pub fn at(&self, i: usize) -> T {
        if S { self.first } else { self.block[i] }
    }
}

/// A function of one element.
pub trait F1<T, U> {
    /// The function.
    fn f(a: T) -> U;
}

/// A function of two elements.
pub trait F2<T, U> {
    /// The function.
    fn f(a: T, b: T) -> U;
}

/// `d[i] = f(a[i])`.
pub struct Map1<T, U, F>(PhantomData<(T, U, F)>);

impl<T: Copy + Default, U, F: F1<T, U>> Lane for Map1<T, U, F> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements of each, disjoint.
        let (d, a) =
            unsafe { (std::slice::from_raw_parts_mut(d.cast::<U>(), n), Arg::<T, false>::new(a, n)) };
        for i in 0..n {
            d[i] = F::f(a.at(i));
        }
    }
}

/// `d[i] = f(a[i], b[i])`, either operand a scalar by its flag.
pub struct Map2<T, U, F, const A: bool, const B: bool>(PhantomData<(T, U, F)>);

impl<T: Copy + Default, U, F: F2<T, U>, const A: bool, const B: bool> Lane for Map2<T, U, F, A, B> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, b: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements of the destination, disjoint from the operands.
        let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<U>(), n) };
        // SAFETY: and `n` of each block, one of each scalar.
        let (a, b) = unsafe { (Arg::<T, A>::new(a, n), Arg::<T, B>::new(b, n)) };
        for i in 0..n {
            d[i] = F::f(a.at(i), b.at(i));
        }
    }
}

/// `d[i] = f(d[i], a[i])`: what folds a block into another.
pub struct Fold<T, F>(PhantomData<(T, F)>);

impl<T: Copy + Default, F: F2<T, T>> Lane for Fold<T, F> {
    #[inline(always)]
    unsafe fn run(d: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: the caller gives `n` elements of each, disjoint.
        let (d, a) =
            unsafe { (std::slice::from_raw_parts_mut(d.cast::<T>(), n), Arg::<T, false>::new(a, n)) };
        for i in 0..n {
            d[i] = F::f(d[i], a.at(i));
        }
    }
}

/// The instruction for a function of one element: `one!(isa, T => U, |x| expression)`.
macro_rules! one {
    ($isa:expr, $t:ty => $u:ty, |$x:ident| $body:expr) => {{
        struct Function;
        impl $crate::tape::instr::F1<$t, $u> for Function {
            #[inline(always)]
            fn f($x: $t) -> $u {
                $body
            }
        }
        $crate::tape::instr::instantiate::<$crate::tape::instr::Map1<$t, $u, Function>>($isa)
    }};
}
pub(crate) use one;

/// The instruction for a function of two elements: `two!(isa, [a_is_scalar, b_is_scalar], T => U, |x, y| expression)`.
/// Two scalars are a block of one element each.
macro_rules! two {
    ($isa:expr, $scalar:expr, $t:ty => $u:ty, |$x:ident, $y:ident| $body:expr) => {{
        struct Function;
        impl $crate::tape::instr::F2<$t, $u> for Function {
            #[inline(always)]
            fn f($x: $t, $y: $t) -> $u {
                $body
            }
        }
        use $crate::tape::instr::{Map2, instantiate};
        match $scalar {
            [true, false] => instantiate::<Map2<$t, $u, Function, true, false>>($isa),
            [false, true] => instantiate::<Map2<$t, $u, Function, false, true>>($isa),
            _ => instantiate::<Map2<$t, $u, Function, false, false>>($isa),
        }
    }};
}
pub(crate) use two;
