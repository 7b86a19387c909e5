//! Named tensors that stay on the device: parameters, optimizer slots, counters, hyper-parameters, random keys, caches.
//!
//! Each tensor has storage of its own, which executables address directly and update in place. Replacing a tensor by one
//! of another type gives it new storage; bound executables notice and bind again.
//!
//! [`State::set`] puts any tensor at a path. [`State::bind`] is for tensors that a program has declared, and refuses what
//! does not fit; [`State::adopt`] takes a caller's own storage without a copy; [`State::append_row`] writes one row of a
//! cache. [`State::arrays`] and [`State::restore`] are for checkpoints, [`State::digests`] for comparing runs.

mod adopt;
mod bind;
mod rows;
mod whole;

pub use bind::Binding;

use crate::Error;
use crate::buffer::Buffer;
use bind::Declared;
use onestep_ir::{Array, DType, Graph, nearest};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub(crate) struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub buffer: Buffer,
}

impl Tensor {
    /// Its type, for messages.
    pub fn describe(&self) -> String {
        format!("{}{:?}", self.dtype, self.shape)
    }
}

/// Named tensors on one device, shared by any number of executables.
#[derive(Debug)]
pub struct State {
    id: u64,
    generation: u64,
    tensors: BTreeMap<Arc<str>, Tensor>,
    /// What programs say of the tensors, whether they are there or not.
    declared: BTreeMap<Arc<str>, Declared>,
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

impl State {
    /// An empty state.
    pub fn new() -> State {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        State { id, generation: 0, tensors: BTreeMap::new(), declared: BTreeMap::new() }
    }

    /// A copy with storage of its own. It fails where a device that has changed the state cannot be asked for it.
    pub fn try_clone(&self) -> Result<State, Error> {
        let mut copy = State { declared: self.declared.clone(), ..State::new() };
        for (name, t) in &self.tensors {
            let buffer = Buffer::copy(t.buffer.bytes()?);
            copy.tensors.insert(name.clone(), Tensor { dtype: t.dtype, shape: t.shape.clone(), buffer });
        }
        Ok(copy)
    }

    /// Changes whenever a tensor's storage is replaced: what a bound executable compares.
    pub(crate) fn stamp(&self) -> (u64, u64) {
        (self.id, self.generation)
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All tensors, to be changed where they are.
    pub(crate) fn tensors_mut(&mut self) -> impl Iterator<Item = (&str, &mut Tensor)> {
        self.tensors.iter_mut().map(|(name, t)| (&**name, t))
    }

    /// The paths of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(|k| &**k)
    }

    /// Whether a tensor has this path.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.values().map(|t| t.buffer.len()).sum()
    }

    pub(crate) fn missing(&self, name: &str) -> Error {
        Error::NoState { name: name.to_string(), nearest: nearest(name, self.names()) }
    }

    /// A copy of a tensor.
    pub fn get(&self, name: &str) -> Result<Array, Error> {
        let t = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        Ok(Array::from_bytes(t.dtype, &t.shape, t.buffer.bytes()?)?)
    }

    /// Sets a tensor: in its storage when dtype and shape are the same, else in new storage.
    pub fn set(&mut self, name: &str, value: &Array) {
        if let Some(t) = self.tensors.get_mut(name)
            && t.dtype == value.dtype()
            && t.shape == value.shape()
        {
            t.buffer.write(value.bytes());
            return;
        }
        self.insert(name, value.dtype(), value.shape(), Buffer::of(value));
    }

    /// Puts a tensor with storage of its own at a path.
    fn insert(&mut self, name: &str, dtype: DType, shape: &[usize], buffer: Buffer) {
        self.generation += 1;
        self.tensors.insert(name.into(), Tensor { dtype, shape: shape.to_vec(), buffer });
    }

    /// Sets a scalar that exists, such as `opt/lr`, keeping its dtype. Never compiles anything again.
    pub fn set_scalar(&mut self, name: &str, value: f64) -> Result<(), Error> {
        let t = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        let array = Array::from_f64(t.dtype, &t.shape, &[value])?;
        self.set(name, &array);
        Ok(())
    }

    /// A scalar as a number.
    pub fn scalar(&self, name: &str) -> Result<f64, Error> {
        let array = self.get(name)?;
        match array.to_f64()[..] {
            [x] => Ok(x),
            _ => Err(Error::StateType {
                name: name.to_string(),
                want: "a scalar".to_string(),
                got: format!("{}{:?}", array.dtype(), array.shape()),
            }),
        }
    }

    /// Removes a tensor, and forgets what programs declared of it.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        let missing = self.missing(name);
        self.tensors.remove(name).ok_or(missing)?;
        self.declared.remove(name);
        self.generation += 1;
        Ok(())
    }

    /// Adds what a graph needs and this state lacks, with the first values that the graph declares, drawn from `seed`.
    pub fn initialise(&mut self, graph: &Graph, seed: u64) -> Result<(), Error> {
        for s in &graph.states {
            if !self.contains(&s.name) {
                let ty = graph.ty(s.value);
                let array = s.init.array(ty.dtype, &ty.sizes(), seed, &s.name)?;
                self.set(&s.name, &array);
            }
        }
        Ok(())
    }

    /// Writes every tensor to a safetensors file: beside it first, then renamed, so that a file of this name is whole at
    /// any time.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let arrays = self.arrays()?;
        let entries = arrays.iter().map(|(n, a)| (n.as_str(), a));
        Ok(onestep_io::safetensors::save(path.as_ref(), entries, &BTreeMap::new())?)
    }

    /// Reads a safetensors file. Tensors that exist already are replaced; none is removed.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (arrays, _) = onestep_io::safetensors::load(path.as_ref())?;
        for (name, array) in &arrays {
            self.set(name, array);
        }
        Ok(())
    }
}
