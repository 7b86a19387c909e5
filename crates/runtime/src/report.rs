//! The compile report: what a program became, for people and for `inspect`.

use onestep_passes::pipeline::Compiled;
use onestep_passes::plan::Place;
use onestep_passes::schedule::{BufferKind, Expr, Kernel, LoopKernel};
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
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// The most bytes of the arena that are live at once.
    pub live_bytes: usize,
    /// Bytes of state, inputs, constants and arena together.
    pub peak_bytes: usize,
    /// Bytes of state.
    pub state_bytes: usize,
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
    pub(crate) fn new(compiled: &Compiled, names: Vec<String>, compile_time: Duration) -> Report {
        let (s, p) = (&compiled.schedule, &compiled.plan);
        let kernels = s.kernels.iter().zip(names).map(|(k, name)| {
            let kind = match k {
                Kernel::Loops(_) => "loop",
                Kernel::Matmul(_) => "matmul",
                Kernel::Library(_) => "library",
                Kernel::Scan(_) => "scan",
            };
            KernelReport { name, kind, note: functions(loops(k)) }
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
            arena_bytes: p.arena_bytes,
            live_bytes: p.live_bytes,
            peak_bytes: p.peak_bytes(),
            state_bytes: p.state_bytes,
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
        }
        writeln!(f, "arena {} bytes; at most {} live at once", self.arena_bytes, self.live_bytes)?;
        writeln!(f, "state {} bytes; everything {} bytes", self.state_bytes, self.peak_bytes)?;
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
