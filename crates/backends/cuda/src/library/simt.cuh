// A product of f32 matrices too small to fill the device with large tiles: all threads of a block work on one small tile of the
// result.
//
// A group of threads holds the tile's sums, a few rows and columns each; the groups of a block share k in quads, dealt out in
// turn, and their sums are added at the end, in an order that the sizes fix. A slab of both factors is in shared memory at a
// time, as it lies in memory (along k or across), so that every copy is of vectors; meanwhile the next slab is on its way to
// registers.
//
// In front of this text stand THREADS, DEPTH (the length of k), SLAB (steps of k, a multiple of 4), and of each factor `Left`
// and `Right`: the strides LINE and K (a line is a row of the left factor, a column of the right one), how many LINES there
// are, how many of them are a TILE and how many are a thread's (LANE, a multiple of 4), whether k is ALONG the contiguous axis,
// and the length of a VECTOR, which divides all else.

template <int N> struct alignas(4 * N) Vector { float x[N]; };

// A factor's part in a tile: lines from `first` on.
template <class F> struct Factor {
  static constexpr int VECTORS = F::TILE * SLAB / F::VECTOR;
  static constexpr int EACH = (VECTORS + THREADS - 1) / THREADS;
  // An odd number of quads, so that quads below each other are in other banks.
  static constexpr int PITCH = F::ALONG ? SLAB / 4 % 2 == 0 ? SLAB + 4 : SLAB : F::TILE + 4;
  static constexpr int SHARED = PITCH * (F::ALONG ? F::TILE : SLAB);
  // The lines of lane t are START * t + STEP * n: neighbouring lanes read lines below each other, or vectors side by side.
  static constexpr int LANES = F::TILE / F::LANE;
  static constexpr int STEP = F::ALONG ? LANES : 1;
  static constexpr int START = F::ALONG ? 1 : F::LANE;
  Vector<F::VECTOR> held[EACH];

  static __device__ __forceinline__ int line(int vector) {
    return F::ALONG ? vector / (SLAB / F::VECTOR) : vector % (F::TILE / F::VECTOR) * F::VECTOR;
  }
  static __device__ __forceinline__ int step(int vector) {
    return F::ALONG ? vector % (SLAB / F::VECTOR) * F::VECTOR : vector / (F::TILE / F::VECTOR);
  }
  // From memory to registers; zeros beyond the factor's end.
  __device__ __forceinline__ void fetch(const float* p, int first, int k0) {
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const int vector = threadIdx.x + n * THREADS;
      const int l = first + line(vector), k = k0 + step(vector);
      Vector<F::VECTOR> v = {};
      if ((VECTORS % THREADS == 0 || vector < VECTORS) && l < F::LINES && k < DEPTH)
        v = *(const Vector<F::VECTOR>*)(p + l * F::LINE + k * F::K);
      held[n] = v;
    }
  }
  // From registers to shared memory.
  __device__ __forceinline__ void keep(float* shared) const {
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const int vector = threadIdx.x + n * THREADS;
      const int l = line(vector), k = step(vector);
      if (VECTORS % THREADS == 0 || vector < VECTORS)
        *(Vector<F::VECTOR>*)(shared + (F::ALONG ? l * PITCH + k : k * PITCH + l)) = held[n];
    }
  }
  // Four steps of k of a lane's lines.
  static __device__ __forceinline__ void quad(float (&x)[F::LANE][4], const float* shared, int lane, int q) {
#pragma unroll
    for (int n = 0; n < F::LANE; ++n) {
      const int k = n % 4, l = n / 4 * 4;
      const int at = F::ALONG ? (START * lane + STEP * n) * PITCH + 4 * q : (4 * q + k) * PITCH + START * lane + l;
      const Vector<4> v = *(const Vector<4>*)(shared + at);
#pragma unroll
      for (int m = 0; m < 4; ++m) x[F::ALONG ? n : l + m][F::ALONG ? m : k] = v.x[m];
    }
  }
};

// Calls finish(i, j, x) for each element of the tile at (i0, j0).
template <class Finish>
__device__ __forceinline__ void product(const float* lhs, const float* rhs, int i0, int j0, Finish finish) {
  extern __shared__ long long shared[];
  using A = Factor<Left>;
  using B = Factor<Right>;
  constexpr int GROUP = A::LANES * B::LANES, GROUPS = THREADS / GROUP;
  A a;
  B b;
  float* left = (float*)shared;
  float* right = left + A::SHARED;
  const int group = threadIdx.x / GROUP, row = threadIdx.x % GROUP / B::LANES, column = threadIdx.x % B::LANES;
  float sums[Left::LANE][Right::LANE] = {};
  a.fetch(lhs, i0, 0);
  b.fetch(rhs, j0, 0);
  for (int k0 = 0; k0 < DEPTH; k0 += SLAB) {
    a.keep(left);
    b.keep(right);
    __syncthreads();
    if (k0 + SLAB < DEPTH) {
      a.fetch(lhs, i0, k0 + SLAB);
      b.fetch(rhs, j0, k0 + SLAB);
    }
    const int quads = ((DEPTH - k0 < SLAB ? DEPTH - k0 : SLAB) + 3) / 4;
    for (int q = group; q < quads; q += GROUPS) {
      float x[Left::LANE][4], y[Right::LANE][4];
      A::quad(x, left, row, q);
      B::quad(y, right, column, q);
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int r = 0; r < Left::LANE; ++r)
#pragma unroll
          for (int c = 0; c < Right::LANE; ++c) sums[r][c] = fmaf(x[r][k], y[c][k], sums[r][c]);
    }
    __syncthreads();
  }

#if __CUDA_ARCH__ >= 900
  // What is left is short: the next kernel may be launched.
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  // The groups' sums in place of the slabs. Where the tile has fewer elements than the block threads, neighbours share one.
  constexpr int TILE = Left::TILE * Right::TILE, PITCH = TILE + 8, SHARE = TILE < THREADS ? THREADS / TILE : 1;
  constexpr int QUADS = ((DEPTH < SLAB ? DEPTH : SLAB) + 3) / 4, USED = GROUPS < QUADS ? GROUPS : QUADS;
  if (group < USED) {
#pragma unroll
    for (int r = 0; r < Left::LANE; ++r)
#pragma unroll
      for (int c = 0; c < Right::LANE; ++c) {
        const int i = A::START * row + A::STEP * r;
        const int j = B::START * column + B::STEP * c;
        left[group * PITCH + i * Right::TILE + j] = sums[r][c];
      }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < TILE * SHARE / THREADS; ++n) {
    const int at = (threadIdx.x + n * THREADS) / SHARE, part = threadIdx.x % SHARE;
    float x = 0;
#pragma unroll
    for (int g = part; g < USED; g += SHARE) x += left[g * PITCH + at];
#pragma unroll
    for (int half = SHARE / 2; half > 0; half /= 2) x += __shfl_down_sync(~0u, x, half);
    const int i = i0 + at / Right::TILE, j = j0 + at % Right::TILE;
    if (part == 0 && i < Left::LINES && j < Right::LINES) finish(i, j, x);
  }
}
