//! Gradient of `transpose`: the cotangent with its axes put back.

use super::{At, Cotangents, Gradient};
use onestep_ir::ops::Transpose;

impl Gradient for Transpose {
    fn pull<'g>(&self, at: &At<'_, 'g>) -> Option<Cotangents<'g>> {
        let mut back = vec![0; self.perm.len()];
        self.perm.iter().enumerate().for_each(|(i, &p)| back[p] = i);
        Some(vec![Some(at.dy().transpose(&back))])
    }
}
