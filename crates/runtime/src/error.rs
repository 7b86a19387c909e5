//! What can go wrong between a graph and its results.

use crate::memory::{Binary, Remedy};
use onestep_cpu::CpuError;
use onestep_io::IoError;
use onestep_ir::{ArrayError, GraphError};
use onestep_passes::CompileError;
use thiserror::Error;

/// Any error of the runtime.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph, an input or a state is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The graph cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The backend cannot render a kernel.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// CUDA refused a program, or a call to the device failed.
    #[error(transparent)]
    Cuda(#[from] onestep_cuda::CudaError),
    /// The backend cannot render a kernel of the schedule.
    #[error("kernel k{kernel} ({what}) from {loc}: {source}")]
    Kernel {
        /// Its place in the schedule.
        kernel: usize,
        /// The ops that it computes.
        what: String,
        /// The lines that built them.
        loc: String,
        /// Why.
        source: CpuError,
    },
    /// A question about something that the program does not have.
    #[error(
        "the program has nothing called '{what}'; ask for a value %12, a kernel k7, a buffer b3, or the name of an input, state or output"
    )]
    Unknown {
        /// What was asked for.
        what: String,
    },
    /// A host array does not fit.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// What made the graph failed: differentiation, or the optimizer.
    #[error("{0}")]
    Build(Box<dyn std::error::Error + Send + Sync>),
    /// There is no such device in this build.
    #[error("there is no device '{name}' in this build; {}", device_help(.name))]
    NoDevice {
        /// The name asked for.
        name: String,
    },
    /// An absurd number of threads.
    #[error("cannot run on {threads} threads; use 1 to 1024")]
    Threads {
        /// The number asked for.
        threads: usize,
    },
    /// The system refused threads.
    #[error("cannot start {threads} threads: {message}")]
    Spawn {
        /// The number asked for.
        threads: usize,
        /// The system's words.
        message: String,
    },
    /// The system refused memory.
    #[error("cannot allocate {bytes} bytes; use smaller sizes, such as a smaller batch")]
    Memory {
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// The device does not have the memory that a program needs. Nothing was allocated or run.
    #[error("the program needs {} on '{device}' and {} are free; {remedy}", Binary(*.needed), Binary(*.free))]
    OutOfMemory {
        /// The device.
        device: &'static str,
        /// Bytes that the program needs in all: [`crate::Memory::peak`].
        needed: usize,
        /// Bytes that it may have, those of its state that are there already included.
        free: usize,
        /// What could be done.
        remedy: Remedy,
    },
    /// A program that was compiled for the description of a device.
    #[error(
        "'{device}' is known by its description alone, on which nothing runs; compile for a device that is there"
    )]
    Offline {
        /// The device.
        device: &'static str,
    },
    /// A step cannot be made to fit in the memory that it may use.
    #[error(
        "the step needs {without} bytes, and {least} with everything computed again that helps; it may use {bytes}: use a smaller batch or shorter sequences"
    )]
    DoesNotFit {
        /// What it may use.
        bytes: usize,
        /// The least with recomputation.
        least: usize,
        /// What it needs without.
        without: usize,
    },
    /// State tensors that the program needs and the state lacks.
    #[error("the state lacks {}; initialise, load or set them first", .names.join(", "))]
    MissingState {
        /// Their paths, each with its type.
        names: Vec<String>,
    },
    /// A state tensor of another type than the program's.
    #[error(
        "state '{name}' is {got} but the program needs {want}; nothing is converted unasked (bind_as does)"
    )]
    StateType {
        /// Its path.
        name: String,
        /// The program's type.
        want: String,
        /// The state's type.
        got: String,
    },
    /// A state tensor has a size above the bound of its dimension variable.
    #[error("state '{name}' has {size} for {dim}, above its bound {bound}; raise the bound or bind fewer")]
    StateBound {
        /// Its path.
        name: String,
        /// The dimension.
        dim: String,
        /// The size given.
        size: usize,
        /// The largest size.
        bound: usize,
    },
    /// Tensors that are not those of the program.
    #[error("these tensors are not this program's state: {}; is it another model or update rule?", describe_difference(.missing, .unknown))]
    Restore {
        /// What the program needs and is not there.
        missing: Vec<String>,
        /// What is there and the program does not have.
        unknown: Vec<String>,
    },
    /// The storage of a state tensor is the library's, so that there is nothing to give back.
    #[error("state '{name}' was not adopted, or was replaced since; copy it with get()")]
    NotAdopted {
        /// Its path.
        name: String,
    },
    /// A cache has no such row.
    #[error(
        "state '{name}' has {rows} rows, and row {at} is not one of them; start it anew, or make it larger"
    )]
    NoRow {
        /// The cache's path.
        name: String,
        /// The row asked for.
        at: usize,
        /// The rows there are.
        rows: usize,
    },
    /// The program leaves no gradient of this parameter.
    #[error("the program leaves no gradient of '{name}'{}", .nearest.as_ref().map(|n| format!("; did you mean '{n}'?")).unwrap_or("; compile it with compile_with_backward".to_string()))]
    NoGradient {
        /// The parameter's path.
        name: String,
        /// The nearest one that has a gradient.
        nearest: Option<String>,
    },
    /// A name was given twice.
    #[error("'{name}' was given twice, or is the gradient of another name; name each parameter once")]
    Repeated {
        /// The name.
        name: String,
    },
    /// Gradients were asked for before a run left them.
    #[error("no completed run on this state has left its gradients; run the program first")]
    NotRun,
    /// No state tensor has this path.
    #[error("there is no state '{name}'{}", .nearest.as_ref().map(|n| format!("; did you mean '{n}'?")).unwrap_or_default())]
    NoState {
        /// The path asked for.
        name: String,
        /// The nearest one there is.
        nearest: Option<String>,
    },
    /// No input has this name.
    #[error("there is no input '{name}'{}", .nearest.as_ref().map(|n| format!("; did you mean '{n}'?")).unwrap_or_default())]
    NoInput {
        /// The name given.
        name: String,
        /// The nearest one there is.
        nearest: Option<String>,
    },
    /// Another number of inputs than the program has.
    #[error("the program takes {want} inputs ({names}), got {got}")]
    InputCount {
        /// The program's number.
        want: usize,
        /// The given number.
        got: usize,
        /// Their names.
        names: String,
    },
    /// No output has this name.
    #[error("there is no output '{name}'; the program gives {have}")]
    NoOutput {
        /// The name asked for.
        name: String,
        /// The outputs there are.
        have: String,
    },
    /// An index was out of range: nothing guarded was written.
    #[error("{op} at {loc}: an index is out of range (valid: 0 to {bound}); no guarded state was changed")]
    BadIndex {
        /// The op.
        op: String,
        /// The line that built it.
        loc: String,
        /// The largest valid index.
        bound: usize,
    },
}

/// What to do about a device that is not there.
fn device_help(name: &str) -> &'static str {
    match name {
        "cuda" => "build with the feature `cuda`, or use 'cpu'",
        _ if cfg!(feature = "cuda") => "use 'cpu' or 'cuda'",
        _ => "use 'cpu'",
    }
}

/// The first few names of each kind.
fn describe_difference(missing: &[String], unknown: &[String]) -> String {
    let list = |what: &str, names: &[String]| {
        let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
        (!names.is_empty()).then(|| format!("{what} {}{more}", names[..names.len().min(4)].join(", ")))
    };
    let both = [list("they lack", missing), list("it does not have", unknown)];
    both.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
