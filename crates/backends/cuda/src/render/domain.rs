//! The iteration domain: fewer axes where neighbours run together, and the ranges of affine indices over it.

use super::RenderError;
use onestep_passes::schedule::{Affine, Expr, LoopKernel};

/// Applies `f` to every affine index of the kernel.
pub fn for_each_affine(k: &mut LoopKernel, mut f: impl FnMut(&mut Affine)) {
    for e in &mut k.body {
        match &mut e.expr {
            Expr::Load { access, bounds, .. } => {
                f(&mut access.place);
                bounds.iter_mut().for_each(|b| f(&mut b.index));
            }
            Expr::Index(a) => f(a),
            _ => {}
        }
    }
    k.stores.iter_mut().for_each(|s| f(&mut s.access.place));
}

/// The affine indices of the kernel.
pub fn affines(k: &LoopKernel) -> Vec<&Affine> {
    let mut all = vec![];
    for e in &k.body {
        match &e.expr {
            Expr::Load { access, bounds, .. } => {
                all.push(&access.place);
                all.extend(bounds.iter().map(|b| &b.index));
            }
            Expr::Index(a) => all.push(a),
            _ => {}
        }
    }
    all.extend(k.stores.iter().map(|s| &s.access.place));
    all
}

/// The same kernel without axes of size 1, and with each two neighbouring axes (both parallel or both reduced) made one where
/// every index steps through them as through one.
pub fn collapse(kernel: &LoopKernel) -> LoopKernel {
    let mut k = kernel.clone();
    let mut axis = 0;
    while axis < k.extents.len() {
        let next = axis + 1;
        let one = k.extents[axis] == 1;
        let together = next < k.extents.len() && next != k.parallel && {
            let n = k.extents[next] as i64;
            affines(&k).iter().all(|a| a.coefs[next].checked_mul(n) == Some(a.coefs[axis]))
        };
        if !one && !together {
            axis = next;
            continue;
        }
        if together {
            // The removed axis is the outer one; the inner one takes its points.
            k.extents[next] *= k.extents[axis];
        }
        k.extents.remove(axis);
        for_each_affine(&mut k, |a| {
            a.coefs.remove(axis);
        });
        k.parallel -= (axis < k.parallel) as usize;
    }
    k
}

/// The least and the greatest value of an index over the domain.
pub fn range(k: &LoopKernel, a: &Affine) -> (i128, i128) {
    let start = a.offset as i128;
    a.coefs.iter().zip(&k.extents).fold((start, start), |(low, high), (&c, &n)| {
        let reach = c as i128 * n.saturating_sub(1) as i128;
        (low + reach.min(0), high + reach.max(0))
    })
}

/// Whether indices of the kernel need 64 bits: some sum on the way to an index, or the count of points, has more than 30.
pub fn needs_64_bits(k: &LoopKernel) -> Result<bool, RenderError> {
    let product = |axes: &[usize]| axes.iter().try_fold(1i128, |p, &n| p.checked_mul(n as i128));
    let points = product(&k.extents).ok_or(RenderError::TooLarge { what: "domain" })?;
    let mut most = points;
    for a in affines(k) {
        let steps = a.coefs.iter().zip(&k.extents).map(|(&c, &n)| (c as i128).abs() * n as i128);
        most = most.max((a.offset as i128).abs() + steps.sum::<i128>());
    }
    if most >= 1 << 62 {
        return Err(RenderError::TooLarge { what: "index" });
    }
    Ok(most >= 1 << 30)
}
