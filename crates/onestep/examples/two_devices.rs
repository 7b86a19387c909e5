//! The same training on the CPU and on an NVIDIA GPU, and a state that goes from one to the other between steps.
//!
//! `cargo run --release -p onestep --features cuda --example two_devices`
//!
//! Exits with an error when the two disagree, or where there is no device.

use onestep::ir::testing::Rng;
use onestep::prelude::*;
use onestep::{Recompute, Remedy};

const BATCH: usize = 64;
const STEPS: usize = 60;

/// A point of three clusters in 20 dimensions, and which it is.
fn batch(rng: &mut Rng) -> Result<[Array; 2], Error> {
    let labels: Vec<i32> = (0..BATCH).map(|_| rng.int(0, 3) as i32).collect();
    let place = |l: &i32, d: usize| if d % 3 == *l as usize { 1.0 } else { 0.0 };
    let mut points = vec![];
    for l in &labels {
        points.extend((0..20).map(|d| (place(l, d) + rng.real(-0.7, 0.7)) as f32));
    }
    Ok([Array::new(&[BATCH, 20], &points)?, Array::new(&[BATCH], &labels)?])
}

fn graph() -> Result<Graph, Error> {
    let g = GraphBuilder::new("clusters");
    let x = g.input("x", F32, (dim("B").at_most(512), 20));
    let y = g.input("y", I32, (dim("B"),));
    let logits = nn::linear(&g, "fc2", nn::linear(&g, "fc1", x, 48).relu(), 3);
    g.output("accuracy", logits.argmax(-1).equals(y).mean());
    Ok(g.finish(logits.cross_entropy(y))?)
}

fn train(devices: &[&Device]) -> Result<Vec<f64>, Error> {
    let mut steps = vec![];
    for device in devices {
        steps.push(
            TrainingStep::new(graph()?).optimizer(AdamW::new(1e-2)).clip_global_norm(1.0).compile(device)?,
        );
    }
    let mut state = steps[0].init(1)?;
    let (mut rng, mut losses) = (Rng::new(7), vec![]);
    for i in 0..STEPS {
        // Each device takes three steps in a row.
        let at = i / 3 % steps.len();
        losses.push(steps[at].run(&mut state, &batch(&mut rng)?)?.loss()?);
    }
    let norm = state.get("fc1.weight")?.to_f64().iter().map(|x| x * x).sum::<f64>().sqrt();
    losses.push(norm);
    let copy = state.try_clone()?;
    assert_eq!(copy.digests()?, state.digests()?, "a copy has the same bits");
    Ok(losses)
}

fn main() -> Result<(), Error> {
    let (cpu, cuda) = (Device::cpu()?, Device::cuda()?);
    println!("{cpu:?}, {cuda:?}");
    let want = train(&[&cpu])?;
    for (name, devices) in [("cuda", vec![&cuda]), ("cuda and cpu in turn", vec![&cuda, &cpu])] {
        let got = train(&devices)?;
        let again = train(&devices)?;
        assert_eq!(got, again, "{name}: two runs differ");
        let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max);
        println!("{name}: loss {:.6} to {:.6}; off the CPU's by at most {worst:.1e}", got[0], got[STEPS - 1]);
        assert!(worst < 1e-3, "{name}: {got:?}\n{want:?}");
    }
    // A bad index is named, and changes nothing.
    let g = GraphBuilder::new("lookup");
    let ids = g.input("ids", I32, [2]);
    let table = g.parameter("table", &[5, 4], Init::Constant(1.0));
    let graph = g.finish(table.gather(0, ids).sum_all())?;
    let mut step = TrainingStep::new(graph).optimizer(Sgd::new(0.1)).compile(&cuda)?;
    let mut state = step.init(0)?;
    step.run(&mut state, &[Array::new(&[2], &[0i32, 3])?])?;
    let before = state.get("table")?;
    let bad = [Array::new(&[2], &[0i32, 9])?];
    let refused = step.run(&mut state, &bad)?.loss().expect_err("9 is out of range");
    println!("refused: {refused}");
    assert_eq!(before, state.get("table")?, "nothing was written");
    memory(&cuda)?;
    println!("agreed");
    Ok(())
}

/// A deep network whose step takes some hundred megabytes.
fn deep() -> Result<TrainingStep, Error> {
    let g = GraphBuilder::new("deep");
    let mut x = g.input("x", F32, [8192, 256]);
    for i in 0..8 {
        let hidden = nn::linear(&g, &format!("block.{i}.up"), x, 1024).gelu();
        x = x + nn::linear(&g, &format!("block.{i}.down"), hidden, 256);
    }
    Ok(TrainingStep::new(g.finish(x.square().mean_all())?).optimizer(AdamW::new(1e-3)))
}

/// What is allocated is what the report says; and what does not fit is refused with a remedy that works.
fn memory(cuda: &Device) -> Result<(), Error> {
    let x = [Array::zeros(F32, &[8192, 256])?];
    let mut step = deep()?.compile(cuda)?;
    let mut state = step.init(0)?;
    let free = |device: &Device| Ok::<_, Error>(device.free_bytes()?.unwrap_or(0));
    let before = free(cuda)?;
    step.run(&mut state, &x)?.loss()?;
    let taken = before - free(cuda)?;
    let memory = step.report().map(|r| r.memory).unwrap_or_default();
    println!("memory {memory}; the device has {taken} bytes less");
    // The driver gives memory in pieces of 2 MiB, and keeps some for the graph.
    let pieces = (2 << 20) * (4 + state.len() / 2);
    assert!((memory.peak()..memory.peak() + pieces).contains(&taken), "{taken} of {}", memory.peak());

    let limit = memory.peak() / 2;
    let limited = cuda.clone().limited(limit);
    let mut step = deep()?.compile(&limited)?;
    let mut state = step.init(0)?;
    let refused = step.run(&mut state, &x).map(|_| ()).expect_err("half the memory is too little");
    println!("refused: {refused}");
    let Error::OutOfMemory { remedy: Remedy::Recompute { budget, peak }, .. } = refused else {
        panic!("no remedy: {refused}")
    };
    let mut step = deep()?.recompute(Recompute::FitIn(budget)).compile(&limited)?;
    step.run(&mut state, &x)?.loss()?;
    let memory = step.report().map(|r| r.memory).unwrap_or_default();
    assert_eq!(memory.peak(), peak, "the remedy is what it says");
    Ok(())
}
