//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use onestep::{Precision, Storage};
use std::path::PathBuf;

/// Compiles whole training steps into one executable, and runs them.
#[derive(Debug, Parser)]
#[command(
    name = "onestep",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Start with `onestep train`: a byte-level GPT learns Shakespeare in about two minutes, each step \
                        one call of one compiled executable. Then open the report that it names.\n\n\
                        Environment: ONESTEP_DUMP=FOLDER writes the graph after every pass into the folder."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model: a GPT on Shakespeare (the default) or another text, or a classifier of images.
    #[command(
        after_help = "Examples:\n  onestep train                          GPT, Shakespeare, about two minutes\n  \
                            onestep train digits                   97% of handwritten digits, in seconds\n  \
                            onestep train digits --population 8    eight networks at once; keeps the best\n  \
                            onestep train gpt --steps 300 --out r  a short run, kept in the folder r\n  \
                            onestep train gpt --text book.txt      the same on a text of your own\n  \
                            onestep train fashion --model cnn      a network of convolutions on photographs\n  \
                            onestep train --checkpoint-every 100   checkpoints on the way\n  \
                            onestep train --resume runs/gpt-TIME   goes on from the last, to the same bits\n\n\
                            Ctrl-C ends the run after its current step, and keeps it with a checkpoint; a second one exits \
                            at once, with code 130."
    )]
    Train(TrainArgs),
    /// Print a graph file: the graph, its kernels, and its memory plan.
    #[command(
        after_help = "A graph file is the text that `onestep train` keeps as step.onestep, or one of your own.\n\n\
                        Examples:\n  onestep inspect step.onestep --html step.html  every pass, kernel and buffer, in a browser\n  \
                        onestep inspect step.onestep --explain k7      why kernel 7 is what it is\n  \
                        onestep inspect step.onestep --device cuda --short  its launches and memory on a GPU; none is needed\n  \
                        onestep inspect step.onestep --pass dead-2     the graph just before fusion, whose values %12 are"
    )]
    Inspect(InspectArgs),
    /// Time the steady training step of a known model, or the writing of a text.
    Bench(BenchArgs),
    /// Find the first step, tensor and op at which two recorded runs part.
    #[command(
        after_help = "Both runs are made by `onestep train … --record`, on different machines, versions or numbers of \
                            threads.\n\n\
                            Exit code: 0 if they are equal bit for bit as far as both go, 1 if they part, 2 if they cannot \
                            be compared."
    )]
    Bisect(BisectArgs),
    /// List the devices of this build, and the libraries that they need.
    Doctor,
}

/// What `train` can train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// A byte-level GPT on 1.1 MB of Shakespeare, or any text.
    Gpt,
    /// A classifier of 8×8 handwritten digits.
    Digits,
    /// A classifier of Fashion-MNIST: 28×28 photographs of clothes, in IDX files.
    Fashion,
}

/// The network of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// One hidden layer of 256 features.
    Mlp,
    /// Two convolutions, a maximum and a hidden layer.
    Cnn,
}

/// Arguments of `train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// What to train.
    #[arg(value_enum, default_value = "gpt")]
    pub model: Model,
    /// Network of a classifier [default: mlp]
    #[arg(long = "model", value_name = "NETWORK", value_enum)]
    pub network: Option<Network>,
    /// Folder with the four IDX files of Fashion-MNIST, plain or .gz [default: where Debian puts them]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// File with the text that the GPT learns, instead of Shakespeare
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Training steps [default: gpt 1500, digits 1000, fashion 6000]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub steps: Option<u64>,
    /// Sequences or images a step [default: gpt 8, digits and fashion 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub batch: Option<u64>,
    /// Peak learning rate; it warms up and then falls along a cosine [default: gpt 2e-3, digits 5e-3, fashion 2e-3]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = positive)]
    pub lr: Option<f64>,
    /// Train N networks of a classifier at once, from N seeds on the same batches, and keep the best
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub population: Option<u64>,
    /// Products, forward and backward: f32; tf32 where the device has it; bf16; f16, which scales the loss too; or f8
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    pub precision: Precision,
    /// Keep the parameters between steps as exact as they are computed, or in bf16, rounded by chance, without f32 masters
    #[arg(long, value_name = "STORAGE", default_value = "exact")]
    pub parameters_in: Storage,
    /// The same of the optimizer's slots
    #[arg(long, value_name = "STORAGE", default_value = "exact")]
    pub slots_in: Storage,
    /// Seed of the first parameters, the batches and the sample
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1)]
    pub seed: u64,
    /// Where to compute.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Folder to keep the run in; it must not hold one already [default: runs/MODEL-TIME]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print nothing but one JSON object with the run's figures, as the last line of standard output
    #[arg(long)]
    pub json: bool,
    /// What to keep on the way.
    #[command(flatten)]
    pub keep: KeepArgs,
}

/// What a training run keeps so that it may be taken up again, and compared.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Go on with the run in this folder from its newest checkpoint; give the other options as they were
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Write a checkpoint every N steps; Ctrl-C writes one in any case
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: Option<u64>,
    /// Checkpoints to keep, the newest
    #[arg(long = "keep", value_name = "K", default_value_t = 3, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub checkpoints: u64,
    /// Record a digest of every state tensor after each step, in record.jsonl, for `onestep bisect`
    #[arg(long)]
    pub record: bool,
    /// Record also what every op of step N computes, so that `onestep bisect` can name the first op that differs
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub record_values: Option<u64>,
}

/// Arguments of `bisect`.
#[derive(Debug, Args)]
pub struct BisectArgs {
    /// A run's folder, or its record
    #[arg(value_name = "RUN_A")]
    pub a: PathBuf,
    /// Another's
    #[arg(value_name = "RUN_B")]
    pub b: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Where to compute.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Device to run on
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// CPU threads; results do not depend on them [default: all]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,
}

/// A device for which `inspect` compiles. It need not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// This machine's processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A graph in its text form
    pub file: PathBuf,
    /// Device to compile for; it need not be there
    #[arg(long, value_name = "DEVICE", value_enum, default_value = "cpu")]
    pub device: Target,
    /// Leave out the graph, the schedule and the plan: kernels, launches and memory alone
    #[arg(long, conflicts_with_all = ["json", "html", "explain", "pass"])]
    pub short: bool,
    /// Write every kernel of a GPU as CUDA C into a folder
    #[arg(long, value_name = "FOLDER")]
    pub text: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write a page that shows the graph after each pass, the kernels and the memory plan
    #[arg(long, value_name = "OUT.html")]
    pub html: Option<PathBuf>,
    /// Say what became of a value of the graph before fusion (%12), a kernel (k7), a buffer (b3), an input, state or output
    #[arg(long, value_name = "WHAT")]
    pub explain: Vec<String>,
    /// Print the text after one pass
    #[arg(long, value_name = "PASS")]
    pub pass: Option<String>,
    /// Insert the casts with which products run in this dtype first: bf16, f16 or f8; f32 and tf32, which is allowed then, need none
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    pub precision: Precision,
    /// Size of a dimension variable, as NAME=SIZE; the largest if not given
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = binding)]
    pub dims: Vec<(String, usize)>,
}

/// What `bench` can time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// 784-256-10, ReLU, cross-entropy, Adam.
    Mlp,
    /// 1×28×28 pixels, convolutions of 3×3 to 32 and 64 channels, 2×2 maximum, 128, 10; SGD with momentum.
    Cnn,
    /// GPT: width 128, 4 layers, 4 heads, 128 bytes, AdamW.
    GptMini,
    /// GPT-2 124M: sequences of 1024 tokens of 50,304, products in bf16, AdamW. For a GPU.
    #[value(name = "gpt2-124m")]
    Gpt2,
    /// A Llama of 1.1 billion weights in bf16 that writes a text of 2048 tokens, one a call. For a GPU.
    #[value(name = "decode-1b")]
    Decode1b,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to time.
    #[arg(value_enum)]
    pub model: Bench,
    /// Images or sequences a step [default: mlp 128, cnn 64, gpt-mini 8, gpt2-124m 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub batch: Option<u64>,
    /// Dtype of a GPT's products: f32, bf16, f16 or f8 [default: gpt-mini f32, gpt2-124m bf16]
    #[arg(long, value_name = "DTYPE")]
    pub precision: Option<Precision>,
    /// Have the inputs on the device already, as state, instead of handing them over at each call
    #[arg(long)]
    pub resident: bool,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 5.0, allow_negative_numbers = true, value_parser = positive)]
    pub seconds: f64,
    /// Compute as little again as lets a training step fit in so many MiB of the device's memory
    #[arg(long, value_name = "MIB", allow_negative_numbers = true)]
    pub fit_in: Option<u32>,
    /// Print the time of each kernel too, and of those of a kind together
    #[arg(long)]
    pub profile: bool,
    /// Write the step's graph, for `onestep inspect`, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profile", "trace", "json"])]
    pub graph: Option<PathBuf>,
    /// Write one step as a timeline that Perfetto (ui.perfetto.dev) opens
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Where to compute.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 && x <= 1e6 => Ok(x),
        _ => Err(format!("'{text}' is not a number above 0 and at most 1e6")),
    }
}

fn binding(text: &str) -> Result<(String, usize), String> {
    let wrong = || format!("'{text}' is not NAME=SIZE");
    let (name, size) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.trim().to_string(), size.trim().parse().map_err(|_| wrong())?))
}
