//! One line chart: SVG for the lines, HTML for the words.
//!
//! The SVG is stretched to the space that the page gives it, and its strokes keep their width; the labels are HTML,
//! placed in per cent. So a chart is sharp and its words stay readable on a phone as on a wide screen.

use std::fmt::Write;

use serde_json::json;

use super::format;
use super::html::{escape, script_json};
use super::sampling::{Point, drawable, range, thin};
use super::scale::{Labels, Scale};

/// The stretch of the SVG's own coordinates, both ways.
const SIDE: f64 = 1000.0;

/// Buckets of a thinned curve: about one a pixel of half a wide screen.
const BUCKETS: usize = 600;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A plain line.
    Line,
    /// A thin pale line that stays behind the others.
    Faint,
    /// A line with a dot at each point.
    Dots,
}

/// One curve.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// The CSS class that colours it.
    pub(super) class: &'static str,
    pub(super) mark: Mark,
    pub(super) points: Vec<Point>,
}

/// One chart over steps.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) class: &'static str,
    pub(super) series: Vec<Series>,
    /// A dashed level to compare with.
    pub(super) level: Option<(String, f64)>,
    pub(super) from_zero: bool,
    pub(super) labels: Labels,
    /// A sentence under the chart; already escaped.
    pub(super) note: String,
}

impl Chart {
    /// The chart as a `<figure>`; one that has nothing to draw says so.
    pub(super) fn render(&self) -> String {
        let mut out =
            format!("<figure class=\"chart {}\"><figcaption><h3>{}</h3>", self.class, escape(&self.title));
        self.legend(&mut out);
        out.push_str("</figcaption>");
        let outside = match self.scales() {
            Some((x, y, outside)) => {
                self.plot(&mut out, x, y);
                outside
            }
            None => {
                out.push_str("<p class=\"nothing\">Nothing was recorded.</p>");
                0
            }
        };
        let mut note = self.note.clone();
        if outside > 0 {
            let _ = write!(note, " {} outside the axis.", format::counted(outside, "value"));
        }
        if !note.is_empty() {
            let _ = write!(out, "<p class=\"note\">{}</p>", note.trim());
        }
        out.push_str("</figure>\n");
        out
    }

    fn legend(&self, out: &mut String) {
        let level = self.level.iter().map(|(name, _)| ("level", "", name));
        let pale = |mark| if mark == Mark::Faint { " pale" } else { "" };
        let names: Vec<_> =
            self.series.iter().map(|s| (s.class, pale(s.mark), &s.name)).chain(level).collect();
        if names.len() < 2 {
            return;
        }
        out.push_str("<ul class=\"legend\">");
        for (class, pale, name) in names {
            let _ = write!(out, "<li class=\"{class}{pale}\">{}</li>", escape(name));
        }
        out.push_str("</ul>");
    }

    fn scales(&self) -> Option<(Scale, Scale, usize)> {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let (low, high) = range(points().map(|p| p.1))?;
        // A mean is outside only because of what it is the mean of: the first series counts.
        let beyond = |p: &&Point| drawable(p.1).is_some_and(|y| y < low || y > high);
        let outside = self.series.first().map_or(0, |s| s.points.iter().filter(beyond).count());
        let level = self.level.as_ref().and_then(|l| drawable(l.1));
        let low = level.map_or(low, |l| l.min(low));
        let high = level.map_or(high, |l| l.max(high));
        let low = if self.from_zero { low.min(0.0) } else { low };
        let left = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let right = points().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        Some((Scale::new(left, right), Scale::padded(low, high), outside))
    }

    fn plot(&self, out: &mut String, x: Scale, y: Scale) {
        let y_ticks = y.ticks(5, self.labels);
        let width = y_ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
        let _ = write!(out, "<div class=\"frame\" style=\"--y:{width}ch\"><div class=\"plot\">");
        let _ = write!(out, "<svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" role=\"img\" ");
        let _ = write!(out, "aria-label=\"{} over steps\">", escape(&self.title));
        let place = |(px, py): Point| (x.at(px) * SIDE, (1.0 - y.at(py)) * SIDE);
        for (tick, _) in &y_ticks {
            let _ = write!(out, "<path class=\"grid\" d=\"M0 {:.1}H{SIDE}\"/>", place((x.low, *tick)).1);
        }
        let mut read_out = Vec::new();
        for series in &self.series {
            let points = thin(&series.points, BUCKETS);
            let line = path(points.iter().map(|&p| (drawable(p.1).is_some(), place(p))));
            let mark = if series.mark == Mark::Faint { "faint" } else { "line" };
            let _ = write!(out, "<path class=\"{mark} {}\" d=\"{line}\"/>", series.class);
            if series.mark == Mark::Dots && points.len() <= 120 || points.len() == 1 {
                let dots = dots(points.iter().filter(|p| drawable(p.1).is_some()).map(|&p| place(p)));
                let _ = write!(out, "<path class=\"dots {}\" d=\"{dots}\"/>", series.class);
            }
            let pairs: Vec<_> = points.iter().map(|&(px, py)| json!([px, short(py)])).collect();
            read_out.push(json!({ "name": series.name, "class": series.class, "points": pairs }));
        }
        if let Some((_, at)) = self.level.as_ref().filter(|l| drawable(l.1).is_some()) {
            let _ = write!(out, "<path class=\"level\" d=\"M0 {:.1}H{SIDE}\"/>", place((x.low, *at)).1);
        }
        out.push_str("</svg>");
        for (tick, label) in &y_ticks {
            let _ = write!(
                out,
                "<span class=\"y\" style=\"top:{:.2}%\">{label}</span>",
                (1.0 - y.at(*tick)) * 100.0
            );
        }
        for (tick, label) in x.ticks(5, Labels::Count).iter().filter(|t| t.0 >= 0.0) {
            let _ =
                write!(out, "<span class=\"x\" style=\"left:{:.2}%\">{label}</span>", x.at(*tick) * 100.0);
        }
        let percent = self.labels == Labels::Percent;
        let data = json!({ "low": x.low, "high": x.high, "percent": percent, "series": read_out });
        let _ = write!(out, "<script type=\"application/json\">{}</script></div></div>", script_json(&data));
    }
}

/// A value for the read-out, at the six digits that it can show.
fn short(y: f64) -> Option<f64> {
    drawable(y).and_then(|y| format!("{y:.5e}").parse().ok())
}

/// A path through the points, broken where one cannot be drawn. A lone point becomes a dot.
pub(super) fn path(points: impl Iterator<Item = (bool, (f64, f64))>) -> String {
    let mut d = String::new();
    let mut pen_down = false;
    for (there, (x, y)) in points {
        if there {
            // Far outside the picture is as good as infinitely far, and shorter.
            let y = y.clamp(-SIDE, 2.0 * SIDE);
            let _ = write!(d, "{}{x:.1} {y:.1}", if pen_down { 'L' } else { 'M' });
            if !pen_down {
                d.push_str("h0");
            }
        }
        pen_down = there;
    }
    d
}

/// Dots that stay round when the picture is stretched: lines of no length with round ends.
fn dots(points: impl Iterator<Item = (f64, f64)>) -> String {
    points.fold(String::new(), |mut d, (x, y)| {
        let _ = write!(d, "M{x:.1} {:.1}h0", y.clamp(-SIDE, 2.0 * SIDE));
        d
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<Point>) -> Chart {
        let series = Series { name: "a<b".into(), class: "train", mark: Mark::Line, points };
        Chart {
            title: "t<".into(),
            class: "",
            series: vec![series],
            level: Some(("<base>".into(), 1.0)),
            from_zero: false,
            labels: Labels::Plain,
            note: String::new(),
        }
    }

    #[test]
    fn an_empty_chart_says_so() {
        assert!(chart(Vec::new()).render().contains("Nothing was recorded"));
        assert!(chart(vec![(1.0, f64::NAN)]).render().contains("Nothing was recorded"));
    }

    #[test]
    fn one_point_is_a_dot() {
        assert!(chart(vec![(1.0, 2.0)]).render().contains("dots train"));
    }

    #[test]
    fn gaps_break_the_line_and_no_odd_number_reaches_the_page() {
        let html =
            chart(vec![(1.0, 2.0), (2.0, f64::NAN), (3.0, f64::INFINITY), (4.0, 3.0), (5.0, 1.0)]).render();
        let line = html.split("line train\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
        assert!(html.contains("[2.0,null]"), "{html}");
        assert!(!html.contains("a<b") && !html.contains("<base>"));
    }
}
