//! A graph compiled for one device and one binding of its dimensions.

use crate::backend::Backend;
use crate::bound::Bound;
use crate::feeds::Feeds;
use crate::memory::Memory;
use crate::report::Report;
use crate::state::State;
use crate::{Device, Error};
use onestep_ir::{Graph, GraphError, Type};
use onestep_passes::indices;
use onestep_passes::pipeline::{self, Compiled};
use onestep_passes::schedule::BufferId;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Options of compilation.
pub type Options = pipeline::Options;

/// A compiled program.
#[derive(Clone)]
pub struct Executable {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub device: Device,
    /// The graph as it was given: its interface is the program's.
    pub graph: Graph,
    options: Options,
    pub compiled: Compiled,
    pub program: Backend,
    pub memory: Memory,
    compile_time: Duration,
}

impl Inner {
    /// The buffer that says which index was out of range, if the program checks any: the number of the check from 1 on, or 0.
    pub fn flag(&self) -> Option<BufferId> {
        let Compiled { schedule, sites, .. } = &self.compiled;
        indices::flag(schedule).filter(|_| !sites.is_empty())
    }

    /// The error of that number.
    pub fn bad_index(&self, number: i32) -> Option<Error> {
        let site = self.compiled.sites.get(usize::try_from(number - 1).ok()?)?;
        let (op, loc) = (site.op.clone(), site.loc.clone());
        Some(Error::BadIndex { op, loc, bound: site.bound.saturating_sub(1) })
    }

    /// Bytes of new state that a run copies to its place.
    pub fn committed_bytes(&self) -> u64 {
        let Compiled { plan, schedule, .. } = &self.compiled;
        plan.commits.iter().map(|(b, _)| schedule.buffer(*b).bytes() as u64).sum()
    }
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
        let options = options.clone();
        let dumping = Options { dump: options.dump || folder.is_some(), ..options.clone() };
        let compiled = pipeline::compile(graph, device.target(), &dumping)?;
        if let Some(folder) = folder {
            dump(&compiled, Path::new(&folder));
        }
        let program = Backend::new(device, &compiled, options.fuse)?;
        let memory = program.memory(device, &compiled);
        let compile_time = start.elapsed();
        let (device, graph) = (device.clone(), graph.clone());
        let inner = Inner { device, graph, options, compiled, program, memory, compile_time };
        Ok(Executable { inner: Arc::new(inner) })
    }

    /// The memory that the graph would need: nothing is allocated, and nothing compiled for a device.
    pub fn memory_of(graph: &Graph, device: &Device, options: &Options) -> Result<Memory, Error> {
        Backend::memory_of(device, &pipeline::compile(graph, device.target(), options)?)
    }

    /// The memory that it needs.
    pub fn memory(&self) -> Memory {
        self.inner.memory
    }

    /// The CUDA C of its kernels, each text once, by the name of its function; empty on the CPU.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let kernels = self.inner.program.code().map_or(&[][..], |code| &code.kernels);
        kernels.iter().map(|k| (k.name.as_str(), k.source.as_str()))
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

    /// Whether nodes were grouped into kernels.
    pub(crate) fn is_fused(&self) -> bool {
        self.inner.options.fuse
    }

    /// How long compilation took.
    pub fn compile_time(&self) -> Duration {
        self.inner.compile_time
    }

    /// Kernels, memory, aliases and refusals.
    pub fn report(&self) -> Report {
        let Inner { compiled, program, memory, compile_time, .. } = &*self.inner;
        Report::new(compiled, program, *memory, *compile_time)
    }

    /// The state tensors that this program needs and the state lacks, each with its type.
    pub fn missing(&self, state: &State) -> Vec<(String, Type)> {
        let graph = &self.inner.graph;
        let lacking = graph.states.iter().filter(|s| !state.contains(&s.name));
        lacking.map(|s| (s.name.to_string(), graph.ty(s.value).clone())).collect()
    }

    /// Refuses to bind where the device lacks the memory.
    pub(crate) fn afford(&self, state: &State) -> Result<(), Error> {
        let tensors = self.graph().states.iter().filter_map(|s| state.tensor(&s.name));
        let resident = tensors.filter(|t| t.buffer.mirror().is_resident()).map(|t| t.buffer.len()).sum();
        self.device().afford(&self.inner.memory, resident)
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

    /// The same program with these outputs only, in this order: what feeds nothing but the others is not computed. State
    /// is updated all the same.
    pub fn select(&self, outputs: &[&str]) -> Result<Executable, Error> {
        let graph = select(&self.inner.graph, outputs)?;
        Executable::compile(&graph, &self.inner.device, &self.inner.options)
    }

    /// Binds the program to a state: resolves every address once.
    pub fn bind(&self, state: &State) -> Result<Bound, Error> {
        Bound::new(self.clone(), state)
    }
}

/// The graph with some of its outputs.
pub(crate) fn select(graph: &Graph, outputs: &[&str]) -> Result<Graph, Error> {
    let mut chosen = vec![];
    for name in outputs {
        let port = graph.output(name).ok_or_else(|| Error::NoOutput {
            name: name.to_string(),
            have: graph.outputs.iter().map(|o| &*o.name).collect::<Vec<_>>().join(", "),
        })?;
        if !chosen.contains(port) {
            chosen.push(port.clone());
        }
    }
    Ok(Graph { outputs: chosen, ..graph.clone() })
}

/// Where `ONESTEP_DUMP` names a folder, writes the text after each pass into a folder of the graph's name below it; the
/// graph compiled last stays of those with one name. A folder that cannot be written is reported on standard error and
/// does not stop the program.
fn dump(compiled: &Compiled, folder: &Path) {
    // A graph's name is any text, and so is that of a user's pass; they must not lead out of the folder.
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    let file = |name: &str| name.chars().take(64).map(plain).collect::<String>();
    let folder = folder.join(file(&compiled.schedule.name));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&folder)?;
        for (i, (name, text)) in compiled.dumps.iter().enumerate() {
            std::fs::write(folder.join(format!("{i:02}-{}.onestep", file(name))), text)?;
        }
        Ok(())
    };
    if let Err(e) = write() {
        let text = format!("onestep: cannot write the dump to {}: {e}", folder.display());
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}
