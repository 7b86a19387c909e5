//! Trains one classifier at several learning rates from several seeds, all in one dispatch a step, and keeps the best.
//!
//! `cargo run --release -p onestep --example population`

use onestep::ir::testing::Rng;
use onestep::prelude::*;

/// Points inside and outside of a circle.
fn points(rng: &mut Rng, n: usize) -> Result<[Array; 2], Error> {
    let points: Vec<f32> = (0..2 * n).map(|_| rng.real(-1.0, 1.0) as f32).collect();
    let inside = |p: &[f32]| (p[0] * p[0] + p[1] * p[1] < 0.5) as i32;
    let labels: Vec<i32> = points.chunks(2).map(inside).collect();
    Ok([Array::new(&[n, 2], &points)?, Array::new(&[n], &labels)?])
}

/// The accuracy of each learning rate's member, and which is the best.
pub fn run(rates: &[f64], steps: usize) -> Result<(Vec<f64>, usize), Error> {
    let g = GraphBuilder::new("circle");
    let (x, y) = (g.input("x", F32, (dim("B").at_most(512), 2)), g.input("y", I32, (dim("B"),)));
    let logits = nn::linear(&g, "fc2", nn::linear(&g, "fc1", x, 32).tanh(), 2);
    g.output("accuracy", logits.argmax(-1).equals(y).mean());
    let graph = g.finish(logits.cross_entropy(y))?;

    let device = Device::cpu()?;
    let step = TrainingStep::new(graph.clone()).optimizer(AdamW::new(1e-3));
    let mut population = step.population(rates.len()).compile(&device)?;
    let seeds: Vec<u64> = (1..=rates.len() as u64).collect();
    let mut state = population.init(&seeds)?;
    population.set(&mut state, "opt/lr", rates)?;
    let mut rng = Rng::new(3);
    for _ in 0..steps {
        population.run(&mut state, &points(&mut rng, 64)?)?;
    }

    let mut evaluate = compile(&graph, &device)?;
    let test = points(&mut rng, 512)?;
    let mut accuracies = vec![];
    for k in 0..rates.len() {
        let mut member = population.member(&state, k)?;
        accuracies.push(evaluate.run(&mut member, &test)?.scalar("accuracy")?);
    }
    let best = (0..rates.len()).max_by(|&a, &b| accuracies[a].total_cmp(&accuracies[b])).unwrap_or(0);
    Ok((accuracies, best))
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let rates = [1e-4, 1e-3, 1e-2, 1e-1];
    let (accuracies, best) = run(&rates, 400)?;
    for (rate, accuracy) in rates.iter().zip(&accuracies) {
        println!("learning rate {rate:>6}: accuracy {accuracy:.3}");
    }
    println!("best: {}", rates[best]);
    Ok(())
}
