// Tiles of 16-bit numbers in shared memory, as `wgmma` reads them: panels of 64 columns, in each a row of 128 bytes whose eight
// chunks are permuted by the row's number (the swizzle of 128 bytes). A tile starts at a multiple of 1024 bytes.

// A tensor in memory by the order batch, head, row, column: distances of neighbours in elements, and what its addresses allow.
struct View {
  long long batch, head, row, column;
  bool chunks;  // rows in chunks of 16 bytes
  bool pairs;   // elements in pairs
};

__device__ constexpr int panels(int columns) { return (columns + 63) / 64; }
__device__ constexpr int tile_bytes(int rows, int columns) { return panels(columns) * rows * 128; }

// Begins to load `ROWS` rows of `COLUMNS` numbers, filled up to a multiple of 16. Row r is at element `place(r)`; rows from `limit`
// on are 0, wherever they would be.
template <int ROWS, int COLUMNS, bool CHUNKS, class Place>
__device__ __forceinline__ void load_tile(char* tile, const unsigned short* from, long long column, int limit, Place place) {
  constexpr int chunks = (COLUMNS + 15) / 16 * 2;
#pragma unroll
  for (int e0 = 0; e0 < ROWS * chunks; e0 += THREADS) {
    const int e = e0 + (int)threadIdx.x;
    if (ROWS * chunks % THREADS != 0 && e >= ROWS * chunks) break;
    const int r = e / chunks, c = e % chunks;
    const unsigned short* const row = from + place(r);
    char* const to = tile + c / 8 * (ROWS * 128) + r * 128 + ((c % 8) ^ (r % 8)) * 16;
    if (CHUNKS) {
      copy_async(to, row + c * 8, r < limit && (COLUMNS % 16 == 0 || c * 8 < COLUMNS));
    } else {
      unsigned int words[4] = {0, 0, 0, 0};
      for (int x = 0; x < 8; ++x)
        if (r < limit && c * 8 + x < COLUMNS) words[x / 2] |= (unsigned int)row[(c * 8 + x) * column] << x % 2 * 16;
      for (int x = 0; x < 4; ++x) ((unsigned int*)to)[x] = words[x];
    }
  }
}

// The description of a tile for `wgmma`: start, distance of panels, distance of groups of eight rows, and the swizzle. As a
// factor of dot products along its rows, the part of 16 columns from `16 * step` on.
template <int ROWS>
__device__ __forceinline__ unsigned long long along_rows(unsigned int tile, int step) {
  const unsigned int start = tile + step / 4 * (ROWS * 128) + step % 4 * 32;
  return (unsigned long long)(start >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
// As a factor of sums over its rows, the part of 16 rows from `16 * step` on.
template <int ROWS>
__device__ __forceinline__ unsigned long long across_rows(unsigned int tile, int step) {
  const unsigned int start = tile + step * 2048;
  return (unsigned long long)(start >> 4 & 0x3fff) | (unsigned long long)(ROWS * 8) << 16 | 64ull << 32 | 1ull << 62;
}

// Where the sums of a product of 64 rows are: element e of a thread is at this row and column of its warpgroup's.
__device__ __forceinline__ int row_of(int e) { return (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4 + (e / 2 % 2) * 8; }
__device__ __forceinline__ int column_of(int e) { return e / 4 * 8 + (int)threadIdx.x % 4 * 2 + e % 2; }

// Sums over 16 columns from `16 * step` on, as the left factor of a product.
template <int N>
__device__ __forceinline__ void as_factor(unsigned int (&factor)[4], const float (&sums)[N], int step) {
#pragma unroll
  for (int x = 0; x < 4; ++x) factor[x] = pack<BF16>(sums[step * 8 + x * 2], sums[step * 8 + x * 2 + 1]);
}

// Adds the product of 64 rows of a tile, from `row` on, with the rows of another: sums[i, j] = a[i, :] · b[j, :].
template <int COLUMNS, int A_ROWS, int B_ROWS, int N>
__device__ __forceinline__ void rows_by_rows(float (&sums)[N], unsigned int a, int row, unsigned int b) {
#pragma unroll
  for (int step = 0; step < (COLUMNS + 15) / 16; ++step)
    wgmma<BF16>(sums, along_rows<A_ROWS>(a + row * 128, step), along_rows<B_ROWS>(b, step), step > 0);
}

// Adds weights of 64 rows times a tile: sums[i, :] += weights[i, j] · b[j, :].
template <int B_ROWS, int M, int N>
__device__ __forceinline__ void weights_by_tile(float (&sums)[N], const unsigned int (&weights)[M][4], unsigned int b) {
#pragma unroll
  for (int step = 0; step < M; ++step) wgmma<BF16>(sums, weights[step], across_rows<B_ROWS>(b, step), true);
}

// Stores sums of 64 rows times `factor[0]` (a thread's first row) and `factor[1]` (its second) where `place(r)` is not negative.
template <int COLUMNS, bool PAIRS, int N, class Place>
__device__ __forceinline__ void store_rows(unsigned short* to, const float (&sums)[N], const float (&factor)[2], Place place) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long at = place(row_of(half * 2));
    if (at < 0) continue;
#pragma unroll
    for (int e = half * 2; e < N; e += 4) {
      const int c = column_of(e);
      const unsigned int both = pack<BF16>(sums[e] * factor[half], sums[e + 1] * factor[half]);
      if (PAIRS) {
        if (COLUMNS % 16 == 0 || c < COLUMNS) *(unsigned int*)(to + at + c) = both;
      } else {
        if (c < COLUMNS) to[at + c] = (unsigned short)both;
        if (c + 1 < COLUMNS) to[at + c + 1] = (unsigned short)(both >> 16);
      }
    }
  }
}
