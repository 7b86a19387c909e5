//! Loop kernels as epilogues of other kernels: one without reduced axes at a point whose value of a buffer is at hand, or one
//! that goes over rows, for the rows that the same block has just stored.

use super::emit::Writer;
use super::group::{self, Cut, Form};
use super::parts::{Part, numbered};
use super::{ALIGNED, Buffers, CudaKernel, RenderError, check, domain, function, scalar};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, Expr, LoopKernel};

/// An epilogue as text. It names no buffer: it is the same for equal kernels over others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Epilogue {
    /// What the statements call.
    pub functions: String,
    /// Statements for a point whose indices are `i0`, `i1`, ….
    pub point: String,
    /// The type that these indices need.
    pub index: &'static str,
    /// What the statements take from the variable `loaded`, so that it can be loaded ahead: each as a member, and its value at these
    /// indices.
    pub loads: Vec<(String, String)>,
    /// Statements for when all threads of the block are done with its points.
    pub end: String,
    /// The elements' type and the name of each pointer that the text uses.
    pub parameters: Vec<(&'static str, BufferId)>,
    /// The buffers that they point to.
    pub buffers: Vec<BufferId>,
}

impl Default for Epilogue {
    /// No work.
    fn default() -> Epilogue {
        let none = String::new;
        let (functions, point, end) = (none(), none(), none());
        Epilogue { functions, point, index: "int", loads: vec![], end, parameters: vec![], buffers: vec![] }
    }
}

impl Epilogue {
    /// Pointers to buffers, but for those that the text does not name.
    fn pointers(
        self,
        buffers: Vec<BufferId>,
        but: &[BufferId],
        dtype_of: &dyn Fn(BufferId) -> DType,
    ) -> Epilogue {
        let named = buffers.into_iter().enumerate().filter(|(_, b)| !but.contains(b));
        let pointer = |(n, b)| ((scalar::storage(dtype_of(b)), BufferId(n as u32)), b);
        let (parameters, buffers) = named.map(pointer).unzip();
        Epilogue { parameters, buffers, ..self }
    }
}

/// The epilogue of a kernel without reduced axes, where the variable `x0` is what stands in the first of `held`, `x1` in the
/// second and so on; these the kernel loads at its own points only.
pub(crate) fn point(
    kernel: &LoopKernel,
    held: &[BufferId],
    dtype_of: &dyn Fn(BufferId) -> DType,
) -> Result<Epilogue, RenderError> {
    check::kernel(kernel, dtype_of)?;
    let wide = domain::needs_64_bits(kernel)?;
    let (kernel, buffers) = numbered(kernel);
    let place = |h: &BufferId| buffers.iter().position(|b| b == h).map(|n| BufferId(n as u32));
    let dtype = |b: BufferId| dtype_of(buffers[b.index()]);
    let at_any_place = Buffers { dtype: &dtype, aligned: &|_| 1 };
    let mut writer = Writer::new(&kernel, (Form::Thread, Cut::Whole), wide, at_any_place);
    writer.held = held.iter().map(place).collect();
    writer.point();
    let (index, point) = (writer.index, writer.text);
    let epilogue = Epilogue { index, point, ..Epilogue::default() };
    Ok(epilogue.pointers(buffers, held, dtype_of))
}

/// The epilogue of a kernel over rows and columns, without reduced axes, for `width` neighbouring columns at a time, by which they
/// divide: the variable `x0` has those elements of `held` as they are stored, `i0` is the row, `i1` the number of the group in it,
/// and `i2` is 0.
pub(crate) fn group(
    kernel: &LoopKernel,
    held: BufferId,
    width: usize,
    buffers: Buffers<'_>,
) -> Result<Epilogue, RenderError> {
    check::kernel(kernel, buffers.dtype)?;
    let wide = domain::needs_64_bits(kernel)?;
    let (kernel, named) = numbered(kernel);
    let kernel = group::cut_last(kernel, width);
    let dtype = |b: BufferId| (buffers.dtype)(named[b.index()]);
    let aligned = |b: BufferId| match named[b.index()] {
        b if b == held => ALIGNED,
        b => (buffers.aligned)(b),
    };
    let known = Buffers { dtype: &dtype, aligned: &aligned };
    let mut writer = Writer::new(&kernel, (Form::Thread, Cut::Whole), wide, known);
    writer.held = vec![named.iter().position(|b| *b == held).map(|n| BufferId(n as u32))];
    writer.ahead = Some(vec![]);
    writer.at_group();
    let (index, point, loads) = (writer.index, writer.text, writer.ahead.unwrap_or_default());
    let epilogue = Epilogue { index, point, loads, ..Epilogue::default() };
    Ok(epilogue.pointers(named, &[held], buffers.dtype))
}

/// As what a kernel loads the elements of a buffer, if it does.
pub(crate) fn loaded(kernel: &LoopKernel, buffer: BufferId) -> Option<DType> {
    kernel.body.iter().find_map(|e| match &e.expr {
        Expr::Load { access, .. } if access.buffer == buffer => Some(e.dtype),
        _ => None,
    })
}

/// How many rows of a kernel a block takes at a time, if it needs no shared memory for that.
pub(crate) fn rows_per_block(kernel: &LoopKernel) -> Option<usize> {
    let (_, form) = group::arrange_rows(kernel.collapsed(false), Cut::Whole);
    (!form.shares()).then(|| form.rows_per_block())
}

/// A kernel as a function of the device, whose parameters are the block's number, how many there are, and pointers to the
/// buffers that are returned, in order.
pub(crate) fn rows_function(
    kernel: &LoopKernel,
    of: Buffers<'_>,
    name: &str,
) -> Result<(CudaKernel, Vec<BufferId>), RenderError> {
    let (kernel, buffers) = numbered(kernel);
    let dtype = |b: BufferId| (of.dtype)(buffers[b.index()]);
    let aligned = |b: BufferId| (of.aligned)(buffers[b.index()]);
    let part = function(&Part::from(kernel), Buffers { dtype: &dtype, aligned: &aligned }, name, true)?;
    let named = part.parameters.iter().map(|b| buffers[b.index()]).collect();
    Ok((part, named))
}

/// The epilogue of a kernel over rows, where each block has stored as many rows of `held` as [`rows_per_block`] says, at the
/// pointer `out`.
pub(crate) fn rows(
    kernel: &LoopKernel,
    held: BufferId,
    dtype_of: &dyn Fn(BufferId) -> DType,
) -> Result<Epilogue, RenderError> {
    let (part, buffers) = rows_function(kernel, Buffers { dtype: dtype_of, aligned: &|_| 1 }, "rows")?;
    let name = |(n, b): (usize, &BufferId)| match *b == held {
        true => "out".to_string(),
        false => BufferId(n as u32).to_string(),
    };
    let arguments: Vec<String> = buffers.iter().enumerate().map(name).collect();
    let end =
        format!("  __syncthreads();\n  rows((int)blockIdx.x, (int)gridDim.x, {});\n", arguments.join(", "));
    let epilogue = Epilogue { functions: part.source, end, ..Epilogue::default() };
    Ok(epilogue.pointers(buffers, &[held], dtype_of))
}
