//! A matrix of bytes written the other way round, through squares in shared memory: the factors of a product of 8-bit floats are
//! read along the summed axis, and the backward products sum over others.

use super::Context;
use crate::code::{Address, Launch, THREADS};
use onestep_passes::schedule::{Expr, LoopKernel};

/// A block's square.
const SIDE: usize = 128;
/// Bytes that a thread reads at a time.
const WORD: usize = 4;

/// The launch, if a loop kernel is such a copy; `aligned` tells the bytes of which an address is a multiple.
pub(crate) fn compile(
    kernel: &LoopKernel,
    context: &Context<'_>,
    aligned: &dyn Fn(Address) -> usize,
) -> Option<Launch> {
    let [rows, columns] = kernel.extents[..] else { return None };
    let ([body], [store], 2) = (&kernel.body[..], &kernel.stores[..], kernel.parallel) else { return None };
    let Expr::Load { access: from, bounds, .. } = &body.expr else { return None };
    let turned = from.place.coefs == [1, rows as i64] && store.access.place.coefs == [columns as i64, 1];
    let whole = bounds.is_empty() && from.place.offset == 0 && store.access.place.offset == 0;
    let words = rows % WORD == 0 && columns % WORD == 0 && rows * columns > 0;
    let elsewhere = context.within.contains_key(&store.access.buffer);
    if !turned || !whole || !words || elsewhere || body.dtype.size() != 1 {
        return None;
    }
    let arguments: Vec<Address> = [store.access.buffer, from.buffer].map(|b| context.homes[b.index()]).into();
    if arguments.iter().any(|&a| !aligned(a).is_multiple_of(WORD)) {
        return None;
    }
    let source =
        format!("constexpr int ROWS = {rows}, COLUMNS = {columns};\n{}", include_str!("transposition.cuh"));
    let grid = rows.div_ceil(SIDE) * columns.div_ceil(SIDE);
    Some(Launch { source, grid, threads: THREADS, shared_bytes: SIDE * SIDE, arguments })
}
