//! Attributes: the constant parts of an op, in the one form that the printer, the parser and the hash see.

use crate::{Array, DType, Dim, Mistake};

/// A real attribute, compared and hashed by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Real(u64);

impl Real {
    /// From a number.
    pub fn new(x: f64) -> Real {
        Real(x.to_bits())
    }
    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}
impl From<f64> for Real {
    fn from(x: f64) -> Real {
        Real::new(x)
    }
}
impl std::fmt::Debug for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

/// One attribute's value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Attr {
    /// `axis=1`
    Int(i64),
    /// `perm=[1, 0]`
    Ints(Vec<i64>),
    /// `eps=1e-5`
    Real(Real),
    /// `causal=true`
    Bool(bool),
    /// `layout=bthd`, `dtype=f32`
    Word(String),
    /// `dims=[B, 4]`
    Dims(Vec<Dim>),
    /// `value=f32[2](0.5, 1.0)`
    Array(Array),
}

/// An op's attributes, in the order in which they are printed.
pub type Attrs = Vec<(&'static str, Attr)>;

/// A size or an axis as an attribute; one beyond `i64` becomes the largest.
pub fn int(x: usize) -> Attr {
    Attr::Int(i64::try_from(x).unwrap_or(i64::MAX))
}

/// A list of sizes or axes as an attribute.
pub fn ints(xs: &[usize]) -> Attr {
    Attr::Ints(xs.iter().map(|&x| x as i64).collect())
}

/// Attributes as the parser found them; each op takes what it knows, and what is left is an error.
#[derive(Debug)]
pub struct AttrReader {
    found: Vec<(String, Attr)>,
}

impl AttrReader {
    /// A reader of parsed attributes.
    pub fn new(found: Vec<(String, Attr)>) -> AttrReader {
        AttrReader { found }
    }

    /// Takes an attribute that may be absent.
    pub fn optional(&mut self, name: &str) -> Option<Attr> {
        let at = self.found.iter().position(|(n, _)| n == name)?;
        Some(self.found.remove(at).1)
    }

    /// What `read`, one of the methods below, makes of an attribute that may be absent.
    pub fn maybe<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut AttrReader, &str) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Mistake> {
        let there = self.found.iter().any(|(n, _)| n == name);
        there.then(|| read(self, name)).transpose()
    }

    fn take(&mut self, name: &str) -> Result<Attr, Mistake> {
        self.optional(name)
            .ok_or_else(|| Mistake::new(format!("attribute '{name}' is missing"), format!("write {name}=…")))
    }

    fn wrong(name: &str, want: &str) -> Mistake {
        Mistake::new(format!("attribute '{name}' has the wrong form"), format!("it takes {want}"))
    }

    /// An integer.
    pub fn int(&mut self, name: &str) -> Result<i64, Mistake> {
        match self.take(name)? {
            Attr::Int(x) => Ok(x),
            _ => Err(Self::wrong(name, "an integer")),
        }
    }

    /// A non-negative integer.
    pub fn size(&mut self, name: &str) -> Result<usize, Mistake> {
        usize::try_from(self.int(name)?).map_err(|_| Self::wrong(name, "a non-negative integer"))
    }

    /// A list of integers.
    pub fn ints(&mut self, name: &str) -> Result<Vec<i64>, Mistake> {
        match self.take(name)? {
            Attr::Ints(x) => Ok(x),
            Attr::Dims(d) => d
                .iter()
                .map(|d| d.size().and_then(|n| i64::try_from(n).ok()))
                .collect::<Option<_>>()
                .ok_or_else(|| Self::wrong(name, "a list of integers")),
            _ => Err(Self::wrong(name, "a list of integers")),
        }
    }

    /// A list of non-negative integers.
    pub fn sizes(&mut self, name: &str) -> Result<Vec<usize>, Mistake> {
        self.ints(name)?
            .into_iter()
            .map(|x| usize::try_from(x).map_err(|_| Self::wrong(name, "non-negative integers")))
            .collect()
    }

    /// A list of dimensions.
    pub fn dims(&mut self, name: &str) -> Result<Vec<Dim>, Mistake> {
        match self.take(name)? {
            Attr::Dims(d) => Ok(d),
            Attr::Ints(x) => x
                .into_iter()
                .map(|x| usize::try_from(x).map(Dim::fixed).map_err(|_| Self::wrong(name, "dimensions")))
                .collect(),
            _ => Err(Self::wrong(name, "a list of dimensions")),
        }
    }

    /// A real number.
    pub fn real(&mut self, name: &str) -> Result<Real, Mistake> {
        match self.take(name)? {
            Attr::Real(x) => Ok(x),
            Attr::Int(x) => Ok(Real::new(x as f64)),
            _ => Err(Self::wrong(name, "a number")),
        }
    }

    /// A truth value.
    pub fn bool(&mut self, name: &str) -> Result<bool, Mistake> {
        match self.take(name)? {
            Attr::Bool(x) => Ok(x),
            _ => Err(Self::wrong(name, "true or false")),
        }
    }

    /// A keyword.
    pub fn word(&mut self, name: &str) -> Result<String, Mistake> {
        match self.take(name)? {
            Attr::Word(x) => Ok(x),
            _ => Err(Self::wrong(name, "a word")),
        }
    }

    /// A dtype.
    pub fn dtype(&mut self, name: &str) -> Result<DType, Mistake> {
        DType::from_name(&self.word(name)?).ok_or_else(|| Self::wrong(name, "a dtype"))
    }

    /// An array.
    pub fn array(&mut self, name: &str) -> Result<Array, Mistake> {
        match self.take(name)? {
            Attr::Array(x) => Ok(x),
            _ => Err(Self::wrong(name, "an array")),
        }
    }

    /// Refuses what nobody took.
    pub fn done(self) -> Result<(), Mistake> {
        match self.found.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Mistake::new(format!("unknown attribute '{name}'"), "remove it or check its spelling"))
            }
        }
    }
}
