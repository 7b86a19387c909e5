//! Index arithmetic: which element of its operand a view reads, as affine functions of the iteration point.

use crate::schedule::{Affine, Bound};
use onestep_ir::Op;
use onestep_ir::row_major;

impl Affine {
    /// The index of a domain axis itself.
    pub fn axis(axis: usize, rank: usize) -> Affine {
        let mut a = Affine::constant(0, rank);
        a.coefs[axis] = 1;
        a
    }

    /// `self + k · other`.
    pub fn plus(&self, k: i64, other: &Affine) -> Affine {
        let coefs = self.coefs.iter().zip(&other.coefs).map(|(a, b)| a + k * b).collect();
        Affine { offset: self.offset + k * other.offset, coefs }
    }

    /// `k · self + n`.
    pub fn scaled(&self, k: i64, n: i64) -> Affine {
        Affine { offset: self.offset * k + n, coefs: self.coefs.iter().map(|c| c * k).collect() }
    }

    /// The largest value over a domain, for non-negative coefficients.
    fn most(&self, extents: &[usize]) -> i64 {
        self.offset + self.coefs.iter().zip(extents).map(|(c, &n)| c * (n.max(1) as i64 - 1)).sum::<i64>()
    }

    /// The domain axis whose index this is, if it is one's.
    pub fn as_axis(&self) -> Option<usize> {
        let mut used = self.coefs.iter().enumerate().filter(|(_, c)| **c != 0);
        match (used.next(), used.next()) {
            (Some((axis, 1)), None) if self.offset == 0 => Some(axis),
            _ => None,
        }
    }
}

/// `Σ index[i] · strides[i]`: the place of an element.
pub fn place(index: &[Affine], strides: &[usize], offset: usize, rank: usize) -> Affine {
    let start = Affine::constant(offset as i64, rank);
    index.iter().zip(strides).fold(start, |sum, (i, &s)| sum.plus(s as i64, i))
}

/// What a view reads.
pub struct Through {
    /// The operand's index.
    pub index: Vec<Affine>,
    /// For a pad: where the operand's element exists.
    pub bounds: Vec<Bound>,
}

/// The element of its operand that element `index` of a view is. `None` when that is not affine over this domain.
pub fn through(
    op: &Op,
    from: &[usize],
    to: &[usize],
    index: &[Affine],
    extents: &[usize],
) -> Option<Through> {
    let rank = extents.len();
    let mut bounds = vec![];
    let index = match op {
        Op::Transpose(t) => {
            let mut out = vec![Affine::constant(0, rank); from.len()];
            for (i, &p) in t.perm.iter().enumerate() {
                out[p] = index[i].clone();
            }
            out
        }
        Op::Broadcast(_) => {
            let lead = to.len() - from.len();
            let at = |(a, &n): (usize, &usize)| {
                if n == 1 { Affine::constant(0, rank) } else { index[lead + a].clone() }
            };
            from.iter().enumerate().map(at).collect()
        }
        Op::Slice(s) => {
            let mut out = index.to_vec();
            out[s.axis] = out[s.axis].scaled(s.step as i64, s.start as i64);
            out
        }
        Op::Reverse(r) => {
            let mut out = index.to_vec();
            for &a in &r.axes {
                out[a] = out[a].scaled(-1, from[a] as i64 - 1);
            }
            out
        }
        Op::Pad(p) if p.interior == 0 => {
            let mut out = index.to_vec();
            out[p.axis] = out[p.axis].scaled(1, -(p.low as i64));
            if p.low > 0 || p.high > 0 {
                bounds.push(Bound { index: out[p.axis].clone(), size: from[p.axis] as i64, step: 1 });
            }
            out
        }
        Op::Reshape(_) => reshaped(from, to, index, extents)?,
        _ => return None,
    };
    Some(Through { index, bounds })
}

/// Groups of axes of two shapes with one product each, sizes of 1 left out: `(axes of from, axes of to)`.
fn groups(from: &[usize], to: &[usize]) -> Option<Vec<(Vec<usize>, Vec<usize>)>> {
    let real =
        |s: &[usize]| s.iter().enumerate().filter(|(_, n)| **n != 1).map(|(i, _)| i).collect::<Vec<_>>();
    let (mut f, mut t) = (real(from).into_iter(), real(to).into_iter());
    let mut out = vec![];
    while let Some(first) = f.next() {
        let (mut a, mut b) = (vec![first], vec![t.next()?]);
        loop {
            let size = |axes: &[usize], s: &[usize]| axes.iter().map(|&i| s[i]).product::<usize>();
            let (pa, pb) = (size(&a, from), size(&b, to));
            match pa.cmp(&pb) {
                std::cmp::Ordering::Equal => break,
                std::cmp::Ordering::Less => a.push(f.next()?),
                std::cmp::Ordering::Greater => b.push(t.next()?),
            }
        }
        out.push((a, b));
    }
    t.next().is_none().then_some(out)
}

fn reshaped(from: &[usize], to: &[usize], index: &[Affine], extents: &[usize]) -> Option<Vec<Affine>> {
    let rank = extents.len();
    let mut out = vec![Affine::constant(0, rank); from.len()];
    if from.contains(&0) {
        return Some(out);
    }
    for (a, b) in groups(from, to)? {
        let sizes: Vec<usize> = b.iter().map(|&i| to[i]).collect();
        let here: Vec<Affine> = b.iter().map(|&i| index[i].clone()).collect();
        let linear = place(&here, &row_major(&sizes), 0, rank);
        let sizes: Vec<usize> = a.iter().map(|&i| from[i]).collect();
        for (&axis, part) in a.iter().zip(split(&linear, &sizes, extents)?) {
            out[axis] = part;
        }
    }
    Some(out)
}

/// Splits a linear index into indices for `sizes`, if no digit ever carries.
fn split(linear: &Affine, sizes: &[usize], extents: &[usize]) -> Option<Vec<Affine>> {
    if sizes.len() == 1 {
        return Some(vec![linear.clone()]);
    }
    let strides = row_major(sizes);
    let mut parts = vec![Affine::constant(0, extents.len()); sizes.len()];
    for (axis, &c) in linear.coefs.iter().enumerate().filter(|(a, c)| **c != 0 && extents[*a] > 1) {
        let digit = strides.iter().position(|&s| c > 0 && c % s as i64 == 0 && c / s as i64 > 0)?;
        parts[digit].coefs[axis] = c / strides[digit] as i64;
    }
    let mut rest = usize::try_from(linear.offset).ok()?;
    for (part, &s) in parts.iter_mut().zip(&strides) {
        part.offset = (rest / s) as i64;
        rest %= s;
    }
    parts.iter().zip(sizes).all(|(p, &n)| p.most(extents) < n as i64).then_some(parts)
}

/// The strides of a strided tensor under a new shape, if no copy is needed.
pub fn reshape_strides(shape: &[usize], strides: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    if shape.contains(&0) {
        return Some(row_major(to));
    }
    let mut out = vec![0; to.len()];
    for (a, b) in groups(shape, to)? {
        // The old axes of the group must be one run in memory.
        if a.windows(2).any(|w| strides[w[0]] != strides[w[1]] * shape[w[1]]) {
            return None;
        }
        let sizes: Vec<usize> = b.iter().map(|&i| to[i]).collect();
        let last = strides[*a.last()?];
        for (&axis, s) in b.iter().zip(row_major(&sizes)) {
            out[axis] = s * last;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_that_stay_affine() {
        // A domain [6, 4] read as [2, 3, 4]: the first axis would have to be split, but a domain [2, 3, 4] read as
        // [6, 4] merges.
        let whole: Vec<Affine> = (0..2).map(|a| Affine::axis(a, 2)).collect();
        assert!(reshaped(&[2, 3, 4], &[6, 4], &whole, &[6, 4]).is_none());
        let fine: Vec<Affine> = (0..3).map(|a| Affine::axis(a, 3)).collect();
        let merged = reshaped(&[6, 4], &[2, 3, 4], &fine, &[2, 3, 4]).unwrap();
        assert_eq!(merged[0].coefs, [3, 1, 0]);
        // What was merged splits again.
        let back = reshaped(&[2, 3, 4], &[6, 4], &merged, &[2, 3, 4]).unwrap();
        assert_eq!(back, fine);
    }

    #[test]
    fn strides_under_a_new_shape() {
        assert_eq!(reshape_strides(&[4, 6], &[6, 1], &[2, 2, 6]), Some(vec![12, 6, 1]));
        assert_eq!(reshape_strides(&[4, 6], &[1, 4], &[24]), None);
        assert_eq!(reshape_strides(&[4, 1, 6], &[12, 0, 1], &[4, 6]), Some(vec![12, 1]));
        assert_eq!(reshape_strides(&[2, 12], &[0, 1], &[2, 3, 4]), Some(vec![0, 4, 1]));
    }
}
