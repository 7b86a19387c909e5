//! A square by tensor cores: 16-bit factors, sums in `f32`.
//!
//! A step of both factors lies in shared memory, and the next one is loaded to registers meanwhile. A thread loads eight numbers
//! that follow each other along `k`, so that it stores them at once: by one load where they lie so in memory, and else each from
//! the place that its row and `k` give. What rows give is computed once for a square, and what `k` gives once for a block and step.

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

impl Factor {
    /// Words that `k` gives: an offset, and a coordinate for each axis that it moves along. None where eight numbers are one load.
    fn words(&self) -> usize {
        if self.chunks { 0 } else { 1 + self.moving().count() }
    }

    /// The axes that `k` moves along, each with the place of its coordinate among the words.
    fn moving(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let axes = self.axes.iter().enumerate().filter(|(_, axis)| axis.moves);
        axes.enumerate().map(|(word, (a, _))| (a, word + 1))
    }
}

impl Tiles<'_> {
    /// Bytes of two steps of both factors, and of what `k` gives in two steps.
    pub(super) fn tensor_shared_bytes(&self, size: usize) -> usize {
        2 * 2 * size * ROW * 2 + 2 * DEPTH * (self.left.words() + self.right.words()) * 8
    }

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
        // What the rows of a thread's chunks give.
        let lines = |number: usize, row: &str, factor: &Factor| {
            let axes = factor.axes.len();
            let keep: String =
                (0..axes).map(|a| format!("            line{number}[m][{}] = y{a};\n", a + 1)).collect();
            format!(
                "    word line{number}[{chunks}][{}];\n#pragma unroll\n    for (int m = 0; m < {chunks}; ++m) {{\n      const int e = threadIdx.x + m * {THREADS};\n      {}\n      const word {row} = {row}0 + q;\n      {}      line{number}[m][0] = base;\n{keep}    }}\n",
                axes + 1,
                split(factor.along),
                factor.line,
            )
        };
        // What `k` gives in the step at `k1`, by a warp.
        let table = |number: usize, factor: &Factor| {
            if factor.words() == 0 {
                return String::new();
            }
            let keep: String =
                factor.moving().map(|(a, word)| format!(" at[{}] = r{a};", word * DEPTH)).collect();
            format!(
                "      if (threadIdx.x / 32 == {number}) {{\n        const word k = k1 + threadIdx.x % 32;\n        {step}        word* const at = tables + ({start} + stage1 * {words}) * {DEPTH} + threadIdx.x % 32;\n        at[0] = offset;{keep}\n      }}\n",
                step = factor.step,
                start = if number == 0 { 0 } else { 2 * self.left.words() },
                words = factor.words(),
            )
        };
        let tables = table(0, &self.left) + &table(1, &self.right);
        // Loads the numbers of a factor in the step at `k0`.
        let fetch = |number: usize, row: &str, limit: usize, factor: &Factor| {
            let axes: String = (0..factor.axes.len())
                .map(|a| format!("          const word y{a} = line{number}[n][{}];\n", a + 1))
                .collect();
            let start = if number == 0 { 0 } else { 2 * self.left.words() };
            let one = match factor.chunks {
                true => format!(
                    "          uint4 all = {{0, 0, 0, 0}};\n          const word k = k0 + chunk * {CHUNK};\n          if ({row} < {limit} && k < end) {{\n            {}            all = *(const uint4*)(p{} + base + offset);\n          }}\n          held[{number}][n][0] = all.x; held[{number}][n][1] = all.y; held[{number}][n][2] = all.z; held[{number}][n][3] = all.w;\n",
                    factor.step, factor.parameter,
                ),
                false => {
                    let (there, at) = factor.place();
                    let steps: String =
                        factor.moving().map(|(a, word)| format!(", r{a} = at[{}]", word * DEPTH)).collect();
                    format!(
                        "          unsigned int words[4] = {{0, 0, 0, 0}};\n          const word* at = tables + ({start} + stage * {count}) * {DEPTH} + chunk * {CHUNK};\n\
                         #pragma unroll\n          for (int m = 0; m < {CHUNK}; ++m, ++at) {{\n            const word offset = at[0]{steps};\n            if ({row} < {limit} && k0 + chunk * {CHUNK} + m < end && {there}) words[m / 2] |= (unsigned int)p{parameter}[{at}] << m % 2 * 16;\n          }}\n\
                         #pragma unroll\n          for (int m = 0; m < 4; ++m) held[{number}][n][m] = words[m];\n",
                        count = factor.words(),
                        parameter = factor.parameter,
                    )
                }
            };
            format!(
                "#pragma unroll\n        for (int n = 0; n < {chunks}; ++n) {{\n          const int e = threadIdx.x + n * {THREADS};\n          {}\n          const word {row} = {row}0 + q, base = line{number}[n][0];\n{axes}{one}        }}\n",
                split(factor.along),
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
            "    float sums[{each}][{each}][4] = {{}};\n    unsigned int held[2][{chunks}][4];\n    const word begin = s * {piece};\n\
             \x20   word* const tables = (word*)((unsigned int*)shared + 2 * {both});\n{lines_left}{lines_right}\
             \x20   {{\n      const word k1 = begin;\n      const int stage1 = 0;\n{tables}    }}\n    __syncthreads();\n\
             \x20   for (word k0 = begin; k0 < end + {DEPTH}; k0 += {DEPTH}) {{\n\
             \x20     const int stage = (k0 - begin) / {DEPTH} % 2;\n\
             \x20     if (k0 < end) {{\n{fetch_left}{fetch_right}      }}\n\
             \x20     if (k0 > begin) {{\n        const unsigned int* const step = (unsigned int*)shared + (1 - stage) * {both};\n        multiply<{size}, {brain}>(sums, step, step + {words});\n      }}\n\
             \x20     if (k0 < end) {{\n        unsigned int* const step = (unsigned int*)shared + stage * {both};\n{put_left}{put_right}      }}\n\
             \x20     const word k1 = k0 + {DEPTH};\n      const int stage1 = 1 - stage;\n{tables}\
             \x20     __syncthreads();\n    }}\n\
             #pragma unroll\n    for (int r = 0; r < {each}; ++r)\n#pragma unroll\n      for (int c = 0; c < {each}; ++c)\n#pragma unroll\n        for (int e = 0; e < 4; ++e) {{\n        const word i = i0 + row_of<{size}>(r, e), j = j0 + column_of<{size}>(c, e);\n        if (i < {rows} && j < {columns}) {{\n          const float x = sums[r][c][e];\n{keep}\n        }}\n      }}\n",
            lines_left = lines(0, "i", &self.left),
            lines_right = lines(1, "j", &self.right),
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
