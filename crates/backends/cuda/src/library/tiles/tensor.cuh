// A square's products by tensor cores: eight warps, two down and four across.

#ifdef __CUDACC_RTC__
// 16 rows by 8 columns, over 16 summed numbers: sums += a · b.
template <bool BRAIN>
__device__ __forceinline__ void mma(float (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
  if (BRAIN)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Words of a factor's row in shared memory: 32 numbers, and 8 that keep rows in banks of their own.
constexpr int ROW = 20;

// Where sum e of a thread's product is, in a square of `SIZE`.
template <int SIZE>
__device__ __forceinline__ int row_of(int product, int e) {
  return (int)threadIdx.x / 128 * (SIZE / 2) + product * 16 + (int)threadIdx.x % 32 / 4 + e / 2 * 8;
}
template <int SIZE>
__device__ __forceinline__ int column_of(int product, int e) {
  return (int)threadIdx.x / 32 % 4 * (SIZE / 4) + product * 8 + (int)threadIdx.x % 4 * 2 + e % 2;
}

// Adds the products of a step.
template <int SIZE, bool BRAIN, int N>
__device__ __forceinline__ void multiply(float (&sums)[N][N][4], const unsigned int* left, const unsigned int* right) {
  const int word = (int)threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned int a[N][4], b[N][2];
#pragma unroll
    for (int r = 0; r < N; ++r)
#pragma unroll
      for (int x = 0; x < 4; ++x) a[r][x] = left[row_of<SIZE>(r, x % 2 * 2) * ROW + half * 8 + x / 2 * 4 + word];
#pragma unroll
    for (int c = 0; c < N; ++c)
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        const int row = (int)threadIdx.x / 32 % 4 * (SIZE / 4) + c * 8 + (int)threadIdx.x % 32 / 4;
        b[c][x] = right[row * ROW + half * 8 + x * 4 + word];
      }
#pragma unroll
    for (int r = 0; r < N; ++r)
#pragma unroll
      for (int c = 0; c < N; ++c) mma<BRAIN>(sums[r][c], a[r], b[c]);
  }
}
