//! An executable bound to a state.
//!
//! [`Bound`] owns everything that a call needs besides the state: the arena, the areas where inputs are fed, the constants,
//! the scratch of the threads, and the address of every buffer. So [`Bound::run`] is one dispatch and allocates nothing.

use crate::Error;
use crate::buffer::Buffer;
use crate::executable::Executable;
use crate::feeds::{self, Feeds};
use crate::outputs::{OutputPort, Outputs};
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
    bad_index: Option<*const u8>,
    /// By [`BufferId`].
    addresses: Vec<*mut u8>,
    /// Source, destination, bytes.
    commits: Vec<(*const u8, *mut u8, usize)>,
    arena: Buffer,
    _constants: Vec<Buffer>,
    scratch: Buffer,
    rebinds: usize,
    times: Vec<u64>,
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
        let inputs: Vec<InputPort> = schedule
            .inputs
            .iter()
            .map(|(name, b)| {
                let d = schedule.buffer(*b);
                let area = Buffer::new(d.bytes())?;
                Ok(InputPort { name: name.clone(), dtype: d.dtype, shape: d.shape.clone(), area })
            })
            .collect::<Result<_, Error>>()?;
        let mut constants = vec![];
        let mut addresses = vec![std::ptr::null_mut(); schedule.buffers.len()];
        let arena = Buffer::new(plan.arena_bytes)?;
        for (i, b) in schedule.buffers.iter().enumerate() {
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
        let scratch = Buffer::new(inner.program.scratch_bytes(inner.device.threads()))?;
        let kernels = schedule.kernels.len();
        let mut bound = Bound {
            executable,
            stamp: (0, 0),
            inputs,
            outputs: vec![],
            bad_index: None,
            addresses,
            commits: vec![],
            arena,
            _constants: constants,
            scratch,
            rebinds: 0,
            times: vec![0; kernels],
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
        self.outputs = vec![];
        self.bad_index = None;
        for (name, b) in &schedule.outputs {
            let pointer = address(b) as *const u8;
            if &**name == indices::OUTPUT && !inner.compiled.sites.is_empty() {
                self.bad_index = Some(pointer);
                continue;
            }
            let Some(port) = graph.output(name) else { continue };
            let ty = graph.ty(port.value);
            self.outputs.push(OutputPort { name: name.clone(), dtype: ty.dtype, shape: ty.sizes(), pointer });
        }
        self.stamp = state.stamp();
        Ok(())
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

    /// Whether the last run completed, and was on this state as it still is.
    pub(crate) fn has_run_on(&self, state: &State) -> bool {
        self.complete && self.stamp == state.stamp()
    }

    /// Bytes that this binding owns: arena, inputs, constants and scratch.
    pub fn bytes(&self) -> usize {
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
        let (mut n, mut fed) = (0, 0);
        feeds.each(&mut |name, a| {
            if let Some(i) = self.port(name, n) {
                self.inputs[i].area.write(a.bytes());
                fed += a.bytes().len() as u64;
            }
            n += 1;
        });
        self.traffic.fed += fed;
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
            self.resolve(state)?;
            self.rebinds += 1;
        }
        self.feed(&feeds)?;
        let inner = &self.executable.inner;
        let (pool, scratch) = (inner.device.pool(), self.scratch.pointer());
        if timed {
            self.times.fill(0);
        }
        // SAFETY: every address is of a live buffer of the size that the schedule says: arena, inputs and constants are owned
        // by `self`; state tensors are alive and of the checked types, because the stamp is the state's own, and the
        // state is borrowed exclusively. The plan's check proved that no kernel overwrites what it still reads. The scratch
        // has the bytes that the program asked for with this pool's threads.
        unsafe {
            match timed {
                false => inner.program.run(pool, &self.addresses, scratch),
                true => inner.program.run_timed(pool, &self.addresses, scratch, &mut self.times),
            }
        }
        for &(from, to, bytes) in &self.commits {
            // SAFETY: both are live buffers of that many bytes, by the same argument; they are different storage.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            self.traffic.committed += bytes as u64;
        }
        self.traffic.runs += 1;
        if let Some(flag) = self.bad_index {
            // SAFETY: the output is an i32 scalar in a live, aligned buffer.
            let site = unsafe { flag.cast::<i32>().read() };
            if let Some(site) = usize::try_from(site - 1).ok().and_then(|i| inner.compiled.sites.get(i)) {
                let (op, loc) = (site.op.clone(), site.loc.clone());
                return Err(Error::BadIndex { op, loc, bound: site.bound.saturating_sub(1) });
            }
        }
        self.complete = true;
        Ok(Outputs { ports: &self.outputs, read: &self.read })
    }
}
