//! A pass of one's own: a division by a constant becomes a multiplication by its reciprocal, which costs one rounding and is
//! several times as fast. It runs inside the compiler, in the place that is named, on the graph of the whole step.
//!
//! `cargo run --release -p onestep --example own_pass`

use onestep::Options;
use onestep::extend::ops::{Binary, BinaryKind};
use onestep::extend::{GraphError, Op, Stage, rewrite};
use onestep::prelude::*;

const DIV: Op = Op::Binary(Binary { kind: BinaryKind::Div });

/// The pass. `rewrite` offers each node with its new operands; what is given back takes the place of its results.
pub fn reciprocal(graph: &Graph) -> Result<Graph, GraphError> {
    rewrite(graph, &mut |_builder, node, operands| {
        if node.op != DIV {
            return None;
        }
        let Op::Constant(divisor) = &graph.def(node.operands[1])?.op else { return None };
        // A constant of other elements than one number stays, and so does a number without a reciprocal.
        let reciprocal = divisor.as_splat()?.recip();
        reciprocal.is_normal().then(|| vec![operands[0] * reciprocal])
    })
}

/// What the example finds.
pub struct Found {
    /// Divisions in the compiled step without and with the pass.
    pub divisions: [usize; 2],
    /// The largest relative difference between the losses of the two.
    pub difference: f64,
    /// The graph as the pass leaves it.
    pub text: String,
}

/// Trains a model on pixels twice, without the pass and with it.
pub fn run(steps: usize) -> Result<Found, Error> {
    let g = GraphBuilder::new("pixels");
    let (x, y) = (g.input("x", F32, [8, 12]), g.input("y", F32, [8, 1]));
    let hidden = nn::linear(&g, "fc1", (x - 127.5) / 73.9, 16).tanh();
    let graph = g.finish((nn::linear(&g, "fc2", hidden, 1) - y).square().mean_all())?;
    let pixels: Vec<f64> = (0..96).map(|i| (i * 37 % 256) as f64).collect();
    let targets: Vec<f64> = (0..8).map(|i| (i as f64).cos()).collect();
    let batch = [Array::from_f64(F32, &[8, 12], &pixels)?, Array::from_f64(F32, &[8, 1], &targets)?];

    let device = Device::cpu()?;
    let mut found = Found { divisions: [0; 2], difference: 0.0, text: String::new() };
    let mut losses = [vec![], vec![]];
    let kept = Options { dump: true, ..Options::default() };
    for (i, options) in
        [Options::default(), kept.pass("reciprocal", Stage::Cse, reciprocal)].into_iter().enumerate()
    {
        let step = TrainingStep::new(graph.clone()).optimizer(Sgd::new(0.05)).options(options);
        let mut step = step.compile(&device)?;
        let mut state = step.init(3)?;
        for _ in 0..steps {
            losses[i].push(step.run(&mut state, &batch)?.loss()?);
        }
        let Some(executable) = step.program().executable() else { continue };
        let compiled = executable.compiled();
        found.divisions[i] = compiled.graph.nodes.iter().filter(|n| n.op == DIV).count();
        let text = compiled.dumps.iter().find(|(pass, _)| *pass == "reciprocal");
        found.text = text.map(|(_, text)| text.clone()).unwrap_or_default();
    }
    let differences = losses[0].iter().zip(&losses[1]).map(|(a, b)| (a - b).abs() / a.abs());
    found.difference = differences.fold(0.0, f64::max);
    Ok(found)
}

#[allow(dead_code)]
fn main() -> Result<(), Error> {
    let Found { divisions: [before, after], difference, text } = run(100)?;
    println!("{before} divisions became {after}; in 100 steps the losses differ by at most {difference:.1e}");
    text.lines().filter(|line| line.contains(" mul ")).take(3).for_each(|line| println!("{line}"));
    Ok(())
}
