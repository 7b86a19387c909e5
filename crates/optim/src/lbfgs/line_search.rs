//! A line search for the strong Wolfe conditions, by cubic interpolation (Nocedal and Wright, "Numerical Optimization",
//! 2006, algorithms 3.5 and 3.6, in the form of minFunc that `torch.optim.LBFGS` has).
//!
//! ```text
//! f(t) ≤ f(0) + c₁ t f'(0)        |f'(t)| ≤ −c₂ f'(0)        c₁ = 10⁻⁴, c₂ = 0.9
//! ```

const C1: f64 = 1e-4;
const C2: f64 = 0.9;

/// A point along the direction: its loss, its gradient, and the slope of the loss along the direction.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub t: f64,
    /// Infinite where the loss or its gradient is not finite.
    pub f: f64,
    pub g: Vec<f64>,
    pub slope: f64,
}

/// A point that meets the conditions, or the best that was found in `most` iterations. Tries `t` first. `length` is the
/// largest element of the direction: a bracket that moves no parameter by `tolerance` is small enough.
pub(super) fn strong_wolfe<E>(
    at: &mut dyn FnMut(f64) -> Result<Point, E>,
    start: &Point,
    t: f64,
    length: f64,
    tolerance: f64,
    most: usize,
) -> Result<Point, E> {
    let descends = |p: &Point| p.f <= start.f + C1 * p.t * start.slope;
    let flat = |p: &Point| p.slope.abs() <= -C2 * start.slope;

    // Goes on until the conditions are met, or two points have such a point between them.
    let (mut previous, mut new) = (start.clone(), at(t)?);
    let mut iteration = 0;
    let mut bracket = loop {
        if iteration == most {
            break [start.clone(), new];
        }
        if !descends(&new) || iteration > 1 && new.f >= previous.f {
            break [previous, new];
        }
        if flat(&new) {
            return Ok(new);
        }
        if new.slope >= 0.0 {
            break [previous, new];
        }
        let bounds = (new.t + 0.01 * (new.t - previous.t), new.t * 10.0);
        let t = interpolate(&previous, &new, bounds);
        (previous, new) = (new, at(t)?);
        iteration += 1;
    };

    // Narrows the bracket.
    let lower_first = |b: &[Point; 2]| if b[0].f <= b[1].f { (0, 1) } else { (1, 0) };
    let (mut low, mut high) = lower_first(&bracket);
    let mut stuck = false;
    while iteration < most {
        let (least, greatest) = ordered(bracket[0].t, bracket[1].t);
        if (greatest - least) * length < tolerance {
            break;
        }
        let mut t = interpolate(&bracket[0], &bracket[1], (least, greatest));
        // A second time near an end, or at an end: a tenth of the bracket away from it.
        let margin = 0.1 * (greatest - least);
        let near = (greatest - t).min(t - least) < margin;
        let leave = near && (stuck || t >= greatest || t <= least);
        if leave {
            t = if (t - greatest).abs() < (t - least).abs() { greatest - margin } else { least + margin };
        }
        stuck = near && !leave;

        let new = at(t)?;
        iteration += 1;
        if !descends(&new) || new.f >= bracket[low].f {
            bracket[high] = new;
            (low, high) = lower_first(&bracket);
            continue;
        }
        let done = flat(&new);
        if !done && new.slope * (bracket[high].t - bracket[low].t) >= 0.0 {
            bracket[high] = bracket[low].clone();
        }
        bracket[low] = new;
        if done {
            break;
        }
    }
    let [first, second] = bracket;
    Ok(if low == 0 { first } else { second })
}

fn ordered(a: f64, b: f64) -> (f64, f64) {
    if a <= b { (a, b) } else { (b, a) }
}

/// Where the cubic through two points with their slopes is least, within the bounds; their middle if it has no minimum.
fn interpolate(a: &Point, b: &Point, (least, greatest): (f64, f64)) -> f64 {
    let d1 = a.slope + b.slope - 3.0 * (a.f - b.f) / (a.t - b.t);
    let square = d1 * d1 - a.slope * b.slope;
    if square < 0.0 || !square.is_finite() {
        return (least + greatest) / 2.0;
    }
    let d2 = square.sqrt();
    let t = if a.t <= b.t {
        b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2))
    } else {
        a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2.0 * d2))
    };
    // Not clamp(), which panics where the bounds are not numbers in order.
    t.max(least).min(greatest)
}
