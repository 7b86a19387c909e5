//! A square by fused multiply-adds: a thread keeps up to 4 × 4 sums.

use super::super::text::load;
use super::{Cut, Factor, Tiles};
use crate::code::THREADS;
use crate::render::scalar;
use onestep_ir::DType;

/// Steps of `k` that a block takes at a time.
pub(super) const DEPTH: usize = 16;

impl Tiles<'_> {
    /// Bytes of a step of both factors.
    pub(super) fn scalar_shared_bytes(&self, size: usize) -> usize {
        2 * DEPTH * size * if self.dtype == DType::F64 { 8 } else { 4 }
    }

    /// The square at `i0`, `j0` of batch `b`, summed from `k` = `s` pieces to `end`.
    pub(super) fn scalar_square(&self, cut: &Cut, acc: &str, keep: &str) -> String {
        let Tiles { rows, columns, .. } = *self;
        let (size, each, piece) = (cut.size, cut.size / 16, cut.piece);
        // Neighbouring threads take neighbours in memory.
        let split = |along: bool| match along {
            true => format!("const int kk = e % {DEPTH}, q = e / {DEPTH};"),
            false => format!("const int q = e % {size}, kk = e / {size};"),
        };
        let read = |factor: &Factor| {
            let (there, at) = factor.place();
            let dtype = self.dtypes[factor.parameter];
            let value = load(dtype, factor.parameter, &at);
            let value = if dtype.is_fp8() { scalar::cast(dtype, DType::F32, &value) } else { value };
            format!("          {}          {}          if ({there}) x = {value};\n", factor.line, factor.step)
        };
        format!(
            "    {acc}* left = ({acc}*)shared;\n    {acc}* right = left + {DEPTH} * {size};\n\
             \x20   const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;\n\
             \x20   {acc} sums[{each}][{each}];\n\
             #pragma unroll\n    for (int r = 0; r < {each}; ++r)\n#pragma unroll\n      for (int c = 0; c < {each}; ++c) sums[r][c] = 0;\n\
             \x20   for (word k0 = s * {piece}; k0 < end; k0 += {DEPTH}) {{\n\
             \x20     for (int e = threadIdx.x; e < {DEPTH} * {size}; e += {THREADS}) {{\n        {split_left}\n        const word i = i0 + q, k = k0 + kk;\n        {acc} x = 0;\n        if (i < {rows} && k < end) {{\n{left}        }}\n        left[kk * {size} + q] = x;\n      }}\n\
             \x20     for (int e = threadIdx.x; e < {DEPTH} * {size}; e += {THREADS}) {{\n        {split_right}\n        const word j = j0 + q, k = k0 + kk;\n        {acc} x = 0;\n        if (j < {columns} && k < end) {{\n{right}        }}\n        right[kk * {size} + q] = x;\n      }}\n\
             \x20     __syncthreads();\n#pragma unroll\n      for (int kk = 0; kk < {DEPTH}; ++kk)\n#pragma unroll\n        for (int r = 0; r < {each}; ++r)\n#pragma unroll\n          for (int c = 0; c < {each}; ++c)\n\
             \x20           sums[r][c] = {fma}(left[kk * {size} + ty * {each} + r], right[kk * {size} + tx + 16 * c], sums[r][c]);\n      __syncthreads();\n    }}\n\
             #pragma unroll\n    for (int r = 0; r < {each}; ++r)\n#pragma unroll\n      for (int c = 0; c < {each}; ++c) {{\n        const word i = i0 + ty * {each} + r, j = j0 + tx + 16 * c;\n        if (i < {rows} && j < {columns}) {{\n          const {acc} x = sums[r][c];\n{keep}\n        }}\n      }}\n",
            split_left = split(self.left.along),
            split_right = split(self.right.along),
            left = read(&self.left),
            right = read(&self.right),
            fma = if acc == "double" { "fma" } else { "fmaf" },
        )
    }
}
