//! How an op of the user's own computes on the CPU: a safe function over slices of the operands and of the results.
//!
//! The work is cut into **parts**, which do not depend on each other: of `n` parts, each computes one `n`-th of the elements
//! of every result. An elementwise op has as many parts as elements, one that works by rows as many as rows, any op one. How
//! many parts go into one call is fixed by the sizes, never by the number of threads, so that the bits are the same for any.

use crate::{DType, Element, Mistake, Type};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

type Run = dyn Fn(Range<usize>, &[&[u8]], &mut [&mut [u8]]) + Send + Sync;

/// A kernel for operands and results of certain dtypes.
///
/// ```
/// use onestep_ir::ops::CpuKernel;
///
/// // Sums of rows of 4: a part is a row.
/// let rows = 3;
/// let kernel = CpuKernel::new::<(f32,), (f32,)>(rows, |rows, (x,), (sums,)| {
///     for (sum, row) in sums.iter_mut().zip(x.chunks_exact(4).skip(rows.start)) {
///         *sum = row.iter().sum();
///     }
/// });
/// # assert_eq!(kernel.parts(), 3);
/// ```
#[derive(Clone)]
pub struct CpuKernel {
    operands: Vec<DType>,
    results: Vec<DType>,
    parts: usize,
    run: Arc<Run>,
}

impl fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel of {} part(s) from {:?} to {:?}", self.parts, self.operands, self.results)
    }
}

impl CpuKernel {
    /// A kernel of this many parts: `run` gets some parts, all of each operand, and of each result the elements of these
    /// parts, which it must write all of; what they hold before is arbitrary. Slices are dense and row-major; `bool` is read
    /// and written as `u8`, 0 or 1.
    pub fn new<Operands: Slices, Results: Slices>(
        parts: usize,
        run: impl for<'a> Fn(Range<usize>, Operands::Of<'a>, Results::Mut<'a>) + Send + Sync + 'static,
    ) -> CpuKernel {
        CpuKernel {
            operands: Operands::dtypes(),
            results: Results::dtypes(),
            parts,
            run: Arc::new(move |parts, operands, results| {
                run(parts, Operands::of(operands), Results::of_mut(results));
            }),
        }
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Refuses types that the kernel is not for: other dtypes, or results that cannot be cut into the parts.
    pub fn check(&self, operands: &[Type], results: &[Type]) -> Result<(), Mistake> {
        let same = |mine: &[DType], types: &[Type]| {
            let one = |(&a, b): (&DType, &Type)| a == b.dtype || (a, b.dtype) == (DType::U8, DType::Bool);
            mine.len() == types.len() && mine.iter().zip(types).all(one)
        };
        let names = |d: &[DType]| d.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
        let list = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
        for (what, mine, types) in [("takes", &self.operands, operands), ("writes", &self.results, results)] {
            if !same(mine, types) {
                let what = format!("the kernel {what} ({}), the op ({})", names(mine), list(types));
                return Err(Mistake::new(what, "give a kernel with the dtypes of the op, or none"));
            }
        }
        let cut = |t: &&Type| t.numel().checked_rem(self.parts).map_or(t.numel() == 0, |rest| rest == 0);
        match results.iter().find(|t| !cut(t)) {
            None => Ok(()),
            Some(t) => {
                let what = format!("{} parts do not divide the elements of {t}", self.parts);
                Err(Mistake::new(what, "a part computes as many elements of a result as any other"))
            }
        }
    }

    /// Computes some parts, from the bytes of the operands to those of the results' elements in these parts. The bytes are
    /// aligned for their dtypes.
    ///
    /// # Panics
    ///
    /// If they are not, or where the user's function does.
    pub fn run(&self, parts: Range<usize>, operands: &[&[u8]], results: &mut [&mut [u8]]) {
        (self.run)(parts, operands, results);
    }
}

/// The element types of operands or results: a tuple of up to [`MOST`], `(f32, i32)`.
pub trait Slices: sealed::Sealed {
    /// A slice of each.
    type Of<'a>;
    /// A slice of each, to be written.
    type Mut<'a>;
    /// Their dtypes.
    fn dtypes() -> Vec<DType>;
    /// The slices of these bytes; what is missing is empty.
    fn of<'a>(bytes: &[&'a [u8]]) -> Self::Of<'a>;
    /// The same, to be written.
    fn of_mut<'a>(bytes: &'a mut [&mut [u8]]) -> Self::Mut<'a>;
}

/// The most operands, and the most results, of a kernel.
pub const MOST: usize = 8;

mod sealed {
    pub trait Sealed {}
}

// No bytes need not be aligned.
fn cast<T: Element>(bytes: Option<&[u8]>) -> &[T] {
    bytes.filter(|b| !b.is_empty()).map(bytemuck::cast_slice).unwrap_or_default()
}

fn cast_mut<T: Element>(bytes: Option<&mut [u8]>) -> &mut [T] {
    bytes.filter(|b| !b.is_empty()).map(bytemuck::cast_slice_mut).unwrap_or_default()
}

impl sealed::Sealed for () {}
impl Slices for () {
    type Of<'a> = ();
    type Mut<'a> = ();
    fn dtypes() -> Vec<DType> {
        vec![]
    }
    fn of(_: &[&[u8]]) {}
    fn of_mut(_: &mut [&mut [u8]]) {}
}

macro_rules! slices {
    ($($t:ident)*) => {
        impl<$($t: Element),*> sealed::Sealed for ($($t,)*) {}
        impl<$($t: Element),*> Slices for ($($t,)*) {
            type Of<'a> = ($(&'a [$t],)*);
            type Mut<'a> = ($(&'a mut [$t],)*);
            fn dtypes() -> Vec<DType> {
                vec![$($t::DTYPE),*]
            }
            fn of<'a>(bytes: &[&'a [u8]]) -> Self::Of<'a> {
                let mut next = bytes.iter().copied();
                ($(cast::<$t>(next.next()),)*)
            }
            fn of_mut<'a>(bytes: &'a mut [&mut [u8]]) -> Self::Mut<'a> {
                let mut next = bytes.iter_mut().map(|b| &mut **b);
                ($(cast_mut::<$t>(next.next()),)*)
            }
        }
    };
}

slices!(A);
slices!(A B);
slices!(A B C);
slices!(A B C D);
slices!(A B C D E);
slices!(A B C D E F);
slices!(A B C D E F G);
slices!(A B C D E F G H);
