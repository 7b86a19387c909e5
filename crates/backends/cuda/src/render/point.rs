//! A loop kernel without reduced axes at one point, as statements: the epilogue of a kernel that has a value of one of its
//! buffers at hand.

use super::emit::Writer;
use super::group::Form;
use super::parts::numbered;
use super::{RenderError, check, domain, scalar};
use onestep_ir::DType;
use onestep_passes::schedule::{BufferId, LoopKernel};

/// The work at a point whose indices are `i0`, `i1`, ….
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    /// Statements of C.
    pub text: String,
    /// The type that the indices need.
    pub index: &'static str,
    /// The elements' type and the name of each pointer that the statements use.
    pub parameters: Vec<(&'static str, BufferId)>,
    /// The buffers that they point to.
    pub buffers: Vec<BufferId>,
}

impl Default for Point {
    /// No work.
    fn default() -> Point {
        Point { text: String::new(), index: "int", parameters: vec![], buffers: vec![] }
    }
}

/// Renders `kernel` at a point where the variable `x` is what stands in `held`, which the kernel loads at its own points only.
/// The text names no buffer: it is the same for equal kernels over others.
pub(crate) fn point(
    kernel: &LoopKernel,
    held: BufferId,
    dtype_of: &dyn Fn(BufferId) -> DType,
) -> Result<Point, RenderError> {
    check::kernel(kernel, dtype_of)?;
    let wide = domain::needs_64_bits(kernel)?;
    let (kernel, buffers) = numbered(kernel);
    let place = buffers.iter().position(|b| *b == held);
    let mut writer = Writer::new(&kernel, Form::Thread, wide);
    writer.held = place.map(|n| BufferId(n as u32));
    writer.point();
    let used = buffers.into_iter().enumerate().filter(|(n, _)| Some(*n) != place);
    let (parameters, buffers) =
        used.map(|(n, b)| ((scalar::storage(dtype_of(b)), BufferId(n as u32)), b)).unzip();
    Ok(Point { index: writer.index, text: writer.text, parameters, buffers })
}
