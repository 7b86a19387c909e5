//! Results that go where they are wanted. A `dynamic_update_slice` in place along the outermost axis copies its update into a
//! range of a larger tensor, such as a key into its cache. The kernel that computes the update may as well store it there: then
//! the copy is no launch at all. Where the range leaves the axis, the update stays at its own place, and nobody reads it.

use crate::branches::Use;
use crate::code::{Address, Product};
use crate::library::{Context, gemv, matmul};
use crate::render::split::split;
use crate::render::{ALIGNED, More, scalar};
use onestep_ir::shape::around;
use onestep_ir::{DType, Op};
use onestep_passes::schedule::{BufferId, BufferKind, Kernel, LibraryKernel, Schedule};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Where a result goes that replaces a range of a larger tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Within {
    /// The kernel that would copy it there.
    pub copy: usize,
    /// The kernel that computes it.
    pub writer: usize,
    /// The larger tensor.
    pub larger: Address,
    /// The first index of the range, a scalar.
    pub start: Address,
    /// Its dtype.
    pub index: DType,
    /// The last index that fits.
    pub last: usize,
    /// Elements from one index to the next.
    pub step: usize,
}

/// No results that go elsewhere.
pub(crate) static NOWHERE: LazyLock<HashMap<BufferId, Within>> = LazyLock::new(HashMap::new);

impl Within {
    /// The parameters behind the pointer to the result, for [`Within::larger`] and [`Within::start`], and the statement that lets
    /// the pointer be where the result goes.
    pub fn more(&self, pointer: &str, element: &str) -> More {
        let Within { last, step, .. } = self;
        let index = scalar::storage(self.index);
        More {
            parameters: format!("{element}* {pointer}_larger, const {index}* {pointer}_start"),
            statement: format!(
                "  {pointer} = range_of({pointer}, {pointer}_larger, {pointer}_start, {last}, {step});\n"
            ),
        }
    }

    /// Bytes of which each place of the result in the larger tensor is a multiple.
    pub fn aligned(&self, dtype: DType) -> usize {
        1 << (self.larger.offset | (self.step * dtype.size()) | ALIGNED).trailing_zeros()
    }
}

/// The results that go within larger tensors, by buffer.
pub(crate) fn find(schedule: &Schedule, homes: &[Address]) -> HashMap<BufferId, Within> {
    let mut found = HashMap::new();
    let context = Context { schedule, homes, within: &NOWHERE };
    let mut readers = vec![0usize; schedule.buffers.len()];
    let mut writer = vec![None; schedule.buffers.len()];
    for (at, k) in schedule.kernels.iter().enumerate() {
        k.reads().iter().for_each(|b| readers[b.index()] += 1);
        k.writes().iter().for_each(|b| writer[b.index()] = Some(at));
    }
    let given_out = schedule.outputs.iter().map(|(_, b)| *b);
    let given_out = given_out.chain(schedule.states.iter().filter_map(|s| s.update));
    given_out.for_each(|b| readers[b.index()] += 1);
    for (copy, k) in schedule.kernels.iter().enumerate() {
        let Kernel::Library(l) = k else { continue };
        let Some((update, mut within)) = range(l, &context) else { continue };
        let Some(at) = writer[update.index()].filter(|&at| at < copy && readers[update.index()] == 1) else {
            continue;
        };
        (within.copy, within.writer) = (copy, at);
        let stores = stores(&schedule.kernels[at], update, &context);
        if stores && is_free(schedule, homes, &within, schedule.buffer(l.results[0].buffer).bytes()) {
            found.insert(update, within);
        }
    }
    found
}

/// The range that an update in place of the outermost axis replaces, and the update.
fn range(l: &LibraryKernel, context: &Context<'_>) -> Option<(BufferId, Within)> {
    let (Op::DynamicUpdateSlice(d), [operand, update, start]) = (&l.op, &l.operands[..]) else { return None };
    let schedule = context.schedule;
    let buffer = |b: BufferId| schedule.buffers.get(b.index());
    let (outer, axis, step) = around(&operand.shape, d.axis);
    let size = *update.shape.get(d.axis)?;
    let whole =
        |b: BufferId| matches!(buffer(b)?.kind, BufferKind::Temp).then(|| buffer(b).map(|b| b.numel()))?;
    let result = l.results.first()?;
    let fits = outer == 1
        && size <= axis
        && [operand, update].iter().all(|v| v.is_dense() && v.offset == 0)
        && result.is_dense()
        && context.of(operand) == context.of(result)
        && whole(update.buffer) == Some(size * step);
    let within = Within {
        copy: 0,
        writer: 0,
        larger: context.of(operand),
        start: context.of(start),
        index: buffer(start.buffer)?.dtype,
        last: axis - size.min(axis),
        step,
    };
    fits.then_some((update.buffer, within))
}

/// Whether the kernel can store its result somewhere else.
fn stores(kernel: &Kernel, result: BufferId, context: &Context<'_>) -> bool {
    match kernel {
        Kernel::Loops(parts) => parts
            .iter()
            .filter(|p| p.writes().contains(&result))
            .all(|p| split(p, context.schedule.buffers.len() as u32).is_none()),
        Kernel::Matmul(m) => {
            let takes = |p: Product| gemv::takes(&p);
            m.out == result && m.epilogue.is_none() && matmul::product(m, context).is_ok_and(takes)
        }
        _ => false,
    }
}

/// Whether the larger tensor, of so many bytes, is used by no kernel from the writer on before the copy, and the first index is
/// there by then.
fn is_free(schedule: &Schedule, homes: &[Address], within: &Within, bytes: usize) -> bool {
    let at = |a: Address, bytes: usize, writes: bool| Use {
        space: a.space,
        start: a.offset,
        end: a.offset + bytes,
        writes,
    };
    let (larger, start) = (at(within.larger, bytes, true), at(within.start, within.index.size(), false));
    let meets = |b: BufferId, writes: bool| {
        let own = at(homes[b.index()], schedule.buffer(b).bytes(), writes);
        own.conflicts(&larger) || own.conflicts(&start)
    };
    schedule.kernels[schedule.beside(within.writer).start..within.copy].iter().all(|k| {
        let (reads, writes) = (k.reads(), k.writes());
        !reads.iter().any(|&b| meets(b, false)) && !writes.iter().any(|&b| meets(b, true))
    })
}
