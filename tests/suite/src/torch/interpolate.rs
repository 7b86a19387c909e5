//! Nearest-neighbour resampling: constant indices along each axis.

use super::Entry;
use super::call::{Built, Call, KEYWORD};
use super::helpers::{chosen, one, sizes};
use crate::samples::Value;

pub const TABLE: &[Entry] = &[
    ("nn.functional.interpolate/nearest nn.functional.upsample_nearest", |c| nearest(c, 0.0)),
    ("nn.functional.interpolate/nearest-exact", |c| nearest(c, 0.5)),
];

/// Each place reads the element at the same share of the axis; `middle` 0.5 compares the centres of the cells.
fn nearest<'g>(c: &Call<'_, 'g>, middle: f64) -> Built<'g> {
    let mut x = c.x()?;
    let again = c.flag(KEYWORD, "recompute_scale_factor", false)?;
    for axis in 2..x.rank() {
        let n = sizes(x)[axis];
        let (out, step) = match c.get(1, "size") {
            Value::None => {
                let factor = c.number(2, "scale_factor")?;
                let out = (n as f64 * factor) as usize;
                (out, if again { n as f64 / out as f64 } else { 1.0 / factor })
            }
            _ => {
                let given = c.ints(1, "size")?;
                let out = given[(axis - 2).min(given.len() - 1)] as usize;
                (out, n as f64 / out as f64)
            }
        };
        let at = |i: usize| (((i as f64 + middle) * step) as usize).min(n - 1);
        x = chosen(x, axis, &(0..out).map(at).collect::<Vec<_>>());
    }
    one(x)
}
