//! A byte-level GPT on Shakespeare, or on a text of the caller's.

use super::super::CommandError;
use super::super::args::TrainArgs;
use super::super::models::{GptShape, gpt_graph, gpt_writer};
use super::{Task, beside, in_precision, schedule};
use crate::records::EvalRecord;
use crate::report::format::count;
use onestep::io::text::{BigramModel, Split, shakespeare, split};
use onestep::io::{Batches, Digest, Last, Position, SplitMix64, Tokens};
use onestep::nn::GptInit;
use onestep::prelude::*;

/// Training steps unless told otherwise.
pub const STEPS: u64 = 1500;
const BATCH: u64 = 8;
const LEARNING_RATE: f64 = 2e-3;
/// Sequences of an evaluation batch.
const EVAL_BATCH: usize = 8;
/// Batches of the evaluations on the way.
const QUICK: usize = 16;
/// Bytes of the sample.
const SAMPLE: usize = 480;
const TEMPERATURE: f64 = 0.8;

/// The task.
pub struct Text {
    shape: GptShape,
    batch: usize,
    seed: u64,
    train: &'static [u8],
    /// Windows side by side, so that every byte is predicted once.
    val: Batches,
    baseline: f64,
    evaluation: Program,
    writer: Program,
    /// Where the text is from.
    source: String,
}

/// The text: the file's, or Shakespeare.
fn text(args: &TrainArgs, context: usize) -> Result<(&'static [u8], String), CommandError> {
    let Some(path) = &args.text else {
        return Ok((shakespeare(), "nine plays of Shakespeare".to_string()));
    };
    let read = std::fs::read(path);
    let text = read.map_err(|source| CommandError::Read { path: path.clone(), source })?;
    // The last tenth must hold a batch of windows to validate on.
    let needed = 10 * (EVAL_BATCH * context + 1);
    if text.len() < needed {
        let what = format!("{} has {} bytes; give a text of {needed} at least", path.display(), text.len());
        return Err(CommandError::Usage(what));
    }
    let source = format!("{} ({:.2} MB)", path.display(), text.len() as f64 / 1e6);
    // Read once and kept for the whole run, like the embedded text.
    Ok((Vec::leak(text), source))
}

impl Text {
    /// The compiled step and the task.
    pub fn new(args: &TrainArgs, steps: u64, device: &Device) -> Result<(CompiledStep, Text), CommandError> {
        let shape = GptShape::default();
        let batch = args.batch.unwrap_or(BATCH) as usize;
        let (text, source) = text(args, shape.context)?;
        let Split { train, val } = split(text, 0.1)?;
        let rule = AdamW::new(args.lr.unwrap_or(LEARNING_RATE)).betas(0.9, 0.99).weight_decay(0.1);
        let step = in_precision(TrainingStep::new(gpt_graph(&shape.model(GptInit::Gpt2), batch)?), args)
            .optimizer(rule)
            .clip_global_norm(1.0)
            .schedule(schedule(steps))
            .compile(device)?;
        let task = Text {
            shape,
            batch,
            seed: args.seed,
            train,
            val: Batches::new(
                Tokens::bytes(val).windows(shape.context, shape.context)?,
                EVAL_BATCH,
                Last::Drop,
            )?,
            baseline: BigramModel::fit(train).nats_per_byte(val)?,
            evaluation: beside(&gpt_graph(&shape.model(GptInit::Gpt2), EVAL_BATCH)?, args, device)?,
            writer: beside(&gpt_writer(&shape)?, args, device)?,
            source,
        };
        Ok((step, task))
    }
}

impl Task for Text {
    fn name(&self) -> &'static str {
        "gpt"
    }
    fn title(&self) -> String {
        match self.source.starts_with("nine plays") {
            true => "A byte-level GPT learns Shakespeare".to_string(),
            false => "A byte-level GPT learns a text".to_string(),
        }
    }
    fn unit(&self) -> &'static str {
        "tokens"
    }
    fn items(&self) -> usize {
        self.batch * self.shape.context
    }
    fn lines(&self) -> Vec<(String, String)> {
        let GptShape { width, layers, heads, context } = self.shape;
        let parameters: usize = self
            .evaluation
            .interface()
            .states
            .iter()
            .map(|s| self.evaluation.interface().ty(s.value).numel())
            .sum();
        vec![
            ("model".into(), format!("GPT, {layers} layers, {heads} heads, width {width}")),
            ("parameters".into(), count(parameters as u64)),
            ("batch".into(), format!("{} × {context} bytes", self.batch)),
            ("data".into(), format!("{}, the last tenth held out", self.source)),
        ]
    }

    /// Every window of the text, in random order.
    fn batches(&self) -> Result<Batches, CommandError> {
        let windows = Tokens::bytes(self.train).windows(self.shape.context, 1)?;
        Ok(Batches::new(windows, self.batch, Last::Drop)?.shuffled(self.seed))
    }
    fn data(&self) -> Digest {
        Digest::of_bytes(self.train)
    }
    fn batch(&self) -> usize {
        self.batch
    }

    fn evaluate(&mut self, state: &mut State, thorough: bool) -> Result<EvalRecord, CommandError> {
        let all = self.val.per_epoch() as usize;
        let most = if thorough { all } else { QUICK.min(all) };
        // On the way, batches spread over the whole text.
        let stride = (all / most.max(1)).max(1);
        let (mut sum, mut n, mut inputs) = (0.0, 0, vec![]);
        for batch in (0..all as u64).step_by(stride).take(most) {
            self.val.fill(Position { epoch: 0, batch }, &mut inputs)?;
            sum += self.evaluation.run(state, &inputs)?.loss()?;
            n += 1;
        }
        Ok(EvalRecord { val_loss: Some(sum / n as f64), ..EvalRecord::default() })
    }

    fn baseline(&self) -> Option<(String, f64)> {
        Some(("bigram".to_string(), self.baseline))
    }

    /// Bytes drawn one by one from the model's distribution, sharpened a little. When the context is full, the model reads
    /// its last half anew.
    fn sample(&mut self, state: &mut State) -> Result<Option<String>, CommandError> {
        let context = self.shape.context;
        let mut rng = SplitMix64::new(self.seed ^ 0x5a);
        // The caches are no part of what is trained and saved.
        let mut state = state.try_clone()?;
        state.initialise(self.writer.interface(), 0)?;
        let mut text: Vec<u8> = b"\n".to_vec();
        let (mut read, mut length) = (0, 0);
        while text.len() < SAMPLE {
            if length == context {
                state.set_scalar("cache/length", 0.0)?;
                (read, length) = (text.len() - context.div_ceil(2), 0);
            }
            let token = Array::new(&[1], &[i32::from(text[read])])?;
            let out = self.writer.run(&mut state, [token])?;
            (read, length) = (read + 1, length + 1);
            if read == text.len() {
                text.push(draw(&out.array("logits")?.to_f64(), rng.next_u64()));
            }
        }
        Ok(Some(String::from_utf8_lossy(&text).trim().to_string()))
    }
}

/// A byte from logits, by 53 random bits.
fn draw(logits: &[f64], bits: u64) -> u8 {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|l| ((l - most) / TEMPERATURE).exp()).collect();
    let mut rest = (bits >> 11) as f64 / (1u64 << 53) as f64 * weights.iter().sum::<f64>();
    for (i, w) in weights.iter().enumerate() {
        rest -= w;
        if rest < 0.0 {
            return i as u8;
        }
    }
    weights.len().saturating_sub(1) as u8
}
