//! The tiled product that matrix products and the three convolutions share: `out[b, i, j] = Σ_k a(b, i, k) · b(b, k, j)`, where
//! the factors and the result are text, so that a convolution gathers its windows as it loads them.
//!
//! A block takes a square of the result and goes over `k` in steps of 16 through shared memory; a thread keeps up to 4 × 4 sums.
//! Products are fused multiply-adds in `f32`, or `f64` for that dtype. Where the result has too few squares for the device and
//! `k` is long, `k` is cut: each piece's sums go to scratch, and a second launch adds the pieces in order. How it is cut follows
//! from the sizes alone.

use super::Launches;
use super::text::launch;
use crate::code::{Address, Launch, PROCESSORS, Space, THREADS};
use onestep_ir::DType;

/// Squares that keep a device busy.
const ENOUGH: usize = PROCESSORS;
/// Steps of `k` that a block takes at a time.
const DEPTH: usize = 16;
/// The least and most of `k` that is worth a piece, and the most pieces.
const PIECE: usize = 128;
const MOST_PIECES: usize = 32;

/// A product of text.
pub(super) struct Tiles<'a> {
    pub batch: usize,
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    /// Of the factors.
    pub dtype: DType,
    /// Statements that set `x` to element `(b, i, k)` of the left factor, where it has one: `x` is 0 before.
    pub left: String,
    /// The same for element `(b, k, j)` of the right factor.
    pub right: String,
    /// Whether neighbours along `k` are neighbours in memory, for the left and the right factor.
    pub along: [bool; 2],
    /// Statements that store `x` as element `(b, i, j)`.
    pub store: String,
    /// The dtypes of the parameters; the last is the result's.
    pub dtypes: &'a [DType],
    pub arguments: Vec<Address>,
    /// No index is larger.
    pub largest: usize,
}

impl Tiles<'_> {
    /// Squares of this size.
    fn squares(&self, size: usize) -> usize {
        self.batch * self.rows.div_ceil(size) * self.columns.div_ceil(size)
    }

    /// The size of a square, and the pieces of `k`.
    fn cut(&self) -> (usize, usize) {
        let size = [64, 32].into_iter().find(|&size| self.squares(size) >= ENOUGH).unwrap_or(16);
        let wanted = (2 * ENOUGH).div_ceil(self.squares(size).max(1));
        let pieces = wanted.min(self.depth / PIECE).clamp(1, MOST_PIECES);
        (size, if self.squares(size) >= ENOUGH { 1 } else { pieces })
    }

    pub fn compile(self) -> Launches {
        let (size, pieces) = self.cut();
        let double = self.dtype == DType::F64;
        let acc = if double { "double" } else { "float" };
        let Tiles { batch, rows, columns, depth, .. } = self;
        let elements = batch * rows * columns;
        let each = size / 16;
        let piece = depth.div_ceil(pieces).next_multiple_of(DEPTH);
        let (high, wide) = (rows.div_ceil(size), columns.div_ceil(size));
        let work = self.squares(size) * pieces;
        // Neighbouring threads take neighbours in memory.
        let split = |along: bool| match along {
            true => format!("const int kk = e % {DEPTH}, q = e / {DEPTH};"),
            false => format!("const int q = e % {size}, kk = e / {size};"),
        };
        let keep = match pieces {
            1 => self.store.clone(),
            _ => format!("pieces[(((word)s * {batch} + b) * {rows} + i) * {columns} + j] = x;"),
        };
        let shared = 2 * DEPTH * size * if double { 8 } else { 4 };
        let scratch = self.dtypes.len();
        let pieces_pointer =
            if pieces > 1 { format!("  {acc}* pieces = p{scratch};\n") } else { String::new() };
        let body = format!(
            "  {acc}* left = ({acc}*)shared;\n  {acc}* right = left + {DEPTH} * {size};\n{pieces_pointer}\
             \x20 const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;\n\
             \x20 for (word w = (word)blockIdx.x; w < {work}; w += (word)gridDim.x) {{\n\
             \x20   const word s = w % {pieces}, j0 = w / {pieces} % {wide} * {size}, i0 = w / {pieces} / {wide} % {high} * {size}, b = w / {pieces} / {wide} / {high};\n\
             \x20   const word end = (s + 1) * {piece} < {depth} ? (s + 1) * {piece} : {depth};\n\
             \x20   {acc} sums[{each}][{each}];\n\
             #pragma unroll\n    for (int r = 0; r < {each}; ++r)\n#pragma unroll\n      for (int c = 0; c < {each}; ++c) sums[r][c] = 0;\n\
             \x20   for (word k0 = s * {piece}; k0 < end; k0 += {DEPTH}) {{\n\
             \x20     for (int e = threadIdx.x; e < {DEPTH} * {size}; e += {THREADS}) {{\n        {split_left}\n        const word i = i0 + q, k = k0 + kk;\n        {acc} x = 0;\n        if (i < {rows} && k < end) {{\n{left}        }}\n        left[kk * {size} + q] = x;\n      }}\n\
             \x20     for (int e = threadIdx.x; e < {DEPTH} * {size}; e += {THREADS}) {{\n        {split_right}\n        const word j = j0 + q, k = k0 + kk;\n        {acc} x = 0;\n        if (j < {columns} && k < end) {{\n{right}        }}\n        right[kk * {size} + q] = x;\n      }}\n\
             \x20     __syncthreads();\n#pragma unroll\n      for (int kk = 0; kk < {DEPTH}; ++kk)\n#pragma unroll\n        for (int r = 0; r < {each}; ++r)\n#pragma unroll\n          for (int c = 0; c < {each}; ++c)\n\
             \x20           sums[r][c] = {fma}(left[kk * {size} + ty * {each} + r], right[kk * {size} + tx + 16 * c], sums[r][c]);\n      __syncthreads();\n    }}\n\
             #pragma unroll\n    for (int r = 0; r < {each}; ++r)\n#pragma unroll\n      for (int c = 0; c < {each}; ++c) {{\n        const word i = i0 + ty * {each} + r, j = j0 + tx + 16 * c;\n        if (i < {rows} && j < {columns}) {{\n          const {acc} x = sums[r][c];\n{keep}\n        }}\n      }}\n  }}\n",
            split_left = split(self.along[0]),
            split_right = split(self.along[1]),
            left = self.left,
            right = self.right,
            fma = if double { "fma" } else { "fmaf" },
        );
        let acc_dtype = if double { DType::F64 } else { DType::F32 };
        let largest = self.largest.max(elements * pieces).max(depth + piece);
        if pieces == 1 {
            return launch(self.dtypes, self.arguments, &body, largest, work, shared).into();
        }
        let dtypes = [self.dtypes, &[acc_dtype]].concat();
        let mut arguments = self.arguments;
        arguments.push(Address { space: Space::Scratch, offset: 0 });
        let first = launch(&dtypes, arguments.clone(), &body, largest, work, shared);
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
