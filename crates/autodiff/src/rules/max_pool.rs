//! Gradient of `max_pool`: each place's cotangent added to the element that it came from, in `f32` at least.

use super::{At, Cotangents, Gradient, sizes, wide};
use onestep_ir::ops::{MaxPool, ScatterAddAlong};
use onestep_ir::{Shape, Tensor};

impl Gradient for MaxPool {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let (x, index) = (at.x(), at.results[1]);
        // Only the values have a cotangent: places are integers.
        let dy = at.cotangents[0]?;
        let axes = self.kernel.len();
        let rows = |t: Tensor<'g>| {
            let of = sizes(t);
            let (lead, spatial) = of.split_at(of.len() - axes);
            t.reshape(Shape::fixed(&[lead.iter().product(), spatial.iter().product()]))
        };
        let dy = rows(wide(dy));
        let of = sizes(x);
        let (lead, spatial) = of.split_at(of.len() - axes);
        let zeros = at.g.full(dy.dtype(), [lead.iter().product::<usize>(), spatial.iter().product()], 0.0);
        let sum = at.g.emit1(ScatterAddAlong { axis: 1 }, &[zeros, rows(index), dy]);
        Some(vec![Some(sum.reshape(x.shape()).cast(x.dtype()))])
    }
}
