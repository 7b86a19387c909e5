//! The part of a binding that is on a GPU: the program's memory there, the copies of the state, and outputs that are fetched
//! when somebody reads them.

use crate::Error;
use crate::buffer::Buffer;
use crate::mirror::Mirror;
use crate::state::{State, Tensor};
use onestep_cuda::device::{CudaBound, CudaProgram};
use onestep_ir::Graph;
use onestep_passes::schedule::{BufferId, Schedule};
use std::sync::Arc;

/// A tensor of a state that a program on the CPU works on.
pub(crate) struct SharedTensor {
    mirror: Arc<Mirror>,
    host: *mut u8,
    bytes: usize,
}

impl SharedTensor {
    pub fn of(t: &Tensor) -> SharedTensor {
        SharedTensor { mirror: t.buffer.mirror().clone(), host: t.buffer.pointer(), bytes: t.buffer.len() }
    }

    /// Brings the host up to date before a run on the CPU, which may change it.
    pub fn take(&self) -> Result<(), Error> {
        // SAFETY: the tensor is alive and not replaced, because the state's stamp is the binding's, and the run holds the
        // state exclusively.
        unsafe { self.mirror.to_host(self.host, self.bytes) }?;
        self.mirror.host_changed();
        Ok(())
    }
}

/// A state tensor.
struct Resident {
    mirror: Arc<Mirror>,
    /// The host's bytes.
    host: *const u8,
    bytes: usize,
    /// Whether the program changes it.
    updated: bool,
}

pub(crate) struct Gpu {
    bound: CudaBound,
    program: Arc<CudaProgram>,
    states: Vec<Resident>,
    /// Outputs: where they are, and where they are fetched to.
    fetched: Vec<(BufferId, Buffer)>,
}

impl Gpu {
    /// Binds to the tensors of a state, which has all that the graph needs, of its types.
    pub fn new(
        program: &Arc<CudaProgram>,
        graph: &Graph,
        schedule: &Schedule,
        state: &State,
    ) -> Result<Gpu, Error> {
        let (mut states, mut addresses) = (vec![], vec![]);
        for (port, described) in graph.states.iter().zip(&schedule.states) {
            let Some(t) = state.tensor(&port.name) else { continue };
            let mirror = t.buffer.mirror().clone();
            addresses.push(mirror.to_device(program.device(), t.buffer.bytes())?);
            let (host, bytes) = (t.buffer.pointer().cast_const(), t.buffer.len());
            states.push(Resident { mirror, host, bytes, updated: described.update.is_some() });
        }
        // SAFETY: each copy is of its tensor's size and lives as long as its mirror, which `states` keeps; a run borrows the
        // state exclusively.
        let bound = unsafe { CudaBound::new(program, &addresses, true) }?;
        let fetched =
            schedule.outputs.iter().map(|(_, b)| Ok((*b, Buffer::new(schedule.buffer(*b).bytes())?)));
        let fetched = fetched.collect::<Result<_, Error>>()?;
        Ok(Gpu { bound, program: program.clone(), states, fetched })
    }

    /// Where output `n` of the schedule is fetched to.
    pub fn pointer(&self, n: usize) -> *const u8 {
        self.fetched[n].1.pointer()
    }

    /// Copies output `n` of the schedule to the host.
    pub fn fetch(&self, n: usize) -> Result<(), Error> {
        let (b, buffer) = &self.fetched[n];
        // SAFETY: the memory is the buffer's own, and nobody reads it but after a fetch, by the same thread: outputs borrow a
        // binding, which is not shared.
        let into = unsafe { std::slice::from_raw_parts_mut(buffer.pointer(), buffer.len()) };
        Ok(self.bound.read_into(*b, into)?)
    }

    /// The area of an input.
    pub fn input(&mut self, n: usize) -> Result<&mut [u8], Error> {
        Ok(self.bound.input(n)?)
    }

    /// Runs the program. The caller holds the state exclusively.
    pub fn run(&mut self, times: Option<&mut [u64]>) -> Result<(), Error> {
        for s in self.states.iter().filter(|s| s.mirror.is_device_behind()) {
            // SAFETY: the tensor is alive and not replaced, because the state's stamp is this binding's.
            let host = unsafe { std::slice::from_raw_parts(s.host, s.bytes) };
            s.mirror.to_device(self.program.device(), host)?;
        }
        // Before the run: if it fails half way, the host's copy is old all the same.
        self.states.iter().filter(|s| s.updated).for_each(|s| s.mirror.device_changed());
        match times {
            None => self.bound.run()?,
            Some(times) => self.bound.run_timed(times)?,
        }
        Ok(())
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.bound.bytes()
    }
}
