//! How the micro-batches of a step become one: means weighted by what each holds, sums, or the last value.
//!
//! ```text
//! mean = Σ wᵢ xᵢ / Σ wᵢ          and 0 where Σ wᵢ is 0
//! ```
//!
//! With the number of tokens as the weight, a micro-batch with 1 token of loss 4 and one with 3 tokens of loss 0 have a
//! loss of 1, not 2, as the one batch of 4 tokens has. A micro-batch whose weight is not above 0 counts for nothing,
//! whatever its values are.

use crate::OptimError;
use onestep_ir::{DType, Graph, GraphBuilder, Tensor, Type, nearest};

/// How micro-batches are combined. Of the outputs, the loss and every float scalar is a mean; the weight itself and
/// those named in `sums` add up; any other is that of the last micro-batch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Combine {
    /// The output, a scalar, that weighs a micro-batch: its number of tokens, as a rule. Without one all weigh the same,
    /// as equal batches of a mean loss do.
    pub weight: Option<String>,
    /// Scalar outputs that add up, such as counts.
    pub sums: Vec<String>,
}

/// What becomes of one output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Mean,
    Sum,
    Last,
}

impl Combine {
    /// Refuses names that are no scalar outputs.
    pub fn check(&self, graph: &Graph) -> Result<(), OptimError> {
        for name in self.weight.iter().chain(&self.sums) {
            let Some(port) = graph.output(name) else {
                let nearest = nearest(name, graph.outputs.iter().map(|o| &*o.name));
                return Err(OptimError::UnknownOutput { name: name.clone(), nearest });
            };
            let ty = graph.ty(port.value);
            if ty.shape.rank() > 0 || ty.dtype == DType::Bool {
                return Err(OptimError::NotCombined { name: name.clone(), ty: Box::new(ty.clone()) });
            }
        }
        Ok(())
    }

    /// What becomes of the output `name` of this type.
    pub(crate) fn kind(&self, name: &str, ty: &Type) -> Kind {
        match self.weight.as_deref() == Some(name) || self.sums.iter().any(|s| s == name) {
            true => Kind::Sum,
            false if ty.dtype.is_float() && ty.shape.rank() == 0 => Kind::Mean,
            false => Kind::Last,
        }
    }

    /// The dtype in which values of this one are added up.
    pub(crate) fn sum_dtype(dtype: DType) -> DType {
        if dtype.is_float() { dtype.accumulator() } else { dtype }
    }

    /// The weight of a micro-batch with these outputs, in `dtype`, and whether it counts at all.
    pub(crate) fn weight<'g>(
        &self,
        g: &'g GraphBuilder,
        dtype: DType,
        output: impl Fn(&str) -> Option<Tensor<'g>>,
    ) -> Weight<'g> {
        match self.weight.as_deref().and_then(output) {
            None => Weight { amount: g.scalar(dtype, 1.0), counts: None },
            Some(given) => {
                let given = given.cast(dtype);
                let counts = given.greater(0.0);
                Weight { amount: counts.select(given, 0.0), counts: Some(counts) }
            }
        }
    }
}

/// The weight of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight<'g> {
    /// How much it counts, 0 or above.
    pub amount: Tensor<'g>,
    /// Whether it counts; `None` where each one does, with weight 1.
    counts: Option<Tensor<'g>>,
}

impl<'g> Weight<'g> {
    /// `w · x`, and 0 where the micro-batch does not count.
    pub fn of(&self, x: Tensor<'g>) -> Tensor<'g> {
        match self.counts {
            None => x,
            Some(counts) => counts.select(x * self.amount.cast(x.dtype()), 0.0),
        }
    }
}

/// `Σ w x / Σ w` from both sums, and 0 without weight.
pub(crate) fn mean<'g>(sum: Tensor<'g>, weight: Tensor<'g>) -> Tensor<'g> {
    // Without weight the sum is 0.
    sum / weight.greater(0.0).select(weight, 1.0).cast(sum.dtype())
}
