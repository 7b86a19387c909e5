//! The ops, one file each, and the table that lists them.

mod arg_reduce;
mod attention;
mod attention_grad;
mod attention_options;
mod attention_scores;
mod barrier;
mod bce_with_logits;
mod binary;
mod bitcast;
mod broadcast;
mod call;
mod cast;
mod compare;
mod concat;
mod constant;
mod convolution;
mod convolution_input_grad;
mod convolution_weight_grad;
mod cross_entropy;
mod ctc_loss;
mod cumulative;
mod custom;
mod custom_kernel;
mod custom_ops;
mod dropout;
mod dynamic_slice;
mod dynamic_update_slice;
mod gather;
mod gather_along;
mod gelu;
mod iota;
mod layer_norm;
mod log_softmax;
mod matmul;
mod max_pool;
mod mean;
mod pad;
mod quantize;
mod random_bits;
mod reduce;
mod reshape;
mod reverse;
mod rms_norm;
mod round_stochastic;
mod scan;
mod scatter_add;
mod scatter_add_along;
mod select;
mod silu;
mod slice;
mod softmax;
mod sort;
mod sum_pool;
mod transpose;
mod unary;
mod window;

pub use arg_reduce::{ArgKind, ArgReduce};
pub use attention::{Attention, AttentionOperands};
pub use attention_grad::AttentionGrad;
pub use attention_options::{AttentionAlign, AttentionLayout};
pub use attention_scores::Band;
pub use barrier::Barrier;
pub use bce_with_logits::BceWithLogits;
pub use binary::{Binary, BinaryKind};
pub use bitcast::Bitcast;
pub use broadcast::Broadcast;
pub use call::Call;
pub use cast::Cast;
pub use compare::{Compare, CompareKind};
pub use concat::Concat;
pub use constant::Constant;
pub use convolution::{Convolution, ConvolutionSizes};
pub use convolution_input_grad::ConvolutionInputGrad;
pub use convolution_weight_grad::ConvolutionWeightGrad;
pub use cross_entropy::CrossEntropy;
pub use ctc_loss::CtcLoss;
pub use cumulative::Cumulative;
pub use custom::{Backward, Custom, CustomOp};
pub use custom_kernel::{CpuKernel, MOST, Slices};
pub use custom_ops::CustomOps;
pub use dropout::Dropout;
pub use dynamic_slice::DynamicSlice;
pub use dynamic_update_slice::DynamicUpdateSlice;
pub use gather::Gather;
pub use gather_along::GatherAlong;
pub use gelu::Gelu;
pub use iota::Iota;
pub use layer_norm::LayerNorm;
pub use log_softmax::LogSoftmax;
pub use matmul::Matmul;
pub use max_pool::MaxPool;
pub use mean::Mean;
pub use pad::Pad;
pub use quantize::Quantize;
pub use random_bits::RandomBits;
pub use reduce::{Reduce, ReduceKind};
pub use reshape::Reshape;
pub use reverse::Reverse;
pub use rms_norm::RmsNorm;
pub use round_stochastic::RoundStochastic;
pub use scan::Scan;
pub use scatter_add::ScatterAdd;
pub use scatter_add_along::ScatterAddAlong;
pub use select::Select;
pub use silu::Silu;
pub use slice::Slice;
pub use softmax::Softmax;
pub use sort::Sort;
pub use sum_pool::SumPool;
pub use transpose::Transpose;
pub use unary::{Unary, UnaryKind};
pub use window::{Tap, Window};

use crate::op::{OpRule, OpTable, Sample};
use crate::{Attr, AttrReader, Dim, Mistake};

macro_rules! table {
    ($($op:ident),+ $(,)?) => {
        /// An op with its attributes. Each variant is one file of `ops/`; the last is of the user's own.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Op { $($op($op)),+, Custom(Custom) }

        impl From<Custom> for Op {
            fn from(op: Custom) -> Op { Op::Custom(op) }
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op { Op::$op(op) }
        })+

        impl Op {
            /// Its rules.
            pub fn rule(&self) -> &dyn OpRule {
                match self { $(Op::$op(op) => op,)+ Op::Custom(op) => op }
            }

            /// The op of the table with this mnemonic.
            pub fn parse(name: &str, attrs: &mut AttrReader) -> Result<Op, Mistake> {
                $(if $op::NAMES.contains(&name) {
                    return $op::parse(name, attrs).map(Op::from);
                })+
                let help = match crate::nearest(name, Op::names()) {
                    Some(n) => format!("did you mean '{n}'?"),
                    None => "see the op table in the documentation; an op of your own is read by \
                             Graph::parse_with, given that op"
                        .to_string(),
                };
                Err(Mistake::new(format!("there is no op '{name}'"), help))
            }

            /// The op with the name of this one and these attributes.
            pub fn reread(&self, attrs: &mut AttrReader) -> Result<Op, Mistake> {
                match self {
                    Op::Custom(op) => op.op().read(attrs).map(Op::Custom),
                    op => Op::parse(op.rule().name(), attrs),
                }
            }

            /// The same op with every dimension among its attributes mapped by `f`; `None` where `f` gives none.
            pub fn map_dims(&self, mut f: impl FnMut(&Dim) -> Option<Dim>) -> Option<Op> {
                let attrs = self.rule().attrs();
                if !attrs.iter().any(|(_, a)| matches!(a, Attr::Dims(_))) {
                    return Some(self.clone());
                }
                let mut mapped = vec![];
                for (name, attr) in attrs {
                    mapped.push((name.to_string(), match attr {
                        Attr::Dims(dims) => Attr::Dims(dims.iter().map(&mut f).collect::<Option<_>>()?),
                        other => other,
                    }));
                }
                self.reread(&mut AttrReader::new(mapped)).ok()
            }

            /// Every mnemonic of the table.
            pub fn names() -> Vec<&'static str> {
                [$($op::NAMES),+].concat()
            }

            /// The samples of every op of the table, for tests that walk the table.
            pub fn samples() -> Vec<Sample> {
                let mut all = vec![];
                $(all.extend($op::samples());)+
                all
            }
        }
    };
}

table!(
    Constant,
    Iota,
    Unary,
    Binary,
    Compare,
    Select,
    Cast,
    Bitcast,
    RoundStochastic,
    Quantize,
    Matmul,
    Reduce,
    Reshape,
    Transpose,
    Broadcast,
    Slice,
    Pad,
    Concat,
    Gather,
    ScatterAdd,
    GatherAlong,
    ScatterAddAlong,
    DynamicSlice,
    DynamicUpdateSlice,
    ArgReduce,
    RandomBits,
    Mean,
    Softmax,
    LogSoftmax,
    CrossEntropy,
    LayerNorm,
    RmsNorm,
    Gelu,
    Silu,
    Dropout,
    Attention,
    AttentionGrad,
    Call,
    Barrier,
    Convolution,
    ConvolutionInputGrad,
    ConvolutionWeightGrad,
    MaxPool,
    SumPool,
    BceWithLogits,
    Cumulative,
    Reverse,
    Sort,
    Scan,
    CtcLoss,
);
