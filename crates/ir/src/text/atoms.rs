//! The parser's smaller half: types, dimensions, attributes, numbers and arrays.

use super::lex::{Token, brief};
use super::literal::{SPLAT, read_element, read_hex, read_nan_bits};
use super::parse::{Parsed, Parser, hint};
use crate::{Array, Attr, DType, Dim, Real, Shape, Type};

/// The most dimensions of a type, and the most factors of a dimension, in a text.
const MOST: usize = 64;

impl Parser<'_> {
    pub(super) fn types(&mut self) -> Parsed<Vec<Type>> {
        let mut types = vec![self.ty()?];
        while self.eat(",")? {
            types.push(self.ty()?);
        }
        Ok(types)
    }

    pub(super) fn ty(&mut self) -> Parsed<Type> {
        let at = self.at;
        let name = self.word("a type, such as f32[2, 3]")?;
        let Some(dtype) = DType::from_name(name) else {
            let names = DType::ALL.map(DType::name);
            let near = hint(name, names);
            return self.error(
                at,
                format!("there is no dtype '{}'; dtypes are {}{near}", brief(name), names.join(", ")),
            );
        };
        let at = self.at;
        self.expect("[")?;
        let dims = self.list("]", |p| p.dim())?;
        if dims.len() > MOST {
            return self
                .error(at, format!("{} dimensions are too many; a type has at most {MOST}", dims.len()));
        }
        Ok(Type::new(dtype, Shape(dims)))
    }

    /// `4`, `B` or `4*B*T`.
    fn dim(&mut self) -> Parsed<Dim> {
        let at = self.at;
        let mut product = self.factor()?;
        let mut factors = 1;
        while self.eat("*")? {
            let next = self.factor()?;
            factors += 1;
            product = match product.times(&next) {
                Some(product) if factors <= MOST => product,
                _ => return self.error(at, "the dimension's product is too large"),
            };
        }
        Ok(product)
    }

    fn factor(&mut self) -> Parsed<Dim> {
        if let Token::Number(_) = self.token {
            return self.size("a size of 0 or more").map(Dim::fixed);
        }
        let at = self.at;
        let name = self.name("a size or a dimension's name")?;
        if self.graph.dims.contains_key(name.as_str()) {
            return Ok(Dim::var(&name));
        }
        let near = hint(&name, self.graph.dims.keys().map(|d| &**d));
        self.error(
            at,
            format!("dimension '{0}' is not declared; write 'dim {0} <= N' first{near}", brief(&name)),
        )
    }

    pub(super) fn attr(&mut self) -> Parsed<(String, Attr)> {
        let name = self.word("an attribute's name")?.to_string();
        self.expect("=")?;
        let value = match self.token.clone() {
            Token::Quoted(w) => self.advance().map(|_| Attr::Word(w))?,
            Token::Word("nan" | "inf") => Attr::Real(Real::new(self.real()?)),
            Token::Number(n) if n.bytes().all(|b| b.is_ascii_digit() || b == b'-') => match n.parse() {
                Ok(n) => self.advance().map(|_| Attr::Int(n))?,
                Err(_) => return self.error(self.at, format!("{} is not a 64-bit integer", brief(n))),
            },
            Token::Number(_) => Attr::Real(Real::new(self.real()?)),
            Token::Punct("[") => self.integers()?,
            Token::Word(w) => {
                self.advance()?;
                match (w, DType::from_name(w)) {
                    ("true", _) => Attr::Bool(true),
                    ("false", _) => Attr::Bool(false),
                    (_, Some(dtype)) if self.is("[") => Attr::Array(self.array(dtype)?),
                    _ => Attr::Word(w.to_string()),
                }
            }
            _ => return self.expected("a number, word, list or array"),
        };
        Ok((name, value))
    }

    /// A list of integers, or of dimensions if one has a variable.
    fn integers(&mut self) -> Parsed<Attr> {
        let at = self.at;
        self.expect("[")?;
        let mut dims = vec![];
        let ints = self.list("]", |p| match p.token {
            Token::Number(n) if n.starts_with('-') => match n.parse::<i64>() {
                Ok(n) => p.advance().map(|_| Some(n)),
                Err(_) => p.expected("an integer"),
            },
            _ => {
                let dim = p.dim()?;
                let size = dim.size().and_then(|n| i64::try_from(n).ok());
                dims.push(dim);
                Ok(size)
            }
        })?;
        let negative = dims.len() < ints.len();
        match ints.into_iter().collect() {
            Some(ints) => Ok(Attr::Ints(ints)),
            None if negative => self.error(at, "a list with a dimension variable has no negative number"),
            None => Ok(Attr::Dims(dims)),
        }
    }

    pub(super) fn real(&mut self) -> Parsed<f64> {
        self.element(DType::F64).map(f64::from_bits)
    }

    /// The bits of one number or truth value.
    fn element(&mut self, dtype: DType) -> Parsed<u64> {
        let at = self.at;
        let (Token::Word(text) | Token::Number(text)) = self.token else { return self.expected("a number") };
        self.advance()?;
        let bits = if text == "nan" && dtype.is_float() && self.eat("(")? {
            let Token::Number(digits) = self.token else { return self.expected("the NaN's bits") };
            self.advance()?;
            self.expect(")")?;
            read_nan_bits(dtype, digits)
        } else {
            read_element(dtype, text)
        };
        bits.or_else(|message| self.error(at, format!("{message}; found '{}'", brief(text))))
    }

    /// What follows an array's dtype: `[2](0.5, 1.0)`.
    fn array(&mut self, dtype: DType) -> Parsed<Array> {
        let at = self.at;
        self.expect("[")?;
        let shape = self.list("]", |p| p.size("a size"))?;
        self.expect("(")?;
        let bytes = match self.token {
            Token::Number(n) if n.starts_with("0x") => {
                let Some(bytes) = read_hex(n) else {
                    return self.error(self.at, "expected pairs of hexadecimal digits after 0x");
                };
                self.advance()?;
                self.expect(")")?;
                bytes
            }
            Token::Word("splat") => {
                self.advance()?;
                let one = self.element(dtype)?.to_le_bytes();
                self.expect(")")?;
                let count = shape.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).filter(|&n| n <= SPLAT);
                let Some(count) = count else {
                    let help = "give the op a scalar value and dims instead";
                    return self
                        .error(at, format!("splat fills at most {SPLAT} elements, not {shape:?}; {help}"));
                };
                one[..dtype.size()].repeat(count)
            }
            _ => {
                let elements = self.list(")", |p| p.element(dtype))?;
                elements.iter().flat_map(|e| e.to_le_bytes()[..dtype.size()].to_vec()).collect()
            }
        };
        Array::from_bytes(dtype, &shape, &bytes)
            .or_else(|e| self.error(at, format!("the array does not fit: {e}")))
    }
}
