//! A program as text and launches, before any device: distinct kernels, and steps over addresses that are relative to the
//! program's areas. It can be inspected, compared and run by anything that can compile the text.

use crate::branches::Branches;
use crate::error::CudaError;
use onestep_ir::DType;
use onestep_ir::random::stream_id;
use std::collections::HashMap;

/// The name of a kernel's function in a text that has no name yet.
pub(crate) const NAME: &str = "kernel_name";

/// What a kernel begins with that waits for those before it later on, and by itself: its successor may be launched.
pub(crate) const MAKE_WAY: &str =
    "#if __CUDA_ARCH__ >= 900\n  asm volatile(\"griddepcontrol.launch_dependents;\");\n#endif\n";

/// Where such a kernel waits. Nothing that a kernel before writes or reads is used earlier.
pub(crate) const WAIT: &str =
    "#if __CUDA_ARCH__ >= 900\n  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n#endif\n";

/// Multiprocessors of a large device: how work is cut is chosen for so many, whatever the device, so that bits do not tell it.
pub(crate) const PROCESSORS: usize = 132;

/// Threads of a block, but for kernels that say otherwise.
pub const THREADS: u32 = 256;

/// The most launches of a program.
pub const MOST_STEPS: usize = 1 << 17;

/// Which memory an address is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// All inputs, one behind the other.
    Inputs,
    /// State tensor `n`.
    State(usize),
    /// The program's constants.
    Constants,
    /// What the plan laid out.
    Arena,
    /// What a kernel keeps between its own launches.
    Scratch,
    /// A number that the host looks at while the device runs.
    Notice,
    /// Buffer `n` of a scan's body, while that is lowered.
    Body(usize),
}

/// A place in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// Which memory.
    pub space: Space,
    /// Bytes from its start.
    pub offset: usize,
}

impl Address {
    /// `bytes` further.
    pub fn plus(self, bytes: usize) -> Address {
        Address { offset: self.offset + bytes, ..self }
    }

    /// Whether it is a multiple of 16 bytes in every iteration of a scan.
    pub(crate) fn in_chunks(self) -> bool {
        self.offset.is_multiple_of(16) && !matches!(self.space, Space::Body(_))
    }
}

/// A kernel of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// The function, whose name tells its text.
    pub name: String,
    /// CUDA C, without includes.
    pub source: String,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The first parameters are not addresses but describe these matrices there, for Hopper's copy engine.
    pub maps: Vec<TensorMap>,
}

/// A matrix of 16-bit floats that the copy engine loads in panels of 64 × 64 numbers, each row of 128 bytes swizzled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// The numbers' dtype.
    pub dtype: DType,
    /// Numbers of a row, which are contiguous, and rows.
    pub sizes: [usize; 2],
    /// Numbers from a row to the next.
    pub pitch: usize,
}

/// Rows of a panel, and the numbers of each.
pub const PANEL: usize = 64;

/// A matrix product that a vendor's library may take: `out[b, i, j] = Σ_k lhs[b, i, k] · rhs[b, k, j]`, dense output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Product {
    /// Batch, rows, columns, and the summed size.
    pub sizes: [usize; 4],
    /// The left factor's dtype.
    pub dtype: DType,
    /// The right one's, which is another only where both are 8-bit floats.
    pub right_dtype: DType,
    /// Whether factors of `f32` may be rounded to TF32.
    pub tf32: bool,
    /// The result's.
    pub result: DType,
    /// The left factor and the distances of its neighbours along batch, row and summed axis, in elements.
    pub lhs: (Address, [usize; 3]),
    /// The right factor, along batch, summed axis and column.
    pub rhs: (Address, [usize; 3]),
    /// The result.
    pub out: Address,
    /// Bytes that every address and distance of the batch is a multiple of, up to 256.
    pub aligned: usize,
}

/// What a run does, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A launch of blocks.
    Launch {
        /// Index into [`Code::kernels`].
        kernel: usize,
        /// Blocks.
        grid: u32,
        /// The function's parameters, all addresses.
        arguments: Vec<Address>,
    },
    /// A product for the vendor's library.
    Product(Product),
    /// A copy within the device.
    Copy {
        /// Source.
        from: Address,
        /// Destination.
        to: Address,
        /// How many bytes.
        bytes: usize,
    },
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Code {
    /// The distinct kernels.
    pub kernels: Vec<Kernel>,
    /// The steps, each with the schedule's kernel that it is part of (one past the last for the copies of new state).
    pub steps: Vec<(usize, Step)>,
    /// Which of the schedule's kernels, and of the copies of new state as one more, may run beside each other.
    pub branches: Branches,
    /// A line for each kernel of the schedule, for reports: op and sizes.
    pub labels: Vec<String>,
    /// Where each buffer of the schedule is.
    pub homes: Vec<Address>,
    /// What is in [`Space::Constants`].
    pub constants: Vec<u8>,
    /// Bytes of [`Space::Inputs`].
    pub input_bytes: usize,
    /// Bytes of [`Space::Arena`].
    pub arena_bytes: usize,
    /// Bytes of [`Space::Scratch`].
    pub scratch_bytes: usize,
    known: HashMap<String, usize>,
}

/// A launch before its text has a name.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// CUDA C whose function is called [`NAME`].
    pub source: String,
    /// Blocks.
    pub grid: usize,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: usize,
    /// The function's parameters.
    pub arguments: Vec<Address>,
}

impl Code {
    /// A program without steps.
    pub(crate) fn new(arena_bytes: usize) -> Code {
        Code { arena_bytes, ..Code::default() }
    }

    /// Adds a launch, and its kernel if there is none with this text.
    pub(crate) fn launch(&mut self, launch: Launch) -> Step {
        self.launch_mapped(launch, vec![])
    }

    /// The same for a text whose first parameters describe matrices, which follow from the text.
    pub(crate) fn launch_mapped(&mut self, launch: Launch, maps: Vec<TensorMap>) -> Step {
        let next = self.kernels.len();
        let kernel = *self.known.entry(launch.source).or_insert_with_key(|source| {
            let name = format!("k{:016x}", stream_id(source));
            let source = source.replace(NAME, &name);
            self.kernels.push(Kernel {
                name,
                source,
                threads: launch.threads,
                shared_bytes: launch.shared_bytes as u32,
                maps,
            });
            next
        });
        Step::Launch { kernel, grid: launch.grid as u32, arguments: launch.arguments }
    }

    /// Keeps a constant; where it is.
    pub(crate) fn constant(&mut self, bytes: &[u8]) -> Address {
        self.constants.resize(self.constants.len().next_multiple_of(256), 0);
        let offset = self.constants.len();
        self.constants.extend(bytes);
        Address { space: Space::Constants, offset }
    }

    /// Adds a step of the schedule's kernel `of`.
    pub(crate) fn push(&mut self, of: usize, step: Step) -> Result<(), CudaError> {
        if self.steps.len() == MOST_STEPS {
            return Err(CudaError::TooManySteps { most: MOST_STEPS });
        }
        self.steps.push((of, step));
        Ok(())
    }

    /// The products for the vendor's library.
    pub fn products(&self) -> impl Iterator<Item = &Product> {
        self.steps.iter().filter_map(|(_, step)| match step {
            Step::Product(p) => Some(p),
            _ => None,
        })
    }

    /// The kernels in at most `count` texts of about equal length, each to be compiled by itself, with how many are in each.
    pub fn texts(&self, count: usize) -> Vec<(usize, String)> {
        let total: usize = self.kernels.iter().map(|k| k.source.len()).sum();
        let each = total.div_ceil(count.max(1));
        let mut blocks = vec![0; self.kernels.len()];
        for (_, step) in &self.steps {
            if let Step::Launch { kernel, grid, .. } = step {
                blocks[*kernel] = *grid.max(&blocks[*kernel]);
            }
        }
        let mut texts: Vec<(usize, String)> = vec![];
        for (k, blocks) in self.kernels.iter().zip(blocks) {
            let own = format!("namespace n_{} {{\n{}}}\n", k.name, ordered(&k.source, blocks));
            match texts.last_mut() {
                Some((held, text)) if text.len() < each => {
                    *held += 1;
                    *text += &own;
                }
                _ => texts.push((1, own)),
            }
        }
        texts
    }
}

/// Launches of at most this many blocks let their successors be launched at once. Those of larger ones would be dealt out
/// unevenly, among what room is left.
const FEW_BLOCKS: u32 = 48;

/// A kernel's text with what it does first where the architecture may launch it before its predecessor has ended: it waits for
/// that, which has itself waited for all before it. One that says where it waits is as it is.
fn ordered(source: &str, blocks: u32) -> String {
    if source.contains(WAIT) {
        return source.into();
    }
    let entry = source.find("__global__").unwrap_or(0);
    let Some(brace) = source[entry..].find('{') else { return source.into() };
    let (head, body) = source.split_at(entry + brace + 1);
    let successor = if blocks <= FEW_BLOCKS { "griddepcontrol.launch_dependents; " } else { "" };
    format!(
        "{head}\n#if __CUDA_ARCH__ >= 900\n  asm volatile(\"{successor}griddepcontrol.wait;\" ::: \"memory\");\n#endif{body}"
    )
}
