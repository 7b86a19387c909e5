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
    ("_upsample_bilinear2d_aa", |c| {
        let x = c.x()?;
        let of = sizes(x)[2..].to_vec();
        let factors = match c.get(KEYWORD, "scale_factors") {
            Value::List(items) => {
                items.iter().map(|v| if let Value::Float(f) = v { *f } else { 1.0 }).collect()
            }
            _ => [c.number_or(KEYWORD, "scales_h", 0.0)?, c.number_or(KEYWORD, "scales_w", 0.0)?].to_vec(),
        };
        let out: Vec<usize> = match c.maybe_ints(KEYWORD, "output_size")? {
            Some(out) => out.into_iter().map(|n| n as usize).collect(),
            None => of.iter().zip(&factors).map(|(&n, f)| (n as f64 * f) as usize).collect(),
        };
        let step = |a: usize| if factors[a] > 0.0 { 1.0 / factors[a] } else { of[a] as f64 / out[a] as f64 };
        let (steps, align_corners) = ([step(0), step(1)], c.flag(KEYWORD, "align_corners", false)?);
        let options = Resize { align_corners, steps: Some(&steps), antialias: true, ..LINEAR };
        one(x.resize(&out, options))
    }),
    ("nn.functional.interpolate/area", |c| {
        let (out, _) = target(c)?;
        one(c.x()?.adaptive_avg_pool(&out))
    }),
];

const LINEAR: Resize<'static> =
    Resize { kind: Interpolation::Linear, align_corners: false, steps: None, antialias: false };

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
    one(c.x()?.resize(&out, Resize { kind, align_corners, steps: Some(&steps), ..LINEAR }))
}
