//! Caches: tensors whose rows (places of the first axis) are written one by one from the host.
//!
//! The number of rows in use is state too, `i32` at `<name>/length`, so that a program may read and advance it.

use super::State;
use crate::Error;
use onestep_ir::Array;

impl State {
    /// Writes a row of a cache behind the last one, counts it in `<name>/length` (which starts at 0 if it is not there),
    /// and gives its place. A full cache is an error. Only the row's bytes are copied, and nothing binds again but, at the
    /// first row of a cache without a counter, for the counter.
    pub fn append_row(&mut self, name: &str, row: &Array) -> Result<usize, Error> {
        let counter = format!("{name}/length");
        let length = match self.tensor(&counter) {
            None => 0,
            Some(_) => self.scalar(&counter)? as i64,
        };
        // A negative length is nonsense that a program wrote: there is no such row.
        let at = usize::try_from(length).unwrap_or(usize::MAX);
        self.write_row(name, at, row)?;
        if self.tensor(&counter).is_none() {
            self.set(&counter, &Array::scalar(0i32));
        }
        self.set_scalar(&counter, (at + 1) as f64)?;
        Ok(at)
    }

    /// Writes one row of a tensor: dtype and shape are the tensor's without its first axis.
    pub fn write_row(&mut self, name: &str, at: usize, row: &Array) -> Result<(), Error> {
        let t = self.tensor(name).ok_or_else(|| self.missing(name))?;
        let Some((&rows, rest)) = t.shape.split_first() else {
            let want = "a tensor with rows".to_string();
            return Err(Error::StateType { name: name.to_string(), want, got: t.describe() });
        };
        if t.dtype != row.dtype() || rest != row.shape() {
            let (name, want) = (format!("{name} (a row)"), format!("{}{rest:?}", t.dtype));
            return Err(Error::StateType { name, want, got: format!("{}{:?}", row.dtype(), row.shape()) });
        }
        if at >= rows {
            return Err(Error::NoRow { name: name.to_string(), at, rows });
        }
        t.buffer.write_at(at * row.bytes().len(), row.bytes())
    }
}
