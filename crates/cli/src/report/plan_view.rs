//! The memory plan as a picture: the schedule runs to the right, the arena's offsets upward, and a rectangle is a
//! buffer: where it lies, how large it is, how long it lives. Below it, on the same schedule, the bytes live at
//! each kernel.

use std::fmt::Write;

use super::chart::path;
use super::format::{bytes, count, counted};
use super::html::escape;
use super::scale::{Labels, Scale};
use super::{BufferView, PlanView};

const SIDE: f64 = 1000.0;

/// More rectangles than this tell a reader nothing and make the page slow; the largest are drawn.
const MOST_DRAWN: usize = 4000;

/// Names are written into at most so many rectangles.
const MOST_NAMED: usize = 40;

/// The section's body.
pub(crate) fn render(plan: &PlanView) -> String {
    let mut out = facts(plan);
    if plan.buffers.is_empty() {
        out.push_str("<p class=\"nothing\">The plan has no scratch buffer.</p>");
        return out;
    }
    let picture = Picture::new(plan);
    picture.buffers(&mut out);
    picture.live(&mut out);
    picture.largest(&mut out);
    out
}

fn facts(plan: &PlanView) -> String {
    let mut out = String::from("<dl class=\"facts\">");
    let mut fact = |label: &str, value: String| {
        let _ = write!(out, "<div><dt>{label}</dt><dd>{value}</dd></div>");
    };
    fact("State, resident", bytes(plan.state_bytes));
    fact("Arena, scratch", bytes(plan.arena_bytes));
    fact("Most live at once", bytes(plan.peak_bytes));
    if plan.peak_bytes > 0 {
        fact("Arena / most live", format!("{:.3}", plan.arena_bytes as f64 / plan.peak_bytes as f64));
    }
    let sum = plan.buffers.iter().fold(0u64, |sum, b| sum.saturating_add(b.bytes));
    fact("Without reuse", bytes(sum));
    fact("Buffers", count(plan.buffers.len() as u64));
    out.push_str("</dl>");
    out
}

struct Picture<'a> {
    plan: &'a PlanView,
    /// The kernels of the schedule; at least 1.
    kernels: usize,
    /// The height in bytes; at least 1.
    height: f64,
    /// By the area that they cover, largest first.
    by_area: Vec<&'a BufferView>,
}

impl<'a> Picture<'a> {
    fn new(plan: &'a PlanView) -> Self {
        // A plan without its kernels, or with a lifetime beyond them, is still drawn.
        let beyond = plan.buffers.iter().map(|b| b.last.max(b.first).saturating_add(1)).max().unwrap_or(0);
        let kernels = plan.kernels.len().max(beyond).max(1);
        let top = plan.buffers.iter().map(|b| b.offset.saturating_add(b.bytes)).max().unwrap_or(0);
        let height = plan.arena_bytes.max(top).max(1) as f64;
        let mut by_area: Vec<&BufferView> = plan.buffers.iter().collect();
        let area = |b: &BufferView| u128::from(b.bytes) * lifetime(b) as u128;
        by_area.sort_by_key(|b| std::cmp::Reverse(area(b)));
        Picture { plan, kernels, height, by_area }
    }

    fn buffers(&self, out: &mut String) {
        let y_ticks = byte_ticks(self.height);
        let width = y_ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
        let _ = write!(out, "<div class=\"ramp\"><span>lives briefly</span>");
        (0..5).for_each(|level| out.push_str(&format!("<i class=\"l{level}\"></i>")));
        out.push_str("<span>for most of the step</span></div>");
        let _ = write!(out, "<div class=\"frame plan\" style=\"--y:{width}ch\"><div class=\"plot\">");
        let _ = write!(out, "<svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" role=\"img\" ");
        out.push_str("aria-label=\"Memory plan: offset of each buffer over the schedule\">");
        for (tick, _) in &y_ticks {
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M0 {:.1}H{SIDE}\"/>",
                (1.0 - tick / self.height) * SIDE
            );
        }
        let mut names = String::new();
        let mut named = 0;
        for (at, buffer) in self.by_area.iter().enumerate().take(MOST_DRAWN) {
            let (x, y, w, h) = self.rectangle(buffer);
            let level = self.level(buffer);
            let edge = if w > 3.0 && h > 6.0 { " edge" } else { "" };
            let _ = write!(out, "<rect class=\"l{level}{edge}\" x=\"{x:.2}\" y=\"{y:.2}\" ");
            let _ = write!(
                out,
                "width=\"{w:.2}\" height=\"{h:.2}\"><title>{}</title></rect>",
                escape(&self.describe(buffer))
            );
            if h > 42.0
                && named < MOST_NAMED
                && let Some(left) = self.clear(&self.by_area[at + 1..], (x, y, w))
            {
                named += 1;
                let box_ = [left, y, x + w - left, h].map(|v| v / SIDE * 100.0);
                let _ = write!(
                    names,
                    "<span class=\"name l{level}\" style=\"left:{:.2}%;top:{:.2}%;",
                    box_[0], box_[1]
                );
                let _ = write!(
                    names,
                    "width:{:.2}%;height:{:.2}%\">{}</span>",
                    box_[2],
                    box_[3],
                    escape(&buffer.name)
                );
            }
        }
        let _ = write!(out, "</svg>{names}");
        for (tick, label) in &y_ticks {
            let top = (1.0 - tick / self.height) * 100.0;
            let _ = write!(out, "<span class=\"y\" style=\"top:{top:.2}%\">{label}</span>");
        }
        out.push_str("</div></div>");
        if self.by_area.len() > MOST_DRAWN {
            let (drawn, all) = (count(MOST_DRAWN as u64), count(self.by_area.len() as u64));
            let _ = write!(out, "<p class=\"note\">The largest {drawn} of {all} buffers are drawn.</p>");
        }
    }

    /// The bytes live at each kernel, on the scale of the picture above.
    fn live(&self, out: &mut String) {
        let live = live_bytes(&self.plan.buffers, self.kernels);
        let place =
            |i: usize, n: u64| (i as f64 / live.len() as f64 * SIDE, (1.0 - n as f64 / self.height) * SIDE);
        let steps =
            live.iter().enumerate().flat_map(|(i, &n)| [(true, place(i, n)), (true, place(i + 1, n))]);
        let line = path(steps);
        let peak = (1.0 - self.plan.peak_bytes as f64 / self.height).max(0.0) * SIDE;
        let width = byte_ticks(self.height).iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
        let _ = write!(out, "<h3 class=\"under\">Bytes live at each kernel</h3>");
        let _ = write!(out, "<div class=\"frame live\" style=\"--y:{width}ch\"><div class=\"plot\">");
        let _ = write!(out, "<svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" role=\"img\" ");
        out.push_str("aria-label=\"Bytes live at each kernel\">");
        let _ = write!(out, "<path class=\"area\" d=\"{line}L{SIDE} {SIDE}L0 {SIDE}Z\"/>");
        let _ = write!(out, "<path class=\"line train\" d=\"{line}\"/>");
        let _ = write!(out, "<path class=\"level\" d=\"M0 {peak:.1}H{SIDE}\"/></svg>");
        let _ = write!(out, "<span class=\"y\" style=\"top:{:.2}%\">most</span>", peak / 10.0);
        out.push_str("<span class=\"y\" style=\"top:100%\">0</span>");
        let x = Scale::new(0.0, self.kernels as f64);
        for (tick, label) in x.ticks(5, Labels::Count).iter().filter(|t| t.0 >= 0.0) {
            let _ =
                write!(out, "<span class=\"x\" style=\"left:{:.2}%\">{label}</span>", x.at(*tick) * 100.0);
        }
        out.push_str("<span class=\"axis\">position in the schedule, kernels</span></div></div>");
    }

    /// The same facts in words, for the buffers that matter.
    fn largest(&self, out: &mut String) {
        let mut buffers = self.by_area.clone();
        buffers.sort_by_key(|b| std::cmp::Reverse(b.bytes));
        let _ = write!(
            out,
            "<details><summary>The largest buffers</summary><div class=\"scroll\"><table><thead><tr>"
        );
        out.push_str("<th>Buffer</th><th class=\"n\">Size</th><th class=\"n\">Offset</th><th class=\"n\">Kernels</th></tr></thead><tbody>");
        for b in buffers.iter().take(20) {
            let _ = write!(
                out,
                "<tr><td class=\"code\">{}</td><td class=\"n\">{}</td>",
                escape(&b.name),
                bytes(b.bytes)
            );
            let _ = write!(
                out,
                "<td class=\"n\">{}</td><td class=\"n\">{}–{}</td></tr>",
                bytes(b.offset),
                b.first,
                b.last
            );
        }
        out.push_str("</tbody></table></div></details>");
    }

    /// Where a name at the top of a rectangle may begin: right of the smaller ones that are drawn over it, which take turns
    /// with it in the same bytes. `None` if there is no room.
    fn clear(&self, smaller: &[&BufferView], (x, y, w): (f64, f64, f64)) -> Option<f64> {
        const ROOM: f64 = 90.0;
        let mut left = x;
        for _ in 0..8 {
            if x + w - left <= ROOM {
                break;
            }
            let over = smaller.iter().map(|b| self.rectangle(b)).find(|(ox, oy, ow, oh)| {
                *ox < left + ROOM && ox + ow > left && *oy < y + 40.0 && oy + oh > y
            });
            match over {
                Some((ox, _, ow, _)) => left = ox + ow,
                None => return Some(left),
            }
        }
        None
    }

    /// Left, top, width, height in the SVG's coordinates.
    fn rectangle(&self, b: &BufferView) -> (f64, f64, f64, f64) {
        let x = b.first.min(b.last) as f64 / self.kernels as f64 * SIDE;
        let w = lifetime(b) as f64 / self.kernels as f64 * SIDE;
        let h = b.bytes as f64 / self.height * SIDE;
        let bottom = (1.0 - b.offset as f64 / self.height) * SIDE;
        (x, bottom - h, w, h)
    }

    fn level(&self, b: &BufferView) -> usize {
        let share = lifetime(b) as f64 / self.kernels as f64;
        [0.02, 0.1, 0.3, 0.6].iter().filter(|&&limit| share >= limit).count()
    }

    fn describe(&self, b: &BufferView) -> String {
        let name = |at: usize| match self.plan.kernels.get(at) {
            Some(kernel) => format!("{} {}", count(at as u64), kernel.name),
            None => count(at as u64),
        };
        let (first, last) = (name(b.first), name(b.last));
        let size = format!("{} at offset {}", bytes(b.bytes), bytes(b.offset));
        format!(
            "{}\n{size}\nfrom kernel {first}\nto kernel {last} ({})",
            b.name,
            counted(lifetime(b), "kernel")
        )
    }
}

/// Kernels from the first use to the last, both counted.
fn lifetime(b: &BufferView) -> usize {
    b.first.abs_diff(b.last).saturating_add(1)
}

/// The bytes live at each kernel; a long schedule is thinned to the greatest of each stretch.
fn live_bytes(buffers: &[BufferView], kernels: usize) -> Vec<u64> {
    let stretch = kernels.div_ceil(1000).max(1);
    let mut events: Vec<(usize, bool, u64)> = Vec::with_capacity(2 * buffers.len());
    for b in buffers {
        events.push((b.first.min(b.last), true, b.bytes));
        events.push((b.first.max(b.last).saturating_add(1), false, b.bytes));
    }
    // At one position, ends sort before beginnings.
    events.sort_unstable();
    let mut most = vec![0u64; kernels.div_ceil(stretch)];
    let (mut now, mut next) = (0u128, events.iter().peekable());
    let mut filled = 0;
    while let Some(&&(at, _, _)) = next.peek() {
        let bucket = at / stretch;
        // Between events nothing changes.
        let unchanged = u64::try_from(now).unwrap_or(u64::MAX);
        let until = (at.div_ceil(stretch)).min(most.len());
        most[filled.min(until)..until].iter_mut().for_each(|m| *m = (*m).max(unchanged));
        filled = bucket.min(most.len());
        while let Some(&&(_, begins, n)) = next.peek().filter(|e| e.0 == at) {
            now = if begins { now + u128::from(n) } else { now - u128::from(n) };
            next.next();
        }
        if let Some(m) = most.get_mut(bucket) {
            *m = (*m).max(u64::try_from(now).unwrap_or(u64::MAX));
        }
    }
    most
}

/// Round byte counts, by the binary unit that suits the height.
fn byte_ticks(height: f64) -> Vec<(f64, String)> {
    let unit = 1024f64.powf((height.log2() / 10.0).floor().clamp(0.0, 6.0));
    let ticks = Scale::new(0.0, height / unit).ticks(5, Labels::Plain);
    ticks
        .into_iter()
        .map(|(t, _)| (t * unit, if t == 0.0 { "0".into() } else { short_bytes(t * unit) }))
        .collect()
}

fn short_bytes(n: f64) -> String {
    let text = bytes(n.round() as u64);
    match text.split_once(' ') {
        Some((digits, unit)) if digits.contains('.') => {
            format!("{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::KernelView;

    fn buffer(name: &str, bytes: u64, offset: u64, first: usize, last: usize) -> BufferView {
        BufferView { name: name.into(), bytes, offset, first, last }
    }

    #[test]
    fn live_bytes_follow_the_lifetimes() {
        let buffers = [buffer("a", 10, 0, 0, 2), buffer("b", 5, 10, 1, 1), buffer("c", 7, 10, 2, 3)];
        assert_eq!(live_bytes(&buffers, 5), [10, 15, 17, 7, 0]);
        assert_eq!(live_bytes(&[], 2), [0, 0]);
    }

    #[test]
    fn a_thinned_schedule_keeps_the_peak() {
        let buffers = [buffer("a", 10, 0, 0, 9999), buffer("b", 90, 10, 5003, 5003)];
        let live = live_bytes(&buffers, 10_000);
        assert_eq!(live.len(), 1000);
        assert_eq!(live.iter().max(), Some(&100));
        assert_eq!(live.iter().filter(|&&n| n == 10).count(), 999);
    }

    #[test]
    fn a_rectangle_is_where_the_buffer_is() {
        let plan = PlanView {
            arena_bytes: 100,
            buffers: vec![buffer("a", 25, 50, 1, 2)],
            kernels: vec![KernelView::default(); 4],
            ..Default::default()
        };
        let picture = Picture::new(&plan);
        assert_eq!(picture.rectangle(&plan.buffers[0]), (250.0, 250.0, 500.0, 250.0));
    }

    #[test]
    fn no_plan_breaks_it() {
        let odd = [
            vec![buffer("swapped", 1, 0, 9, 2)],
            vec![buffer("huge", u64::MAX, u64::MAX, 0, usize::MAX)],
            vec![buffer("nothing", 0, 0, 0, 0)],
            (0..20_000).map(|i| buffer("<b>", 64, i as u64 * 64, i, i + 3)).collect(),
        ];
        for buffers in odd {
            let html = render(&PlanView { buffers, ..Default::default() });
            assert!(!html.contains("NaN") && !html.contains("inf") && !html.contains("<b>"));
            assert!(html.matches("<rect").count() <= MOST_DRAWN);
        }
        assert!(render(&PlanView::default()).contains("no scratch buffer"));
    }

    #[test]
    fn ticks_are_round_in_binary_units() {
        let labels: Vec<String> = byte_ticks(3.2 * 1048576.0).into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["0", "1 MiB", "2 MiB", "3 MiB"]);
    }
}
