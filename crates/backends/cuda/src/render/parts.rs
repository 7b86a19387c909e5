//! Loop kernels that do not depend on each other, as one launch: each is a function, and the blocks are dealt out among them.
//!
//! Parts that differ in their buffers alone (the updates of equal parameters) are one function, called for each.

use super::{BLOCK, Buffers, RenderError, function, prelude, scalar};
use onestep_passes::schedule::{BufferId, Expr, LoopKernel};
use std::collections::HashMap;
use std::fmt::Write;

/// The name in the text, which the caller replaces.
const FUNCTION: &str = "loop_part";

/// A launch of several loop kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// CUDA C, without includes.
    pub source: String,
    /// Blocks.
    pub grid: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The buffers whose addresses are the function's parameters, in order.
    pub parameters: Vec<BufferId>,
}

/// Renders `kernels` as the CUDA function `name`. The text names no buffer: it is the same for equal kernels over others.
pub fn render_parts(kernels: &[LoopKernel], buffers: Buffers<'_>, name: &str) -> Result<Parts, RenderError> {
    let mut parameters: Vec<BufferId> = vec![];
    let (mut functions, mut calls) = (String::new(), String::new());
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut grid, mut shared_bytes) = (0, 0);
    for kernel in kernels {
        let (own, names) = numbered(kernel);
        let numbered = Buffers {
            dtype: &|b| (buffers.dtype)(names[b.index()]),
            aligned: &|b| (buffers.aligned)(names[b.index()]),
        };
        let part = function(&own, numbered, FUNCTION, true)?;
        let next = known.len();
        let which = *known.entry(part.source.clone()).or_insert(next);
        if which == next {
            functions += &part.source.replacen(FUNCTION, &format!("part{which}"), 1);
        }
        let arguments: Vec<String> = part
            .parameters
            .iter()
            .map(|b| {
                let buffer = names[b.index()];
                let place = parameters.iter().position(|p| *p == buffer).unwrap_or(parameters.len());
                if place == parameters.len() {
                    parameters.push(buffer);
                }
                format!("p{place}")
            })
            .collect();
        let (first, blocks) = (grid, part.grid[0]);
        grid += blocks;
        shared_bytes = shared_bytes.max(part.shared_bytes);
        let _ = writeln!(
            calls,
            "  if (block < {grid}) return part{which}(block - {first}, {blocks}, {});",
            arguments.join(", ")
        );
    }
    let list: Vec<String> = parameters
        .iter()
        .enumerate()
        .map(|(i, b)| format!("{}* p{i}", scalar::storage((buffers.dtype)(*b))))
        .collect();
    let source = format!(
        "{}{functions}extern \"C\" __global__ void __launch_bounds__({BLOCK}) {name}({}) {{\n  const int block = (int)blockIdx.x;\n{calls}}}\n",
        prelude::of(&functions),
        list.join(", ")
    );
    Ok(Parts { source, grid, shared_bytes, parameters })
}

/// The kernel with its buffers numbered from 0 in the order in which they appear, and the buffers.
fn numbered(kernel: &LoopKernel) -> (LoopKernel, Vec<BufferId>) {
    let mut buffers: Vec<BufferId> = vec![];
    let mut number = |b: &mut BufferId| {
        let place = buffers.iter().position(|x| x == b).unwrap_or(buffers.len());
        if place == buffers.len() {
            buffers.push(*b);
        }
        *b = BufferId(place as u32);
    };
    let mut k = kernel.clone();
    for e in &mut k.body {
        if let Expr::Load { access, .. } = &mut e.expr {
            number(&mut access.buffer);
        }
    }
    k.stores.iter_mut().for_each(|s| number(&mut s.access.buffer));
    (k, buffers)
}
