//! The kernel of a scan: the schedule of its region, planned once, run a number of times.
//!
//! The region is a program of its own. Its **inputs** are one slice of each sequence, then the constants; its **states**
//! are the carries, then the outputs. So what holds for a training step holds for an iteration: a carry is updated in
//! place where the plan proves that every read of the old value comes first, and is computed aside and copied otherwise;
//! an output is written where it belongs, straight into its slice of the stacked result, unless it is a carry's value too.
//!
//! An iteration's inputs and states lie in the buffers of the schedule around it, by offset: nothing is copied in or out
//! but the carries' first values, before the first iteration, and not even those where the plan lets the last value take
//! the place of the first.

use super::{BufferId, Kernel, Schedule, View};
use crate::plan::Plan;
use onestep_ir::ops;

/// A scan.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ScanKernel {
    /// The number of iterations.
    pub length: usize,
    /// Whether they go from the last slice to the first.
    pub reverse: bool,
    /// The carries' first values, dense.
    pub carries: Vec<View>,
    /// Each `[length, ..]`, its slices dense.
    pub sequences: Vec<View>,
    /// Dense.
    pub constants: Vec<View>,
    /// The carries' last values, then the outputs of all iterations, each dense.
    pub results: Vec<BufferId>,
    /// An iteration: inputs are the slices and the constants, states the carries and the outputs.
    pub body: Schedule,
    /// Where the buffers of an iteration lie.
    pub plan: Plan,
    /// The storage of the plan's arena, if it needs any: scratch that no iteration hands on.
    pub arena: Option<BufferId>,
}

impl ScanKernel {
    /// Every operand.
    pub fn operands(&self) -> impl Iterator<Item = &View> {
        self.carries.iter().chain(&self.sequences).chain(&self.constants)
    }

    /// The number of slices in the order in which the iterations take them.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        ops::Scan::order(self.length, self.reverse)
    }

    /// Whether carry `i` may have its last value where its first one is, in `a`: nothing else of the scan reads that.
    pub fn carries_in(&self, i: usize, a: BufferId) -> bool {
        let whole = self.carries.get(i).is_some_and(|v| v.buffer == a && v.offset == 0 && v.is_dense());
        whole && self.operands().filter(|v| v.buffer == a).count() == 1
    }

    /// What the schedule of an iteration does not fit, if anything.
    pub fn fault(&self, around: &Schedule) -> Option<String> {
        let bytes = |b: BufferId| around.buffer(b).bytes();
        let body = |b: BufferId| self.body.buffer(b).bytes();
        let (inputs, states) = (&self.body.inputs, &self.body.states);
        let views = self.sequences.len() + self.constants.len();
        if inputs.len() != views || states.len() != self.results.len() || self.carries.len() > states.len() {
            return Some("the body has other inputs and states than the scan".into());
        }
        let size = |v: &View, from: usize| v.shape[from..].iter().product::<usize>();
        let width = |v: &View| around.buffer(v.buffer).dtype.size();
        let slices = self.sequences.iter().map(|v| size(v, 1) * width(v));
        let whole = self.constants.iter().map(|v| size(v, 0) * width(v));
        let given = slices.chain(whole).zip(inputs).all(|(n, (_, b))| n == body(*b));
        let carried = self
            .carries
            .iter()
            .zip(states)
            .zip(&self.results)
            .all(|((v, s), r)| size(v, 0) * width(v) == body(s.buffer) && body(s.buffer) == bytes(*r));
        let stacked = self.carries.len()..states.len();
        let stacked = stacked
            .into_iter()
            .all(|i| body(states[i].buffer).checked_mul(self.length) == Some(bytes(self.results[i])));
        if !(given && carried && stacked) {
            return Some("a buffer of the body has another size than what the scan gives it".into());
        }
        if self.plan.arena_bytes > self.arena.map_or(0, bytes) {
            return Some("the body's arena does not fit the scratch".into());
        }
        None
    }
}

/// Whether all slices of a view along its first axis are dense.
pub fn slices_are_dense(v: &View) -> bool {
    let slice = View {
        buffer: v.buffer,
        offset: v.offset,
        shape: v.shape[1..].to_vec(),
        strides: v.strides[1..].to_vec(),
    };
    slice.is_dense()
}

impl Schedule {
    /// The number of kernels, those of scans' bodies included, each once.
    pub fn kernel_count(&self) -> usize {
        let inner = |k: &Kernel| match k {
            Kernel::Scan(s) => s.body.kernel_count(),
            _ => 0,
        };
        self.kernels.iter().map(|k| 1 + inner(k)).sum()
    }
}
