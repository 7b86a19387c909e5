//! What `onestep bench` times: known models with random inputs.

use super::super::CommandError;
use super::super::args::{Bench, BenchArgs};
use super::super::models::{
    GPT2, cnn_graph, cnn_training_flops, gpt_graph, gpt_training_flops, llama_writer, mlp_graph,
};
use onestep::Recompute;
use onestep::ir::{ArrayError, Port, StatePort, bind, random};
use onestep::nn::{Gpt, Llama};
use onestep::prelude::*;

/// A program, what it is fed at each call, and what a call costs.
pub struct Work {
    pub name: &'static str,
    pub batch: usize,
    pub source: Source,
    pub inputs: Vec<Array>,
    /// What would be inputs and is state, by name.
    pub resident: Vec<(String, Array)>,
    pub cost: Cost,
}

/// What a program is made from.
pub enum Source {
    /// A training step, which gives a loss.
    Step(Box<TrainingStep>),
    /// A graph that continues a text by itself, a token a call, up to the model's context.
    Writer(Box<Graph>, usize),
}

/// What bounds the time of a call.
#[derive(Clone, Copy)]
pub enum Cost {
    /// FLOPs of the products.
    Flops(f64),
    /// Bytes of the weights that are read.
    Weights(f64),
}

impl Source {
    /// The whole program as one graph.
    pub fn graph(self) -> Result<Graph, Error> {
        match self {
            Source::Step(step) => step.graph(),
            Source::Writer(graph, _) => Ok(*graph),
        }
    }

    /// The same, with as little computed again as lets a training step fit in so many bytes. A writer keeps nothing to compute again.
    pub fn fit_in(self, bytes: usize) -> Source {
        match self {
            Source::Step(step) => Source::Step(Box::new(step.recompute(Recompute::FitIn(bytes)))),
            writer => writer,
        }
    }

    /// The program, compiled, with the calls after which its text is full.
    pub fn compile(self, device: &Device) -> Result<(Program, Option<usize>), Error> {
        match self {
            Source::Step(step) => Ok((step.compile(device)?.into_program(), None)),
            Source::Writer(graph, context) => Ok((compile(&graph, device)?, Some(context))),
        }
    }
}

impl Work {
    /// The work of the arguments.
    pub fn of(args: &BenchArgs) -> Result<Work, CommandError> {
        let batch = |default: u64| args.batch.unwrap_or(default) as usize;
        let mut names = vec![];
        let mut step = |graph: Graph| {
            if !args.resident {
                return Ok(TrainingStep::new(graph));
            }
            names = graph.inputs.iter().map(|port| port.name.to_string()).collect();
            resident(&graph).map(TrainingStep::new)
        };
        let mut work = match args.model {
            Bench::Mlp => {
                let batch = batch(128);
                let step = step(mlp_graph(784, 256, 10, batch)?)?.optimizer(Adam::new(1e-3));
                let (a, b) = (2.0 * (batch * 784 * 256) as f64, 2.0 * (batch * 256 * 10) as f64);
                classifier("mlp", batch, 2.0 * a + 3.0 * b, step)
            }
            Bench::Cnn => {
                let batch = batch(64);
                let rule = Sgd::new(0.01).momentum(0.9);
                let step = step(cnn_graph(28, batch)?)?.optimizer(rule);
                classifier("cnn", batch, cnn_training_flops(28, batch), step)
            }
            Bench::GptMini => {
                let rule = AdamW::new(3e-4).weight_decay(0.01);
                let batch = batch(8);
                let step = step(gpt_graph(&Gpt::MINI, batch)?)?
                    .optimizer(rule)
                    .precision(args.precision.unwrap_or(Precision::F32));
                gpt("gpt-mini", &Gpt::MINI, batch, step)
            }
            Bench::Gpt2 => {
                let rule = AdamW::new(3e-4).betas(0.9, 0.95).weight_decay(0.1);
                let batch = batch(16);
                let step = step(gpt_graph(&GPT2, batch)?)?
                    .optimizer(rule)
                    .precision(args.precision.unwrap_or(Precision::Bf16));
                gpt("gpt2-124m", &GPT2, batch, step)
            }
            Bench::Decode1b => match args.batch {
                None | Some(1) => writer("decode-1b", &Llama::TINY_1_1B),
                Some(n) => {
                    Err(CommandError::Usage(format!("decode-1b writes one text, not {n}; leave --batch out")))
                }
            },
        }?;
        if args.resident {
            work.resident = names.into_iter().zip(std::mem::take(&mut work.inputs)).collect();
        }
        Ok(work)
    }
}

/// The graph with its inputs as state that no call changes, at the largest sizes.
fn resident(graph: &Graph) -> Result<Graph, Error> {
    let mut graph = bind(graph, &graph.dims)?;
    let inputs = std::mem::take(&mut graph.inputs);
    graph.updates.iter_mut().for_each(|u| u.state += inputs.len());
    let state = |p: Port| StatePort { name: p.name, value: p.value, role: Role::Buffer, init: Init::ZEROS };
    graph.states.splice(0..0, inputs.into_iter().map(state));
    Ok(graph)
}

/// Deterministic numbers for inputs: 24 bits of a Philox stream.
fn numbers(n: usize, stream: &str) -> impl Iterator<Item = f64> {
    let stream = random::stream_id(stream);
    (0..n).map(move |i| random::unit(random::draw([0, 0], stream, 0, i as u64)))
}

fn integers(shape: &[usize], below: usize, stream: &str) -> Result<Array, ArrayError> {
    let n = shape.iter().product();
    Array::new(shape, &numbers(n, stream).map(|u| (u * below as f64) as i32).collect::<Vec<_>>())
}

/// A classifier's training step on random images of 28×28 pixels.
fn classifier(
    name: &'static str,
    batch: usize,
    flops: f64,
    step: TrainingStep,
) -> Result<Work, CommandError> {
    let x: Vec<f32> = numbers(batch * 784, "x").map(|u| (u * 2.0 - 1.0) as f32).collect();
    let inputs = vec![Array::new(&[batch, 784], &x)?, integers(&[batch], 10, "y")?];
    let source = Source::Step(Box::new(step));
    Ok(Work { name, batch, source, inputs, resident: vec![], cost: Cost::Flops(flops) })
}

/// A GPT's training step on random tokens.
fn gpt(name: &'static str, gpt: &Gpt, batch: usize, step: TrainingStep) -> Result<Work, CommandError> {
    let ids = |stream| integers(&[batch, gpt.context], gpt.vocab, stream);
    let inputs = vec![ids("x")?, ids("y")?];
    let cost = Cost::Flops(gpt_training_flops(gpt, batch * gpt.context));
    let source = Source::Step(Box::new(step));
    Ok(Work { name, batch, source, inputs, resident: vec![], cost })
}

/// A model that writes a text. Of the embeddings a call reads one row, unless the head has them too.
fn writer(name: &'static str, model: &Llama) -> Result<Work, CommandError> {
    let graph = llama_writer(model, Precision::Bf16)?;
    let read =
        |s: &&onestep::ir::StatePort| s.role == Role::Parameter && (model.tied || &*s.name != "tok.weight");
    let bytes = graph.states.iter().filter(read).map(|s| {
        let ty = graph.ty(s.value);
        ty.numel() * ty.dtype.size()
    });
    let cost = Cost::Weights(bytes.sum::<usize>() as f64);
    let source = Source::Writer(Box::new(graph), model.context);
    Ok(Work { name, batch: 1, source, inputs: vec![], resident: vec![], cost })
}
