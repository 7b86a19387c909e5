//! A classifier of 8×8 handwritten digits.

use super::super::CommandError;
use super::super::args::TrainArgs;
use super::super::models::mlp_graph;
use super::{Task, schedule};
use crate::records::EvalRecord;
use onestep::io::SplitMix64;
use onestep::io::digits::{Digits, DigitsSplit, digits};
use onestep::prelude::*;

/// Training steps unless told otherwise.
pub const STEPS: u64 = 1000;
const BATCH: u64 = 64;
const LEARNING_RATE: f64 = 5e-3;
const HIDDEN: usize = 256;
const PIXELS: usize = 64;

/// The task.
pub struct Images {
    data: DigitsSplit,
    batch: usize,
    rng: SplitMix64,
    /// The rows of the current pass over the data, in random order, and how many are used.
    order: Vec<usize>,
    used: usize,
    evaluation: Program,
}

impl Images {
    /// The compiled step and the task.
    pub fn new(
        args: &TrainArgs,
        steps: u64,
        device: &Device,
    ) -> Result<(CompiledStep, Images), CommandError> {
        let data = digits()?.split()?;
        let batch = (args.batch.unwrap_or(BATCH) as usize).min(data.train.len());
        let graph = mlp_graph(PIXELS, HIDDEN, 10, data.train.len())?;
        let step = TrainingStep::new(graph.clone())
            .optimizer(AdamW::new(args.lr.unwrap_or(LEARNING_RATE)).weight_decay(0.01))
            .clip_global_norm(1.0)
            .schedule(schedule(steps))
            .compile(device)?;
        let task = Images {
            order: (0..data.train.len()).collect(),
            used: data.train.len(),
            data,
            batch,
            rng: SplitMix64::new(args.seed),
            evaluation: compile(&graph, device)?,
        };
        Ok((step, task))
    }
}

fn arrays(d: &Digits) -> Result<[Array; 2], CommandError> {
    Ok([Array::new(&[d.len(), PIXELS], &d.images)?, Array::new(&[d.len()], &d.labels)?])
}

impl Task for Images {
    fn name(&self) -> &'static str {
        "digits"
    }
    fn title(&self) -> String {
        "A small network learns handwritten digits".to_string()
    }
    fn unit(&self) -> &'static str {
        "images"
    }
    fn items(&self) -> usize {
        self.batch
    }
    fn lines(&self) -> Vec<(String, String)> {
        vec![
            ("model".into(), format!("{PIXELS}-{HIDDEN}-10, ReLU")),
            ("batch".into(), format!("{} images", self.batch)),
            (
                "data".into(),
                format!("{} digits to learn, {} held out", self.data.train.len(), self.data.test.len()),
            ),
        ]
    }

    /// The next images of a random order; a new order when the rest does not fill a batch.
    fn next(&mut self) -> Result<[Array; 2], CommandError> {
        if self.used + self.batch > self.order.len() {
            self.rng.shuffle(&mut self.order);
            self.used = 0;
        }
        let rows = &self.order[self.used..self.used + self.batch];
        self.used += self.batch;
        arrays(&self.data.train.select(rows)?)
    }

    fn evaluate(&mut self, state: &mut State, _: bool) -> Result<EvalRecord, CommandError> {
        let out = self.evaluation.run(state, &arrays(&self.data.test)?)?;
        let (loss, accuracy) = (out.loss()?, out.scalar("accuracy")?);
        Ok(EvalRecord { step: 0, val_loss: Some(loss), test_accuracy: Some(accuracy) })
    }

    fn baseline(&self) -> Option<(String, f64)> {
        None
    }

    fn sample(&mut self, _: &mut State) -> Result<Option<String>, CommandError> {
        Ok(None)
    }
}
