//! How much of the forward pass is computed twice so that a step needs less memory.

use onestep_autodiff::{activations_again, segmented};
use onestep_ir::Graph;
use onestep_optim::StepGraph;
use onestep_runtime::{Device, Error, Executable, Options, Remedy};

/// Which parts of the forward pass the backward pass computes again, instead of keeping what they computed. The results are
/// the same, bit for bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recompute {
    /// The graph's own checkpoints: [`onestep_ir::GraphBuilder::checkpoint`].
    #[default]
    Marked,
    /// As little as lets the whole step ([`onestep_runtime::Memory::peak`]) fit in this many bytes: activations and norms alone, if that
    /// will do, which costs no product; else the compiler cuts the forward pass into segments and makes checkpoints of some. It plans
    /// the step about ten times, so compiling takes that much longer. A step that cannot be made to fit is
    /// [`Error::DoesNotFit`], which names the least that it needs.
    FitIn(usize),
}

/// The step of a bound forward graph, by `build`, with as much recomputation as `recompute` says.
pub(crate) fn step(
    forward: &Graph,
    recompute: Recompute,
    build: &dyn Fn(&Graph) -> Result<StepGraph, Error>,
    device: &Device,
    options: &Options,
) -> Result<StepGraph, Error> {
    let plain = build(forward)?;
    let Recompute::FitIn(bytes) = recompute else { return Ok(plain) };
    let peak = |step: &StepGraph| Executable::memory_of(&step.graph, device, options).map(|m| m.peak());
    let first = peak(&plain)?;
    if first <= bytes {
        return Ok(plain);
    }
    let planned = |graph: Graph| -> Result<(usize, StepGraph), Error> {
        let step = build(&graph)?;
        Ok((peak(&step)?, step))
    };
    let (again, all) = activations_again(forward, usize::MAX);
    let (light, step) = planned(again)?;
    if light <= bytes {
        return fewest(bytes, all, step, |some| planned(activations_again(forward, some).0));
    }
    let cut = |segments: usize, recomputed: usize| -> Result<(usize, StepGraph), Error> {
        planned(segmented(forward, segments, recomputed))
    };
    // How finely to cut: the peak falls, until the borders cost more than the segments.
    let (mut least, mut best) = (first.min(light), None);
    let mut segments = 2;
    while segments <= forward.body.nodes.len() {
        let (peak, step) = cut(segments, segments - 1)?;
        if peak < least {
            (least, best) = (peak, Some((segments, step)));
        }
        if least <= bytes {
            break;
        }
        segments = (segments * 3).div_ceil(2);
    }
    let Some((segments, step)) = best.filter(|_| least <= bytes) else {
        return Err(Error::DoesNotFit { bytes, least, without: first });
    };
    fewest(bytes, segments - 1, step, |some| cut(segments, some))
}

/// The step with as few parts computed again as will do, of which `all` do in `step`: the first ones, whose values would be kept
/// longest.
fn fewest(
    bytes: usize,
    all: usize,
    mut step: StepGraph,
    with: impl Fn(usize) -> Result<(usize, StepGraph), Error>,
) -> Result<StepGraph, Error> {
    let (mut too_few, mut enough) = (0, all);
    while enough - too_few > 1 {
        let middle = (too_few + enough) / 2;
        let (peak, fewer) = with(middle)?;
        if peak <= bytes {
            (enough, step) = (middle, fewer);
        } else {
            too_few = middle;
        }
    }
    Ok(step)
}

/// What could be done for a step that needs more than these bytes.
pub(crate) fn remedy(
    forward: &Graph,
    bytes: usize,
    build: &dyn Fn(&Graph) -> Result<StepGraph, Error>,
    device: &Device,
    options: &Options,
) -> Remedy {
    let smaller = step(forward, Recompute::FitIn(bytes), build, device, options)
        .and_then(|step| Ok(Executable::memory_of(&step.graph, device, options)?.peak()));
    match smaller {
        Ok(peak) => Remedy::Recompute { budget: bytes, peak },
        Err(Error::DoesNotFit { least, .. }) => Remedy::NotEnough { least },
        Err(_) => Remedy::Smaller,
    }
}
