//! The schedule in words: its kernels, equal ones counted together, then the state updated in place and the state
//! that had to be copied.

use std::collections::HashMap;
use std::fmt::Write;

use super::PlanView;
use super::format::{count, counted};
use super::html::escape;

/// Rows shown before the reader asks for more, and after.
const FIRST_ROWS: usize = 30;
const MOST_ROWS: usize = 2000;

/// The section's body.
pub(super) fn render(plan: &PlanView) -> String {
    let mut out = String::new();
    kernels(&mut out, plan);
    let in_place = counted(plan.aliases.len(), "update").replace("update", "state update");
    let whole = plan.refusals.is_empty() && !plan.aliases.is_empty();
    let every = if whole { "; none had to be copied" } else { "" };
    let title = format!("In place: {in_place}{every}");
    lines(&mut out, &title, "", &plan.aliases);
    lines(
        &mut out,
        &format!("Copied: {}", counted(plan.refusals.len(), "state update")),
        "warn",
        &plan.refusals,
    );
    out
}

fn kernels(out: &mut String, plan: &PlanView) {
    if plan.kernels.is_empty() {
        out.push_str("<p class=\"nothing\">The schedule has no kernel.</p>");
        return;
    }
    let mut kinds: HashMap<&str, usize> = HashMap::new();
    let mut groups: HashMap<(&str, &str, &str), (usize, usize)> = HashMap::new();
    for (at, kernel) in plan.kernels.iter().enumerate() {
        *kinds.entry(&kernel.kind).or_default() += 1;
        groups.entry((&kernel.kind, &kernel.name, &kernel.note)).or_insert((0, at)).0 += 1;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|&(kind, n)| (std::cmp::Reverse(n), kind));
    out.push_str("<dl class=\"facts\">");
    let _ = write!(out, "<div><dt>Kernels a step</dt><dd>{}</dd></div>", count(plan.kernels.len() as u64));
    for (kind, n) in kinds.iter().take(8) {
        let _ = write!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(kind), count(*n as u64));
    }
    out.push_str("</dl>");
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|&(_, (n, at))| (std::cmp::Reverse(n), at));
    let (first, rest) = groups.split_at(groups.len().min(FIRST_ROWS));
    table(out, first);
    if !rest.is_empty() {
        let shown = &rest[..rest.len().min(MOST_ROWS)];
        let _ = write!(out, "<details><summary>{}</summary>", counted(rest.len(), "more kernel"));
        table(out, shown);
        if shown.len() < rest.len() {
            let _ = write!(out, "<p class=\"note\">The first {} are listed.</p>", count(shown.len() as u64));
        }
        out.push_str("</details>");
    }
}

fn table(out: &mut String, groups: &[((&str, &str, &str), (usize, usize))]) {
    out.push_str("<div class=\"scroll\"><table><thead><tr><th>Kernel</th><th>Kind</th>");
    out.push_str("<th class=\"n\">Count</th><th>Note</th></tr></thead><tbody>");
    for ((kind, name, note), (n, _)) in groups {
        let (kind, name, note) = (escape(kind), escape(name), escape(note));
        let n = count(*n as u64);
        let _ = write!(out, "<tr><td class=\"code\">{name}</td><td>{kind}</td><td class=\"n\">{n}</td>");
        let _ = write!(out, "<td class=\"soft\">{note}</td></tr>");
    }
    out.push_str("</tbody></table></div>");
}

fn lines(out: &mut String, title: &str, class: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let open = if class == "warn" { " open" } else { "" };
    let _ = write!(out, "<details class=\"{class}\"{open}><summary>{title}</summary><ul class=\"lines\">");
    for line in lines.iter().take(MOST_ROWS) {
        let _ = write!(out, "<li>{}</li>", escape(line));
    }
    if lines.len() > MOST_ROWS {
        let _ = write!(out, "<li>… and {} more</li>", count((lines.len() - MOST_ROWS) as u64));
    }
    out.push_str("</ul></details>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::KernelView;

    #[test]
    fn equal_kernels_are_counted_and_everything_is_escaped() {
        let kernel = |name: &str| KernelView { name: name.into(), kind: "loop".into(), note: "<n>".into() };
        let plan = PlanView {
            kernels: vec![kernel("<k>"), kernel("other"), kernel("<k>")],
            aliases: vec!["<a>".into()],
            refusals: vec!["<r>".into()],
            ..Default::default()
        };
        let html = render(&plan);
        assert!(html.contains("&lt;k&gt;</td><td>loop</td><td class=\"n\">2</td>"), "{html}");
        assert!(!["<k>", "<n>", "<a>", "<r>"].iter().any(|tag| html.contains(tag)));
        assert!(html.contains("Copied: 1 state update<"));
    }

    #[test]
    fn a_long_schedule_is_cut() {
        let kernel = |i| KernelView { name: format!("k{i}"), kind: format!("kind{i}"), note: String::new() };
        let html = render(&PlanView { kernels: (0..10_000).map(kernel).collect(), ..Default::default() });
        assert_eq!(html.matches("<tr><td").count(), FIRST_ROWS + MOST_ROWS);
        assert!(render(&PlanView::default()).contains("no kernel"));
    }
}
