//! Handles on the values of a graph under construction, with the methods and operators that build ops.
//!
//! Elementwise methods broadcast their operands as NumPy does: shapes are aligned at the right, and sizes of 1
//! stretch. A number on the right of an operator becomes a constant of the left side's dtype.

use crate::ops::{
    Binary, BinaryKind, Bitcast, Broadcast, Cast, Compare, CompareKind, Matmul, Quantize, Reshape, Select,
    Transpose, Unary, UnaryKind,
};
use crate::{DType, Dim, GraphBuilder, Mistake, Shape, Type, ValueId};

mod activation_methods;
mod counting_methods;
mod ctc_methods;
mod einsum;
mod fourier_methods;
mod layout_methods;
mod linear_methods;
mod loss_methods;
mod math_methods;
mod nn_methods;
mod norm_methods;
mod order_methods;
mod random_methods;
mod reduce_methods;
mod resize_methods;
mod rotary_methods;
mod sampling_methods;
mod scatter_methods;
mod shape_methods;
mod spatial_methods;
mod special_methods;
mod statistics_methods;

pub use ctc_methods::{CtcOptions, CtcReduction};
pub use fourier_methods::{Complex, FourierNorm};
pub use linear_methods::Lu;
pub use loss_methods::CrossEntropyOptions;
pub use nn_methods::AttentionOptions;
pub use order_methods::QuantileKind;
pub use resize_methods::{Interpolation, Resize};
pub use rotary_methods::{RotaryOptions, RotaryPairing, RotaryScaling};
pub use sampling_methods::{GridSample, Outside};
pub use scatter_methods::Meeting;
pub use shape_methods::{concat, stack};
pub use spatial_methods::{ConvOptions, Divisor};

/// A handle on a value: cheap to copy, tied to its builder. A poisoned handle stands for a mistake on record.
#[derive(Clone, Copy)]
pub struct Tensor<'g> {
    pub(crate) g: &'g GraphBuilder,
    pub(crate) value: Option<ValueId>,
}

impl std::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.value, self.ty()) {
            (Some(v), Some(ty)) => write!(f, "%{}: {ty}", v.0),
            _ => f.write_str("(poisoned)"),
        }
    }
}

/// The right side of an elementwise method: a tensor or a number.
#[derive(Clone, Copy, Debug)]
pub enum Rhs<'g> {
    /// A tensor.
    Tensor(Tensor<'g>),
    /// A number, which takes the left side's dtype.
    Number(f64),
}
impl<'g> From<Tensor<'g>> for Rhs<'g> {
    fn from(t: Tensor<'g>) -> Self {
        Rhs::Tensor(t)
    }
}
impl From<f64> for Rhs<'_> {
    fn from(x: f64) -> Self {
        Rhs::Number(x)
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident $kind:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $method(self) -> Tensor<'g> { self.g.emit1(Unary { kind: UnaryKind::$kind }, &[self]) }
    )+};
}
macro_rules! binary_methods {
    ($($(#[$doc:meta])* $method:ident $kind:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $method(self, other: impl Into<Rhs<'g>>) -> Tensor<'g> {
            let (a, b) = self.paired(other.into());
            self.g.emit1(Binary { kind: BinaryKind::$kind }, &[a, b])
        }
    )+};
}
macro_rules! compare_methods {
    ($($(#[$doc:meta])* $method:ident $kind:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $method(self, other: impl Into<Rhs<'g>>) -> Tensor<'g> {
            let (a, b) = self.paired(other.into());
            self.g.emit1(Compare { kind: CompareKind::$kind }, &[a, b])
        }
    )+};
}

#[allow(clippy::should_implement_trait)] // `not` reads like its neighbours
impl<'g> Tensor<'g> {
    /// The graph's builder.
    pub fn graph(self) -> &'g GraphBuilder {
        self.g
    }

    /// The value, unless the handle is poisoned.
    pub fn value(self) -> Option<ValueId> {
        self.value
    }

    /// The type, unless the handle is poisoned.
    pub fn ty(self) -> Option<Type> {
        self.value.map(|v| self.g.with_graph(|g| g.ty(v).clone()))
    }

    /// The shape; that of a scalar for a poisoned handle.
    pub fn shape(self) -> Shape {
        self.ty().map(|t| t.shape).unwrap_or_default()
    }

    /// The number of dimensions.
    pub fn rank(self) -> usize {
        self.shape().rank()
    }

    /// The dtype; `f32` for a poisoned handle.
    pub fn dtype(self) -> DType {
        self.ty().map(|t| t.dtype).unwrap_or(DType::F32)
    }

    /// A poisoned handle of the same graph: what follows from a mistake already on record.
    pub fn poison(self) -> Tensor<'g> {
        Tensor { g: self.g, value: None }
    }

    /// Records a mistake about this tensor and gives a poisoned handle.
    #[track_caller]
    pub fn mistake(self, op: &str, what: impl Into<String>, help: impl Into<String>) -> Tensor<'g> {
        self.g.mistake(op, &[self], Mistake::new(what, help))
    }

    unary_methods!(
        /// −x.
        negate Neg,
        /// |x|.
        abs Abs,
        /// −1, 0 or 1.
        sign Sign,
        /// eˣ.
        exp Exp,
        /// eˣ − 1, accurate near 0.
        exp_m1 Expm1,
        /// Natural logarithm.
        log Log,
        /// ln(1 + x), accurate near 0.
        log_1p Log1p,
        /// Square root.
        sqrt Sqrt,
        /// 1/√x.
        rsqrt Rsqrt,
        /// 1/x.
        reciprocal Reciprocal,
        /// Sine.
        sin Sin,
        /// Cosine.
        cos Cos,
        /// Hyperbolic tangent.
        tanh Tanh,
        /// Error function.
        erf Erf,
        /// 1/(1+e⁻ˣ).
        sigmoid Sigmoid,
        /// max(x, 0); NaN for NaN.
        relu Relu,
        /// Largest integer not above x.
        floor Floor,
        /// Smallest integer not below x.
        ceil Ceil,
        /// Nearest integer, ties to even.
        round Round,
        /// Integer part.
        trunc Trunc,
        /// Whether x is neither infinite nor NaN.
        is_finite IsFinite,
        /// Whether x is NaN.
        is_nan IsNan,
        /// Logical negation (bitwise for integers).
        not Not,
        /// Tangent.
        tan Tan,
        /// Arc sine: NaN outside [−1, 1].
        asin Asin,
        /// Arc cosine: NaN outside [−1, 1].
        acos Acos,
        /// Arc tangent.
        atan Atan,
        /// Hyperbolic sine.
        sinh Sinh,
        /// Hyperbolic cosine.
        cosh Cosh,
        /// Inverse hyperbolic sine.
        asinh Asinh,
        /// Inverse hyperbolic cosine: NaN below 1.
        acosh Acosh,
        /// Inverse hyperbolic tangent: NaN outside [−1, 1].
        atanh Atanh,
        /// 1 − erf(x), accurate where that is tiny.
        erfc Erfc,
    );

    binary_methods!(
        /// a + b.
        plus Add,
        /// a − b.
        minus Sub,
        /// a · b, element by element.
        times Mul,
        /// a / b.
        divided_by Div,
        /// The larger; NaN if either is.
        maximum Max,
        /// The smaller; NaN if either is.
        minimum Min,
        /// aᵇ.
        pow Pow,
        /// The remainder with the dividend's sign.
        remainder Rem,
        /// Logical (bitwise for integers) and.
        and And,
        /// Logical (bitwise for integers) or.
        or Or,
        /// Logical (bitwise for integers) exclusive or.
        xor Xor,
        /// The angle from −π to π of the point (`other`, `self`); its gradient is 0 at the origin.
        atan2 Atan2,
        /// Integers · 2ᵇ; 0 when b is negative or not below the number of bits.
        shl Shl,
        /// ⌊integers / 2ᵇ⌋; −1 or 0, by the sign, when b is negative or not below the number of bits.
        shr Shr,
    );

    compare_methods!(
        /// a = b.
        equals Eq,
        /// a ≠ b.
        not_equal Ne,
        /// a < b.
        less Lt,
        /// a ≤ b.
        less_equal Le,
        /// a > b.
        greater Gt,
        /// a ≥ b.
        greater_equal Ge,
    );

    /// x².
    #[track_caller]
    pub fn square(self) -> Tensor<'g> {
        self * self
    }

    /// `self` (a `bool` tensor) chooses `a` where true, `b` where false; all are broadcast together.
    #[track_caller]
    pub fn select(self, a: impl Into<Rhs<'g>>, b: impl Into<Rhs<'g>>) -> Tensor<'g> {
        let (a, b) = match (a.into(), b.into()) {
            (Rhs::Tensor(a), b) => a.paired(b),
            (a, Rhs::Tensor(b)) => {
                let (b, a) = b.paired(a);
                (a, b)
            }
            (Rhs::Number(a), Rhs::Number(b)) => (self.g.scalar(DType::F32, a), self.g.scalar(DType::F32, b)),
        };
        let (c, a) = self.stretched(a);
        let (c, b) = c.stretched(b);
        let (a, _) = a.stretched(c);
        self.g.emit1(Select, &[c, a, b])
    }

    /// Both operands with one shape; a number becomes a constant.
    #[track_caller]
    fn paired(self, other: Rhs<'g>) -> (Tensor<'g>, Tensor<'g>) {
        match other {
            Rhs::Tensor(b) => self.stretched(b),
            Rhs::Number(x) => (self, self.g.full(self.dtype(), self.shape(), x)),
        }
    }

    /// Broadcasts two tensors to their common shape. Shapes that do not fit are left for the op to refuse.
    #[track_caller]
    pub fn stretched(self, other: Tensor<'g>) -> (Tensor<'g>, Tensor<'g>) {
        let (Some(ta), Some(tb)) = (self.ty(), other.ty()) else { return (self, other) };
        match common_shape(&ta.shape, &tb.shape) {
            Some(common) => (self.broadcast(&common), other.broadcast(&common)),
            None => (self, other),
        }
    }

    /// Repeats over new leading axes and over axes of size 1 until the shape is `shape`.
    #[track_caller]
    pub fn broadcast(self, shape: &Shape) -> Tensor<'g> {
        if self.value.is_none() || self.shape() == *shape {
            return self;
        }
        self.g.emit1(Broadcast { dims: shape.0.clone() }, &[self])
    }

    /// Converts to another dtype.
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Tensor<'g> {
        if self.value.is_none() || self.dtype() == dtype {
            return self;
        }
        self.g.emit1(Cast { dtype }, &[self])
    }

    /// In 8 bits (`f8e4m3` or `f8e5m2`) with one `f32` scale: `(q, scale)`, so that the tensor is about `q · scale`. The scale is a
    /// power of two. The gradient passes through the rounding.
    #[track_caller]
    pub fn quantize(self, dtype: DType) -> (Tensor<'g>, Tensor<'g>) {
        match self.g.emit(Quantize { dtype }, &[self])[..] {
            [q, scale] => (q, scale),
            _ => (self.poison(), self.poison()),
        }
    }

    /// The bits of every element read as another dtype of the same size: `f32`, `i32` and `u32` as each other, `f64` and
    /// `i64` too.
    #[track_caller]
    pub fn bitcast(self, dtype: DType) -> Tensor<'g> {
        self.g.emit1(Bitcast { dtype }, &[self])
    }

    /// The same elements under another shape of known or variable dimensions.
    #[track_caller]
    pub fn reshape(self, shape: impl Into<Shape>) -> Tensor<'g> {
        let shape = shape.into();
        if self.value.is_none() || self.shape() == shape {
            return self;
        }
        self.g.emit1(Reshape { dims: shape.0 }, &[self])
    }

    /// Reorders the axes: axis `i` of the result is axis `perm[i]` of this tensor.
    #[track_caller]
    pub fn transpose(self, perm: &[usize]) -> Tensor<'g> {
        if self.value.is_none() || perm.iter().copied().eq(0..self.rank()) {
            return self;
        }
        self.g.emit1(Transpose { perm: perm.to_vec() }, &[self])
    }

    /// Swaps the last two axes.
    #[track_caller]
    pub fn transpose_last(self) -> Tensor<'g> {
        let r = self.rank();
        if r < 2 && self.value.is_some() {
            return self.mistake(
                "transpose",
                format!("{} has no two axes", self.shape()),
                "reshape it to a matrix",
            );
        }
        let mut perm: Vec<usize> = (0..r).collect();
        perm.swap(r.max(2) - 1, r.max(2) - 2);
        self.transpose(&perm)
    }

    /// Inserts an axis of size 1 before `axis`.
    #[track_caller]
    pub fn expand(self, axis: usize) -> Tensor<'g> {
        if self.value.is_none() {
            return self;
        }
        let mut dims = self.shape().0;
        if axis > dims.len() {
            return self.mistake(
                "expand",
                format!("axis {axis} is beyond the rank"),
                "use an axis up to the rank",
            );
        }
        dims.insert(axis, Dim::fixed(1));
        self.reshape(Shape(dims))
    }

    /// An axis as NumPy counts it: negative from the end. `None` (and a mistake on record) when out of range.
    #[track_caller]
    pub fn axis(self, op: &str, axis: isize) -> Option<usize> {
        self.value?;
        let rank = self.rank() as isize;
        let at = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&at) {
            return Some(at as usize);
        }
        self.mistake(
            op,
            format!("axis {axis} is out of range for {}", self.shape()),
            "use an axis within the rank",
        );
        None
    }

    /// The matrix product over the last two axes. Batch dimensions are broadcast; a plain matrix on the right serves
    /// every batch.
    #[track_caller]
    pub fn matmul(self, other: Tensor<'g>) -> Tensor<'g> {
        self.matmul_t(other, false, false)
    }

    /// The matrix product with either operand's last two axes swapped. Of 8-bit floats it is `f32`, and `b` is transposed.
    #[track_caller]
    pub fn matmul_t(self, other: Tensor<'g>, transpose_a: bool, transpose_b: bool) -> Tensor<'g> {
        let (mut a, mut b) = (self, other);
        let (sa, sb) = (a.shape(), b.shape());
        if sa.rank() >= 2 && sb.rank() > 2 {
            let split = |s: &Shape| (Shape(s.0[..s.rank() - 2].to_vec()), s.0[s.rank() - 2..].to_vec());
            let ((batch_a, la), (batch_b, lb)) = (split(&sa), split(&sb));
            if let Some(batch) = common_shape(&batch_a, &batch_b) {
                a = a.broadcast(&Shape([batch.0.clone(), la].concat()));
                b = b.broadcast(&Shape([batch.0, lb].concat()));
            }
        }
        let dtype = if self.dtype().is_fp8() { DType::F32 } else { self.dtype() };
        self.g.emit1(Matmul { transpose_a, transpose_b, dtype }, &[a, b])
    }
}

/// The shape that both broadcast to, if there is one.
pub fn common_shape(a: &Shape, b: &Shape) -> Option<Shape> {
    let rank = a.rank().max(b.rank());
    let one = Dim::fixed(1);
    let at = |s: &Shape, i: usize| {
        if i + s.rank() < rank { one.clone() } else { s.0[i + s.rank() - rank].clone() }
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y.is_one() => Some(x),
            (x, y) if x.is_one() => Some(y),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()
        .map(Shape)
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Shape {
        Shape::fixed(&sizes)
    }
}
impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Shape {
        Shape::fixed(sizes)
    }
}
impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Shape {
        Shape(dims)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $name:ident),+) => {$(
        impl<'g, R: Into<Rhs<'g>>> std::ops::$trait<R> for Tensor<'g> {
            type Output = Tensor<'g>;
            #[track_caller]
            fn $method(self, rhs: R) -> Tensor<'g> { self.$name(rhs) }
        }
    )+};
}
operators!(Add add plus, Sub sub minus, Mul mul times, Div div divided_by);

impl<'g> std::ops::Neg for Tensor<'g> {
    type Output = Tensor<'g>;
    #[track_caller]
    fn neg(self) -> Tensor<'g> {
        self.negate()
    }
}

macro_rules! number_first {
    ($($trait:ident $method:ident $kind:ident),+) => {$(
        impl<'g> std::ops::$trait<Tensor<'g>> for f64 {
            type Output = Tensor<'g>;
            #[track_caller]
            fn $method(self, rhs: Tensor<'g>) -> Tensor<'g> {
                let number = rhs.g.full(rhs.dtype(), rhs.shape(), self);
                rhs.g.emit1(Binary { kind: BinaryKind::$kind }, &[number, rhs])
            }
        }
    )+};
}
number_first!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);
