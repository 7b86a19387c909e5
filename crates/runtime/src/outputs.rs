//! What a call gave back.

use crate::Error;
use crate::remote::Remote;
use onestep_ir::{Array, DType};
use std::cell::Cell;
use std::sync::Arc;

/// One output's description.
#[derive(Clone, Debug)]
pub(crate) struct OutputPort {
    pub name: Arc<str>,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub pointer: *const u8,
    /// Its number among the schedule's outputs.
    pub number: usize,
}

/// The outputs of the last call, where the call left them. They borrow the executable and the state, so the next call can
/// only come after; what is to be kept longer is copied with [`Outputs::array`].
pub struct Outputs<'b> {
    pub(crate) ports: &'b [OutputPort],
    /// Counts the bytes that are copied out.
    pub(crate) read: &'b Cell<u64>,
    /// Where outputs are fetched from before they are read.
    pub(crate) remote: Option<&'b Remote>,
}

impl std::fmt::Debug for Outputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outputs").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl<'b> Outputs<'b> {
    fn port(&self, name: &str) -> Result<&'b OutputPort, Error> {
        self.ports.iter().find(|p| &*p.name == name).ok_or_else(|| Error::NoOutput {
            name: name.to_string(),
            have: self.ports.iter().map(|p| &*p.name).collect::<Vec<_>>().join(", "),
        })
    }

    fn bytes(&self, port: &'b OutputPort) -> Result<&'b [u8], Error> {
        let len = port.shape.iter().product::<usize>() * port.dtype.size();
        self.read.set(self.read.get() + len as u64);
        if let Some(remote) = self.remote {
            remote.fetch(port.number)?;
        }
        // SAFETY: the pointer is to an output of the bound executable that `'b` borrows: that many bytes of its arena,
        // input area, constants, or of a tensor of the state that `'b` borrows too, written by the last call, which is
        // over; of a remote device's outputs, the place where the line above has put them.
        Ok(unsafe { std::slice::from_raw_parts(port.pointer, len) })
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &'b str> {
        self.ports.iter().map(|p| &*p.name)
    }

    /// A copy of an output.
    pub fn array(&self, name: &str) -> Result<Array, Error> {
        let p = self.port(name)?;
        Ok(Array::from_bytes(p.dtype, &p.shape, self.bytes(p)?)?)
    }

    /// A scalar output as a number.
    pub fn scalar(&self, name: &str) -> Result<f64, Error> {
        let p = self.port(name)?;
        let b = self.bytes(p)?;
        let bad = || Error::NoOutput {
            name: format!("{name} (as a scalar)"),
            have: format!("{}{:?}", p.dtype, p.shape),
        };
        // Without a copy on the heap: this is what a training loop reads at every step.
        p.dtype.number(b).ok_or_else(bad)
    }

    /// The loss: the scalar output named `loss`.
    pub fn loss(&self) -> Result<f64, Error> {
        self.scalar("loss")
    }
}
