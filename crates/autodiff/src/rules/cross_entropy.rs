//! Gradient of `cross_entropy`: dlogits = (softmax(logits) − one-hot(label))·dy for each row, and 0 for an ignored one.
//! The one-hot is a comparison with a counter, not a scatter: one fused loop, and no index can go astray. A label that
//! is no class makes its row NaN, as it does the loss.

use super::{At, Cotangents, Gradient, wide};
use onestep_ir::ops::{CrossEntropy, Softmax};
use onestep_ir::{Array, DType};

impl Gradient for CrossEntropy {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (logits, shape) = (at.x(), at.x().shape());
        let axis = shape.rank().checked_sub(1)?;
        let classes = shape.0[axis].size()?;
        // Wide enough to count classes and to hold a negative label.
        let counter = match at.operands[1].dtype() {
            DType::I8 | DType::U8 | DType::I32 => DType::I32,
            _ => DType::I64,
        };
        let label = at.operands[1].cast(counter);
        let valid = label.greater_equal(0.0).and(label.less(classes as f64));
        let weight = valid.select(wide(at.dy()), f64::NAN);
        let ignored = match counter {
            DType::I32 => i32::try_from(self.ignore_index).ok().map(Array::scalar),
            _ => Some(Array::scalar(self.ignore_index)),
        };
        let weight = match ignored {
            Some(ignored) => label.equals(at.g.constant(ignored)).select(0.0, weight),
            None => weight,
        };
        let p = at.g.emit1(Softmax { axis }, &[wide(logits)]);
        let one_hot = at.g.iota(counter, &shape, axis).equals(label.expand(axis)).cast(p.dtype());
        let dx = (p - one_hot) * weight.expand(axis);
        Some(vec![Some(dx.cast(logits.dtype())), None])
    }
}
