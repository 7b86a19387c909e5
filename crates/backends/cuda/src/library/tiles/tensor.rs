//! A square by tensor cores: 16-bit factors, sums in `f32`.
//!
//! A step of both factors lies in shared memory, and the next one is loaded to registers meanwhile. A thread loads eight numbers
//! that follow each other along `k`, so that it stores them at once.

use super::{Cut, Factor, Tiles};
use crate::code::THREADS;
use onestep_ir::DType;

/// Steps of `k` that a block takes at a time.
pub(super) const DEPTH: usize = 32;
/// Numbers that a thread loads of a row, and those of a row with what keeps rows apart.
const CHUNK: usize = 8;
const ROW: usize = DEPTH + CHUNK;

/// What the text is written with.
pub(super) const FUNCTIONS: &str = include_str!("tensor.cuh");

/// Bytes of two steps of both factors.
pub(super) fn shared_bytes(size: usize) -> usize {
    2 * 2 * size * ROW * 2
}

impl Tiles<'_> {
    /// The square at `i0`, `j0` of batch `b`, summed from `k` = `s` pieces to `end`.
    pub(super) fn tensor_square(&self, cut: &Cut, keep: &str) -> String {
        let (size, piece, each) = (cut.size, cut.piece, cut.size / 32);
        let chunks = size * DEPTH / CHUNK / THREADS as usize;
        let (words, chunks_of_row) = (size * ROW / 2, DEPTH / CHUNK);
        // Neighbouring threads take neighbours in memory.
        let split = |along: bool| match along {
            true => format!("const int chunk = e % {chunks_of_row}, q = e / {chunks_of_row};"),
            false => format!("const int q = e % {size}, chunk = e / {size};"),
        };
        // Loads the numbers of a factor in the step at `k0`.
        let fetch = |number: usize, row: &str, limit: usize, factor: &Factor| {
            format!(
                "#pragma unroll\n        for (int n = 0; n < {chunks}; ++n) {{\n          const int e = threadIdx.x + n * {THREADS};\n          {split}\n          const word {row} = {row}0 + q;\n          unsigned int words[4] = {{0, 0, 0, 0}};\n\
                 #pragma unroll\n          for (int m = 0; m < {CHUNK}; ++m) {{\n          const word k = k0 + chunk * {CHUNK} + m;\n          unsigned short x = 0;\n          if ({row} < {limit} && k < end) {{\n{element}          }}\n          words[m / 2] |= (unsigned int)x << m % 2 * 16;\n          }}\n\
                 \x20         for (int m = 0; m < 4; ++m) held[{number}][n][m] = words[m];\n        }}\n",
                split = split(factor.along),
                element = self.read(factor),
            )
        };
        // Puts them where the warps find them.
        let put = |number: usize, factor: &Factor| {
            format!(
                "#pragma unroll\n        for (int n = 0; n < {chunks}; ++n) {{\n          const int e = threadIdx.x + n * {THREADS};\n          {split}\n          const unsigned int* const words = held[{number}][n];\n          *(uint4*)(step + {number} * {words} + q * {row} + chunk * 4) = {{words[0], words[1], words[2], words[3]}};\n        }}\n",
                split = split(factor.along),
                row = ROW / 2,
            )
        };
        format!(
            "    float sums[{each}][{each}][4] = {{}};\n    unsigned int held[2][{chunks}][4];\n    const word begin = s * {piece};\n    __syncthreads();\n\
             \x20   for (word k0 = begin; k0 < end + {DEPTH}; k0 += {DEPTH}) {{\n\
             \x20     const int stage = (k0 - begin) / {DEPTH} % 2;\n\
             \x20     if (k0 < end) {{\n{fetch_left}{fetch_right}      }}\n\
             \x20     if (k0 > begin) {{\n        const unsigned int* const step = (unsigned int*)shared + (1 - stage) * {both};\n        multiply<{size}, {brain}>(sums, step, step + {words});\n      }}\n\
             \x20     if (k0 < end) {{\n        unsigned int* const step = (unsigned int*)shared + stage * {both};\n{put_left}{put_right}      }}\n\
             \x20     __syncthreads();\n    }}\n\
             #pragma unroll\n    for (int r = 0; r < {each}; ++r)\n#pragma unroll\n      for (int c = 0; c < {each}; ++c)\n#pragma unroll\n        for (int e = 0; e < 4; ++e) {{\n        const word i = i0 + row_of<{size}>(r, e), j = j0 + column_of<{size}>(c, e);\n        if (i < {rows} && j < {columns}) {{\n          const float x = sums[r][c][e];\n{keep}\n        }}\n      }}\n",
            fetch_left = fetch(0, "i", self.rows, &self.left),
            fetch_right = fetch(1, "j", self.columns, &self.right),
            put_left = put(0, &self.left),
            put_right = put(1, &self.right),
            both = 2 * words,
            brain = self.dtype == DType::BF16,
            rows = self.rows,
            columns = self.columns,
        )
    }
}
