//! `broadcast`: the member's axes are aligned at the right behind the leading one.

use super::{At, Batch};
use crate::vmap::leading;
use onestep_ir::ops::Broadcast;
use onestep_ir::{Shape, Tensor};

impl Batch for Broadcast {
    fn batch<'g>(&self, at: &At<'_, 'g>) -> Option<Vec<Tensor<'g>>> {
        let from = &at.types[0].shape;
        let new = self.dims.len() - from.rank();
        let aligned = Shape([vec![1.into(); new], from.0.clone()].concat());
        let x = at.wide(0).reshape(leading(at.size, &aligned));
        Some(vec![x.broadcast(&leading(at.size, &Shape(self.dims.clone())))])
    }
}
