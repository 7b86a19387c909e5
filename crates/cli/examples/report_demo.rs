//! Writes a report from made-up records, for work on its looks: `report_demo [file] [full|short|empty|huge|broken]`.

use std::path::PathBuf;

use onestep_cli::records::{EvalRecord, StepRecord};
use onestep_cli::report::{BufferView, KernelView, PlanView, Report};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_else(|| "report.html".into()));
    let report = match args.next().as_deref() {
        Some("empty") => Report { title: "A run that took no step".into(), ..Default::default() },
        Some("short") => Report { evals: Vec::new(), ..report(12, 1) },
        Some("broken") => broken(),
        Some("huge") => report(100_000, 60),
        _ => report(2000, 4),
    };
    report.write(&path)?;
    println!("{}", path.display());
    Ok(())
}

/// Noise from -1 to 1 that is the same every time.
fn noise(i: u64) -> f64 {
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 11) as f64 / (1u64 << 52) as f64) - 1.0
}

fn report(steps: u64, layers: usize) -> Report {
    let level = |step: u64| 1.38 + 2.8 / (1.0 + (step as f64 * 2000.0 / steps.max(1000) as f64) / 90.0);
    let lr = |step: u64| {
        let warm = (step as f64 / (0.05 * steps as f64)).min(1.0);
        let done = step as f64 / steps as f64;
        1e-3 * warm * (0.1 + 0.9 * 0.5 * (1.0 + (std::f64::consts::PI * done).cos()))
    };
    let record = |step: u64| StepRecord {
        step,
        train_loss: level(step) + 0.09 * noise(step),
        lr: lr(step),
        step_ms: 182.0,
        items_per_second: 4210.0
            * (1.0 + 0.02 * noise(step + 7) - if step.is_multiple_of(97) { 0.2 } else { 0.0 }),
    };
    let eval = |i: u64| {
        let step = i * steps / 10;
        EvalRecord { step, val_loss: Some(level(step.max(1)) + 0.06), test_accuracy: None }
    };
    let text = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
    Report {
        title: "A character-level GPT on Tiny Shakespeare".into(),
        command: "onestep train gpt --data shakespeare.txt --steps 2000 --batch 12 --context 64 --seed 1337"
            .into(),
        device: "cpu (Example 9 7950, AVX2)".into(),
        threads: 2,
        model_lines: text(&[
            ("Model", "decoder-only transformer"),
            ("Layers, heads, width", "4, 4, 128"),
            ("Parameters", "809,856"),
            ("Context", "64 characters"),
            ("Data", "1,115,394 characters, 90 % for training"),
            ("Optimizer", "AdamW, weight decay 0.1"),
            ("Schedule", "100 steps warm-up, then cosine"),
            ("Precision", "f32"),
            ("Seed", "1337"),
        ]),
        unit: "tokens".into(),
        steps: (1..=steps).map(record).collect(),
        evals: (0..=10).map(eval).collect(),
        baseline: Some(("reference run in PyTorch".into(), 1.88)),
        plan: plan(layers),
        sample: Some(SAMPLE.into()),
        figures: text(&[
            ("Validation loss", "1.560"),
            ("Training loss, mean of last 100", "1.502"),
            ("Tokens a second", "4,210"),
            ("Step, median", "182 ms"),
            ("Host allocations a step", "0"),
            ("Memory, state and arena", "24.1 MiB"),
        ]),
        viewer: false,
    }
}

/// An image classifier whose loss explodes, is NaN for a while, and comes back.
fn broken() -> Report {
    let mut report = report(600, 1);
    report.title = "A digit classifier, with trouble on the way".into();
    report.unit = "images".into();
    report.figures.clear();
    report.sample = None;
    report.plan.refusals.clear();
    report.steps[299].train_loss = 1e12;
    report.steps[300..340].iter_mut().for_each(|s| s.train_loss = f64::NAN);
    for (i, eval) in report.evals.iter_mut().enumerate() {
        eval.test_accuracy = Some(0.98 - 0.88 / (1.0 + i as f64 * i as f64));
    }
    report
}

/// A plan with the shape of a training step: what the forward half keeps, the backward half consumes.
fn plan(layers: usize) -> PlanView {
    const KIB: u64 = 1024;
    let forward = [
        ("norm", "loop", 384),
        ("qkv", "library", 1152),
        ("attention", "library", 384),
        ("proj", "library", 384),
        ("norm2", "loop", 384),
        ("up", "library", 1536),
        ("gelu", "loop", 1536),
        ("down", "library", 384),
    ];
    let half = layers * forward.len() + 4;
    let total = 2 * half + 3;
    let mut buffers = Vec::new();
    let mut kernels = Vec::new();
    let kernel =
        |name: String, kind: &str, note: &str| KernelView { name, kind: kind.into(), note: note.into() };
    kernels.push(kernel("embed".into(), "library", "gather, + position"));
    for layer in 0..layers {
        for (name, kind, kib) in forward {
            let first = kernels.len();
            kernels.push(kernel(
                name.into(),
                kind,
                if kind == "loop" { "[768, 128], 3 stages" } else { "epilogue: + bias" },
            ));
            let kept = name != "proj" && name != "down";
            let last = if kept { total - 4 - first } else { first + 2 };
            buffers.push((format!("block.{layer}.{name}"), kib * KIB, first, last));
        }
    }
    let loss = kernels.len();
    kernels.push(kernel("final_norm".into(), "loop", "[768, 128], 3 stages"));
    kernels.push(kernel("logits".into(), "library", ""));
    kernels.push(kernel("cross_entropy".into(), "loop", "[768, 65], 4 stages, with its gradient"));
    buffers.push(("logits".into(), 200 * KIB, loss + 1, loss + 3));
    while kernels.len() < total - 3 {
        let first = kernels.len();
        let (name, kind, kib) = forward[forward.len() - 1 - first % forward.len()];
        kernels.push(kernel(format!("d_{name}"), kind, ""));
        buffers.push((format!("d_{name}.{first}"), kib * KIB, first, (first + 1).min(total - 1)));
        if kind == "library" {
            buffers.push((format!("grad.{name}.{first}"), kib * KIB / 6, first, total - 1));
        }
    }
    kernels.push(kernel("clip_norm".into(), "loop", "all gradients, 1 table"));
    kernels.push(kernel("commit".into(), "loop", "all finite?"));
    kernels.push(kernel("adamw".into(), "loop", "52 parameters in 1 kernel"));
    let (buffers, arena, peak) = place(buffers, kernels.len());
    let state = ["param", "m", "v"]
        .map(|slot| format!("block.0.attn.qkv.weight {slot} takes its old buffer's place"));
    PlanView {
        arena_bytes: arena,
        peak_bytes: peak,
        state_bytes: 9_720_000,
        buffers,
        kernels,
        aliases: state.to_vec(),
        refusals: vec!["running_mean: read by `d_norm` after the write; copied, 512 B".into()],
    }
}

/// First fit, large and early ones first.
fn place(mut wanted: Vec<(String, u64, usize, usize)>, kernels: usize) -> (Vec<BufferView>, u64, u64) {
    wanted.sort_by_key(|w| (std::cmp::Reverse(w.1), w.2));
    let mut placed: Vec<BufferView> = Vec::new();
    for (name, bytes, first, last) in wanted {
        let last = last.max(first).min(kernels - 1);
        let mut alive: Vec<&BufferView> =
            placed.iter().filter(|b| b.first <= last && first <= b.last).collect();
        alive.sort_by_key(|b| b.offset);
        let offset = alive
            .iter()
            .fold(0, |at, b| if at + bytes <= b.offset { at } else { at.max(b.offset + b.bytes) });
        placed.push(BufferView { name, bytes, offset, first, last });
    }
    let arena = placed.iter().map(|b| b.offset + b.bytes).max().unwrap_or(0);
    let live = |at| placed.iter().filter(|b| b.first <= at && at <= b.last).map(|b| b.bytes).sum::<u64>();
    let peak = (0..kernels).map(live).max().unwrap_or(0);
    (placed, arena, peak)
}

const SAMPLE: &str = "\
KING RICHARD:
What say you to the people of the court,
That I should hear the <trumpet> & the drum?

BRUTUS:
My lord, the night is come upon the sea,
And all the world doth sleep but you and me.
";
