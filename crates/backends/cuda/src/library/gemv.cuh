// y[i, j] = Σ_k x[i, k] · w[j, k] for few rows i: all time goes into reading w once, so every thread has many loads of 16
// bytes in flight, each of 32 lanes' neighbours. Above stand `element`, WIDTH (elements of a load), THREADS, and the functions
// `widen` (a load as floats) and `settle` (after which x may be read); `finish(i, j, sum)` takes what was y[i, j].
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

template <int ROWS, int COLUMNS, int DEPTH, int EACH, int SPLIT, int AHEAD, class Finish>
__device__ __forceinline__ void gemv(const element* x, long long x_row, const element* w, long long w_row, int block, float* shared, Finish finish) {
  constexpr int WARPS = THREADS / 32, STEP = 32 * SPLIT * WIDTH;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SPLIT;
  const int first = (block * (WARPS / SPLIT) + warp / SPLIT) * EACH;
  float even[EACH][ROWS], odd[EACH][ROWS];
#pragma unroll
  for (int c = 0; c < EACH; ++c)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) even[c][i] = odd[c][i] = 0.0f;
  for (int base = 0; base < DEPTH; base += AHEAD * STEP) {
    const int k0 = base + (part * 32 + lane) * WIDTH;
    uint4 loads[AHEAD][EACH];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a)
#pragma unroll
      for (int c = 0; c < EACH; ++c) {
        // Behind the last column it is read again.
        const int k = k0 + a * STEP, j = first + c < COLUMNS ? first + c : COLUMNS - 1;
        if (k < DEPTH) loads[a][c] = stream(w + j * w_row + k);
      }
    // All loads are under way before the first is used, and before x has to be there.
    if (base == 0) settle();
    __syncwarp();
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      const int k = k0 + a * STEP;
      if (k >= DEPTH) break;
      float weights[EACH][WIDTH];
#pragma unroll
      for (int c = 0; c < EACH; ++c) widen(loads[a][c], weights[c]);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        float values[WIDTH];
        widen(*(const uint4*)(x + i * x_row + k), values);
#pragma unroll
        for (int c = 0; c < EACH; ++c)
#pragma unroll
          for (int e = 0; e < WIDTH; e += 2) {
            even[c][i] = fmaf(values[e], weights[c][e], even[c][i]);
            odd[c][i] = fmaf(values[e + 1], weights[c][e + 1], odd[c][i]);
          }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < EACH; ++c)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      float sum = even[c][i] + odd[c][i];
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
      if (SPLIT > 1) {
        if (lane == 0) shared[(warp * EACH + c) * ROWS + i] = sum;
      } else if (lane == 0 && first + c < COLUMNS) {
        finish(i, first + c, sum);
      }
    }
  if (SPLIT == 1) return;
  __syncthreads();
  for (int at = threadIdx.x; at < WARPS / SPLIT * EACH * ROWS; at += THREADS) {
    const int i = at % ROWS, c = at / ROWS % EACH, group = at / ROWS / EACH;
    const int j = (block * (WARPS / SPLIT) + group) * EACH + c;
    float sum = 0.0f;
    for (int s = 0; s < SPLIT; ++s) sum += shared[((group * SPLIT + s) * EACH + c) * ROWS + i];
    if (j < COLUMNS) finish(i, j, sum);
  }
}
