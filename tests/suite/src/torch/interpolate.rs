//! Resampling: nearest, linear and cubic interpolation along the axes behind the channels, and averages over areas.

use super::Entry;
use super::call::{Built, Call, KEYWORD, Trouble};
use super::helpers::{one, sizes};
use crate::samples::Value;
use onestep_ir::{Interpolation, Resize};

pub const TABLE: &[Entry] = &[
    ("nn.functional.interpolate/nearest nn.functional.upsample_nearest", |c| {
        resize(c, Interpolation::Nearest, false)
    }),
    ("nn.functional.interpolate/nearest-exact", |c| resize(c, Interpolation::NearestCell, false)),
    (
        "nn.functional.interpolate/linear nn.functional.interpolate/bilinear \
         nn.functional.interpolate/trilinear",
        |c| resize(c, Interpolation::Linear, false),
    ),
    ("nn.functional.upsample_bilinear", |c| resize(c, Interpolation::Linear, true)),
    ("nn.functional.interpolate/bicubic", |c| resize(c, Interpolation::Cubic, false)),
    ("nn.functional.interpolate/area", |c| {
        let (out, _) = target(c)?;
        one(c.x()?.adaptive_avg_pool(&out))
    }),
];

/// The sizes, and the distance of neighbouring results along each axis.
fn target(c: &Call<'_, '_>) -> Result<(Vec<usize>, Vec<f64>), Trouble> {
    let again = c.flag(KEYWORD, "recompute_scale_factor", false)?;
    let of = sizes(c.x()?);
    let mut found = (vec![], vec![]);
    for (axis, &n) in of[2..].iter().enumerate() {
        let (out, step) = match c.get(1, "size") {
            Value::None => {
                let factor = c.number(2, "scale_factor")?;
                let out = (n as f64 * factor) as usize;
                (out, if again { n as f64 / out as f64 } else { 1.0 / factor })
            }
            _ => {
                let given = c.ints(1, "size")?;
                let out = given[axis.min(given.len() - 1)] as usize;
                (out, n as f64 / out as f64)
            }
        };
        found.0.push(out);
        found.1.push(step);
    }
    Ok(found)
}

fn resize<'g>(c: &Call<'_, 'g>, kind: Interpolation, corners: bool) -> Built<'g> {
    let (out, steps) = target(c)?;
    let align_corners = c.flag(KEYWORD, "align_corners", corners)?;
    one(c.x()?.resize(&out, Resize { kind, align_corners, steps: Some(&steps) }))
}
