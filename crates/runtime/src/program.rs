//! A graph whose dimensions may be variables: one executable for each binding met, in a bounded cache that says why it
//! compiled.

use crate::bound::{Bound, Traffic};
use crate::executable::{Executable, Options, select};
use crate::feeds::{self, Feeds};
use crate::memory::Remedy;
use crate::outputs::Outputs;
use crate::{Device, Error, State};
use onestep_ir::{Element, StatePort, bind};
use onestep_ir::{Graph, GraphError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is done to a graph once its dimensions are bound: differentiation, an optimizer; or nothing.
pub type Transform = dyn Fn(&Graph) -> Result<Graph, Error> + Send + Sync;

/// What a program can do that needs more memory than the given bytes, which is all there is; the graph is bound, and not yet
/// transformed.
pub type FindRemedy = dyn Fn(&Graph, usize) -> Remedy + Send + Sync;

/// Sizes of the dimension variables.
pub type Binding = BTreeMap<Arc<str>, usize>;

/// One compilation.
#[derive(Clone, Debug)]
pub struct CompileEvent {
    /// For which sizes.
    pub binding: Binding,
    /// For which outputs; `None` for all.
    pub outputs: Option<Vec<String>>,
    /// Why.
    pub reason: &'static str,
    /// How long it took.
    pub time: Duration,
}

struct Entry {
    binding: Binding,
    /// The outputs that it computes; `None` for all.
    outputs: Option<Vec<String>>,
    executable: Executable,
    /// Made at the first call, when the state is known.
    bound: Option<Bound>,
    used: u64,
}

impl Entry {
    fn computes(&self, outputs: Option<&[&str]>) -> bool {
        match (&self.outputs, outputs) {
            (None, None) => true,
            (Some(mine), Some(asked)) => mine.iter().eq(asked),
            _ => false,
        }
    }
}

/// A program: compiled once for each binding of its dimension variables.
pub struct Program {
    base: Graph,
    transform: Arc<Transform>,
    remedy: Option<Box<FindRemedy>>,
    device: Device,
    options: Options,
    capacity: usize,
    entries: Vec<Entry>,
    evicted: Vec<(Binding, Option<Vec<String>>)>,
    clock: u64,
    events: Vec<CompileEvent>,
    /// What it says of state: the dimensions of caches as they are in `base`, everything else as in `interface`.
    declared: Graph,
    /// The caches whose sizes are variables.
    elastic: Vec<Arc<str>>,
    /// The graph at the largest sizes: the interface, and the first values of state.
    interface: Graph,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "program '{}' ({} executables)", self.base.name, self.entries.len())
    }
}

/// The graph whose states have the types that the transformation gave them, but for those with variables.
fn declared(graph: &Graph, interface: &Graph) -> Graph {
    let mut out = graph.clone();
    for s in &graph.states {
        let fixed = graph.ty(s.value).shape.sizes().is_some();
        if let Some(port) = interface.state(&s.name).filter(|_| fixed) {
            out.values[s.value.index()].ty = interface.ty(port.value).clone();
        }
    }
    out
}

impl Program {
    /// A program of a graph as it is.
    pub fn new(graph: &Graph, device: &Device, options: &Options) -> Result<Program, Error> {
        Program::with(graph, Arc::new(|g: &Graph| Ok(g.clone())), device, options)
    }

    /// A program of what `transform` makes of a graph once its dimensions are bound. Without dimension variables it is
    /// compiled now; with them, at the first call that needs it. Either way the transformation is tried now, at the largest
    /// sizes that the dimensions may have, and what it gives for those is kept.
    pub fn with(
        graph: &Graph,
        transform: Arc<Transform>,
        device: &Device,
        options: &Options,
    ) -> Result<Program, Error> {
        graph.verify()?;
        let largest: Binding = graph.dims.clone();
        let interface = transform(&bind(graph, &largest)?)?;
        let variable = |s: &&StatePort| graph.ty(s.value).shape.sizes().is_none();
        let mut program = Program {
            elastic: graph.states.iter().filter(variable).map(|s| s.name.clone()).collect(),
            base: graph.clone(),
            declared: declared(graph, &interface),
            transform,
            remedy: None,
            device: device.clone(),
            options: options.clone(),
            capacity: 8,
            entries: vec![],
            evicted: vec![],
            clock: 0,
            events: vec![],
            interface,
        };
        if graph.dims.is_empty() {
            program.entry(Binding::new(), None)?;
        }
        Ok(program)
    }

    /// Asks this function what to say where memory is short: it is called when a call has been refused.
    pub fn on_short_memory(&mut self, remedy: Box<FindRemedy>) {
        self.remedy = Some(remedy);
    }

    /// An error of binding an executable, with what could be done.
    fn with_remedy(&self, at: usize, error: Error) -> Error {
        let (Error::OutOfMemory { device, needed, free, .. }, Some(find)) = (&error, &self.remedy) else {
            return error;
        };
        let (device, needed, free) = (*device, *needed, *free);
        match bind(&self.base, &self.entries[at].binding) {
            Ok(graph) => Error::OutOfMemory { device, needed, free, remedy: find(&graph, free) },
            Err(_) => error,
        }
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
        state.declare(&self.declared);
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

    /// The executable for the given inputs, made if need be. Where the sizes of a cache matter, a run finds it instead.
    pub fn executable_for(&mut self, feeds: impl Feeds) -> Result<&Executable, Error> {
        let at = self.find(&feeds, &State::new(), None)?;
        Ok(&self.entries[at].executable)
    }

    fn evict(&mut self) {
        if let Some(oldest) = (0..self.entries.len()).min_by_key(|&i| self.entries[i].used) {
            let gone = self.entries.swap_remove(oldest);
            let gone = (gone.binding, gone.outputs);
            if !self.evicted.contains(&gone) {
                self.evicted.push(gone);
            }
        }
    }

    /// The entry that fits the inputs' shapes: the common case compares and allocates nothing.
    fn find(
        &mut self,
        feeds: &(impl Feeds + ?Sized),
        state: &State,
        outputs: Option<&[&str]>,
    ) -> Result<usize, Error> {
        if self.base.dims.is_empty() {
            return self.entry(Binding::new(), outputs);
        }
        let fits = |e: &Entry| e.computes(outputs) && e.executable.fits(feeds) && self.holds(e, state);
        if let Some(at) = self.entries.iter().position(fits) {
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
        if let Some(name) = self.elastic.iter().find(|name| !state.contains(name)) {
            return Err(Error::MissingState { names: vec![format!("'{name}'")] });
        }
        let binding =
            self.base.binding_with_state(&shapes, |name| Some(state.tensor(name)?.shape.clone()))?;
        self.entry(binding, outputs)
    }

    /// Whether the state's caches have the sizes of an executable.
    fn holds(&self, entry: &Entry, state: &State) -> bool {
        self.elastic.iter().all(|name| match (entry.executable.graph().state(name), state.tensor(name)) {
            (Some(port), Some(t)) => {
                let dims = &entry.executable.graph().ty(port.value).shape.0;
                dims.iter().map(|d| d.size()).eq(t.shape.iter().map(|n| Some(*n)))
            }
            _ => false,
        })
    }

    fn entry(&mut self, binding: Binding, outputs: Option<&[&str]>) -> Result<usize, Error> {
        if let Some(at) = self.entries.iter().position(|e| e.computes(outputs) && e.binding == binding) {
            return Ok(at);
        }
        let mut graph = match binding == self.base.dims {
            true => self.interface.clone(),
            false => (self.transform)(&bind(&self.base, &binding)?)?,
        };
        if let Some(outputs) = outputs {
            graph = select(&graph, outputs)?;
        }
        let outputs: Option<Vec<String>> = outputs.map(|o| o.iter().map(|n| n.to_string()).collect());
        let reason = if self.evicted.contains(&(binding.clone(), outputs.clone())) {
            "these sizes were met before, but their executable had to make room"
        } else if self.entries.is_empty() && self.evicted.is_empty() {
            "first compilation"
        } else if self.entries.iter().any(|e| e.binding == binding) {
            "outputs not selected before"
        } else {
            "sizes not met before"
        };
        let executable = Executable::compile(&graph, &self.device, &self.options)?;
        let time = executable.compile_time();
        while self.entries.len() >= self.capacity {
            self.evict();
        }
        self.events.push(CompileEvent { binding: binding.clone(), outputs: outputs.clone(), reason, time });
        self.clock += 1;
        self.entries.push(Entry { binding, outputs, executable, bound: None, used: self.clock });
        Ok(self.entries.len() - 1)
    }

    /// The binding to use for the inputs, made at the first call that needs it.
    fn bound(
        &mut self,
        state: &mut State,
        feeds: &(impl Feeds + ?Sized),
        outputs: Option<&[&str]>,
    ) -> Result<&mut Bound, Error> {
        let at = self.find(feeds, state, outputs)?;
        self.clock += 1;
        self.entries[at].used = self.clock;
        let bound = match self.entries[at].bound.take() {
            Some(bound) => bound,
            None => {
                state.declare(&self.declared);
                self.entries[at].executable.bind(state).map_err(|e| self.with_remedy(at, e))?
            }
        };
        Ok(self.entries[at].bound.insert(bound))
    }

    /// Runs the program once. The first call with new sizes compiles, the first with a state binds; every other call is one
    /// dispatch.
    pub fn run<'a>(&'a mut self, state: &'a mut State, feeds: impl Feeds) -> Result<Outputs<'a>, Error> {
        self.bound(state, &feeds, None)?.run(state, feeds)
    }

    /// Runs the program for these outputs only: what feeds nothing but the others is not computed, while state is updated
    /// all the same. Each selection is compiled once and kept like another size.
    pub fn run_selected<'a>(
        &'a mut self,
        state: &'a mut State,
        feeds: impl Feeds,
        outputs: &[&str],
    ) -> Result<Outputs<'a>, Error> {
        self.bound(state, &feeds, Some(outputs))?.run(state, feeds)
    }

    /// Updates parameters with the caller's own optimizer, from the gradients that the last run left as state: see
    /// [`Bound::update_with`].
    pub fn update_with<T: Element>(
        &mut self,
        state: &mut State,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        update: impl FnMut(&str, &[usize], &mut [T], &[T]),
    ) -> Result<(), Error> {
        let last = self.entries.iter_mut().max_by_key(|e| e.used).and_then(|e| e.bound.as_mut());
        last.ok_or(Error::NotRun)?.update_with(state, names, update)
    }

    /// What its bindings have copied so far, together.
    pub fn traffic(&self) -> Traffic {
        let bounds = self.entries.iter().filter_map(|e| e.bound.as_ref());
        bounds.map(Bound::traffic).fold(Traffic::default(), |a, b| a + b)
    }

    /// The same, and keeps the time of each kernel for [`Program::kernel_times`].
    pub fn run_timed<'a>(
        &'a mut self,
        state: &'a mut State,
        feeds: impl Feeds,
    ) -> Result<Outputs<'a>, Error> {
        self.bound(state, &feeds, None)?.run_timed(state, feeds)
    }

    /// Nanoseconds of each kernel in the last timed run, by name.
    pub fn kernel_times(&self) -> Vec<(String, u64)> {
        let last = self.entries.iter().max_by_key(|e| e.used).and_then(|e| e.bound.as_ref());
        last.map(|b| b.kernel_times().map(|(n, t)| (n.to_string(), t)).collect()).unwrap_or_default()
    }
}
