//! The part of a binding that is on a device with memory of its own: the program there, the copies of the state, and outputs
//! that are fetched when somebody reads them.
//!
//! A run is under way when the call returns. Whether an index was out of range is therefore looked at later: when an output is
//! read, or before the next run, of the runs that are over by then.

use crate::Error;
use crate::buffer::Buffer;
use crate::driver::{DeviceBound, DeviceProgram, Driver};
use crate::executable::Executable;
use crate::mirror::Mirror;
use crate::state::{State, Tensor};
use onestep_passes::schedule::BufferId;
use std::cell::{Cell, RefCell};
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

pub(crate) struct Remote {
    executable: Executable,
    driver: Arc<dyn Driver>,
    bound: RefCell<Box<dyn DeviceBound>>,
    states: Vec<Resident>,
    /// Outputs: where they are, and where they are fetched to.
    fetched: Vec<(BufferId, Buffer)>,
    /// What was found of the last run: the number of a bad index.
    found: Cell<Option<i32>>,
}

impl Remote {
    /// Binds to the tensors of a state, which has all that the program needs, of its types.
    pub fn new(
        executable: &Executable,
        driver: &Arc<dyn Driver>,
        program: &dyn DeviceProgram,
        state: &State,
    ) -> Result<Remote, Error> {
        let (graph, schedule) = (executable.graph(), &executable.compiled().schedule);
        let (mut states, mut addresses) = (vec![], vec![]);
        for (port, described) in graph.states.iter().zip(&schedule.states) {
            let Some(t) = state.tensor(&port.name) else { continue };
            let mirror = t.buffer.mirror().clone();
            // What is up to date on the device need not come back first.
            let host = if mirror.is_resident() { t.buffer.stored() } else { t.buffer.bytes()? };
            addresses.push(mirror.to_device(&**driver, host)?);
            let (host, bytes) = (t.buffer.pointer().cast_const(), t.buffer.len());
            states.push(Resident { mirror, host, bytes, updated: described.update.is_some() });
        }
        // SAFETY: each copy is of its tensor's size and lives as long as its mirror, which `states` keeps; a run borrows the
        // state exclusively.
        let bound = unsafe { program.bind(&addresses) }?;
        let fetched =
            schedule.outputs.iter().map(|(_, b)| Ok((*b, Buffer::new(schedule.buffer(*b).bytes())?)));
        let fetched = fetched.collect::<Result<_, Error>>()?;
        Ok(Remote {
            executable: executable.clone(),
            driver: driver.clone(),
            bound: RefCell::new(bound),
            states,
            fetched,
            found: Cell::new(None),
        })
    }

    /// Where output `n` of the schedule is fetched to.
    pub fn pointer(&self, n: usize) -> *const u8 {
        self.fetched[n].1.pointer()
    }

    /// Copies output `n` of the schedule to the host, which waits for the last run.
    pub fn fetch(&self, n: usize) -> Result<(), Error> {
        let (b, buffer) = &self.fetched[n];
        // SAFETY: the memory is the buffer's own, and nobody reads it but after a fetch, by the same thread: outputs borrow a
        // binding, which is not shared.
        let into = unsafe { std::slice::from_raw_parts_mut(buffer.pointer(), buffer.len()) };
        self.bound.borrow().read(*b, into)?;
        self.look(true)
    }

    /// Waits for the last run, and says whether it was good.
    pub fn wait(&self) -> Result<(), Error> {
        self.look(true)
    }

    /// The error of the first run not looked at yet in which an index was out of range. That of the last run stays.
    fn look(&self, wait: bool) -> Result<(), Error> {
        if self.found.get().is_none() {
            self.found.set(self.bound.borrow_mut().look(wait)?);
        }
        let error = self.found.get().and_then(|number| self.executable.inner.bad_index(number));
        error.map_or(Ok(()), Err)
    }

    /// The area of an input.
    pub fn input(&mut self, n: usize) -> Result<&mut [u8], Error> {
        self.bound.get_mut().input(n)
    }

    /// Runs the program, unless a run before it met a bad index that nobody has heard of. The caller holds the state
    /// exclusively.
    pub fn run(&mut self, times: Option<&mut [u64]>) -> Result<(), Error> {
        self.found.set(None);
        self.look(false)?;
        for s in self.states.iter().filter(|s| s.mirror.is_device_behind()) {
            // SAFETY: the tensor is alive and not replaced, because the state's stamp is this binding's.
            let host = unsafe { std::slice::from_raw_parts(s.host, s.bytes) };
            s.mirror.to_device(&*self.driver, host)?;
        }
        // Before the run: if it fails half way, the host's copy is old all the same.
        self.states.iter().filter(|s| s.updated).for_each(|s| s.mirror.device_changed());
        self.bound.get_mut().run(times)
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.bound.borrow().bytes()
    }
}
