//! Reading grids at places that are data.

use super::Entry;
use super::call::{Built, Call, KEYWORD};
use super::helpers::one;
use onestep_ir::{GridSample, Interpolation, Outside};

pub const TABLE: &[Entry] = &[
    ("nn.functional.grid_sample", |c| {
        let kind = match c.text(KEYWORD, "mode", "bilinear")? {
            "nearest" => Interpolation::Nearest,
            "bicubic" => Interpolation::Cubic,
            _ => Interpolation::Linear,
        };
        let outside = match c.text(KEYWORD, "padding_mode", "zeros")? {
            "border" => Outside::Edge,
            "reflection" => Outside::Mirror,
            _ => Outside::Zeros,
        };
        let align_corners = c.flag(KEYWORD, "align_corners", false)?;
        sampled(c, GridSample { kind, outside, align_corners })
    }),
    ("grid_sampler_2d grid_sampler_3d", |c| {
        let kind = match c.int(2, "interpolation_mode")? {
            1 => Interpolation::Nearest,
            2 => Interpolation::Cubic,
            _ => Interpolation::Linear,
        };
        let outside = match c.int(3, "padding_mode")? {
            1 => Outside::Edge,
            2 => Outside::Mirror,
            _ => Outside::Zeros,
        };
        sampled(c, GridSample { kind, outside, align_corners: c.flag(4, "align_corners", false)? })
    }),
];

fn sampled<'g>(c: &Call<'_, 'g>, options: GridSample) -> Built<'g> {
    one(c.x()?.grid_sample(c.tensor(1, "grid")?, options))
}
