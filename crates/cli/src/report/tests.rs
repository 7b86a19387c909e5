//! The page as a whole, on the inputs that a run may hand it: none, little, broken, hostile, huge.

use super::*;

fn step(step: u64, train_loss: f64) -> StepRecord {
    StepRecord { step, train_loss, lr: 1e-3, step_ms: 10.0, items_per_second: 1000.0 }
}

/// What holds for every page.
fn check(html: &str) {
    for name in ["section", "figure", "div", "dl", "table", "svg", "details", "script", "ul", "span", "pre"] {
        let opened = html.matches(&format!("<{name} ")).count() + html.matches(&format!("<{name}>")).count();
        assert_eq!(opened, html.matches(&format!("</{name}>")).count(), "<{name}> is balanced");
    }
    for url in ["http://", "https://", "url(", "@import", "src=", "href="] {
        assert!(!html.contains(url), "the page loads nothing: {url}");
    }
    for part in html.split(" d=\"").skip(1) {
        let d = part.split('"').next().unwrap();
        assert!(d.chars().all(|c| "MLHhZ0123456789.- ".contains(c)), "{d}");
    }
}

#[test]
fn an_empty_report() {
    let html = Report::default().to_html();
    check(&html);
    assert!(html.contains("<h1>Training run</h1>"));
    assert!(html.contains("Trained for <b>0 steps</b>."));
    assert!(html.contains("Nothing was recorded"));
}

#[test]
fn one_step() {
    let html = Report { steps: vec![step(1, 2.0)], ..Default::default() }.to_html();
    check(&html);
    assert!(html.contains("<b>1 step</b>"));
}

#[test]
fn losses_that_are_not_finite_are_told() {
    let mut steps: Vec<StepRecord> = (1..=300).map(|i| step(i, 3.0)).collect();
    steps[99].train_loss = f64::NAN;
    steps[100].train_loss = f64::INFINITY;
    steps[101].items_per_second = f64::INFINITY;
    let eval = EvalRecord { step: 300, val_loss: Some(f64::NAN), test_accuracy: Some(f64::NEG_INFINITY) };
    let baseline = Some(("b".into(), f64::NAN));
    let html = Report { steps, evals: vec![eval], baseline, ..Default::default() }.to_html();
    check(&html);
    assert!(html.contains("not finite in 2 steps, first at step 100."));
    let all: Vec<StepRecord> = (1..=50).map(|i| step(i, f64::NAN)).collect();
    check(&Report { steps: all, ..Default::default() }.to_html());
}

#[test]
fn hostile_texts_stay_texts() {
    let bad = String::from("</script></pre><img src=x onerror=alert(1)>\"'&\0");
    let pair = || vec![(bad.clone(), bad.clone())];
    let html = Report {
        title: bad.clone(),
        command: bad.clone(),
        device: bad.clone(),
        threads: 2,
        model_lines: pair(),
        unit: bad.clone(),
        steps: vec![step(1, 1.0)],
        evals: vec![EvalRecord { step: 1, val_loss: Some(1.0), test_accuracy: Some(0.5) }],
        baseline: Some((bad.clone(), 0.9)),
        plan: PlanView {
            arena_bytes: 64,
            buffers: vec![BufferView { name: bad.clone(), bytes: 64, ..Default::default() }],
            kernels: vec![KernelView { name: bad.clone(), kind: bad.clone(), note: bad.clone() }],
            aliases: vec![bad.clone()],
            refusals: vec![bad.clone()],
            ..Default::default()
        },
        sample: Some(bad.clone()),
        figures: pair(),
        viewer: true,
    }
    .to_html();
    assert!(!html.contains("<img") && !html.contains('\0'));
    check(&html.replace("src=x", ""));
}

#[test]
fn a_long_run_makes_a_page_of_bounded_size() {
    let steps = |n: u64| (1..=n).map(|i| step(i, 4.0 / (i as f64).sqrt() + (i % 7) as f64 * 0.01)).collect();
    let size = |n| {
        let html = Report { steps: steps(n), ..Default::default() }.to_html();
        check(&html);
        html.len()
    };
    let (short, long) = (size(5_000), size(100_000));
    assert!(long < 400_000, "{long} bytes");
    assert!(long < short * 3 / 2, "{short} and {long} bytes");
}

#[test]
fn figures_are_chosen_from_the_records_if_none_are_given() {
    let evals = vec![
        EvalRecord { step: 1, val_loss: Some(2.0), test_accuracy: Some(0.25) },
        EvalRecord { step: 2, val_loss: Some(1.5), test_accuracy: Some(0.75) },
    ];
    let baseline = Some(("PyTorch".into(), 1.625));
    let html =
        Report { steps: vec![step(1, 2.0), step(2, 1.0)], evals, baseline, ..Default::default() }.to_html();
    assert!(html.contains("<dt>Best validation loss</dt><dd>1.500</dd>"));
    assert!(html.contains("<dd>75.00 %</dd>"));
    assert!(html.contains("That is 0.1250 below the baseline (PyTorch, 1.625)."));
}

#[test]
fn it_is_written_whole() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("report.html");
    Report::default().write(&path).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("</html>\n"));
    assert!(Report::default().write(&root.path().join("no/report.html")).is_err());
}
