// What blocks work on, and how sums become elements of the result.
//
// In front of this text stand the sizes (ROWS, COLUMNS, DEPTH), the tile's columns (WIDE), the BLOCKS of the launch, the tiles
// below each other that are taken in turn (BAND), whether the depth is SPLIT, and `pack`, which rounds two sums to a word.

constexpr int HIGH = 128;  // rows of a tile
constexpr int STEP = 64;   // of the depth, at a time
constexpr int STEPS = (DEPTH + STEP - 1) / STEP;
constexpr int DOWN = (ROWS + HIGH - 1) / HIGH, ACROSS = (COLUMNS + WIDE - 1) / WIDE, TILES = DOWN * ACROSS;

constexpr int CHUNK = 8;  // neighbouring elements that a thread takes together: 16 bytes
typedef Group<unsigned short, CHUNK> Chunk;

// A tile of the result. They are taken band by band, and down the columns of a band: those that are worked on at a time share
// rows and columns.
struct Tile {
  int row, column;
  __device__ __forceinline__ explicit Tile(int number) {
    const int band = number / (BAND * ACROSS), within = number % (BAND * ACROSS);
    const int high = min(BAND, DOWN - band * BAND);
    row = (band * BAND + within % high) * HIGH;
    column = within / high * WIDE;
  }
};

// What a block multiplies at a time: a tile, or a part of its depth, from step `begin` to `end`, whose sums are kept at `slot`.
//
// Where the depth is SPLIT, as many whole rounds of tiles as there are come first. To each of the REST then come PER blocks for
// the first BODY steps, which run side by side, so that they load the same lines of the factors at the same time; the blocks
// that are LEFT share the TAIL of all those tiles.
constexpr int WHOLE = SPLIT ? TILES / BLOCKS * BLOCKS : TILES, REST = TILES - WHOLE;
constexpr int PER = SPLIT ? BLOCKS / REST : 1, LEFT = SPLIT ? BLOCKS - PER * REST : 0;
constexpr int EVEN = (REST * STEPS + BLOCKS - 1) / BLOCKS * PER;
constexpr int BODY = LEFT > 0 && EVEN < STEPS ? EVEN : STEPS, TAIL = STEPS - BODY;

struct Part {
  int number, begin, end, slot;
  __device__ __forceinline__ bool is_whole() const { return !SPLIT || begin == 0 && end == STEPS; }
};

// The first step that a block which is left takes, of the tails one after the other.
__device__ __forceinline__ int first_left(int left) { return LEFT > 0 ? REST * TAIL * left / LEFT : 0; }

struct Work {
  int next = blockIdx.x, step = 0;
  __device__ __forceinline__ bool take(Part& part) {
    if (next < WHOLE) {
      part = {next, 0, STEPS, 0};
      next += BLOCKS;
      return true;
    }
    if constexpr (SPLIT) {
      const int block = (int)blockIdx.x, left = block - PER * REST;
      if (left < 0) {
        if (step > 0) return false;
        part = {WHOLE + block % REST, BODY * (block / REST) / PER, BODY * (block / REST + 1) / PER, block};
        step = 1;
        return true;
      }
      if constexpr (TAIL > 0) {
        const int at = first_left(left) + step, end = first_left(left + 1), tile = at / TAIL, within = at % TAIL;
        if (at >= end) return false;
        part = {WHOLE + tile, BODY + within, BODY + min(TAIL, within + end - at), block + tile};
        step += part.end - part.begin;
        return true;
      }
    }
    return false;
  }
};

// Where a chunk of a row of `PITCH` bytes is: chunks are permuted by the row's number, so that those of a column are in other banks.
template <int PITCH>
__device__ __forceinline__ int place(int row, int chunk) { return row * PITCH + (chunk ^ row % 8) * 16; }

// Puts a warp's sums of 16 rows, from `row` on, and 2 * N columns into shared memory, as elements.
template <int N>
__device__ __forceinline__ void put(const float* sums, char* to, int row) {
  constexpr int PITCH = 4 * N;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int e = 0; e < N; e += 8, sums += 8)
    store_matrices(shared_address(to + place<PITCH>(row + lane % 16, e / 4 + lane / 16)), pack(sums[0], sums[1]), pack(sums[2], sums[3]),
                   pack(sums[4], sums[5]), pack(sums[6], sums[7]));
}
