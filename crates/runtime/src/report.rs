//! The compile report: what a program became, for people and for `inspect`.

use crate::backend::Backend;
use crate::memory::Memory;
use onestep_cuda::code::{Code, Step};
use onestep_ir::DType;
use onestep_passes::pipeline::Compiled;
use onestep_passes::plan::Place;
use onestep_passes::schedule::{BufferKind, Expr, Kernel, LoopKernel};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelReport {
    /// Its name, with sizes.
    pub name: String,
    /// `loop`, `matmul`, `library` or `scan`.
    pub kind: &'static str,
    /// What its loops, its epilogue or its iterations compute: the first few functions.
    pub note: String,
    /// On a GPU, what it is started as; none where nothing is computed.
    pub launches: Vec<LaunchReport>,
}

/// A launch on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchReport {
    /// Of a kernel.
    Kernel {
        /// Its function, whose text [`crate::Executable::texts`] gives.
        name: String,
        /// Blocks.
        grid: u32,
        /// Threads of a block.
        threads: u32,
        /// Bytes of dynamic shared memory.
        shared_bytes: u32,
    },
    /// Of a matrix product that the vendor's library computes.
    Product {
        /// The factors' dtype.
        dtype: DType,
        /// Whether they are rounded to TF32.
        tf32: bool,
    },
    /// Of a copy within the device, of so many bytes.
    Copy(usize),
}

impl LaunchReport {
    fn of(step: &Step, code: &Code) -> LaunchReport {
        match step {
            Step::Launch { kernel, grid, .. } => {
                let k = &code.kernels[*kernel];
                let (name, threads, shared_bytes) = (k.name.clone(), k.threads, k.shared_bytes);
                LaunchReport::Kernel { name, grid: *grid, threads, shared_bytes }
            }
            Step::Product(p) => LaunchReport::Product { dtype: p.dtype, tf32: p.tf32 },
            Step::Copy { bytes, .. } => LaunchReport::Copy(*bytes),
        }
    }
}

impl fmt::Display for LaunchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchReport::Kernel { name, grid, threads, shared_bytes } => {
                write!(f, "{name} <{grid} x {threads}>")?;
                if *shared_bytes > 0 { write!(f, " with {shared_bytes} shared bytes") } else { Ok(()) }
            }
            LaunchReport::Product { dtype, tf32 } => {
                write!(f, "the library's product of {dtype}{}", if *tf32 { " in tf32" } else { "" })
            }
            LaunchReport::Copy(bytes) => write!(f, "copy of {bytes} bytes"),
        }
    }
}

/// One buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferReport {
    /// What it holds.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// Where it lives.
    pub place: Place,
    /// First and last kernel that need it.
    pub life: (usize, usize),
}

/// What a program became.
#[derive(Clone, Debug)]
pub struct Report {
    /// The program's name.
    pub name: String,
    /// Kernels in order.
    pub kernels: Vec<KernelReport>,
    /// Buffers that some kernel writes.
    pub buffers: Vec<BufferReport>,
    /// What it takes of its device's memory.
    pub memory: Memory,
    /// The most bytes of the arena that are live at once.
    pub live_bytes: usize,
    /// New state that is computed elsewhere and copied to its place after the last kernel: on a GPU, a launch each.
    pub copies: Vec<LaunchReport>,
    /// Buffers that take another's storage, in words.
    pub aliases: Vec<String>,
    /// State that is updated in place, by path.
    pub in_place: Vec<String>,
    /// State that is not, with the reason.
    pub refusals: Vec<String>,
    /// How long compilation took.
    pub compile_time: Duration,
}

impl Report {
    pub(crate) fn new(
        compiled: &Compiled,
        program: &Backend,
        memory: Memory,
        compile_time: Duration,
    ) -> Report {
        let (s, p) = (&compiled.schedule, &compiled.plan);
        let mut launches: Vec<Vec<LaunchReport>> = vec![vec![]; s.kernels.len() + 1];
        if let Some(code) = program.code() {
            for (kernel, step) in &code.steps {
                launches[*kernel].push(LaunchReport::of(step, code));
            }
        }
        let copies = launches.pop().unwrap_or_default();
        let kernels = s.kernels.iter().zip(program.names()).zip(launches).map(|((k, name), launches)| {
            let kind = match k {
                Kernel::Loops(_) => "loop",
                Kernel::Matmul(_) => "matmul",
                Kernel::Library(_) => "library",
                Kernel::Scan(_) => "scan",
            };
            KernelReport { name: name.to_string(), kind, note: functions(loops(k)), launches }
        });
        let temps = s.buffers.iter().enumerate().filter(|(_, b)| matches!(b.kind, BufferKind::Temp));
        let buffers = temps.clone().map(|(i, b)| BufferReport {
            name: b.name.clone(),
            bytes: b.bytes(),
            place: p.places[i],
            life: (p.lives[i].first, p.lives[i].last),
        });
        let in_place = temps.filter_map(|(i, _)| match p.places[i] {
            Place::State(n) => Some(s.states[n].name.to_string()),
            _ => None,
        });
        let name = |b: &onestep_passes::schedule::BufferId| format!("{b} {}", s.buffer(*b).name);
        Report {
            name: s.name.clone(),
            kernels: kernels.collect(),
            buffers: buffers.collect(),
            memory,
            live_bytes: p.live_bytes,
            copies,
            aliases: p
                .aliases
                .iter()
                .map(|(b, a)| format!("{} takes the place of {}", name(b), name(a)))
                .collect(),
            in_place: in_place.collect(),
            refusals: p.refusals.iter().map(|(i, why)| format!("'{}': {why}", s.states[*i].name)).collect(),
            compile_time,
        }
    }
}

impl Report {
    /// Every launch of a call on a GPU, in order.
    pub fn launches(&self) -> impl Iterator<Item = &LaunchReport> {
        self.kernels.iter().flat_map(|k| &k.launches).chain(&self.copies)
    }

    /// How many different texts they are of.
    fn texts(&self) -> usize {
        let mut names = BTreeSet::new();
        for launch in self.launches() {
            if let LaunchReport::Kernel { name, .. } = launch {
                names.insert(name);
            }
        }
        names.len()
    }
}

/// The loops of a kernel: its own, its epilogue, or those of an iteration.
fn loops(kernel: &Kernel) -> Vec<&LoopKernel> {
    match kernel {
        Kernel::Loops(parts) => parts.iter().collect(),
        Kernel::Matmul(m) => m.epilogue.iter().map(|e| &**e).collect(),
        Kernel::Library(_) => vec![],
        Kernel::Scan(s) => s.body.kernels.iter().flat_map(loops).collect(),
    }
}

/// The functions that loops compute, each once, in order of their first use.
fn functions<'a>(loops: impl IntoIterator<Item = &'a LoopKernel>) -> String {
    const MOST: usize = 6;
    let mut names: Vec<&str> = vec![];
    for e in loops.into_iter().flat_map(|l| &l.body) {
        let name = match &e.expr {
            Expr::Unary(k, _) => k.name(),
            Expr::Binary(k, ..) => k.name(),
            Expr::Reduce(k, _) => k.name(),
            Expr::RandomBits { .. } => "random_bits",
            _ => continue,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = if names.len() > MOST { " …" } else { "" };
    names.truncate(MOST);
    names.join(", ") + more
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "program '{}': {} kernels, compiled in {:.1?}",
            self.name,
            self.kernels.len(),
            self.compile_time
        )?;
        for (i, k) in self.kernels.iter().enumerate() {
            let note = if k.note.is_empty() { String::new() } else { format!(" ({})", k.note) };
            writeln!(f, "  k{i:<4} {:<8} {}{note}", k.kind, k.name)?;
            k.launches.iter().try_for_each(|l| writeln!(f, "        {l}"))?;
        }
        self.copies.iter().try_for_each(|l| writeln!(f, "  {l} to its state"))?;
        let launches = self.launches().count();
        if launches > 0 {
            writeln!(f, "{launches} launches of {} texts", self.texts())?;
        }
        writeln!(f, "memory {}", self.memory)?;
        writeln!(f, "of the arena at most {} bytes are live at once", self.live_bytes)?;
        writeln!(f, "{} state tensors are updated in place", self.in_place.len())?;
        for r in &self.refusals {
            writeln!(f, "  not in place: {r}")?;
        }
        writeln!(f, "{} buffers share storage", self.aliases.len())?;
        for a in &self.aliases {
            writeln!(f, "  {a}")?;
        }
        Ok(())
    }
}
