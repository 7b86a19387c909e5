//! An executable bound to a state.
//!
//! [`Bound`] owns everything that a call needs besides the state: the arena, the areas where inputs are fed, the constants,
//! the scratch of the threads, and the address of every buffer. So [`Bound::run`] is one dispatch and allocates nothing.

use crate::Error;
use crate::backend::Backend;
use crate::buffer::Buffer;
use crate::executable::Executable;
use crate::feeds::{self, Feeds};
use crate::outputs::{OutputPort, Outputs};
use crate::remote::{Remote, SharedTensor};
use crate::state::State;
use onestep_ir::{Array, DType, GraphError, Type, nearest};
use onestep_passes::indices;
use onestep_passes::plan::Place;
use onestep_passes::schedule::{BufferId, BufferKind};
use std::cell::Cell;
use std::sync::Arc;

/// Bytes that a binding has copied since it was made. State is resident, so it appears only where the plan could not
/// update it in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Completed runs.
    pub runs: u64,
    /// Bytes of inputs, copied in.
    pub fed: u64,
    /// Bytes of new state that was computed elsewhere and copied to its place.
    pub committed: u64,
    /// Bytes of outputs that the caller asked for and got.
    pub read: u64,
}

impl std::ops::Add for Traffic {
    type Output = Traffic;
    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            runs: self.runs + other.runs,
            fed: self.fed + other.fed,
            committed: self.committed + other.committed,
            read: self.read + other.read,
        }
    }
}

/// An input of the program.
#[derive(Debug)]
struct InputPort {
    name: Arc<str>,
    dtype: DType,
    shape: Vec<usize>,
    area: Buffer,
}

/// An executable bound to a state.
pub struct Bound {
    executable: Executable,
    /// The state's identity and generation that the addresses are of.
    stamp: (u64, u64),
    inputs: Vec<InputPort>,
    outputs: Vec<OutputPort>,
    /// By [`BufferId`].
    addresses: Vec<*mut u8>,
    /// Source, destination, bytes.
    commits: Vec<(*const u8, *mut u8, usize)>,
    arena: Buffer,
    _constants: Vec<Buffer>,
    scratch: Buffer,
    rebinds: usize,
    times: Vec<u64>,
    /// The part on a device with memory of its own; then what is above on the host is empty.
    remote: Option<Box<Remote>>,
    /// The state's tensors, where a program on such a device may have changed its copies of them.
    shared: Vec<SharedTensor>,
    traffic: Traffic,
    /// [`Traffic::read`]: outputs count it.
    read: Cell<u64>,
    /// Whether the last run went to its end.
    pub(crate) complete: bool,
}

// SAFETY: the raw pointers are into buffers that `Bound` owns, and into a state that every use borrows anew and compares by
// its stamp; nothing is tied to a thread.
unsafe impl Send for Bound {}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bound {:?}", self.executable)
    }
}

impl Bound {
    pub(crate) fn new(executable: Executable, state: &State) -> Result<Bound, Error> {
        let inner = executable.inner.clone();
        let schedule = &inner.compiled.schedule;
        let plan = &inner.compiled.plan;
        let on_host = match &inner.program {
            Backend::Cpu(_) => true,
            Backend::Device(_) => false,
            Backend::Offline(_) => return Err(Error::Offline { device: inner.device.name() }),
        };
        executable.afford(state)?;
        let inputs: Vec<InputPort> = schedule
            .inputs
            .iter()
            .map(|(name, b)| {
                let d = schedule.buffer(*b);
                let area = Buffer::new(if on_host { d.bytes() } else { 0 })?;
                Ok(InputPort { name: name.clone(), dtype: d.dtype, shape: d.shape.clone(), area })
            })
            .collect::<Result<_, Error>>()?;
        let mut constants = vec![];
        let mut addresses = vec![std::ptr::null_mut(); schedule.buffers.len()];
        let arena = Buffer::new(if on_host { plan.arena_bytes } else { 0 })?;
        for (i, b) in schedule.buffers.iter().enumerate().filter(|_| on_host) {
            match (&b.kind, plan.places[i]) {
                (BufferKind::Constant(array), _) => {
                    let buffer = Buffer::of(array);
                    addresses[i] = buffer.pointer();
                    constants.push(buffer);
                }
                (_, Place::Input(n)) => addresses[i] = inputs[n].area.pointer(),
                (_, Place::Arena(offset)) => {
                    // SAFETY: the plan's check keeps every offset and its buffer inside the arena.
                    addresses[i] = unsafe { arena.pointer().add(offset) };
                }
                _ => {}
            }
        }
        let scratch = Buffer::new(if on_host { inner.memory.scratch } else { 0 })?;
        let kernels = schedule.kernels.len();
        let mut bound = Bound {
            executable,
            stamp: (0, 0),
            inputs,
            outputs: vec![],
            addresses,
            commits: vec![],
            arena,
            _constants: constants,
            scratch,
            rebinds: 0,
            times: vec![0; kernels],
            remote: None,
            shared: vec![],
            traffic: Traffic::default(),
            read: Cell::new(0),
            complete: false,
        };
        bound.resolve(state)?;
        Ok(bound)
    }

    /// Takes the addresses of the state's tensors, after checking that all are there and of the right type.
    fn resolve(&mut self, state: &State) -> Result<(), Error> {
        let inner = self.executable.inner.clone();
        let graph = &inner.graph;
        let lacking: Vec<String> =
            self.executable.missing(state).into_iter().map(|(name, ty)| format!("'{name}' ({ty})")).collect();
        if !lacking.is_empty() {
            return Err(Error::MissingState { names: lacking });
        }
        let mut at = vec![];
        for port in &graph.states {
            let want = graph.ty(port.value);
            let Some(t) = state.tensor(&port.name) else { continue };
            if t.dtype != want.dtype || want.shape.sizes().as_deref() != Some(&t.shape) {
                return Err(Error::StateType {
                    name: port.name.to_string(),
                    want: want.to_string(),
                    got: t.describe(),
                });
            }
            at.push(t.buffer.pointer());
        }
        let (schedule, plan) = (&inner.compiled.schedule, &inner.compiled.plan);
        self.shared =
            graph.states.iter().filter_map(|s| state.tensor(&s.name)).map(SharedTensor::of).collect();
        if let (Backend::Device(program), Some(driver)) = (&inner.program, inner.device.driver()) {
            let remote = Remote::new(&self.executable, driver, &**program, state)?;
            self.find_outputs(&|n, _| remote.pointer(n));
            self.remote = Some(Box::new(remote));
            self.stamp = state.stamp();
            return Ok(());
        }
        for (i, place) in plan.places.iter().enumerate() {
            if let Place::State(n) = place {
                self.addresses[i] = at[*n];
            }
        }
        let address = |b: &BufferId| self.addresses[b.index()];
        self.commits = plan
            .commits
            .iter()
            .map(|(b, s)| (address(b) as *const u8, at[*s], schedule.buffer(*b).bytes()))
            .collect();
        let addresses = std::mem::take(&mut self.addresses);
        self.find_outputs(&|_, b| addresses[b.index()].cast_const());
        self.addresses = addresses;
        self.stamp = state.stamp();
        Ok(())
    }

    /// Where each output can be read, given the place of output `n` of the schedule, which is a buffer.
    fn find_outputs(&mut self, place: &dyn Fn(usize, BufferId) -> *const u8) {
        let inner = self.executable.inner.clone();
        let graph = &inner.graph;
        self.outputs = vec![];
        for (number, (name, b)) in inner.compiled.schedule.outputs.iter().enumerate() {
            if inner.flag().is_some() && &**name == indices::OUTPUT {
                continue;
            }
            let pointer = place(number, *b);
            let Some(port) = graph.output(name) else { continue };
            let ty = graph.ty(port.value);
            self.outputs.push(OutputPort {
                name: name.clone(),
                dtype: ty.dtype,
                shape: ty.sizes(),
                pointer,
                number,
            });
        }
    }

    /// The executable.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// How often a replaced state tensor made it bind again.
    pub fn rebinds(&self) -> usize {
        self.rebinds
    }

    /// What it has copied so far.
    pub fn traffic(&self) -> Traffic {
        Traffic { read: self.read.get(), ..self.traffic }
    }

    /// Whether the last run completed, and was on this state as it still is. Waits for it.
    pub(crate) fn has_run_on(&self, state: &State) -> Result<bool, Error> {
        self.remote.as_ref().map_or(Ok(()), |remote| remote.wait())?;
        Ok(self.complete && self.stamp == state.stamp())
    }

    /// Bytes that this binding holds on its device: arena, inputs, constants, scratch and workspace.
    pub fn bytes(&self) -> usize {
        if let Some(remote) = &self.remote {
            return remote.bytes();
        }
        let inputs: usize = self.inputs.iter().map(|i| i.area.len()).sum();
        let constants: usize = self._constants.iter().map(Buffer::len).sum();
        self.arena.len() + inputs + constants + self.scratch.len()
    }

    /// The input that a feed is for: by its name, or by its place.
    fn port(&self, name: Option<&str>, place: usize) -> Option<usize> {
        match name {
            None => Some(place).filter(|n| *n < self.inputs.len()),
            Some(name) => self.inputs.iter().position(|p| &*p.name == name),
        }
    }

    /// Copies the inputs into their areas, after checking all of them.
    fn feed(&mut self, feeds: &(impl Feeds + ?Sized)) -> Result<(), Error> {
        let inner = &self.executable.inner;
        let mut fault: Option<Error> = None;
        let (mut given, mut named) = (0, false);
        feeds.each(&mut |name, a| {
            named |= name.is_some();
            match (self.port(name, given), name) {
                (Some(i), _) => fault = fault.take().or_else(|| self.check(i, a).err()),
                (None, Some(name)) => {
                    let nearest = nearest(name, self.inputs.iter().map(|p| &*p.name));
                    fault.get_or_insert(Error::NoInput { name: name.to_string(), nearest });
                }
                (None, None) => {}
            }
            given += 1;
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        if named && let Some(missing) = feeds::missing(&inner.graph, feeds) {
            return Err(missing);
        }
        if given != self.inputs.len() {
            let names = self.inputs.iter().map(|p| &*p.name).collect::<Vec<_>>().join(", ");
            return Err(Error::InputCount { want: self.inputs.len(), got: given, names });
        }
        let (mut n, mut fed, mut fault) = (0, 0, None);
        feeds.each(&mut |name, a| {
            if let Some(i) = self.port(name, n) {
                fault = fault.take().or_else(|| self.put(i, a).err());
                fed += a.bytes().len() as u64;
            }
            n += 1;
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        self.traffic.fed += fed;
        Ok(())
    }

    /// Copies an input into its area.
    fn put(&mut self, i: usize, a: &Array) -> Result<(), Error> {
        if let Some(remote) = &mut self.remote {
            remote.input(i)?.copy_from_slice(a.bytes());
            return Ok(());
        }
        self.inputs[i].area.write(a.bytes());
        Ok(())
    }

    fn check(&self, i: usize, a: &Array) -> Result<(), Error> {
        let port = &self.inputs[i];
        if port.dtype == a.dtype() && port.shape == a.shape() {
            return Ok(());
        }
        let want = Type::new(port.dtype, onestep_ir::Shape::fixed(&port.shape));
        Err(GraphError::Feed {
            name: port.name.to_string(),
            want: Box::new(want),
            got_dtype: a.dtype(),
            got_shape: a.shape().to_vec(),
        }
        .into())
    }

    /// Runs the whole program once: inputs in, state updated in place, outputs where they can be read. One dispatch; nothing
    /// is allocated. If an input or a state does not fit, nothing runs.
    ///
    /// On a GPU the run is under way when the call returns, and reading an output waits for it. Calls may follow each other
    /// without that; an index that was out of range is then the error of the first read behind it, or of a later call, which
    /// runs nothing. The run itself has changed no guarded state.
    ///
    /// The outputs borrow the state too, since one may be a state tensor itself:
    ///
    /// ```compile_fail,E0505
    /// # fn f(bound: &mut onestep_runtime::Bound, mut state: onestep_runtime::State) -> Result<(), onestep_runtime::Error> {
    /// let out = bound.run(&mut state, ())?;
    /// drop(state);
    /// out.loss()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<'a>(&'a mut self, state: &'a mut State, feeds: impl Feeds) -> Result<Outputs<'a>, Error> {
        self.run_with(state, feeds, false)
    }

    /// The same, and keeps the time of each kernel for [`Bound::kernel_times`].
    pub fn run_timed<'a>(
        &'a mut self,
        state: &'a mut State,
        feeds: impl Feeds,
    ) -> Result<Outputs<'a>, Error> {
        self.run_with(state, feeds, true)
    }

    /// Nanoseconds of each kernel in the last timed run, by name.
    pub fn kernel_times(&self) -> impl Iterator<Item = (&str, u64)> {
        self.executable.inner.program.names().zip(self.times.iter().copied())
    }

    fn run_with<'a>(
        &'a mut self,
        state: &'a mut State,
        feeds: impl Feeds,
        timed: bool,
    ) -> Result<Outputs<'a>, Error> {
        self.complete = false;
        if self.stamp != state.stamp() {
            if let Some(remote) = self.remote.take() {
                // The old one's memory is free before the new one asks for as much; until that is there, nothing is bound.
                self.stamp = (0, 0);
                remote.wait()?;
                drop(remote);
                self.executable.afford(state)?;
            }
            self.resolve(state)?;
            self.rebinds += 1;
        }
        self.feed(&feeds)?;
        if timed {
            self.times.fill(0);
        }
        self.launch(timed)?;
        let inner = &self.executable.inner;
        self.traffic.runs += 1;
        if let (None, Some(flag)) = (&self.remote, inner.flag()) {
            // SAFETY: it is an i32 scalar in a live, aligned buffer.
            let number = unsafe { self.addresses[flag.index()].cast::<i32>().read() };
            inner.bad_index(number).map_or(Ok(()), Err)?;
        }
        self.complete = true;
        Ok(Outputs { ports: &self.outputs, read: &self.read, remote: self.remote.as_deref() })
    }

    /// Runs every kernel.
    fn launch(&mut self, timed: bool) -> Result<(), Error> {
        let inner = &self.executable.inner;
        if let Some(remote) = &mut self.remote {
            remote.run(timed.then_some(&mut self.times[..]))?;
            self.traffic.committed += inner.committed_bytes();
            return Ok(());
        }
        self.shared.iter().try_for_each(SharedTensor::take)?;
        let (Some(program), Some(pool)) = (inner.program.cpu(), inner.device.pool()) else { return Ok(()) };
        let scratch = self.scratch.pointer();
        // SAFETY: every address is of a live buffer of the size that the schedule says: arena, inputs and constants are owned
        // by `self`; state tensors are alive and of the checked types, because the stamp is the state's own, and the
        // state is borrowed exclusively. The plan's check proved that no kernel overwrites what it still reads. The scratch
        // has the bytes that the program asked for with this pool's threads.
        unsafe {
            match timed {
                false => program.run(pool, &self.addresses, scratch),
                true => program.run_timed(pool, &self.addresses, scratch, &mut self.times),
            }
        }
        for &(from, to, bytes) in &self.commits {
            // SAFETY: both are live buffers of that many bytes, by the same argument; they are different storage.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            self.traffic.committed += bytes as u64;
        }
        Ok(())
    }
}
