// y[i, j] = Σ_k x[i, k] · w[j, k] for few rows i: all time goes into reading w once, so every thread has many loads of 16
// bytes in flight, each of 32 lanes' neighbours. Above stand `element`, WIDTH (elements of a load), THREADS, and the function
// `widen` (a load as floats). `weights(j)` is where row j of w begins; after `settle()` x may be read; and
// `finish(i, first, sums)` takes what was y[i, first], y[i, first + 1], …, EACH of them at once by one thread.
//
// SPLIT warps take EACH rows of w together: a lane takes every 32 · SPLIT-th load of each, AHEAD of them at a time, in order,
// and adds even and odd elements apart. Then lanes are added by halves, and the warps in order. No size but those of the
// product says how, so the order of a sum is fixed.

// A load that leaves the first-level cache to x.
__device__ __forceinline__ uint4 stream(const element* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

template <int ROWS, int COLUMNS, int DEPTH, int EACH, int SPLIT, int AHEAD, class Weights, class Settle, class Finish>
__device__ __forceinline__ void gemv(const element* x, long long x_row, float* partial, Weights weights, Settle settle, Finish finish) {
  constexpr int WARPS = THREADS / 32, GROUPS = WARPS / SPLIT, STEP = 32 * SPLIT * WIDTH;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SPLIT;
  const int start = (int)blockIdx.x * GROUPS * EACH, first = start + warp / SPLIT * EACH;
  float even[EACH][ROWS], odd[EACH][ROWS];
#pragma unroll
  for (int c = 0; c < EACH; ++c)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) even[c][i] = odd[c][i] = 0.0f;
  const element* rows[EACH];
  // Behind the last column it is read again.
#pragma unroll
  for (int c = 0; c < EACH; ++c) rows[c] = weights(min(first + c, COLUMNS - 1));
  for (int base = 0; base < DEPTH; base += AHEAD * STEP) {
    const int k0 = base + (part * 32 + lane) * WIDTH;
    uint4 loads[AHEAD][EACH];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a)
#pragma unroll
      for (int c = 0; c < EACH; ++c)
        if (k0 + a * STEP < DEPTH) loads[a][c] = stream(rows[c] + k0 + a * STEP);
    // All loads are under way before the first is used, and before x has to be there.
    if (base == 0) settle();
    __syncwarp();
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      const int k = k0 + a * STEP;
      if (k >= DEPTH) break;
      float factors[EACH][WIDTH];
#pragma unroll
      for (int c = 0; c < EACH; ++c) widen(loads[a][c], factors[c]);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        float values[WIDTH];
        widen(*(const uint4*)(x + i * x_row + k), values);
#pragma unroll
        for (int c = 0; c < EACH; ++c)
#pragma unroll
          for (int e = 0; e < WIDTH; e += 2) {
            even[c][i] = fmaf(values[e], factors[c][e], even[c][i]);
            odd[c][i] = fmaf(values[e + 1], factors[c][e + 1], odd[c][i]);
          }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    float sums[EACH];
#pragma unroll
    for (int c = 0; c < EACH; ++c) {
      sums[c] = even[c][i] + odd[c][i];
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) sums[c] += __shfl_down_sync(0xffffffffu, sums[c], offset);
      if (SPLIT > 1 && lane == 0) partial[(warp * ROWS + i) * EACH + c] = sums[c];
    }
    if (SPLIT == 1 && lane == 0) finish(i, first, sums);
  }
  if (SPLIT == 1) return;
  __syncthreads();
  for (int at = threadIdx.x; at < GROUPS * ROWS; at += THREADS) {
    const int i = at % ROWS, group = at / ROWS;
    float sums[EACH];
#pragma unroll
    for (int c = 0; c < EACH; ++c) {
      sums[c] = 0.0f;
      for (int s = 0; s < SPLIT; ++s) sums[c] += partial[((group * SPLIT + s) * ROWS + i) * EACH + c];
    }
    finish(i, start + group * EACH, sums);
  }
}
