//! A caller's own storage as state, and state as slices: no copy either way.
//!
//! The vector moves into the state, so that nobody else can reach it while programs write it, and moves out again. Its
//! address is the same before, meanwhile and after. A device whose memory the host cannot see refuses both.

use super::{State, Tensor};
use crate::Error;
use crate::buffer::Buffer;
use onestep_ir::{ArrayError, Element};

impl State {
    /// Takes a vector as the tensor at a path, where it is: programs read and update the caller's own storage. What is
    /// refused by [`State::bind`] is refused here; programs bind again.
    ///
    /// ```
    /// # use onestep_runtime::State;
    /// let mut state = State::new();
    /// let weights = vec![1f32, 2.0, 3.0];
    /// let address = weights.as_ptr();
    /// state.adopt("w", &[3], weights)?;
    /// assert_eq!(state.as_slice::<f32>("w")?.as_ptr(), address);
    /// assert_eq!(state.release::<f32>("w")?.as_ptr(), address);
    /// # Ok::<(), onestep_runtime::Error>(())
    /// ```
    pub fn adopt<T: Element>(&mut self, name: &str, shape: &[usize], storage: Vec<T>) -> Result<(), Error> {
        let want = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let want = want.ok_or_else(|| ArrayError::TooLarge { shape: shape.to_vec() })?;
        if want != storage.len() {
            return Err(ArrayError::Length { shape: shape.to_vec(), want, got: storage.len() }.into());
        }
        self.check(name, T::DTYPE, shape)?;
        self.insert(name, T::DTYPE, shape, Buffer::given(storage));
        Ok(())
    }

    /// Gives an adopted vector back, with what programs have made of it, and removes the tensor.
    pub fn release<T: Element>(&mut self, name: &str) -> Result<Vec<T>, Error> {
        let refused = Error::NotAdopted { name: name.to_string() };
        let buffer = &self.typed::<T>(name)?.buffer;
        if !buffer.is_given::<T>() {
            return Err(refused);
        }
        // Before it is taken out: if it cannot be brought up to date, it stays.
        buffer.settle()?;
        self.generation += 1;
        self.tensors.remove(name).and_then(|t| t.buffer.give_back()).ok_or(refused)
    }

    /// The elements of a tensor, without a copy.
    pub fn as_slice<T: Element>(&self, name: &str) -> Result<&[T], Error> {
        self.typed::<T>(name)?.buffer.elements()
    }

    /// The elements of a tensor, to be changed where they are.
    pub fn as_mut_slice<T: Element>(&mut self, name: &str) -> Result<&mut [T], Error> {
        self.typed::<T>(name)?;
        let missing = self.missing(name);
        self.tensors.get_mut(name).ok_or(missing)?.buffer.elements_mut()
    }

    /// The tensor, if `T` is the storage of its dtype.
    fn typed<T: Element>(&self, name: &str) -> Result<&Tensor, Error> {
        let t = self.tensor(name).ok_or_else(|| self.missing(name))?;
        if t.dtype == T::DTYPE {
            return Ok(t);
        }
        let want = format!("elements of {}", T::DTYPE);
        Err(Error::StateType { name: name.to_string(), want, got: t.describe() })
    }
}
