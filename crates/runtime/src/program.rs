//! A graph whose dimensions may be variables: one executable for each binding met, in a bounded cache that says why it
//! compiled.

use crate::executable::{Bound, Executable, Options};
use crate::feeds::{self, Feeds};
use crate::outputs::Outputs;
use crate::{Device, Error, State};
use onestep_ir::bind;
use onestep_ir::{Graph, GraphError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is done to a graph once its dimensions are bound: differentiation, an optimizer; or nothing.
pub type Transform = dyn Fn(&Graph) -> Result<Graph, Error> + Send + Sync;

/// Sizes of the dimension variables.
pub type Binding = BTreeMap<Arc<str>, usize>;

/// One compilation.
#[derive(Clone, Debug)]
pub struct CompileEvent {
    /// For which sizes.
    pub binding: Binding,
    /// Why.
    pub reason: &'static str,
    /// How long it took.
    pub time: Duration,
}

struct Entry {
    binding: Binding,
    executable: Executable,
    /// Made at the first call, when the state is known.
    bound: Option<Bound>,
    used: u64,
}

/// A program: compiled once for each binding of its dimension variables.
pub struct Program {
    base: Graph,
    transform: Arc<Transform>,
    device: Device,
    options: Options,
    capacity: usize,
    entries: Vec<Entry>,
    evicted: Vec<Binding>,
    clock: u64,
    events: Vec<CompileEvent>,
    /// The graph at the largest sizes: the interface, and the first values of state.
    interface: Graph,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "program '{}' ({} executables)", self.base.name, self.entries.len())
    }
}

impl Program {
    /// A program of a graph as it is.
    pub fn new(graph: &Graph, device: &Device, options: &Options) -> Result<Program, Error> {
        Program::with(graph, Arc::new(|g: &Graph| Ok(g.clone())), device, options)
    }

    /// A program of what `transform` makes of a graph once its dimensions are bound. Without dimension variables it is
    /// compiled now; with them, at the first call that needs it. Either way the transformation is tried now.
    pub fn with(
        graph: &Graph,
        transform: Arc<Transform>,
        device: &Device,
        options: &Options,
    ) -> Result<Program, Error> {
        graph.verify()?;
        let largest: Binding = graph.dims.clone();
        let interface = transform(&bind(graph, &largest)?)?;
        let mut program = Program {
            base: graph.clone(),
            transform,
            device: device.clone(),
            options: *options,
            capacity: 8,
            entries: vec![],
            evicted: vec![],
            clock: 0,
            events: vec![],
            interface,
        };
        if graph.dims.is_empty() {
            program.entry(Binding::new())?;
        }
        Ok(program)
    }

    /// How many executables are kept (8 unless set); the one used longest ago goes first.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.max(1);
        while self.entries.len() > self.capacity {
            self.evict();
        }
    }

    /// The graph at the largest sizes that its dimensions may have: its inputs, outputs and states are the program's.
    pub fn interface(&self) -> &Graph {
        &self.interface
    }

    /// Every compilation so far.
    pub fn compilations(&self) -> &[CompileEvent] {
        &self.events
    }

    /// How often a call found a replaced state tensor and took addresses anew.
    pub fn rebinds(&self) -> usize {
        self.entries.iter().filter_map(|e| e.bound.as_ref()).map(Bound::rebinds).sum()
    }

    /// A state with every tensor that the program needs, at its first value, drawn from `seed`.
    pub fn init(&self, seed: u64) -> Result<State, Error> {
        let mut state = State::new();
        state.initialise(&self.interface, seed)?;
        Ok(state)
    }

    /// The state tensors that the program needs and the state lacks.
    pub fn missing(&self, state: &State) -> Vec<String> {
        let lacking = self.interface.states.iter().filter(|s| !state.contains(&s.name));
        lacking.map(|s| s.name.to_string()).collect()
    }

    /// The executable used last, if one was made.
    pub fn executable(&self) -> Option<&Executable> {
        self.entries.iter().max_by_key(|e| e.used).map(|e| &e.executable)
    }

    /// The executable for the given inputs, made if need be.
    pub fn executable_for(&mut self, feeds: impl Feeds) -> Result<&Executable, Error> {
        let at = self.find(&feeds)?;
        Ok(&self.entries[at].executable)
    }

    fn evict(&mut self) {
        if let Some(oldest) = (0..self.entries.len()).min_by_key(|&i| self.entries[i].used) {
            let gone = self.entries.swap_remove(oldest);
            if !self.evicted.contains(&gone.binding) {
                self.evicted.push(gone.binding);
            }
        }
    }

    /// The entry that fits the inputs' shapes: the common case compares and allocates nothing.
    fn find(&mut self, feeds: &(impl Feeds + ?Sized)) -> Result<usize, Error> {
        if self.base.dims.is_empty() && !self.entries.is_empty() {
            return Ok(0);
        }
        if let Some(at) = (0..self.entries.len()).find(|&i| self.entries[i].executable.fits(feeds)) {
            return Ok(at);
        }
        let mut shapes: Vec<Option<Vec<usize>>> = vec![None; self.base.inputs.len()];
        let (mut n, mut named, mut unknown, mut dtype) = (0, false, None, None);
        feeds.each(&mut |name, a| {
            let at = match name {
                None => Some(n),
                Some(name) => self.base.inputs.iter().position(|p| &*p.name == name),
            };
            match at.and_then(|i| Some((i, shapes.get_mut(i)?))) {
                Some((i, place)) => {
                    *place = Some(a.shape().to_vec());
                    let (name, want) = (&self.base.inputs[i].name, self.base.ty(self.base.inputs[i].value));
                    if want.dtype != a.dtype() {
                        dtype = Some(GraphError::Feed {
                            name: name.to_string(),
                            want: Box::new(want.clone()),
                            got_dtype: a.dtype(),
                            got_shape: a.shape().to_vec(),
                        });
                    }
                }
                None => unknown = name.map(str::to_string),
            }
            named |= name.is_some();
            n += 1;
        });
        let names = || self.base.inputs.iter().map(|p| &*p.name);
        if let Some(name) = unknown {
            let nearest = onestep_ir::nearest(&name, names());
            return Err(Error::NoInput { name, nearest });
        }
        // Before anything is compiled for these sizes.
        if let Some(dtype) = dtype {
            return Err(dtype.into());
        }
        if named && let Some(missing) = feeds::missing(&self.base, feeds) {
            return Err(missing);
        }
        if n != shapes.len() || shapes.iter().any(Option::is_none) {
            let names = names().collect::<Vec<_>>().join(", ");
            return Err(Error::InputCount { want: shapes.len(), got: n, names });
        }
        let shapes: Vec<Vec<usize>> = shapes.into_iter().flatten().collect();
        let binding = self.base.binding_from_inputs(&shapes)?;
        self.entry(binding)
    }

    fn entry(&mut self, binding: Binding) -> Result<usize, Error> {
        if let Some(at) = self.entries.iter().position(|e| e.binding == binding) {
            return Ok(at);
        }
        let reason = if self.evicted.contains(&binding) {
            "these sizes were met before, but their executable had to make room"
        } else if self.entries.is_empty() && self.evicted.is_empty() {
            "first compilation"
        } else {
            "sizes not met before"
        };
        let graph = (self.transform)(&bind(&self.base, &binding)?)?;
        let executable = Executable::compile(&graph, &self.device, &self.options)?;
        let time = executable.compile_time();
        while self.entries.len() >= self.capacity {
            self.evict();
        }
        self.events.push(CompileEvent { binding: binding.clone(), reason, time });
        self.clock += 1;
        self.entries.push(Entry { binding, executable, bound: None, used: self.clock });
        Ok(self.entries.len() - 1)
    }

    /// The binding to use for the inputs, made at the first call that needs it.
    fn bound(&mut self, state: &State, feeds: &(impl Feeds + ?Sized)) -> Result<&mut Bound, Error> {
        let at = self.find(feeds)?;
        self.clock += 1;
        let entry = &mut self.entries[at];
        entry.used = self.clock;
        match &mut entry.bound {
            Some(bound) => Ok(bound),
            none => Ok(none.insert(entry.executable.bind(state)?)),
        }
    }

    /// Runs the program once. The first call with new sizes compiles, the first with a state binds; every other call is one
    /// dispatch.
    pub fn run<'a>(&'a mut self, state: &'a mut State, feeds: impl Feeds) -> Result<Outputs<'a>, Error> {
        self.bound(state, &feeds)?.run(state, feeds)
    }

    /// The same, and keeps the time of each kernel for [`Program::kernel_times`].
    pub fn run_timed<'a>(
        &'a mut self,
        state: &'a mut State,
        feeds: impl Feeds,
    ) -> Result<Outputs<'a>, Error> {
        self.bound(state, &feeds)?.run_timed(state, feeds)
    }

    /// Nanoseconds of each kernel in the last timed run, by name.
    pub fn kernel_times(&self) -> Vec<(String, u64)> {
        let last = self.entries.iter().max_by_key(|e| e.used).and_then(|e| e.bound.as_ref());
        last.map(|b| b.kernel_times().map(|(n, t)| (n.to_string(), t)).collect()).unwrap_or_default()
    }
}
