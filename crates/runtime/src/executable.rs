//! A graph compiled for one device and one binding of its dimensions, and the same bound to a state.
//!
//! [`Bound`] owns everything that a call needs besides the state: the arena, the areas where inputs are fed, the constants,
//! the scratch of the threads, and the address of every buffer. So [`Bound::run`] is one dispatch and allocates nothing.

use crate::buffer::Buffer;
use crate::feeds::{self, Feeds};
use crate::outputs::{OutputPort, Outputs};
use crate::report::Report;
use crate::state::State;
use crate::{Device, Error};
use onestep_cpu::{CpuProgram, CpuTarget};
use onestep_ir::{Array, DType, Graph, GraphError, Type, nearest};
use onestep_passes::indices;
use onestep_passes::pipeline::{self, Compiled};
use onestep_passes::plan::Place;
use onestep_passes::schedule::{BufferId, BufferKind};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Options of compilation.
pub type Options = pipeline::Options;

/// A compiled program.
#[derive(Clone)]
pub struct Executable {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    /// The graph as it was given: its interface is the program's.
    graph: Graph,
    compiled: Compiled,
    program: CpuProgram,
    compile_time: Duration,
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "executable '{}' on {:?}", self.inner.graph.name, self.inner.device)
    }
}

impl Executable {
    /// Compiles a graph without unbound dimensions.
    pub fn compile(graph: &Graph, device: &Device, options: &Options) -> Result<Executable, Error> {
        let start = Instant::now();
        if let Some(name) = graph.dims.keys().next()
            && !graph.is_bound()
        {
            let message = "has no size; bind it, or compile a Program".to_string();
            return Err(GraphError::Dim { name: name.to_string(), message }.into());
        }
        let folder = std::env::var_os("ONESTEP_DUMP").filter(|f| !f.is_empty());
        let options = Options { dump: options.dump || folder.is_some(), ..*options };
        let compiled = pipeline::compile(graph, &CpuTarget, &options)?;
        if let Some(folder) = folder {
            dump(&compiled, Path::new(&folder));
        }
        let program = CpuProgram::new(&compiled.schedule)?;
        let compile_time = start.elapsed();
        let (device, graph) = (device.clone(), graph.clone());
        Ok(Executable { inner: Arc::new(Inner { device, graph, compiled, program, compile_time }) })
    }

    /// The graph that was compiled.
    pub fn graph(&self) -> &Graph {
        &self.inner.graph
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// What the passes made of it.
    pub fn compiled(&self) -> &Compiled {
        &self.inner.compiled
    }

    /// How long compilation took.
    pub fn compile_time(&self) -> Duration {
        self.inner.compile_time
    }

    /// Kernels, memory, aliases and refusals.
    pub fn report(&self) -> Report {
        let names = self.inner.program.names().map(str::to_string).collect();
        Report::new(&self.inner.compiled, names, self.inner.compile_time)
    }

    /// The state tensors that this program needs and the state lacks, each with its type.
    pub fn missing(&self, state: &State) -> Vec<(String, Type)> {
        let graph = &self.inner.graph;
        let lacking = graph.states.iter().filter(|s| !state.contains(&s.name));
        lacking.map(|s| (s.name.to_string(), graph.ty(s.value).clone())).collect()
    }

    /// Whether arrays of these shapes are what the program takes.
    pub(crate) fn fits(&self, feeds: &(impl Feeds + ?Sized)) -> bool {
        let inputs = &self.inner.graph.inputs;
        let (mut fits, mut n) = (true, 0);
        feeds.each(&mut |name, a| {
            let port = match name {
                None => inputs.get(n),
                Some(name) => inputs.iter().find(|p| &*p.name == name),
            };
            fits &= port.is_some_and(|p| {
                let dims = &self.inner.graph.ty(p.value).shape.0;
                dims.len() == a.shape().len() && dims.iter().zip(a.shape()).all(|(d, n)| d.size() == Some(*n))
            });
            n += 1;
        });
        fits && n == inputs.len()
    }

    /// Binds the program to a state: resolves every address once.
    pub fn bind(&self, state: &State) -> Result<Bound, Error> {
        Bound::new(self.clone(), state)
    }
}

/// Where `ONESTEP_DUMP` names a folder, writes the text after each pass into a folder of the graph's name below it; the
/// graph compiled last stays of those with one name. A folder that cannot be written is reported on standard error and
/// does not stop the program.
fn dump(compiled: &Compiled, folder: &Path) {
    // A graph's name is any text, and must not lead out of the folder.
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    let name: String = compiled.schedule.name.chars().take(64).map(plain).collect();
    let folder = folder.join(name);
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&folder)?;
        for (i, (name, text)) in compiled.dumps.iter().enumerate() {
            std::fs::write(folder.join(format!("{i:02}-{name}.onestep")), text)?;
        }
        Ok(())
    };
    if let Err(e) = write() {
        let text = format!("onestep: cannot write the dump to {}: {e}", folder.display());
        let _ = writeln!(std::io::stderr(), "{text}");
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
    fn new(executable: Executable, state: &State) -> Result<Bound, Error> {
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
                    got: format!("{}{:?}", t.dtype, t.shape),
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
    fn feed(&self, feeds: &(impl Feeds + ?Sized)) -> Result<(), Error> {
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
        let mut n = 0;
        feeds.each(&mut |name, a| {
            if let Some(i) = self.port(name, n) {
                self.inputs[i].area.write(a.bytes());
            }
            n += 1;
        });
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
        if self.stamp != state.stamp() {
            self.resolve(state)?;
            self.rebinds += 1;
        }
        self.feed(&feeds)?;
        let inner = &self.executable.inner;
        let (pool, scratch) = (inner.device.pool(), self.scratch.pointer());
        self.times.fill(0);
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
        }
        if let Some(flag) = self.bad_index {
            // SAFETY: the output is an i32 scalar in a live, aligned buffer.
            let site = unsafe { flag.cast::<i32>().read() };
            if let Some(site) = usize::try_from(site - 1).ok().and_then(|i| inner.compiled.sites.get(i)) {
                let (op, loc) = (site.op.clone(), site.loc.clone());
                return Err(Error::BadIndex { op, loc, bound: site.bound.saturating_sub(1) });
            }
        }
        Ok(Outputs { ports: &self.outputs })
    }
}
