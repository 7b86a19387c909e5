//! The ranges of affine indices over the iteration domain.

use super::RenderError;
use onestep_passes::schedule::{Affine, LoopKernel};

/// The least and the greatest value of an index over the domain.
pub fn range(k: &LoopKernel, a: &Affine) -> (i128, i128) {
    let start = a.offset as i128;
    a.coefs.iter().zip(&k.extents).fold((start, start), |(low, high), (&c, &n)| {
        let reach = c as i128 * n.saturating_sub(1) as i128;
        (low + reach.min(0), high + reach.max(0))
    })
}

/// Whether indices of the kernel need 64 bits: some sum on the way to an index, or the count of rows or of the points of one,
/// has more than 30.
pub fn needs_64_bits(k: &LoopKernel) -> Result<bool, RenderError> {
    let product = |axes: &[usize]| axes.iter().try_fold(1i128, |p, &n| p.checked_mul(n as i128));
    let (rows, points) = k.extents.split_at(k.parallel);
    let [all, rows, points] = [&k.extents, rows, points].map(product);
    let too_large = RenderError::TooLarge { what: "domain" };
    let (Some(all), Some(rows), Some(points)) = (all, rows, points) else { return Err(too_large) };
    let mut most = rows.max(points);
    for a in k.affines() {
        let steps = a.coefs.iter().zip(&k.extents).map(|(&c, &n)| (c as i128).abs() * n as i128);
        most = most.max((a.offset as i128).abs() + steps.sum::<i128>());
    }
    if most.max(all) >= 1 << 62 {
        return Err(RenderError::TooLarge { what: "index" });
    }
    Ok(most >= 1 << 30)
}
