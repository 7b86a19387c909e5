//! Binding tensors to declared state: what does not fit is refused when it is given, not when a program runs.
//!
//! Programs declare the state they use: dtype and dimensions, of which a cache's may be variables with a bound. A state
//! knows these declarations from the first contact with the program ([`crate::Program::init`] or the first run), so that
//! a tensor may be bound before there is a program and is then checked at its first run.

use super::State;
use crate::Error;
use crate::buffer::Buffer;
use onestep_ir::{Array, DType, Graph, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What [`State::bind`] did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Binding {
    /// The state had no such tensor.
    Added,
    /// The tensor was overwritten where it is: nothing binds again.
    Written,
    /// The tensor had other sizes within the bounds of its variables: it has new storage, and programs bind again.
    Resized {
        /// The sizes before.
        from: Vec<usize>,
    },
}

/// What a program says of a state tensor.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    ty: Type,
    bounds: BTreeMap<Arc<str>, usize>,
}

impl Declared {
    /// Refuses a tensor that the program cannot use.
    fn check(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<(), Error> {
        let dims = &self.ty.shape.0;
        let mismatch = || Error::StateType {
            name: name.to_string(),
            want: self.ty.to_string(),
            got: format!("{dtype}{shape:?}"),
        };
        if dtype != self.ty.dtype || dims.len() != shape.len() {
            return Err(mismatch());
        }
        for (dim, &size) in dims.iter().zip(shape) {
            let most = dim.bind(&self.bounds).and_then(|d| d.size()).ok_or_else(mismatch)?;
            if dim.size().is_none() && size > most {
                let (name, dim) = (name.to_string(), dim.to_string());
                return Err(Error::StateBound { name, dim, size, bound: most });
            }
            if dim.size().is_some_and(|n| n != size) || !size.is_multiple_of(dim.coef().max(1)) {
                return Err(mismatch());
            }
        }
        Ok(())
    }
}

impl State {
    /// Notes what a graph, whose dimensions may be variables, says of its state; the first to declare a path decides.
    pub(crate) fn declare(&mut self, graph: &Graph) {
        for s in &graph.states {
            if !self.declared.contains_key(&s.name) {
                let declared = Declared { ty: graph.ty(s.value).clone(), bounds: graph.dims.clone() };
                self.declared.insert(s.name.clone(), declared);
            }
        }
    }

    /// Refuses a tensor that is not of the declared type, or, undeclared, not of the type of the one that is there.
    pub(super) fn check(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<(), Error> {
        match (self.declared.get(name), self.tensor(name)) {
            (Some(declared), _) => declared.check(name, dtype, shape),
            (None, Some(t)) if t.dtype != dtype || t.shape != shape => Err(Error::StateType {
                name: name.to_string(),
                want: t.describe(),
                got: format!("{dtype}{shape:?}"),
            }),
            _ => Ok(()),
        }
    }

    /// Makes a tensor resident at a path: copied once, so that later runs upload nothing. It may come before any program
    /// is compiled, or after.
    ///
    /// A tensor of the type that is there is overwritten in place. One whose sizes differ only in a named variable, within
    /// its bound, gets new storage, and programs bind again and count it; any other mismatch is an error. Nothing is
    /// converted: see [`State::bind_as`].
    pub fn bind(&mut self, name: &str, value: &Array) -> Result<Binding, Error> {
        self.check(name, value.dtype(), value.shape())?;
        let done = match self.tensor(name) {
            None => Binding::Added,
            Some(t) if t.dtype == value.dtype() && t.shape == value.shape() => Binding::Written,
            Some(t) => Binding::Resized { from: t.shape.clone() },
        };
        match (&done, self.tensor(name)) {
            (Binding::Written, Some(t)) => t.buffer.write(value.bytes()),
            _ => self.insert(name, value.dtype(), value.shape(), Buffer::of(value)),
        }
        Ok(done)
    }

    /// [`State::bind`] of the tensor converted to `dtype`: floats are rounded, integers truncated and saturated.
    pub fn bind_as(&mut self, name: &str, value: &Array, dtype: DType) -> Result<Binding, Error> {
        if value.dtype() == dtype {
            return self.bind(name, value);
        }
        self.bind(name, &Array::from_f64(dtype, value.shape(), &value.to_f64())?)
    }
}
