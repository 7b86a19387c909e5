//! The viewer of a program: one self-contained HTML page that shows the graph after each pass, two of them side by side,
//! the kernels with what they cost and why they are what they are, the memory plan, and the state.
//!
//! [`Program`] is the input, in plain records: the commands fill it from what the compiler made. `pack` writes the texts
//! of the passes in a tenth of their size, so that a model of thousands of lines fits; `page` lays the page out;
//! `texts.js` unpacks a text when it is looked at and aligns two, `viewer.js` draws only the lines in sight.
//!
//! As in the report, nothing is loaded and a content policy forbids it; every text from outside is escaped here, or set as
//! text by the script.

mod pack;
mod page;
#[cfg(test)]
mod tests;

use crate::report::PlanView;
use crate::run_folder::{RunFolderError, write_atomic};
use serde::Serialize;
use std::path::Path;

/// Everything that the viewer shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Program {
    /// The program's name.
    pub name: String,
    /// The text after each pass, in order.
    pub passes: Vec<Pass>,
    /// The places in the user's source that built the graph; the first stands for none.
    pub sources: Vec<Source>,
    /// The kernels, in the schedule's order.
    pub kernels: Vec<Kernel>,
    /// The buffers, by number.
    pub buffers: Vec<Buffer>,
    /// The values of the graph before fusion, by number.
    pub values: Vec<Value>,
    /// Why a value is read from memory: what the numbers in [`Value::waits`] mean.
    pub reasons: Vec<&'static str>,
    /// The state tensors.
    pub states: Vec<StateRow>,
    /// Buffers that take another's place: the later one, the earlier one.
    pub aliases: Vec<(usize, usize)>,
    /// The memory plan.
    #[serde(skip)]
    pub plan: PlanView,
}

/// The text after a pass.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pass {
    /// The pass.
    pub name: &'static str,
    /// The text.
    pub text: String,
    /// For each line, the place in [`Program::sources`]; empty if the text is not a graph.
    pub lines: Vec<usize>,
}

/// A place in the user's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Source {
    /// File, line and column, or the line of the graph's text.
    pub place: String,
    /// What stands there; empty if it could not be read.
    pub text: String,
}

/// A kernel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Kernel {
    /// Its name: op and sizes.
    pub name: String,
    /// `loop`, `matmul` or `library`.
    pub kind: String,
    /// What else there is to say.
    pub note: String,
    /// Its body.
    pub body: String,
    /// Floating-point operations, an estimate.
    pub flops: u64,
    /// Bytes read, an estimate.
    pub read_bytes: u64,
    /// Bytes written, an estimate.
    pub written_bytes: u64,
    /// The buffers that it reads.
    pub reads: Vec<usize>,
    /// The buffers that it writes.
    pub writes: Vec<usize>,
    /// The values of the graph before fusion that it computes.
    pub values: Vec<usize>,
}

/// A buffer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Buffer {
    /// What it holds.
    pub name: String,
    /// Element type and sizes.
    #[serde(rename = "type")]
    pub ty: String,
    /// Its size.
    pub bytes: u64,
    /// Where it lies: `input`, `state`, `constant` or `arena`.
    pub place: &'static str,
    /// Which input or state, or the offset in the arena.
    pub at: u64,
    /// The first kernel that needs it.
    pub first: usize,
    /// The last one.
    pub last: usize,
    /// The value that it holds.
    pub value: Option<usize>,
}

/// What became of a value.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Value {
    /// `given`, `constant`, `inlined`, `view`, `fused`, `recomputed` or `stored`.
    pub role: &'static str,
    /// The op that gives it; for inputs and states, their name.
    pub op: String,
    /// The kernel that computes it.
    pub kernel: Option<usize>,
    /// Its buffer.
    pub buffer: Option<usize>,
    /// The place in [`Program::sources`].
    pub source: usize,
    /// Readers that take it from memory: the reading value, the reason's number.
    pub waits: Vec<(usize, usize)>,
}

/// A state tensor.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StateRow {
    /// Its path.
    pub name: String,
    /// What it is for.
    pub role: &'static str,
    /// Element type and sizes.
    #[serde(rename = "type")]
    pub ty: String,
    /// Its size.
    pub bytes: u64,
    /// `in place`, `copied` or `kept`.
    pub update: &'static str,
    /// Why it is copied.
    pub why: String,
    /// The kernel that computes its new value.
    pub kernel: Option<usize>,
}

impl Program {
    /// The page.
    pub fn to_html(&self) -> String {
        page::render(self)
    }

    /// Writes the page to `path`, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), RunFolderError> {
        write_atomic(path, self.to_html().as_bytes())
    }
}
