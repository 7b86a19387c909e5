//! The report of a run: one self-contained `report.html` that a stranger can read.
//!
//! The page loads nothing: its style, its pictures (SVG drawn here) and a little script for the hover read-outs
//! are inside it, and a content policy forbids the rest. Without the script everything but the read-outs is there.
//! Every text that comes from outside passes `html::escape`; every number that comes from outside may be NaN,
//! infinite or absurd, and the lists may be empty or very long.
//!
//! The parts: [`Report`] is the input, `page` lays it out, `curves` chooses the charts, `chart` draws one from what
//! `sampling` thins and `scale` places, `plan_view` draws the memory plan, `kernels` tabulates the schedule.

mod chart;
mod curves;
pub mod format;
pub(crate) mod html;
mod kernels;
mod page;
mod plan_view;
mod sampling;
mod scale;
#[cfg(test)]
mod tests;

pub(crate) use page::{SCRIPT, STYLE};
pub(crate) use plan_view::render as plan_picture;

use std::path::Path;

use crate::records::{EvalRecord, StepRecord};
use crate::run_folder::{RunFolderError, write_atomic};

/// Everything that a report shows.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The page's title: what was trained, in a few words.
    pub title: String,
    /// The command that repeats the run.
    pub command: String,
    /// The device's name.
    pub device: String,
    /// CPU threads; 0 leaves them out.
    pub threads: usize,
    /// What was trained, as label and value.
    pub model_lines: Vec<(String, String)>,
    /// What a step consumes, in the plural (`tokens`, `images`); empty means `items`.
    pub unit: String,
    /// The steps, in order.
    pub steps: Vec<StepRecord>,
    /// The evaluations, in order.
    pub evals: Vec<EvalRecord>,
    /// A validation loss to compare with, and whose it is.
    pub baseline: Option<(String, f64)>,
    /// The memory plan and the schedule.
    pub plan: PlanView,
    /// Text that the trained model wrote.
    pub sample: Option<String>,
    /// The final figures, as label and value; empty lets the report choose them from the records.
    pub figures: Vec<(String, String)>,
    /// Whether the viewer of the compiled step stands beside the report, as `program.html`.
    pub viewer: bool,
}

/// The memory plan and the schedule of the step's executable.
#[derive(Clone, Debug, Default)]
pub struct PlanView {
    /// Bytes of the scratch arena.
    pub arena_bytes: u64,
    /// The most scratch bytes live at once.
    pub peak_bytes: u64,
    /// Bytes of the resident state, which is apart from the arena.
    pub state_bytes: u64,
    /// The arena's buffers.
    pub buffers: Vec<BufferView>,
    /// The kernels, in the schedule's order.
    pub kernels: Vec<KernelView>,
    /// State that is updated in place, a line each.
    pub aliases: Vec<String>,
    /// State whose update had to be copied, with the reason, a line each.
    pub refusals: Vec<String>,
}

/// One planned buffer.
#[derive(Clone, Debug, Default)]
pub struct BufferView {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Where it starts in the arena.
    pub offset: u64,
    /// The position in the schedule of the kernel that writes it first.
    pub first: usize,
    /// The position of the last kernel that uses it.
    pub last: usize,
}

/// One kernel of the schedule.
#[derive(Clone, Debug, Default)]
pub struct KernelView {
    /// Its name.
    pub name: String,
    /// Its kind: `loop`, `library`, `subgraph` …
    pub kind: String,
    /// What else there is to say: shapes, fused operations.
    pub note: String,
}

impl Report {
    /// The page.
    pub fn to_html(&self) -> String {
        page::render(self)
    }

    /// Writes the page to `path`, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), RunFolderError> {
        write_atomic(path, self.to_html().as_bytes())
    }

    /// What a step consumes, in the plural.
    fn unit(&self) -> &str {
        if self.unit.is_empty() { "items" } else { &self.unit }
    }
}
