//! Dimensions and shapes.
//!
//! A dimension is a number, or a number times a product of named, bounded variables (`B`, `2*B*T`). Shapes are
//! inferred, never restated; before differentiation the `bind` pass replaces each variable by its size.

use crate::DType;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One dimension: `coef × Π vars`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Dim {
    coef: usize,
    /// Sorted; a variable that occurs twice stands twice.
    vars: Vec<Arc<str>>,
}

impl Dim {
    /// A dimension of known size.
    pub fn fixed(n: usize) -> Dim {
        Dim { coef: n, vars: Vec::new() }
    }

    /// A dimension named by a variable.
    pub fn var(name: &str) -> Dim {
        Dim { coef: 1, vars: vec![name.into()] }
    }

    /// The size, if no variable is left.
    pub fn size(&self) -> Option<usize> {
        self.vars.is_empty().then_some(self.coef)
    }

    /// The number that the variables are multiplied with: the size, if there are none.
    pub fn coef(&self) -> usize {
        self.coef
    }

    /// The variables in it.
    pub fn vars(&self) -> &[Arc<str>] {
        &self.vars
    }

    /// The product of two dimensions; `None` on overflow.
    pub fn times(&self, other: &Dim) -> Option<Dim> {
        let coef = self.coef.checked_mul(other.coef)?;
        let mut vars = if coef == 0 { vec![] } else { [&self.vars[..], &other.vars[..]].concat() };
        vars.sort();
        Some(Dim { coef, vars })
    }

    /// The exact quotient, if `other` divides this dimension for every value of the variables.
    pub fn divide(&self, other: &Dim) -> Option<Dim> {
        if other.coef == 0 || !self.coef.is_multiple_of(other.coef) {
            return None;
        }
        let mut vars = self.vars.clone();
        for v in &other.vars {
            let at = vars.iter().position(|w| w == v)?;
            vars.remove(at);
        }
        Some(Dim { coef: self.coef / other.coef, vars })
    }

    /// Whether this is the number 1.
    pub fn is_one(&self) -> bool {
        self.size() == Some(1)
    }

    /// This dimension with each variable replaced by its size in `binding`.
    pub fn bind(&self, binding: &BTreeMap<Arc<str>, usize>) -> Option<Dim> {
        let mut out = Dim::fixed(self.coef);
        for v in &self.vars {
            let factor = match binding.get(v) {
                Some(&n) => Dim::fixed(n),
                None => Dim::var(v),
            };
            out = out.times(&factor)?;
        }
        Some(out)
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::fixed(n)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.vars.is_empty() || self.coef != 1 {
            write!(f, "{}", self.coef)?;
            if !self.vars.is_empty() {
                f.write_str("*")?;
            }
        }
        f.write_str(&self.vars.join("*"))
    }
}

/// A named variable with its bound, as an input's shape declares it: `dim("B").at_most(512)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DimVar {
    pub(crate) name: Arc<str>,
    pub(crate) bound: Option<usize>,
}

/// Names a dimension variable. It needs a bound, given once per graph with [`DimVar::at_most`].
pub fn dim(name: &str) -> DimVar {
    DimVar { name: name.into(), bound: None }
}

impl DimVar {
    /// The largest size that the variable may take.
    pub fn at_most(self, bound: usize) -> DimVar {
        DimVar { bound: Some(bound), ..self }
    }
}

/// A dimension as a caller writes it: a number, a variable, or a [`Dim`].
#[derive(Clone, Debug)]
pub enum DimSpec {
    /// Already a dimension.
    Dim(Dim),
    /// A variable, perhaps with its bound.
    Var(DimVar),
}

impl From<usize> for DimSpec {
    fn from(n: usize) -> DimSpec {
        DimSpec::Dim(Dim::fixed(n))
    }
}
impl From<Dim> for DimSpec {
    fn from(d: Dim) -> DimSpec {
        DimSpec::Dim(d)
    }
}
impl From<DimVar> for DimSpec {
    fn from(v: DimVar) -> DimSpec {
        DimSpec::Var(v)
    }
}

/// What a shape may be written as: an array, slice or vector of dimensions, a [`Shape`], or a tuple that mixes
/// numbers and variables: `(dim("B").at_most(512), 784)`.
pub trait IntoShape {
    /// The dimensions in order.
    fn into_dims(self) -> Vec<DimSpec>;
}

impl<D: Into<DimSpec>, const N: usize> IntoShape for [D; N] {
    fn into_dims(self) -> Vec<DimSpec> {
        self.into_iter().map(Into::into).collect()
    }
}
impl<D: Into<DimSpec>> IntoShape for Vec<D> {
    fn into_dims(self) -> Vec<DimSpec> {
        self.into_iter().map(Into::into).collect()
    }
}
impl<D: Into<DimSpec> + Clone> IntoShape for &[D] {
    fn into_dims(self) -> Vec<DimSpec> {
        self.iter().cloned().map(Into::into).collect()
    }
}
impl IntoShape for Shape {
    fn into_dims(self) -> Vec<DimSpec> {
        self.0.into_iter().map(Into::into).collect()
    }
}
impl IntoShape for &Shape {
    fn into_dims(self) -> Vec<DimSpec> {
        self.clone().into_dims()
    }
}
impl IntoShape for () {
    fn into_dims(self) -> Vec<DimSpec> {
        vec![]
    }
}
macro_rules! tuple_shapes {
    ($(($($t:ident $i:tt),+)),+) => {$(
        impl<$($t: Into<DimSpec>),+> IntoShape for ($($t,)+) {
            fn into_dims(self) -> Vec<DimSpec> { vec![$(self.$i.into()),+] }
        }
    )+};
}
tuple_shapes!(
    (A 0),
    (A 0, B 1),
    (A 0, B 1, C 2),
    (A 0, B 1, C 2, D 3),
    (A 0, B 1, C 2, D 3, E 4)
);

/// The dimensions of a tensor, outermost first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// A shape of known sizes.
    pub fn fixed(sizes: &[usize]) -> Shape {
        Shape(sizes.iter().map(|&n| Dim::fixed(n)).collect())
    }

    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape(vec![])
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The sizes, if no variable is left.
    pub fn sizes(&self) -> Option<Vec<usize>> {
        self.0.iter().map(Dim::size).collect()
    }

    /// The number of elements as a dimension; `None` on overflow.
    pub fn count(&self) -> Option<Dim> {
        self.0.iter().try_fold(Dim::fixed(1), |a, d| a.times(d))
    }

    /// The shape without the given axes.
    pub fn without(&self, axes: &[usize]) -> Shape {
        Shape(self.0.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d.clone()).collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

/// The type of a value: dtype and shape.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Shape,
}

impl Type {
    /// A type from its parts.
    pub fn new(dtype: DType, shape: Shape) -> Type {
        Type { dtype, shape }
    }

    /// The sizes. Panics when a variable is left: only for code that runs after `bind`, whose verifier
    /// guarantees it.
    pub fn sizes(&self) -> Vec<usize> {
        self.shape.sizes().expect("dimensions are bound before this stage")
    }

    /// The number of elements, after `bind`.
    pub fn numel(&self) -> usize {
        self.sizes().iter().product()
    }

    /// The bytes of a dense tensor of this type, after `bind`.
    pub fn bytes(&self) -> usize {
        self.numel() * self.dtype.size()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// Row-major strides of a dense tensor.
pub fn row_major(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i].max(1);
    }
    strides
}

/// A dense tensor seen from one axis: the number of elements before it, its size, and the number after it.
pub fn around(sizes: &[usize], axis: usize) -> (usize, usize, usize) {
    (sizes[..axis].iter().product(), sizes[axis], sizes[axis + 1..].iter().product())
}

/// Calls `f` with every multi-index of `sizes`, in row-major order.
pub fn for_each_index(sizes: &[usize], mut f: impl FnMut(&[usize])) {
    if sizes.contains(&0) {
        return;
    }
    let mut index = vec![0; sizes.len()];
    loop {
        f(&index);
        let mut axis = sizes.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < sizes[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_variables() {
        let bt = Dim::var("B").times(&Dim::var("T")).unwrap();
        let n = bt.times(&Dim::fixed(4)).unwrap();
        assert_eq!(n.to_string(), "4*B*T");
        assert_eq!(n.divide(&Dim::var("T")).unwrap().to_string(), "4*B");
        assert_eq!(n.divide(&Dim::fixed(3)), None);
        assert_eq!(Dim::fixed(4).divide(&Dim::var("B")), None);
        let bound = [("B".into(), 2), ("T".into(), 3)].into();
        assert_eq!(n.bind(&bound).unwrap().size(), Some(24));
        assert_eq!(Dim::fixed(usize::MAX).times(&Dim::fixed(2)), None);
    }

    #[test]
    fn indices_in_order() {
        let mut seen = vec![];
        for_each_index(&[2, 2], |i| seen.push(i.to_vec()));
        assert_eq!(seen, [[0, 0], [0, 1], [1, 0], [1, 1]]);
        let mut count = 0;
        for_each_index(&[], |_| count += 1);
        assert_eq!(count, 1);
        for_each_index(&[3, 0], |_| count += 1);
        assert_eq!(count, 1);
    }
}
