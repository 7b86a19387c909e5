//! An op of one's own: a squared ReLU whose negative side has a learned slope for each column,
//! `y = scale·x²` where `x > 0` and `slope·x` elsewhere. It has all that an op of the table has: a shape rule with errors, a
//! reference, a gradient, a kernel; and it is trained here.
//!
//! `cargo run --release -p onestep --example own_op`

use onestep::extend::*;
use onestep::ir::interp::{Mode, run as interpret};
use onestep::prelude::*;
use std::collections::BTreeMap;

/// Operands `x`, floats `[rows, columns]`, and `slope`, `[columns]`. The result is like `x`.
#[derive(Clone, Copy, Debug)]
pub struct SquaredRelu {
    /// Of the positive side.
    pub scale: f64,
}

impl CustomOp for SquaredRelu {
    fn name(&self) -> &'static str {
        "example.squared_relu"
    }

    fn attrs(&self) -> Attrs {
        vec![("scale", Attr::Real(Real::new(self.scale)))]
    }

    fn read(&self, attrs: &mut AttrReader) -> Result<Custom, Mistake> {
        Ok(Custom::new(SquaredRelu { scale: attrs.real("scale")?.get() }))
    }

    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [x, slope] = operands else {
            return Err(Mistake::new("takes two operands", "give x and one slope for each column"));
        };
        match &x.shape.0[..] {
            [_, columns]
                if x.dtype.is_float() && *slope == Type::new(x.dtype, vec![columns.clone()].into()) =>
            {
                Ok(vec![x.clone()])
            }
            _ => Err(Mistake::new(
                format!("takes floats [rows, columns] and [columns], got {x} and {slope}"),
                "reshape or cast them",
            )),
        }
    }

    fn reference(&self, operands: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (x, slope) = (operands[0].reals(), operands[1].reals());
        let one = |(i, &x): (usize, &f64)| {
            if x > 0.0 { self.scale * x * x } else { slope[i % slope.len()] * x }
        };
        let y = x.iter().enumerate().map(one).collect();
        Ok(vec![Dense::from_reals(results[0].dtype, &results[0].sizes(), y)])
    }

    fn gradient<'g>(&self, at: &Backward<'_, 'g>) -> Option<Vec<Option<Tensor<'g>>>> {
        let (x, slope, dy) = (at.operands[0], at.operands[1], at.cotangent(0));
        let positive = x.greater(0.0);
        let dx = dy * positive.select(x * (2.0 * self.scale), slope.expand(0).broadcast(&x.shape()));
        let dslope = positive.select(0.0, dy * x).sum(&[0]);
        Some(vec![Some(dx), Some(dslope)])
    }

    fn cpu_kernel(&self, operands: &[Type]) -> Option<CpuKernel> {
        let [rows, columns] = operands[0].sizes().try_into().ok()?;
        let scale = self.scale as f32;
        // A row is a part; the runtime shares the rows among threads. In other dtypes than f32 there is no kernel.
        (operands[0].dtype == F32 && columns > 0).then(|| {
            CpuKernel::new::<(f32, f32), (f32,)>(rows, move |rows, (x, slope), (y,)| {
                let x = &x[rows.start * columns..rows.end * columns];
                for (y, x) in y.chunks_exact_mut(columns).zip(x.chunks_exact(columns)) {
                    for ((y, &x), &slope) in y.iter_mut().zip(x).zip(slope) {
                        *y = if x > 0.0 { scale * x * x } else { slope * x };
                    }
                }
            })
        })
    }
}

/// The op on handles, where a graph is built.
fn squared_relu<'g>(x: Tensor<'g>, slope: Tensor<'g>, scale: f64) -> Tensor<'g> {
    x.graph().emit1(Custom::new(SquaredRelu { scale }), &[x, slope])
}

/// What the example finds.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The largest difference of the gradient from finite differences, in `f64`.
    pub gradient: f64,
    /// The largest difference of the kernel from the interpreter, in `f32`.
    pub kernel: f64,
    /// The first and the last loss of training.
    pub losses: [f64; 2],
}

/// Numbers between −1 and 1.
fn wave(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i as f64 * 0.7 + 0.2).sin()).collect()
}

/// Checks gradient and kernel, and trains for some steps.
pub fn run(steps: usize) -> Result<Found, Box<dyn std::error::Error>> {
    Ok(Found { gradient: check_gradient()?, kernel: check_kernel()?, losses: train(steps)? })
}

fn check_gradient() -> Result<f64, Box<dyn std::error::Error>> {
    let g = GraphBuilder::new("gradient");
    let (x, slope) = (g.input("x", F64, [4, 3]), g.input("slope", F64, [3]));
    let loss = squared_relu(x, slope, 0.8).square().sum_all();
    g.output("loss", loss);
    for (name, d) in ["dx", "dslope"].into_iter().zip(onestep::gradients(&g, loss, &[x, slope])?) {
        g.output(name, d.expect("the loss depends on both"));
    }
    let graph = g.build()?;
    let eval = |inputs: &[Dense]| interpret(&graph, inputs, &BTreeMap::new(), Mode::AllF64);
    let inputs = [Dense::from_reals(F64, &[4, 3], wave(12)), Dense::from_reals(F64, &[3], wave(3))];
    let found = eval(&inputs)?.outputs;
    let (step, mut most) = (1e-5, 0f64);
    for (operand, gradient) in found[1..].iter().enumerate() {
        for (i, slope) in gradient.reals().iter().enumerate() {
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                let mut values = inputs[operand].reals().to_vec();
                values[i] += by;
                inputs[operand] = Dense::from_reals(F64, &inputs[operand].shape, values);
                Ok::<f64, GraphError>(eval(&inputs)?.outputs[0].reals()[0])
            };
            most = most.max((slope - (moved(step)? - moved(-step)?) / (2.0 * step)).abs());
        }
    }
    Ok(most)
}

fn check_kernel() -> Result<f64, Box<dyn std::error::Error>> {
    let g = GraphBuilder::new("kernel");
    let (x, slope) = (g.input("x", F32, [500, 33]), g.input("slope", F32, [33]));
    g.output("y", squared_relu(x, slope, 0.8));
    let graph = g.build()?;
    let inputs =
        [Array::from_f64(F32, &[500, 33], &wave(500 * 33))?, Array::from_f64(F32, &[33], &wave(33))?];
    let mut program = compile(&graph, &Device::cpu()?)?;
    let mut state = program.init(0)?;
    let compiled = program.run(&mut state, &inputs)?.array("y")?.to_f64();
    let defined = onestep::ir::interp::run_arrays(&graph, &inputs, &mut BTreeMap::new())?[0].to_f64();
    Ok(compiled.iter().zip(defined).fold(0.0, |most, (a, b)| (a - b).abs().max(most)))
}

fn train(steps: usize) -> Result<[f64; 2], Box<dyn std::error::Error>> {
    let g = GraphBuilder::new("squared relu");
    let (x, y) = (g.input("x", F32, [16, 4]), g.input("y", F32, [16, 1]));
    let slope = g.parameter("slope", &[32], Init::Constant(0.1));
    let hidden = squared_relu(nn::linear(&g, "fc1", x, 32), slope, 1.0);
    let graph = g.finish(nn::linear(&g, "fc2", hidden, 1).mse(y))?;

    // The printed graph names the op, and a program that knows it reads it back.
    let read = Graph::parse_with(&graph.to_string(), &CustomOps::new().with(SquaredRelu { scale: 1.0 }))?;
    assert_eq!(read.to_string(), graph.to_string());

    let mut step = TrainingStep::new(read).optimizer(AdamW::new(0.02)).compile(&Device::cpu()?)?;
    let mut state = step.init(1)?;
    let xs = wave(64);
    let ys: Vec<f64> = xs.chunks(4).map(|x| x[0] * x[1] - x[2].abs()).collect();
    let batch = [Array::from_f64(F32, &[16, 4], &xs)?, Array::from_f64(F32, &[16, 1], &ys)?];
    let mut losses = [0.0; 2];
    for i in 0..steps {
        losses[(i > 0) as usize] = step.run(&mut state, &batch)?.loss()?;
    }
    Ok(losses)
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Found { gradient, kernel, losses: [first, last] } = run(200)?;
    println!(
        "gradient within {gradient:.1e} of finite differences, kernel within {kernel:.1e} of the interpreter"
    );
    println!("loss {first:.4} → {last:.4} in 200 steps");
    Ok(())
}
