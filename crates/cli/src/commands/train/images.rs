//! A classifier of images: 8×8 handwritten digits, or Fashion-MNIST.

use super::super::CommandError;
use super::super::args::{Model, Network, TrainArgs};
use super::super::models::{cnn_graph, mlp_graph};
use super::{Task, beside, in_precision, schedule};
use crate::records::EvalRecord;
use onestep::io::{Batches, Digest, IoError, LabelledImages, Last, Position, digits, idx_folder};
use onestep::prelude::*;
use std::path::PathBuf;

const BATCH: u64 = 64;
const HIDDEN: usize = 256;
/// Classes of either data set.
const CLASSES: usize = 10;
/// Images of an evaluation batch.
const EVAL_BATCH: usize = 500;
/// Where Debian's `dataset-fashion-mnist` installs its files.
const FASHION: &str = "/usr/share/datasets/fashion-mnist";

/// What differs between the data sets.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    model: Model,
    name: &'static str,
    title: &'static str,
    /// Training steps unless told otherwise.
    pub steps: u64,
    /// Steps between evaluations.
    pub eval_every: u64,
    learning_rate: f64,
}

impl Set {
    /// That of a model.
    pub fn of(model: Model) -> Set {
        match model {
            Model::Fashion => Set {
                model,
                name: "fashion",
                title: "A network learns to tell clothes apart",
                steps: 6000,
                eval_every: 1000,
                learning_rate: 2e-3,
            },
            _ => Set {
                model,
                name: "digits",
                title: "A small network learns handwritten digits",
                steps: 1000,
                eval_every: 200,
                learning_rate: 5e-3,
            },
        }
    }

    /// Images to train on and images to test on.
    fn read(&self, args: &TrainArgs) -> Result<[LabelledImages; 2], CommandError> {
        if self.model != Model::Fashion {
            let split = digits::digits()?.split()?;
            return Ok([split.train.into(), split.test.into()]);
        }
        let folder = args.data.clone().unwrap_or_else(|| PathBuf::from(FASHION));
        let [train, test] = idx_folder(&folder).map_err(|e| match e {
            IoError::Unreadable { .. } if args.data.is_none() => CommandError::Usage(format!(
                "{e}; install Debian's dataset-fashion-mnist, or name a folder with its four files by --data"
            )),
            e => e.into(),
        })?;
        let wrong = |what: &str| Err(CommandError::Usage(format!("{}: {what}", folder.display())));
        let square = |set: &LabelledImages| set.height == set.width && set.height >= 6;
        if train.is_empty() || test.is_empty() {
            return wrong("there are no images");
        }
        if train.height != test.height || ![&train, &test].into_iter().all(square) {
            return wrong("the images are not all squares of one size, 6×6 at least");
        }
        let classes = 0..CLASSES as i32;
        if !train.labels.iter().chain(&test.labels).all(|label| classes.contains(label)) {
            return wrong("a label is not one of ten classes, 0 to 9");
        }
        Ok([train, test])
    }
}

/// The task.
pub struct Images {
    set: Set,
    network: Network,
    pixels: usize,
    train: Batches,
    test: Batches,
    batch: usize,
    data: Digest,
    evaluation: Program,
}

impl Images {
    /// The step, to be compiled, and the task.
    pub fn new(
        args: &TrainArgs,
        set: Set,
        steps: u64,
        device: &Device,
    ) -> Result<(TrainingStep, Images), CommandError> {
        let [train, test] = set.read(args)?;
        let batch = (args.batch.unwrap_or(BATCH) as usize).min(train.len());
        let (network, most) = (args.network.unwrap_or(Network::Mlp), batch.max(EVAL_BATCH));
        let graph = match network {
            Network::Mlp => mlp_graph(train.pixels(), HIDDEN, CLASSES, most)?,
            Network::Cnn => cnn_graph(train.height, most)?,
        };
        let step = in_precision(TrainingStep::new(graph.clone()), args)
            .optimizer(AdamW::new(args.lr.unwrap_or(set.learning_rate)).weight_decay(0.01))
            .clip_global_norm(1.0)
            .schedule(schedule(steps));
        let (pixels, train) = (train.pixels(), train.into_columns()?);
        let digests = ["images", "labels"].into_iter().zip(train.arrays().iter().map(Digest::of_array));
        let task = Images {
            set,
            network,
            pixels,
            data: Digest::of_all(digests),
            train: Batches::new(train, batch, Last::Drop)?.shuffled(args.seed),
            test: Batches::new(test.into_columns()?, EVAL_BATCH, Last::Keep)?,
            batch,
            evaluation: beside(&graph, args, device)?,
        };
        Ok((step, task))
    }
}

impl Task for Images {
    fn name(&self) -> &'static str {
        self.set.name
    }
    fn title(&self) -> String {
        self.set.title.to_string()
    }
    fn unit(&self) -> &'static str {
        "images"
    }
    fn items(&self) -> usize {
        self.batch
    }
    fn lines(&self) -> Vec<(String, String)> {
        let model = match self.network {
            Network::Mlp => format!("{}-{HIDDEN}-{CLASSES}, ReLU", self.pixels),
            Network::Cnn => "convolutions to 32 and 64 channels, 2×2 maximum, 128, 10".to_string(),
        };
        vec![
            ("model".into(), model),
            ("batch".into(), format!("{} images", self.batch)),
            (
                "data".into(),
                format!("{} images to learn, {} held out", self.train.samples(), self.test.samples()),
            ),
        ]
    }

    /// Every image once an epoch; those left over wait for another.
    fn batches(&self) -> Result<Batches, CommandError> {
        Ok(self.train.clone())
    }
    fn data(&self) -> Digest {
        self.data
    }
    fn batch(&self) -> usize {
        self.batch
    }

    fn evaluate(&mut self, state: &mut State, _: bool) -> Result<EvalRecord, CommandError> {
        let (mut loss, mut right, mut inputs) = (0.0, 0.0, vec![]);
        for batch in 0..self.test.per_epoch() {
            let rows = self.test.fill(Position { epoch: 0, batch }, &mut inputs)? as f64;
            let out = self.evaluation.run(state, &inputs)?;
            loss += out.loss()? * rows;
            right += out.scalar("accuracy")? * rows;
        }
        let of = |sum: f64| Some(sum / self.test.samples() as f64);
        Ok(EvalRecord { step: 0, val_loss: of(loss), test_accuracy: of(right) })
    }

    fn baseline(&self) -> Option<(String, f64)> {
        None
    }

    fn sample(&mut self, _: &mut State) -> Result<Option<String>, CommandError> {
        Ok(None)
    }
}
