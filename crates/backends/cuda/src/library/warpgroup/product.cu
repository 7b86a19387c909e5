// A product of 16-bit floats by warpgroups. One thread of a block loads panels of both factors through a ring of STAGES; two
// warpgroups multiply them, 64 rows of the tile each; the other warps finish what those have summed: the elements,
// rounded, come through shared memory to `finish`, while the next tile is multiplied.
//
// A panel is 64 × 64 numbers: rows of 128 bytes along the axis that is contiguous in memory, A_ALONG or B_ALONG the depth or
// across it, with the swizzle of 128 bytes.
//
// In front of this text stand `tiles.cuh`, the STAGES of the ring, the block's THREADS, how many registers those have that multiply
// (MOST_REGISTERS) and the others (FEWEST_REGISTERS), and how many chunks a thread finishes side by side (UNROLLED).

constexpr int PANEL = 64 * STEP * 2;
constexpr int A_PANELS = HIGH / 64, B_PANELS = WIDE / 64;
constexpr int STAGE = (A_PANELS + B_PANELS) * PANEL;

// What a warpgroup hands over: 64 rows of elements.
constexpr int PITCH = WIDE * 2, HANDED = 64 * PITCH, CHUNKS = WIDE / CHUNK;

// Warps 0 to 7 multiply, the last one loads, those between finish.
constexpr int FINISHERS = THREADS - 256 - 32;

// A place in a ring of N; its barriers have the parity `phase` in this round.
template <int N>
struct Ring {
  int stage = 0, phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == N) stage = 0, phase ^= 1;
  }
};

// Shared memory, as addresses of it: barriers that say that a stage, and what each group hands over, is full or empty; and the panels.
struct Shared {
  u32 full, empty, given, taken, panels;
  char* handed;  // of each group
};

// A panel and those behind it as `wgmma` wants them described: start, distance of panels, distance of groups of eight rows, and
// the swizzle; and what is added for a product's 16 numbers of the depth.
__device__ __forceinline__ u64 describe(u32 start) { return (u64)(start >> 4) | (u64)(PANEL / 16) << 16 | 64ull << 32 | 1ull << 62; }
template <bool ALONG>
__device__ __forceinline__ constexpr u32 further(int product) { return product * (ALONG ? 2 : 128); }

__device__ __forceinline__ void load_tiles(const TensorMap& a, const TensorMap& b, const Shared& shared) {
  Ring<STAGES> ring;
  Part part;
  for (Work work; work.take(part);) {
    const Tile tile(part.number);
    for (int k = part.begin; k < part.end; ++k, ring.advance()) {
      const u32 at = shared.panels + ring.stage * STAGE, full = shared.full + ring.stage * 8;
      barrier_wait(shared.empty + ring.stage * 8, ring.phase ^ 1);
      barrier_expect(full, STAGE);
#pragma unroll
      for (int p = 0; p < A_PANELS; ++p) {
        const int line = tile.row + p * 64;
        load_panel(at + p * PANEL, a, A_ALONG ? k * STEP : line, A_ALONG ? line : k * STEP, full);
      }
#pragma unroll
      for (int p = 0; p < B_PANELS; ++p) {
        const int line = tile.column + p * 64;
        load_panel(at + (A_PANELS + p) * PANEL, b, B_ALONG ? k * STEP : line, B_ALONG ? line : k * STEP, full);
      }
    }
  }
}

// The sums of 64 rows of a tile. A stage is free for the next load when the products that read it are done.
__device__ __forceinline__ void multiply(float (&sums)[WIDE / 2], const Part& part, Ring<STAGES>& ring, u32 left, u32 right, const Shared& shared) {
  int before = -1;
  const auto release = [&] {
    if (before >= 0 && threadIdx.x % 128 == 0) barrier_arrive(shared.empty + before * 8);
  };
  for (int k = part.begin; k < part.end; ++k, ring.advance()) {
    barrier_wait(shared.full + ring.stage * 8, ring.phase);
    const u32 at = __shfl_sync(0xffffffffu, ring.stage * STAGE, 0);
    const u64 a = describe(left + at), b = describe(right + at);
    products_begin();
#pragma unroll
    for (int n = 0; n < STEP / 16; ++n) wgmma<BF16>(sums, a + further<A_ALONG>(n), b + further<B_ALONG>(n), k > part.begin || n > 0);
    products_end();
    products_wait<1>();
    release();
    before = ring.stage;
  }
  products_wait<0>();
  settle(sums);
  release();
}

// Hands a warpgroup's sums over, as elements, when its last ones were taken.
__device__ __forceinline__ void hand_over(const float (&sums)[WIDE / 2], int group, int& phase, const Shared& shared) {
  char* const handed = shared.handed + group * HANDED;
  const int row = threadIdx.x / 32 % 4 * 16;
  barrier_wait(shared.taken + group * 8, phase ^ 1);
  put<WIDE / 2>(sums, handed, row);
  barrier_arrive(shared.given + group * 8);
  phase ^= 1;
}

// Keeps a warpgroup's sums over a part of the depth.
__device__ __forceinline__ void keep(const float (&sums)[WIDE / 2], float4* parts, int slot) {
  float4* const own = parts + slot * (HIGH * WIDE / 4) + (int)threadIdx.x;
#pragma unroll
  for (int e = 0; e < WIDE / 2; e += 4) __stcg(own + e / 4 * 256, make_float4(sums[e], sums[e + 1], sums[e + 2], sums[e + 3]));
}

// Takes what is handed over, and calls `finish(row, chunk of the row, elements, what was loaded for them)`. `load(row, chunk)` is
// one chunk ahead, so that memory is read while the sums are awaited and while the chunk before is finished.
template <class Load, class Finish>
__device__ __forceinline__ void finish_tiles(const Shared& shared, const Load& load, const Finish& finish) {
  int phase = 0;
  Part part;
  for (Work work; work.take(part);) {
    if (!part.is_whole()) continue;
    const Tile tile(part.number);
    for (int group = 0; group < 2; ++group) {
      const int row = tile.row + group * 64;
      const char* const handed = shared.handed + group * HANDED;
      const auto i = [&](int n) { return row + n / CHUNKS; };
      const auto j = [&](int n) { return tile.column + n % CHUNKS * CHUNK; };
      const auto is_there = [&](int n) { return n < 64 * CHUNKS && (ROWS % HIGH == 0 || i(n) < ROWS) && (COLUMNS % WIDE == 0 || j(n) < COLUMNS); };
      int n = (int)threadIdx.x - 256;
      auto ahead = load(min(i(n), ROWS - 1), min(j(n), COLUMNS - CHUNK) / CHUNK);
      barrier_wait(shared.given + group * 8, phase);
#pragma unroll UNROLLED
      for (; n < 64 * CHUNKS; n += FINISHERS) {
        const auto loaded = ahead;
        const int next = n + FINISHERS;
        if (is_there(next)) ahead = load(i(next), j(next) / CHUNK);
        if (is_there(n)) finish(i(n), j(n) / CHUNK, *(const Chunk*)(handed + place<PITCH>(n / CHUNKS, n % CHUNKS)), loaded);
      }
      barrier_arrive(shared.taken + group * 8);
    }
    phase ^= 1;
  }
}

template <class Load, class Finish>
__device__ __forceinline__ void product(const TensorMap& a, const TensorMap& b, float4* parts, const Load& load, const Finish& finish) {
  extern __shared__ char dynamic[];
  __shared__ u64 barriers[2 * STAGES + 4];
  Shared shared;
  shared.full = shared_address(barriers);
  shared.empty = shared.full + STAGES * 8;
  shared.given = shared.empty + STAGES * 8;
  shared.taken = shared.given + 2 * 8;
  shared.panels = (shared_address(dynamic) + 1023) / 1024 * 1024;
  shared.handed = dynamic + (shared.panels - shared_address(dynamic)) + STAGES * STAGE;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(shared.full + s * 8, 1);
      barrier_init(shared.empty + s * 8, 2);
    }
    for (int group = 0; group < 2; ++group) {
      barrier_init(shared.given + group * 8, 128);
      barrier_init(shared.taken + group * 8, FINISHERS);
    }
    barriers_ready();
  }
  __syncthreads();
  wait_for_kernels_before();
  const int group = (int)threadIdx.x / 128;
  if (group < 2) {
    more_registers<MOST_REGISTERS>();
    float sums[WIDE / 2];
    Ring<STAGES> ring;
    int phase = 0;
    Part part;
    for (Work work; work.take(part);) {
      multiply(sums, part, ring, shared.panels + group * PANEL, shared.panels + A_PANELS * PANEL, shared);
      if (part.is_whole()) hand_over(sums, group, phase, shared);
      else keep(sums, parts, part.slot);
    }
  } else {
    fewer_registers<FEWEST_REGISTERS>();
    if (threadIdx.x < THREADS - 32) finish_tiles(shared, load, finish);
    else if (threadIdx.x == THREADS - 32) load_tiles(a, b, shared);
  }
}
