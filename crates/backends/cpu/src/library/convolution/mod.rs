//! The three convolutions, as products of matrices over patches of the input that exist in thread scratch only, a block at
//! a time:
//!
//! * forward: `y = w · patches`, the patches packed as the product reads them ([`forward`]);
//! * gradient of the weight: `dwᵀ = patches · dyᵀ`, parts of the batch added in order ([`weight_grad`]);
//! * gradient of the input: the patches' gradient `wᵀ · dy`, added to where the patches came from ([`input_grad`]).
//!
//! One path serves every rank, stride, dilation, padding and number of groups: axes are three, missing ones of size 1.
//! Blocks and the order of additions depend on sizes alone.

mod forward;
mod input_grad;
mod patches;
mod weight_grad;

use super::gemm::Isa;
use crate::error::CpuError;
use crate::kernel::Work;
use onestep_ir::ops::{Convolution, ConvolutionSizes};
use onestep_ir::{DType, Op};
use onestep_passes::schedule::{LibraryKernel, Schedule};

/// Chunks that a convolution is cut into, where its sizes allow: more than a desktop's cores.
const CHUNKS: usize = 16;

/// Sizes of a convolution, with three spatial axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Geometry {
    batch: usize,
    groups: usize,
    /// Input channels of a group.
    channels: usize,
    /// Output channels of a group.
    outputs: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    out: [usize; 3],
    stride: [usize; 3],
    low: [usize; 3],
    dilation: [usize; 3],
}

impl Geometry {
    fn new(op: &Convolution, x: &[usize], w: &[usize]) -> Geometry {
        let s = ConvolutionSizes::new(op, x, w);
        let three = |sizes: &[usize], missing: usize| {
            let mut all = [missing; 3];
            all[3 - sizes.len()..].copy_from_slice(sizes);
            all
        };
        Geometry {
            batch: s.batch,
            groups: s.groups,
            channels: s.channels,
            outputs: s.outputs,
            input: three(&s.input, 1),
            kernel: three(&s.kernel, 1),
            out: three(&s.out, 1),
            stride: three(&op.window.stride, 1),
            low: three(&op.window.low, 0),
            dilation: three(&op.window.dilation, 1),
        }
    }

    /// Spatial elements of the input.
    fn pixels(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of the kernel.
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Places of the output.
    fn places(&self) -> usize {
        self.out.iter().product()
    }

    /// Rows of the patches of a group: a channel and an element of the kernel each.
    fn depth(&self) -> usize {
        self.channels * self.taps()
    }

    /// Where a group's channels of an example begin in the input.
    fn input_at(&self, n: usize, group: usize) -> usize {
        (n * self.groups + group) * self.channels * self.pixels()
    }

    /// Where a group's channels of an example begin in the output.
    fn out_at(&self, n: usize, group: usize) -> usize {
        (n * self.groups + group) * self.outputs * self.places()
    }

    /// Where a group's weight begins.
    fn weight_at(&self, group: usize) -> usize {
        group * self.outputs * self.depth()
    }

    /// Places of a block whose patches have so many rows and about `elements` elements: whole rows of the output where
    /// one fits.
    fn block(&self, rows: usize, elements: usize) -> usize {
        let most = (elements / rows.max(1)).clamp(32, 512).min(self.places().max(1));
        let row = self.out[2].max(1);
        if row <= most { most / row * row } else { most }
    }

    fn label(&self, name: &str) -> String {
        let list = |sizes: &[usize; 3]| {
            let skip = self.kernel.iter().zip(&self.input).take_while(|(k, n)| **k == 1 && **n == 1).count();
            let shown: Vec<String> = sizes[skip.min(2)..].iter().map(|n| n.to_string()).collect();
            shown.join("×")
        };
        let groups = if self.groups == 1 { String::new() } else { format!(" in {} groups", self.groups) };
        let (from, to) = (self.channels * self.groups, self.outputs * self.groups);
        format!(
            "{name} {}×{from}×{} by {} to {to}{groups}",
            self.batch,
            list(&self.input),
            list(&self.kernel)
        )
    }
}

/// Compiles any of the three.
pub(super) fn compile(
    kernel: &LibraryKernel,
    schedule: &Schedule,
    dtype: DType,
    isa: Isa,
) -> Result<Box<dyn Work>, CpuError> {
    let (a, b) = (kernel.operands[0].clone(), kernel.operands[1].clone());
    let result = kernel.results[0].buffer;
    // The shape that the op gives: a buffer's own may be a reshape of it.
    let types = [&a, &b].map(|v| onestep_ir::Type::new(dtype, onestep_ir::Shape::fixed(&v.shape)));
    let results = kernel.op.rule().infer(&types);
    let sizes = results.ok().and_then(|types| Some(types.first()?.sizes())).unwrap_or_default();
    debug_assert_eq!(sizes.iter().product::<usize>(), schedule.buffer(result).numel());
    macro_rules! of_dtype {
        ($kernel:path, $geometry:expr) => {
            match dtype {
                DType::F64 => Ok(Box::new(<$kernel>::new($geometry, isa, [a, b], result, 0f64))),
                _ => Ok(Box::new(<$kernel>::new($geometry, isa, [a, b], result, 0f32))),
            }
        };
    }
    match &kernel.op {
        Op::Convolution(op) => {
            let geometry = Geometry::new(op, &a.shape, &b.shape);
            of_dtype!(forward::Forward<_>, geometry)
        }
        Op::ConvolutionInputGrad(op) => {
            let geometry = Geometry::new(&op.forward(), &sizes, &b.shape);
            of_dtype!(input_grad::InputGrad<_>, geometry)
        }
        Op::ConvolutionWeightGrad(op) => {
            let geometry = Geometry::new(&op.forward(), &a.shape, &sizes);
            of_dtype!(weight_grad::WeightGrad<_>, geometry)
        }
        op => Err(CpuError::NoKernel { op: op.rule().name(), why: format!("on {dtype}") }),
    }
}
