//! Products of few rows with a large matrix, as when one token is decoded: memory-bound, so the matrix is read once, as fast
//! as memory gives it (`gemv.cuh`). What stands around them goes along ([`together`]): products of the same rows share a
//! launch, as the queries, keys and values of a layer; a loop that computes these rows is done by every block for itself; and
//! the last product takes the work on its elements. Matrices that no kernel of the program writes are loaded while the kernels
//! before still run.

mod before;
mod together;

pub(crate) use together::together;

use super::Context;
use crate::code::{Address, Launch, MAKE_WAY, NAME, Product, THREADS, WAIT};
use crate::error::CudaError;
use crate::render::{Epilogue, point, prelude, scalar};
use before::Before;
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, LoopKernel, MatmulKernel};
use std::fmt::Write;

/// The most rows.
const MOST_ROWS: usize = 8;
/// Bytes of a load.
const LOAD: usize = 16;
const WARP: usize = 32;
const WARPS: usize = THREADS as usize / WARP;
/// The most loads of a lane that are worth a warp alone, and that are in flight at once.
const LONG: usize = 12;

/// Whether this kernel takes a product: few rows, sums in `f32`, and both factors contiguous along the sum at addresses that
/// loads of 16 bytes may have.
pub(crate) fn takes(p: &Product) -> bool {
    let [batch, rows, columns, depth] = p.sizes;
    let width = LOAD / p.dtype.size();
    let apart = |stride: usize, count: usize| count == 1 || stride.is_multiple_of(width);
    batch == 1
        && (1..=MOST_ROWS).contains(&rows)
        && matches!(p.dtype, DType::BF16 | DType::F16 | DType::F32)
        && p.result != DType::F64
        && (p.lhs.1[2], p.rhs.1[1]) == (1, 1)
        && depth > 0
        && depth.is_multiple_of(width)
        && apart(p.lhs.1[1], rows)
        && apart(p.rhs.1[2], columns)
        && p.aligned.is_multiple_of(LOAD)
        && depth < 1 << 30
        && columns < 1 << 28
}

/// Whether the loop kernel may be its epilogue: the work on each element alone.
pub(crate) fn takes_epilogue(m: &MatmulKernel, epilogue: &LoopKernel) -> bool {
    let (batch, rows, _, _) = m.sizes();
    batch == 1 && rows <= MOST_ROWS && epilogue.parallel == epilogue.extents.len()
}

/// How products are dealt out to warps.
struct Form {
    /// Columns that a warp takes at a time, so that a row's values are loaded once for all of them.
    each: usize,
    /// Warps that share the sum. It decides the order of the sum, and follows from the sum's length alone.
    split: usize,
    /// Loads of a lane in flight, for each column.
    ahead: usize,
    blocks: usize,
}

impl Form {
    /// Of `columns` in all, `each` at a time, with rows of `bytes`.
    fn new(columns: usize, each: usize, bytes: usize) -> Form {
        let loads = bytes.div_ceil(LOAD * WARP);
        let mut split = 1;
        while split < WARPS && loads.div_ceil(split) > LONG {
            split *= 2;
        }
        let own = loads.div_ceil(split);
        let ahead = own.div_ceil((own * each).div_ceil(LONG)).min(LONG / each);
        Form { each, split, ahead, blocks: columns.div_ceil(each).div_ceil(WARPS / split) }
    }
}

/// The products of a launch, which [`takes`] took, with what goes along.
pub(crate) struct Group<'a> {
    /// One at least; all of the same rows.
    pub products: &'a [Product],
    /// Their buffers.
    pub outs: Vec<BufferId>,
    /// The loop that computes the rows.
    pub before: Option<&'a LoopKernel>,
    /// The work on the elements of the last product.
    pub epilogue: Option<&'a LoopKernel>,
    /// Whether no kernel of the program writes the matrices.
    pub fixed: bool,
}

impl Group<'_> {
    /// Whether column `j` of each stands beside the others' for one warp.
    fn interleaves(&self) -> bool {
        together::interleaves(self.products.iter().map(|p| p.sizes[2]))
    }

    /// Where the row of the right factor for column `j` of all products begins.
    fn weights(&self) -> String {
        let mut text = "  const auto weights = [&](int j) -> const element* {\n".to_string();
        let stride = |p: &Product| p.rhs.1[2];
        if self.interleaves() {
            let [a, b] = [0, 1].map(|n| stride(&self.products[n]));
            let _ = writeln!(text, "    return j % 2 == 0 ? w0 + j / 2 * {a}ll : w1 + j / 2 * {b}ll;");
        } else {
            let mut first = 0;
            for (n, p) in self.products.iter().enumerate() {
                let end = first + p.sizes[2];
                let test =
                    if n + 1 < self.products.len() { format!("if (j < {end}) ") } else { String::new() };
                let _ = writeln!(text, "    {test}return w{n} + (j - {first}) * {}ll;", stride(p));
                first = end;
            }
        }
        text + "  };\n"
    }

    /// What is done with the sums of a thread; `work` is the epilogue's.
    fn finish(&self, columns: usize, each: usize, work: &Epilogue) -> String {
        let (index, side) = (work.index, if self.interleaves() { 2 } else { 1 });
        let mut text = format!(
            "  const auto finish = [&]({index} i0, int first, const float (&sums)[{each}]) {{\n#pragma unroll\n\
             \x20   for (int c = 0; c < {each}; c += {side}) {{\n      if (first + c >= {columns}) break;\n"
        );
        if self.products.len() == side {
            let _ = writeln!(text, "      const {index} i1 = (first + c) / {side};");
            (0..side).for_each(|n| text += &self.store(n, &format!("sums[c + {n}]")));
            text += &work.point;
        } else {
            let mut start = 0;
            for (n, p) in self.products.iter().enumerate() {
                let end = start + p.sizes[2];
                let _ = writeln!(
                    text,
                    "      if (first + c < {end}) {{\n      const int i1 = first + c - {start};"
                );
                text += &self.store(n, "sums[c]");
                text += "      continue;\n      }\n";
                start = end;
            }
        }
        text + "    }\n  };\n"
    }

    /// The matrices and the results as parameters; statements that let results be where they go.
    fn places(&self, context: &Context<'_>, head: &mut Head) -> String {
        let mut statements = String::new();
        for (n, (p, out)) in self.products.iter().zip(&self.outs).enumerate() {
            head.add(format!("const element* w{n}, result* y{n}"), [p.rhs.0, p.out]);
            if let Some(within) = context.within.get(out) {
                let more = within.more(&format!("y{n}"), "result");
                head.add(more.parameters, [within.larger, within.start]);
                statements += &more.statement;
            }
        }
        statements
    }

    /// Stores an element of product `n`, which stays at hand as `x{n}`.
    fn store(&self, n: usize, sum: &str) -> String {
        let (dtype, columns) = (self.products[n].result, self.products[n].sizes[2]);
        let (rounded, x) = (scalar::rounded(dtype, sum.into()), format!("x{n}"));
        let stored = scalar::to_storage(dtype, &x);
        format!(
            "      const float {x} = {rounded};\n      y{n}[(long long)i0 * {columns} + i1] = {stored};\n"
        )
    }
}

/// The parameters of a kernel, and the addresses that they get.
#[derive(Default)]
struct Head {
    parameters: Vec<String>,
    arguments: Vec<Address>,
}

impl Head {
    fn add(&mut self, parameters: String, arguments: impl IntoIterator<Item = Address>) {
        self.parameters.push(parameters);
        self.arguments.extend(arguments);
    }
}

/// The launch of a group; an epilogue is what [`together::Together::fused`] gives, or one that [`takes_epilogue`] took of a product
/// alone.
pub(crate) fn compile(group: &Group<'_>, context: &Context<'_>) -> Result<Launch, CudaError> {
    let [first, ..] = group.products else {
        return Err(CudaError::Operand { what: "a launch of products", why: "there is none".into() });
    };
    let [_, rows, _, depth] = first.sizes;
    let columns = group.products.iter().map(|p| p.sizes[2]).sum();
    let each = if rows > 1 || group.interleaves() { 2 } else { 1 };
    let Form { each, split, ahead, blocks } = Form::new(columns, each, depth * first.dtype.size());
    let partial = if split > 1 { (WARPS * each * rows * 4).next_multiple_of(LOAD) } else { 0 };
    let dtype_of = |b: BufferId| context.schedule.buffer(b).dtype;
    let work = group.epilogue.map(|e| point(e, &group.outs, &dtype_of)).transpose()?.unwrap_or_default();
    let before = match group.before {
        Some(k) => Before::new(k, first, context, partial)?,
        None => Before::none(first, partial),
    };

    let mut head = Head { parameters: before.parameters, arguments: before.arguments };
    let places = group.places(context, &mut head);
    for ((dtype, name), b) in work.parameters.iter().zip(&work.buffers) {
        head.add(format!("{dtype}* {name}"), [context.homes[b.index()]]);
    }
    let (make_way, wait) = if group.fixed { (MAKE_WAY, WAIT) } else { ("", "") };
    let lambdas = format!(
        "{}{}{}  const auto settle = [&] {{\n{wait}{}{places}  }};\n",
        before.rows,
        group.weights(),
        group.finish(columns, each, &work),
        before.call,
    );
    let functions = elements(first.dtype, first.result);
    let source = format!(
        "{}{functions}{}{}extern \"C\" __global__ void __launch_bounds__({THREADS}) {NAME}({}) {{\n{make_way}  extern __shared__ long long shared[];\n{lambdas}\
         \x20 gemv<{rows}, {columns}, {depth}, {each}, {split}, {ahead}>(x, {}, (float*)shared, weights, settle, finish);\n}}\n",
        prelude::of(&format!("{functions}{}{lambdas}", before.functions)),
        include_str!("gemv.cuh"),
        before.functions,
        head.parameters.join(", "),
        before.stride,
    );
    let (arguments, shared_bytes) = (head.arguments, before.shared_bytes);
    Ok(Launch { source, grid: blocks, threads: THREADS, shared_bytes, arguments })
}

/// The types of the factors and of the result, and how a load becomes floats.
fn elements(dtype: DType, result: DType) -> String {
    let pair = |low: &str, high: &str| {
        format!("  for (int i = 0; i < 4; ++i) {{\n    x[2 * i] = {low};\n    x[2 * i + 1] = {high};\n  }}\n")
    };
    let widen = match dtype {
        DType::BF16 => pair("__uint_as_float(words[i] << 16)", "__uint_as_float(words[i] & 0xffff0000u)"),
        DType::F16 => pair(
            "f16_to_f32((unsigned short)(words[i] & 0xffffu))",
            "f16_to_f32((unsigned short)(words[i] >> 16))",
        ),
        _ => "  for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(words[i]);\n".to_string(),
    };
    format!(
        "typedef {} element;\ntypedef {} result;\nconstexpr int THREADS = {THREADS}, WIDTH = {};\n\
         __device__ __forceinline__ void widen(const uint4 load, float (&x)[WIDTH]) {{\n\
         \x20 const unsigned int words[4] = {{load.x, load.y, load.z, load.w}};\n#pragma unroll\n{widen}}}\n",
        scalar::storage(dtype),
        scalar::storage(result),
        LOAD / dtype.size(),
    )
}
