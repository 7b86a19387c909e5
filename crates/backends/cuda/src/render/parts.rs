//! Loop kernels that do not depend on each other, as one launch: each is a function, and the blocks are dealt out among them.
//!
//! Parts that differ in their buffers alone (the updates of equal parameters) are one function, called for each.

use super::{Buffers, Cut, Form, RenderError, emit, function, group, prelude, scalar};
use onestep_passes::schedule::{BufferId, Expr, LoopKernel};
use std::collections::HashMap;
use std::fmt::Write;

/// The name in the text, which the caller replaces.
const FUNCTION: &str = "loop_part";

/// A loop kernel, or one whose rows are cut into pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The kernel.
    pub kernel: LoopKernel,
    /// Its pieces.
    pub cut: Cut,
}

impl From<LoopKernel> for Part {
    fn from(kernel: LoopKernel) -> Part {
        Part { kernel, cut: Cut::Whole }
    }
}

impl Part {
    /// The kernel with its axes as its form wants them, and the form.
    pub(super) fn arranged(&self, buffers: Buffers<'_>) -> (LoopKernel, Form) {
        // The axis of pieces stays by itself.
        let kernel = if self.cut == Cut::Whole { self.kernel.collapsed(false) } else { self.kernel.clone() };
        group::arrange(kernel, self.cut, buffers)
    }
}

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

/// Parameters behind that of a buffer, and what is done with them first.
pub(crate) struct More {
    /// As the text declares them.
    pub parameters: String,
    /// A statement.
    pub statement: String,
}

/// Renders `list` as the CUDA function `name`. The text names no buffer: it is the same for equal kernels over others.
pub fn render_parts(list: &[Part], buffers: Buffers<'_>, name: &str) -> Result<Parts, RenderError> {
    parts_with(list, buffers, name, &|_, _| None)
}

/// The same where a buffer, whose pointer has a name, may bring more parameters along.
pub(crate) fn parts_with(
    list: &[Part],
    buffers: Buffers<'_>,
    name: &str,
    more: &dyn Fn(BufferId, &str) -> Option<More>,
) -> Result<Parts, RenderError> {
    let mut parameters: Vec<BufferId> = vec![];
    let (mut functions, mut called) = (String::new(), Vec::<Called>::new());
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut shared_bytes, mut resident) = (0, 0);
    for Part { kernel, cut } in list {
        let (kernel, names) = numbered(kernel);
        let numbered = Buffers {
            dtype: &|b| (buffers.dtype)(names[b.index()]),
            aligned: &|b| (buffers.aligned)(names[b.index()]),
        };
        let part = function(&Part { kernel, cut: *cut }, numbered, FUNCTION, true)?;
        let next = known.len();
        let which = *known.entry(part.source.clone()).or_insert(next);
        if which == next {
            functions += &part.source.replacen(FUNCTION, &format!("part{which}"), 1);
            let types = part.parameters.iter().map(|b| scalar::storage((numbered.dtype)(*b)));
            called.push(Called { blocks: part.grid[0], types: types.collect(), calls: vec![] });
        }
        let arguments = part.parameters.iter().map(|b| {
            let buffer = names[b.index()];
            let place = parameters.iter().position(|p| *p == buffer).unwrap_or(parameters.len());
            if place == parameters.len() {
                parameters.push(buffer);
            }
            format!("p{place}")
        });
        called[which].calls.push(arguments.collect());
        shared_bytes = shared_bytes.max(part.shared_bytes);
        resident = [resident, part.resident].into_iter().filter(|&n| n > 0).min().unwrap_or(0);
    }
    let (mut grid, mut calls) = (0, String::new());
    for (which, function) in called.iter().enumerate() {
        let first = grid;
        grid += function.blocks * function.calls.len() as u32;
        calls += &format!("  if (block < {grid}) {{\n{}  }}\n", function.dispatch(which, first));
    }
    let (mut list, mut first) = (vec![], String::new());
    for (i, b) in parameters.iter().enumerate() {
        list.push(format!("{}* p{i}", scalar::storage((buffers.dtype)(*b))));
        if let Some(more) = more(*b, &format!("p{i}")) {
            list.push(more.parameters);
            first += &more.statement;
        }
    }
    let source = format!(
        "{}{functions}extern \"C\" __global__ void {} {name}({}) {{\n{first}  const int block = (int)blockIdx.x;\n{calls}}}\n",
        prelude::of(&(first.clone() + &functions)),
        emit::bounds(resident),
        list.join(", ")
    );
    Ok(Parts { source, grid, shared_bytes, parameters })
}

/// A function, the blocks of a call, the types of its parameters, and the arguments of each call.
struct Called {
    blocks: u32,
    types: Vec<&'static str>,
    calls: Vec<Vec<String>>,
}

impl Called {
    /// The calls, dealt out to blocks from `first` on. The function stands in the text once, after the choice of its arguments:
    /// a hundred copies of it would take long to compile.
    fn dispatch(&self, which: usize, first: u32) -> String {
        let blocks = self.blocks;
        if let [arguments] = &self.calls[..] {
            return format!("    return part{which}(block - {first}, {blocks}, {});\n", arguments.join(", "));
        }
        let mut text = String::new();
        for (i, t) in self.types.iter().enumerate() {
            let _ = writeln!(text, "    {t}* a{i};");
        }
        let _ = writeln!(text, "    switch ((block - {first}) / {blocks}) {{");
        for (call, arguments) in self.calls.iter().enumerate() {
            let chosen: Vec<String> =
                arguments.iter().enumerate().map(|(i, a)| format!("a{i} = {a}")).collect();
            let _ = writeln!(text, "      case {call}: {}; break;", chosen.join(", "));
        }
        let names: Vec<String> = (0..self.types.len()).map(|i| format!("a{i}")).collect();
        let _ = writeln!(text, "      default: return;\n    }}");
        let _ = writeln!(
            text,
            "    return part{which}((block - {first}) % {blocks}, {blocks}, {});",
            names.join(", ")
        );
        text
    }
}

/// The kernel with its buffers numbered from 0 in the order in which they appear, and the buffers.
pub(super) fn numbered(kernel: &LoopKernel) -> (LoopKernel, Vec<BufferId>) {
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
