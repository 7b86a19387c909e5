//! The axes of a loop kernel and its affine indices over them.

use super::{Affine, Expr, LoopKernel};

impl LoopKernel {
    /// Every affine index: of its loads and their bounds, of index expressions, of its stores.
    pub fn affines(&self) -> Vec<&Affine> {
        let mut all = vec![];
        for e in &self.body {
            match &e.expr {
                Expr::Load { access, bounds, .. } => {
                    all.push(&access.place);
                    all.extend(bounds.iter().map(|b| &b.index));
                }
                Expr::Index(a) => all.push(a),
                _ => {}
            }
        }
        all.extend(self.stores.iter().map(|s| &s.access.place));
        all
    }

    /// Applies `f` to every affine index.
    pub fn for_each_affine(&mut self, mut f: impl FnMut(&mut Affine)) {
        for e in &mut self.body {
            match &mut e.expr {
                Expr::Load { access, bounds, .. } => {
                    f(&mut access.place);
                    bounds.iter_mut().for_each(|b| f(&mut b.index));
                }
                Expr::Index(a) => f(a),
                _ => {}
            }
        }
        self.stores.iter_mut().for_each(|s| f(&mut s.access.place));
    }

    /// The same kernel with neighbouring axes, both parallel or both reduced, merged wherever every index steps through them as
    /// through one, and axes of size 1 dropped. With `keep_last`, the last axis stays by itself: the columns of a matmul's
    /// epilogue.
    pub fn collapsed(&self, keep_last: bool) -> LoopKernel {
        let mut k = self.clone();
        let mut axis = 0;
        while axis < k.extents.len() {
            let (inner, last) = (axis + 1, k.extents.len() - 1);
            let dropped = k.extents[axis] == 1 && !(keep_last && axis == last);
            let merged = !dropped
                && inner <= last
                && inner != k.parallel
                && !(keep_last && inner == last)
                && k.extents[inner] != 1
                && {
                    let n = k.extents[inner] as i64;
                    k.affines().iter().all(|a| a.coefs[inner].checked_mul(n) == Some(a.coefs[axis]))
                };
            if !dropped && !merged {
                axis += 1;
                continue;
            }
            if merged {
                k.extents[inner] *= k.extents[axis];
            }
            k.extents.remove(axis);
            k.parallel -= usize::from(axis < k.parallel);
            k.for_each_affine(|a| {
                a.coefs.remove(axis);
            });
            axis = axis.saturating_sub(1);
        }
        k
    }
}
