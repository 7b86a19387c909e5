//! An axis: which stretch of numbers it shows, where a value falls on it, and its round ticks with their labels.

use super::format::{exponent, si};

/// How an axis writes its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// As many decimals as the ticks need.
    Plain,
    /// Metric suffixes: `12k`.
    Si,
    /// Whole numbers with thousands apart.
    Count,
    /// Per cent of one.
    Percent,
}

/// A linear axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Scale {
    /// Shows `low ..= high`, which are finite; an empty stretch is widened around its value.
    pub(super) fn new(low: f64, high: f64) -> Self {
        let (low, high) = (low.min(high), low.max(high));
        let least = (low.abs().max(high.abs()) * 1e-9).max(1e-30);
        if high - low >= least {
            return Scale { low, high };
        }
        let room = if low == 0.0 { 1.0 } else { (low.abs() * 0.1).max(least) };
        Scale { low: low - room, high: high + room }
    }

    /// Adds room at both ends, but none that crosses zero from data on one side of it.
    pub(super) fn padded(low: f64, high: f64) -> Self {
        let Scale { low: l, high: h } = Self::new(low, high);
        let room = (h - l) * 0.06;
        let below = if low >= 0.0 { (l - room).max(0.0) } else { l - room };
        Scale { low: below, high: h + room }
    }

    /// Where `x` falls, from 0 at the low end to 1 at the high end; beyond them for values beyond.
    pub(super) fn at(&self, x: f64) -> f64 {
        (x - self.low) / (self.high - self.low)
    }

    /// Round numbers on the axis, about `wanted` of them, with their labels.
    pub(super) fn ticks(&self, wanted: usize, labels: Labels) -> Vec<(f64, String)> {
        let rough = (self.high - self.low) / wanted.max(1) as f64;
        let unit = 10f64.powf(rough.log10().floor());
        let step =
            unit * [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * unit >= rough * 0.999).unwrap_or(10.0);
        let step = if labels == Labels::Count { step.max(1.0).round() } else { step };
        if !(step.is_normal() && (self.low / step).abs() < 1e12) {
            return Vec::new();
        }
        let first = (self.low / step - 1e-9).ceil();
        let ticks = (0..=4 * wanted).map(|i| (first + i as f64) * step);
        let ticks = ticks.take_while(|t| *t <= self.high + step * 1e-9);
        ticks.map(|t| (t, label(if t.abs() < step * 1e-6 { 0.0 } else { t }, step, labels))).collect()
    }
}

fn label(x: f64, step: f64, labels: Labels) -> String {
    let decimals = |step: f64| (-(step * 1.0001).log10().floor()).clamp(0.0, 12.0) as usize;
    match labels {
        _ if x == 0.0 => "0".into(),
        Labels::Count => super::format::count(x.max(0.0) as u64),
        Labels::Percent => format!("{:.*} %", decimals(step * 100.0), x * 100.0),
        Labels::Si if step >= 1.0 => {
            let text = si(x);
            let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
            let suffix = &text[digits.len()..];
            let digits = if digits.contains('.') {
                digits.trim_end_matches('0').trim_end_matches('.')
            } else {
                digits
            };
            format!("{digits}{suffix}")
        }
        _ if step < 1e-3 || x.abs() >= 1e6 => exponent(x),
        _ => format!("{x:.*}", decimals(step)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64, labels: Labels) -> Vec<String> {
        Scale::new(low, high).ticks(5, labels).into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(1.3, 4.2, Labels::Plain), ["2", "3", "4"]);
        assert_eq!(labels(0.0, 1.0, Labels::Percent), ["0", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        assert_eq!(labels(0.0, 3e-4, Labels::Plain), ["0", "1e-4", "2e-4", "3e-4"]);
        assert_eq!(labels(0.0, 20_000.0, Labels::Si), ["0", "5k", "10k", "15k", "20k"]);
        assert_eq!(labels(1.0, 2000.0, Labels::Count), ["500", "1,000", "1,500", "2,000"]);
        assert_eq!(labels(1.0, 2.0, Labels::Count), ["1", "2"]);
    }

    #[test]
    fn no_stretch_breaks_it() {
        for (low, high) in
            [(0.0, 0.0), (5.0, 5.0), (1e300, 1e300), (-1e300, 1e300), (1e-310, 2e-310), (1e15, 1e15 + 1.0)]
        {
            for scale in [Scale::new(low, high), Scale::padded(low, high)] {
                assert!(scale.high > scale.low, "{low} {high}");
                assert!((-0.01..=1.01).contains(&scale.at(low)), "{low} {high}");
                for kind in [Labels::Plain, Labels::Si, Labels::Count, Labels::Percent] {
                    assert!(scale.ticks(5, kind).len() <= 21);
                }
            }
        }
    }
}
