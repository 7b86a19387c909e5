//! The arguments of a call, read as PyTorch binds them: by position (the input is 0), by keyword, or by default.

use crate::samples::{Sample, Value};
use onestep_ir::{DType, GraphBuilder, Tensor};
use std::collections::BTreeMap;

/// The results of a call, or why there are none.
pub type Built<'g> = Result<Vec<Tensor<'g>>, Trouble>;

/// Why an entry of the table gives no graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The call means something that no graph of ours expresses: a sample left out, with the reason.
    Refused(&'static str),
    /// The entry expects other arguments: a mistake in the table.
    Malformed(String),
}

/// A call under construction.
pub struct Call<'a, 'g> {
    /// The graph.
    pub g: &'g GraphBuilder,
    /// What was recorded.
    pub sample: &'a Sample,
    /// The tensors of the arguments, by number.
    pub tensors: &'a BTreeMap<usize, Tensor<'g>>,
}

/// The position of an argument that is only ever given by keyword.
pub const KEYWORD: usize = usize::MAX;

type Got<T> = Result<T, Trouble>;

impl<'a, 'g> Call<'a, 'g> {
    /// The argument at `position` or of this name; [`Value::None`] where there is none.
    pub fn get(&self, position: usize, name: &str) -> &'a Value {
        self.sample.args.get(position).or_else(|| self.sample.kwargs.get(name)).unwrap_or(&Value::None)
    }

    /// How many positional arguments there are, the input among them.
    pub fn count(&self) -> usize {
        self.sample.args.len()
    }

    fn wants<T>(&self, what: &str, position: usize, name: &str) -> Got<T> {
        let got = self.get(position, name);
        Err(Trouble::Malformed(format!("argument {position} ({name}) is {got:?}, not {what}")))
    }

    fn handle(&self, number: usize) -> Got<Tensor<'g>> {
        let found = self.tensors.get(&number).copied();
        found.ok_or_else(|| Trouble::Malformed(format!("there is no tensor {number}")))
    }

    /// The input.
    pub fn x(&self) -> Got<Tensor<'g>> {
        self.tensor(0, "input")
    }

    /// A tensor.
    pub fn tensor(&self, position: usize, name: &str) -> Got<Tensor<'g>> {
        match self.get(position, name) {
            Value::Tensor(n) => self.handle(*n),
            _ => self.wants("a tensor", position, name),
        }
    }

    /// A tensor or `None`.
    pub fn maybe(&self, position: usize, name: &str) -> Got<Option<Tensor<'g>>> {
        match self.get(position, name) {
            Value::None => Ok(None),
            _ => self.tensor(position, name).map(Some),
        }
    }

    /// A tensor, or a number as a scalar of `dtype`.
    pub fn operand(&self, position: usize, name: &str, dtype: DType) -> Got<Tensor<'g>> {
        match self.get(position, name) {
            Value::Tensor(n) => self.handle(*n),
            _ => Ok(self.g.scalar(dtype, self.number(position, name)?)),
        }
    }

    /// Every tensor of a list.
    pub fn list(&self, position: usize, name: &str) -> Got<Vec<Tensor<'g>>> {
        let Value::List(items) = self.get(position, name) else {
            return self.wants("a list of tensors", position, name);
        };
        let one = |v: &Value| match v {
            Value::Tensor(n) => self.handle(*n),
            _ => self.wants("a list of tensors", position, name),
        };
        items.iter().map(one).collect()
    }

    /// Every positional tensor; a list in the first place stands for its elements.
    pub fn all(&self) -> Got<Vec<Tensor<'g>>> {
        match self.get(0, "tensors") {
            Value::List(_) => self.list(0, "tensors"),
            _ => (0..self.count()).map(|i| self.tensor(i, "tensors")).collect(),
        }
    }

    /// A number that must be given.
    pub fn number(&self, position: usize, name: &str) -> Got<f64> {
        match self.maybe_number(position, name)? {
            Some(x) => Ok(x),
            None => self.wants("a number", position, name),
        }
    }

    /// A number with a default.
    pub fn number_or(&self, position: usize, name: &str, default: f64) -> Got<f64> {
        Ok(self.maybe_number(position, name)?.unwrap_or(default))
    }

    /// A number or `None`.
    pub fn maybe_number(&self, position: usize, name: &str) -> Got<Option<f64>> {
        match self.get(position, name) {
            Value::Int(i) => Ok(Some(*i as f64)),
            Value::Float(x) => Ok(Some(*x)),
            Value::Bool(b) => Ok(Some(*b as u8 as f64)),
            Value::None => Ok(None),
            _ => self.wants("a number", position, name),
        }
    }

    /// An integer or `None`.
    pub fn maybe_int(&self, position: usize, name: &str) -> Got<Option<isize>> {
        match self.get(position, name) {
            Value::Int(i) => Ok(Some(*i as isize)),
            Value::None => Ok(None),
            _ => self.wants("an integer", position, name),
        }
    }

    /// An integer that must be given.
    pub fn int(&self, position: usize, name: &str) -> Got<isize> {
        match self.maybe_int(position, name)? {
            Some(i) => Ok(i),
            None => self.wants("an integer", position, name),
        }
    }

    /// An integer with a default.
    pub fn int_or(&self, position: usize, name: &str, default: isize) -> Got<isize> {
        Ok(self.maybe_int(position, name)?.unwrap_or(default))
    }

    /// A truth value with a default.
    pub fn flag(&self, position: usize, name: &str, default: bool) -> Got<bool> {
        match self.get(position, name) {
            Value::Bool(b) => Ok(*b),
            Value::None => Ok(default),
            _ => self.wants("a truth value", position, name),
        }
    }

    /// A word with a default.
    pub fn text(&self, position: usize, name: &str, default: &'static str) -> Got<&'a str> {
        match self.get(position, name) {
            Value::Text(s) => Ok(s),
            Value::None => Ok(default),
            _ => self.wants("a word", position, name),
        }
    }

    /// Integers: a list, or one alone. `None` where there is no such argument.
    pub fn maybe_ints(&self, position: usize, name: &str) -> Got<Option<Vec<isize>>> {
        let one = |v: &Value| match v {
            Value::Int(i) => Ok(*i as isize),
            _ => self.wants("integers", position, name),
        };
        match self.get(position, name) {
            Value::None => Ok(None),
            Value::List(items) => items.iter().map(one).collect::<Got<_>>().map(Some),
            v => one(v).map(|i| Some(vec![i])),
        }
    }

    /// Integers that must be given.
    pub fn ints(&self, position: usize, name: &str) -> Got<Vec<isize>> {
        match self.maybe_ints(position, name)? {
            Some(ints) => Ok(ints),
            None => self.wants("integers", position, name),
        }
    }

    /// Sizes: a list at `position`, or every positional argument from there on.
    pub fn sizes(&self, position: usize, name: &str) -> Got<Vec<isize>> {
        match self.get(position, name) {
            Value::Int(_) => (position..self.count()).map(|i| self.int(i, name)).collect(),
            _ => self.ints(position, name),
        }
    }

    /// A dtype or `None`.
    pub fn dtype(&self, position: usize, name: &str) -> Got<Option<DType>> {
        Ok(Some(match self.get(position, name) {
            Value::None => return Ok(None),
            Value::DType(d) => match d.as_str() {
                "float64" => DType::F64,
                "float32" => DType::F32,
                "float16" => DType::F16,
                "bfloat16" => DType::BF16,
                "int64" => DType::I64,
                "int32" => DType::I32,
                "int8" => DType::I8,
                "uint8" => DType::U8,
                "bool" => DType::Bool,
                _ => return Err(Trouble::Refused("a dtype that is not ours")),
            },
            _ => return self.wants("a dtype", position, name),
        }))
    }

    /// The axis that an integer means in a tensor of this rank; PyTorch counts a scalar as one axis.
    pub fn axis(&self, rank: usize, position: usize, name: &str, default: isize) -> Got<usize> {
        let at = self.int_or(position, name, default)?;
        wrapped(at, rank.max(1))
    }

    /// The axes of a reduction, sorted: every one where none is given, none for a scalar.
    pub fn axes(&self, x: Tensor<'g>, position: usize, name: &str) -> Got<Vec<usize>> {
        let rank = x.rank();
        let given = self.maybe_ints(position, name)?.unwrap_or_default();
        if given.is_empty() || rank == 0 {
            return Ok((0..rank).collect());
        }
        let mut axes = given.into_iter().map(|a| wrapped(a, rank)).collect::<Got<Vec<_>>>()?;
        axes.sort_unstable();
        Ok(axes)
    }
}

/// An axis counted from the front.
pub fn wrapped(axis: isize, rank: usize) -> Got<usize> {
    let at = if axis < 0 { axis + rank as isize } else { axis };
    match usize::try_from(at) {
        Ok(at) if at < rank => Ok(at),
        _ => Err(Trouble::Malformed(format!("axis {axis} is out of range for rank {rank}"))),
    }
}
