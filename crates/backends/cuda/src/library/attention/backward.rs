//! The gradient of attention: a launch of `grad_query.cu`, which leaves two numbers for each query in scratch, and then of
//! `grad_key.cu`.

use super::super::{Launches, Operands};
use super::{Blocks, Problem, View};
use crate::code::{Address, Launch, Space};
use crate::error::CudaError;
use onestep_ir::ops::AttentionGrad;

/// Head sizes up to which a thread's registers hold the sums of keys and of values at once.
const BOTH: usize = 128;

pub(in super::super) fn compile(op: &AttentionGrad, k: &Operands<'_>) -> Result<Launches, CudaError> {
    let (p, more) = Problem::new::<3>(&op.forward, k)?;
    let large = p.size.max(p.values);
    // Caps and masks take registers.
    let plain = op.forward.softcap.is_none() && p.operands.mask.is_none();
    let (of_queries, of_keys) = match large {
        ..=64 if plain => ([2, 2], [1, 2]),
        ..=128 => ([2, 1], [1, 2]),
        _ => ([1, 1], [1, 1]),
    };
    let blocks = |[warpgroups, resident]: [usize; 2]| Blocks { warpgroups, step: 64, resident };
    let (of_queries, of_keys) = (blocks(of_queries), blocks(of_keys));
    let padded = p.queries.next_multiple_of(of_queries.rows());
    let numbers = Address { space: Space::Scratch, offset: 0 };
    let mut list = vec![];
    if p.queries > 0 {
        list.push(queries(&p, more, of_queries, padded, numbers));
    }
    if p.keys > 0 && large <= BOTH {
        list.push(keys(&p, more, of_keys, padded, [true, true], numbers));
    } else if p.keys > 0 {
        list.push(keys(&p, more, of_keys, padded, [false, true], numbers));
        list.push(keys(&p, more, of_keys, padded, [true, false], numbers));
    }
    Ok(Launches { list, scratch_bytes: scratch(&p, padded) * 4 })
}

/// The numbers that are kept for the queries, filled up to whole blocks.
fn scratch(p: &Problem<'_>, padded: usize) -> usize {
    2 * p.batch * p.heads * padded
}

/// The operands that both kernels read as tiles.
fn views(p: &Problem<'_>, [_, _, dout]: [usize; 3]) -> Vec<View> {
    let o = p.operands;
    vec![p.operand("Q", o.q), p.operand("K", o.k), p.operand("V", o.v), p.operand("DOUT", dout)]
}

fn queries(p: &Problem<'_>, more: [usize; 3], blocks: Blocks, padded: usize, numbers: Address) -> Launch {
    let [out, lse, dout] = more;
    let mut all = views(p, more);
    all.push(p.operand("OUT", out));
    let strides = &p.k.view(lse).strides;
    all.push(View { name: "LSE", strides: [strides[0], strides[1], strides[2], 1], aligned: 2 });
    all.push(p.result("DQ", 0));
    let constants = blocks.text("KEY_BLOCK") + &format!("constexpr int PADDED_QUERIES = {padded};\n");
    let text = p.text(&all, &constants, scratch(p, padded), &[blocks.step], &[p.size]);
    let [size, values] = p.panels();
    let shared = 2 * (blocks.rows() + 2 * blocks.step) * (size + values) + blocks.rows() * 8;
    let mut arguments = p.inputs();
    arguments.extend([out, lse, dout].map(|n| p.at(n)));
    arguments.extend([p.k.result(0), numbers]);
    let grid = p.batch * p.heads * p.queries.div_ceil(blocks.rows());
    blocks.launch(text + include_str!("grad_query.cu"), grid, shared, arguments)
}

/// The gradients of the keys, of the values, or of both.
fn keys(
    p: &Problem<'_>,
    more: [usize; 3],
    blocks: Blocks,
    padded: usize,
    [of_keys, of_values]: [bool; 2],
    numbers: Address,
) -> Launch {
    let mut all = views(p, more);
    all.push(p.result("DK", 1));
    all.push(p.result("DV", 2));
    let constants = blocks.text("QUERY_BLOCK")
        + &format!(
            "constexpr int PADDED_QUERIES = {padded};\nconstexpr bool OF_KEYS = {of_keys}, OF_VALUES = {of_values};\n"
        );
    let text = p.text(&all, &constants, scratch(p, padded), &[blocks.step], &[p.size, p.values]);
    let [size, values] = p.panels();
    let shared = 2 * (blocks.rows() + 2 * blocks.step) * (size + values) + 2 * 1024;
    let mut arguments = p.inputs();
    arguments.push(p.at(more[2]));
    arguments.extend([1, 2].map(|n| p.k.result(n)));
    arguments.push(numbers);
    let grid = p.batch * p.kv_heads * p.keys.div_ceil(blocks.rows());
    blocks.launch(text + include_str!("grad_key.cu"), grid, shared, arguments)
}
