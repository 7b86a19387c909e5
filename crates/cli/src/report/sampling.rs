//! Curves made fit to draw: smoothed, thinned to what a screen can show, and ranged so that one wild value does
//! not flatten the rest.

/// A point of a curve. `y` may be NaN: the curve has a gap there.
pub(super) type Point = (f64, f64);

/// Beyond this size a value counts as infinite: the arithmetic of an axis could overflow on it.
const DRAWABLE: f64 = 1e300;

/// The value if it can be drawn.
pub(super) fn drawable(y: f64) -> Option<f64> {
    (y.abs() < DRAWABLE).then_some(y)
}

/// The mean of about `window` points around each point, so that a falling curve is not drawn late. At the start the
/// window shrinks to stay centred, where the curve is steepest; at the end it becomes one-sided, where it is flat.
/// Gaps stay gaps and are not counted.
pub(super) fn smooth(points: &[Point], window: usize) -> Vec<Point> {
    // Each window is summed anew: running sums would carry the rounding of one wild value to all later ones.
    let mean = |i: usize| {
        let half = (window / 2).min(i);
        let around = &points[i - half..(i + half + 1).min(points.len())];
        let (sum, n) =
            around.iter().filter_map(|p| drawable(p.1)).fold((0.0, 0.0), |(sum, n), y| (sum + y, n + 1.0));
        sum / n
    };
    let smoothed = |(i, &(x, y)): (usize, &Point)| (x, drawable(y).map_or(f64::NAN, |_| mean(i)));
    points.iter().enumerate().map(smoothed).collect()
}

/// At most about `2 * buckets` points: each bucket's least and greatest, in order, so that no spike is lost. A
/// bucket with no drawable value is a gap.
pub(super) fn thin(points: &[Point], buckets: usize) -> Vec<Point> {
    if points.len() <= 2 * buckets {
        return points.to_vec();
    }
    let mut out = Vec::with_capacity(2 * buckets);
    for chunk in points.chunks(points.len().div_ceil(buckets)) {
        let mut ends: Option<(usize, usize)> = None;
        for (i, &(_, y)) in chunk.iter().enumerate().filter(|(_, p)| drawable(p.1).is_some()) {
            let (low, high) = ends.unwrap_or((i, i));
            ends = Some((if y < chunk[low].1 { i } else { low }, if y > chunk[high].1 { i } else { high }));
        }
        match ends {
            None => out.push((chunk[0].0, f64::NAN)),
            Some((a, b)) => {
                out.push(chunk[a.min(b)]);
                if a != b {
                    out.push(chunk[a.max(b)]);
                }
            }
        }
    }
    out
}

/// The range that an axis should show: all of it, unless a few values lie so far off that the rest would be flat.
/// `None` if nothing can be drawn.
pub(super) fn range(points: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut values: Vec<f64> = points.filter_map(drawable).collect();
    values.sort_unstable_by(f64::total_cmp);
    let (&low, &high) = (values.first()?, values.last()?);
    let at = |q: f64| values[(q * (values.len() - 1) as f64).round() as usize];
    let (inner_low, inner_high) = (at(0.02), at(0.98));
    // The bulk's own spread; a flat bulk is given one from its size.
    let far = 8.0 * (inner_high - inner_low).max(0.05 * at(0.5).abs());
    let tame = |y: &f64| values.len() < 20 || far == 0.0 || (*y <= inner_high + far && *y >= inner_low - far);
    let high = values.iter().copied().rfind(tame).unwrap_or(high);
    let low = values.iter().copied().find(tame).unwrap_or(low);
    Some((low, high))
}

/// The middle value of what can be drawn.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter_map(drawable).collect();
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_is_centred_and_steps_over_gaps() {
        let curve = smooth(&[(1.0, 5.0), (2.0, f64::NAN), (3.0, 5.0), (4.0, f64::INFINITY), (5.0, 5.0)], 10);
        assert!(curve[1].1.is_nan() && curve[3].1.is_nan());
        for i in [0, 2, 4] {
            assert!((curve[i].1 - 5.0).abs() < 1e-12);
        }
        let line: Vec<Point> = (0..50).map(|i| (i as f64, 100.0 - i as f64)).collect();
        let mean = smooth(&line, 10);
        assert!((0..45).all(|i| (mean[i].1 - line[i].1).abs() < 1e-9), "a straight line stays where it is");
        let wild: Vec<Point> = (0..50).map(|i| (i as f64, if i == 9 { 1e299 } else { 2.0 })).collect();
        assert_eq!(smooth(&wild, 10)[30].1, 2.0, "a wild value is forgotten");
        assert!(smooth(&[(1.0, 1e299), (2.0, 1e299)], 2).iter().all(|p| p.1.is_finite()));
    }

    #[test]
    fn thinning_keeps_the_spikes_the_order_and_the_gaps() {
        let mut points: Vec<Point> = (0..100_000).map(|i| (i as f64, (i as f64 * 0.01).sin())).collect();
        points[54_321].1 = 40.0;
        points[10_000..20_000].iter_mut().for_each(|p| p.1 = f64::NAN);
        let thinned = thin(&points, 500);
        assert!(thinned.len() <= 1000);
        assert!(thinned.contains(&(54_321.0, 40.0)));
        assert!(thinned.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(thinned.iter().any(|p| p.1.is_nan()));
        assert_eq!(thin(&points[..10], 500), points[..10]);
    }

    #[test]
    fn a_range_leaves_out_only_wild_values() {
        assert_eq!(range([].into_iter()), None);
        assert_eq!(range([f64::NAN, f64::INFINITY].into_iter()), None);
        assert_eq!(range([3.0].into_iter()), Some((3.0, 3.0)));
        let falling = (0..100).map(|i| 10.0 / (1.0 + i as f64));
        assert_eq!(range(falling.clone()), Some((0.1, 10.0)));
        let (_, high) = range(falling.chain([1e12])).unwrap();
        assert_eq!(high, 10.0);
        let (low, high) = range([-1e308, 1e299, -1e299].into_iter()).unwrap();
        assert!((high - low).is_finite());
    }

    #[test]
    fn medians() {
        assert_eq!(median([f64::NAN].into_iter()), None);
        assert_eq!(median([3.0, 1.0, f64::NAN, 2.0].into_iter()), Some(2.0));
    }
}
