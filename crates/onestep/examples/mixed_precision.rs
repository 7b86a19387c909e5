//! Trains in `f16` with everything that takes: products in 16 bits, masters and slots in `f32`, dynamic loss scaling,
//! gradients summed over several small batches by their number of samples, and an average of the weights to evaluate with.
//!
//! `cargo run --release -p onestep --example mixed_precision`

use onestep::ir::testing::Rng;
use onestep::prelude::*;

/// Two moons: the class of a point by which of two half circles it lies near. The last points are padding of weight 0.
fn moons(rng: &mut Rng, n: usize, real: usize) -> Result<[Array; 3], Error> {
    let (mut points, mut labels) = (vec![], vec![]);
    for i in 0..n {
        let (class, angle) = (i as i32 % 2, rng.real(0.0, std::f64::consts::PI));
        let [x, y] = match class {
            0 => [angle.cos(), angle.sin()],
            _ => [1.0 - angle.cos(), 0.5 - angle.sin()],
        };
        points.extend([x, y].map(|c| (c + rng.real(-0.1, 0.1)) as f32));
        labels.push(if i < real { class } else { -100 });
    }
    let counted = (0..n).map(|i| (i < real) as i32 as f32).collect::<Vec<_>>();
    Ok([Array::new(&[n, 2], &points)?, Array::new(&[n], &labels)?, Array::new(&[n], &counted)?])
}

/// The accuracies of the trained weights and of their average, and the loss scale at the end.
pub fn run(steps: usize) -> Result<[f64; 3], Error> {
    let g = GraphBuilder::new("moons");
    let x = g.input("x", F32, (dim("B").at_most(256), 2));
    let y = g.input("y", I32, (dim("B"),));
    let counted = g.input("counted", F32, (dim("B"),));
    let hidden = nn::linear(&g, "fc1", x, 64).gelu();
    let hidden = nn::linear(&g, "fc2", hidden, 64).gelu();
    let logits = nn::linear(&g, "fc3", hidden, 2);
    let right = (logits.argmax(-1).equals(y).cast(F32) * counted).sum_all();
    let samples = counted.sum_all();
    let graph = g.finish(logits.cross_entropy(y))?;

    let device = Device::cpu()?;
    let mut step = TrainingStep::new(graph)
        .precision(Precision::F16) // with dynamic loss scaling
        .accumulate(2) // a step every second call …
        .weighted_by(samples) // … on the mean over all of its samples
        .metric_sum("right", right)
        .optimizer(AdamW::new(5e-3))
        .clip_global_norm(1.0)
        .ema(0.95)
        .compile(&device)?;
    let mut state = step.init(1)?;
    let mut rng = Rng::new(2);
    for n in 0..2 * steps {
        // The second half of a step's samples is short of a few.
        let real = if n % 2 == 0 { 32 } else { 20 };
        step.run(&mut state, &moons(&mut rng, 32, real)?)?;
    }

    let test = moons(&mut rng, 256, 256)?;
    let [mut plain, mut average] = {
        let g = GraphBuilder::new("evaluate");
        let (x, y) = (g.input("x", F32, [256, 2]), g.input("y", I32, [256]));
        let hidden = nn::linear(&g, "fc1", x, 64).gelu();
        let hidden = nn::linear(&g, "fc2", hidden, 64).gelu();
        let logits = nn::linear(&g, "fc3", hidden, 2);
        g.output("accuracy", logits.argmax(-1).equals(y).mean());
        let graph = g.build()?;
        let averaged = step.averaged(&graph)?; // reads ema/<path> in place of each parameter
        [compile(&graph, &device)?, compile(&averaged, &device)?]
    };
    let mut accuracy = |program: &mut Program| program.run(&mut state, &test[..2])?.scalar("accuracy");
    let accuracies = [accuracy(&mut plain)?, accuracy(&mut average)?];
    Ok([accuracies[0], accuracies[1], state.scalar("opt/loss_scale/scale")?])
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let [plain, average, scale] = run(150)?;
    println!("accuracy {plain:.3}, of the averaged weights {average:.3}; the loss scale is {scale}");
    Ok(())
}
