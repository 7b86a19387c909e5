//! The tiled product that matrix products and the three convolutions share: `out[b, i, j] = Σ_k a(b, i, k) · b(b, k, j)`, where
//! the factors and the result are text, so that a convolution gathers its windows as it loads them.
//!
//! A block takes a square of the result and goes over `k` in steps through shared memory. Squares of 16-bit factors are made by
//! [tensor cores](tensor), others by [fused multiply-adds](scalar) in `f32`, or `f64` for that dtype. Where the result has too few
//! squares for the device and `k` is long, `k` is cut: each piece's sums go to scratch, and a second launch adds the pieces in
//! order. How it is cut follows from the sizes alone.

mod scalar;
mod tensor;

use super::Launches;
use super::text::launch;
use crate::code::{Address, Launch, PROCESSORS, Space, THREADS};
use onestep_ir::DType;

/// Squares that keep a device busy.
const ENOUGH: usize = PROCESSORS;
/// The least and most of `k` that is worth a piece, and the most pieces.
const PIECE: usize = 128;
const MOST_PIECES: usize = 32;

/// Where the elements of a factor are. An element's place is a sum of a part that its row (or column) gives and one that `k`
/// gives, and so are its coordinates along axes that windows go over.
pub(super) struct Factor {
    /// The parameter that holds the factor.
    pub parameter: usize,
    /// Statements that set `base`, and `y0` … for each axis, from `b` and `i` (or `j`).
    pub line: String,
    /// Statements that set `offset`, and `r0` … for each axis, from `k`.
    pub step: String,
    pub axes: Vec<Axis>,
    /// Whether neighbours along `k` are neighbours in memory.
    pub along: bool,
    /// Whether moreover eight of them from a multiple of eight on lie in memory at a multiple of 16 bytes.
    pub chunks: bool,
}

/// An axis that windows go over: with `q = y + r`, an element is there where `q` is a multiple of `stride` and `q / stride` is from
/// 0 to `limit`; that times `pitch` is a part of its place. Elsewhere the factor is 0.
pub(super) struct Axis {
    /// Whether `k` moves along it: else `r` is 0.
    pub moves: bool,
    pub stride: usize,
    pub limit: usize,
    pub pitch: usize,
}

impl Factor {
    /// One without windows, at element `base + offset`.
    pub fn dense(parameter: usize, base: String, offset: String, along: bool) -> Factor {
        let line = format!("const word base = {base};\n");
        let step = format!("const word offset = {offset};\n");
        Factor { parameter, line, step, axes: vec![], along, chunks: false }
    }

    /// Whether there is an element at `base`, `y0` … and `offset`, `r0` …, and its place.
    fn place(&self) -> (String, String) {
        let (mut there, mut at) = (String::new(), String::from("base + offset"));
        for (a, Axis { moves, stride, limit, pitch }) in self.axes.iter().enumerate() {
            let and = if a > 0 { " && " } else { "" };
            let q = if *moves { format!("(y{a} + r{a})") } else { format!("y{a}") };
            // One comparison: what is negative is large without a sign.
            there += &match stride {
                1 => format!("{and}(unsigned int){q} < {limit}u"),
                _ => format!("{and}(unsigned int){q} < {}u && {q} % {stride} == 0", limit * stride),
            };
            at += &match stride {
                1 => format!(" + {q} * (word){pitch}"),
                _ => format!(" + {q} / {stride} * (word){pitch}"),
            };
        }
        (if there.is_empty() { "true".into() } else { there }, at)
    }
}

/// Whether all are: of distances, so that chunks of eight 16-bit numbers stay chunks.
pub(super) fn multiple_of_8(sizes: &[usize]) -> bool {
    sizes.iter().all(|n| n % 8 == 0)
}

/// A product of text.
pub(super) struct Tiles<'a> {
    pub batch: usize,
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    /// Of the factors.
    pub dtype: DType,
    /// Element `(b, i, k)` of the left factor, and `(b, k, j)` of the right one.
    pub left: Factor,
    pub right: Factor,
    /// Statements that store `x` as element `(b, i, j)`.
    pub store: String,
    /// The dtypes of the parameters; the last is the result's.
    pub dtypes: &'a [DType],
    pub arguments: Vec<Address>,
    /// No index is larger.
    pub largest: usize,
}

/// How the work is cut: the size of a square, how many there are up and across, and how much of `k` makes a piece.
struct Cut {
    size: usize,
    high: usize,
    wide: usize,
    pieces: usize,
    piece: usize,
}

impl Tiles<'_> {
    /// Whether tensor cores make the squares: of factors that they take, and of results that fill a part of a square.
    fn tensor(&self) -> bool {
        matches!(self.dtype, DType::BF16 | DType::F16) && self.rows.min(self.columns) >= 16
    }

    /// Squares of this size.
    fn squares(&self, size: usize) -> usize {
        self.batch * self.rows.div_ceil(size) * self.columns.div_ceil(size)
    }

    fn cut(&self) -> Cut {
        let (sizes, least, step) = match self.tensor() {
            true if self.rows.min(self.columns) <= 64 => (&[64][..], 64, tensor::DEPTH),
            true => (&[128, 64][..], 64, tensor::DEPTH),
            false => (&[64, 32][..], 16, scalar::DEPTH),
        };
        let most = (self.depth / PIECE).clamp(1, MOST_PIECES);
        let fills = |size: &usize| self.squares(*size) * most >= ENOUGH;
        let size = sizes.iter().copied().find(fills).unwrap_or(least);
        let wanted = (2 * ENOUGH).div_ceil(self.squares(size).max(1));
        let pieces = if self.squares(size) >= ENOUGH { 1 } else { wanted.min(most) };
        let piece = self.depth.div_ceil(pieces).next_multiple_of(step);
        Cut { size, high: self.rows.div_ceil(size), wide: self.columns.div_ceil(size), pieces, piece }
    }

    pub fn compile(self) -> Launches {
        let cut = self.cut();
        let acc = if self.dtype == DType::F64 { "double" } else { "float" };
        let Tiles { batch, rows, columns, depth, .. } = self;
        let Cut { pieces, piece, .. } = cut;
        let elements = batch * rows * columns;
        let work = self.squares(cut.size) * pieces;
        let keep = match pieces {
            1 => self.store.clone(),
            _ => format!("pieces[(((word)s * {batch} + b) * {rows} + i) * {columns} + j] = x;"),
        };
        let (square, shared, functions) = match self.tensor() {
            true => (self.tensor_square(&cut, &keep), self.tensor_shared_bytes(cut.size), tensor::FUNCTIONS),
            false => (self.scalar_square(&cut, acc, &keep), self.scalar_shared_bytes(cut.size), ""),
        };
        let scratch = self.dtypes.len();
        let pieces_pointer =
            if pieces > 1 { format!("  {acc}* pieces = p{scratch};\n") } else { String::new() };
        let body = format!(
            "{pieces_pointer}\
             \x20 for (word w = (word)blockIdx.x; w < {work}; w += (word)gridDim.x) {{\n\
             \x20   const word s = w % {pieces}, j0 = w / {pieces} % {wide} * {size}, i0 = w / {pieces} / {wide} % {high} * {size}, b = w / {pieces} / {wide} / {high};\n\
             \x20   const word end = (s + 1) * {piece} < {depth} ? (s + 1) * {piece} : {depth};\n\
             {square}  }}\n",
            wide = cut.wide,
            high = cut.high,
            size = cut.size,
        );
        let launch = |dtypes: &[DType], arguments: Vec<Address>| {
            let largest = self.largest.max(elements * pieces).max(depth + piece);
            let mut launch = launch(dtypes, arguments, &body, largest, work, shared);
            launch.source.insert_str(0, functions);
            launch
        };
        if pieces == 1 {
            return launch(self.dtypes, self.arguments).into();
        }
        let acc_dtype = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let dtypes = [self.dtypes, &[acc_dtype]].concat();
        let mut arguments = self.arguments;
        arguments.push(Address { space: Space::Scratch, offset: 0 });
        let first = launch(&dtypes, arguments.clone());
        let largest = self.largest.max(elements * pieces);
        let second = sum(&dtypes, arguments, [batch, rows, columns], pieces, acc, &self.store, largest);
        Launches { list: vec![first, second], scratch_bytes: elements * pieces * acc_dtype.size() }
    }
}

/// Adds the pieces, a thread for each element.
fn sum(
    dtypes: &[DType],
    arguments: Vec<Address>,
    [batch, rows, columns]: [usize; 3],
    pieces: usize,
    acc: &str,
    store: &str,
    largest: usize,
) -> Launch {
    let elements = batch * rows * columns;
    let last = dtypes.len() - 1;
    let body = format!(
        "  for (word at = (word)blockIdx.x * {THREADS} + (word)threadIdx.x; at < {elements}; at += (word)gridDim.x * {THREADS}) {{\n\
         \x20   const word j = at % {columns}, i = at / {columns} % {rows}, b = at / {columns} / {rows};\n    {acc} x = p{last}[at];\n\
         \x20   for (int s = 1; s < {pieces}; ++s) x += p{last}[(word)s * {elements} + at];\n{store}\n  }}\n"
    );
    launch(dtypes, arguments, &body, largest, elements.div_ceil(THREADS as usize), 0)
}
