// Adds the parts of the tiles whose depth was split, in the order of the depth, and finishes the sums. A warp has 16 rows and 2 * N
// columns of a tile; a block has WARPS.

constexpr int PITCH = 4 * N, CHUNKS = PITCH / 16;
constexpr int SLICES = WIDE / (2 * N);

// The block of those that are left that takes a step.
__device__ __forceinline__ int left_of(int step) {
  int left = step * LEFT / (REST * TAIL);
  while (first_left(left + 1) <= step) ++left;
  return left;
}

template <class Load, class Finish>
__device__ __forceinline__ void add_parts(const float4* parts, const Load& load, const Finish& finish) {
  __shared__ alignas(16) char shared[WARPS][16 * PITCH];
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, unit = (int)blockIdx.x * WARPS + warp;
  const int slice = unit % SLICES, rows = unit / SLICES % (HIGH / 16), tile = unit / SLICES / (HIGH / 16);
  wait_for_kernels_before();
  if (tile >= REST || PER == 1 && TAIL == 0) return;
  float sums[N] = {};
  const auto add = [&](int slot) {
    const float4* const part = parts + slot * (HIGH * WIDE / 4) + slice * (N / 4 * 256) + rows * 32 + lane;
#pragma unroll
    for (int e = 0; e < N; e += 4) {
      const float4 x = __ldcg(part + e / 4 * 256);
      sums[e] += x.x, sums[e + 1] += x.y, sums[e + 2] += x.z, sums[e + 3] += x.w;
    }
  };
#pragma unroll
  for (int n = 0; n < PER; ++n) add(n * REST + tile);
  if constexpr (TAIL > 0) {
    const int last = left_of((tile + 1) * TAIL - 1);
    for (int left = left_of(tile * TAIL); left <= last; ++left) add(PER * REST + left + tile);
  }
  put<N>(sums, shared[warp], 0);
  __syncwarp();
  const Tile at(WHOLE + tile);
#pragma unroll
  for (int n = lane; n < 16 * CHUNKS; n += 32) {
    const int i = at.row + rows * 16 + n / CHUNKS, j = at.column + slice * (2 * N) + n % CHUNKS * CHUNK;
    if ((ROWS % HIGH == 0 || i < ROWS) && (COLUMNS % WIDE == 0 || j < COLUMNS))
      finish(i, j / CHUNK, *(const Chunk*)(shared[warp] + place<PITCH>(n / CHUNKS, n % CHUNKS)), load(i, j / CHUNK));
  }
}
