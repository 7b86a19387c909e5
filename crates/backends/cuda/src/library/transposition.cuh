// to[i, j] = from[j, i] for bytes. Above stand ROWS and COLUMNS of `to`, multiples of 4.
//
// A block takes a square of 128 × 128. A thread loads words of four rows of `from`, turns each square of 4 × 4 bytes in registers,
// and puts its words into shared memory, so that whole rows of `to` are written. There word m of column c is at m ^ (c / 4): neither
// writing nor reading meets a bank twice.

extern "C" __global__ void __launch_bounds__(256) kernel_name(unsigned char* to, const unsigned char* from) {
  constexpr int SIDE = 128, WORDS = SIDE / 4, ACROSS = (ROWS + SIDE - 1) / SIDE;
  extern __shared__ long long shared[];
  unsigned int* tile = (unsigned int*)shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Of the square: its first row of `to`, and its first column.
  const int row0 = blockIdx.x % ACROSS * SIDE, column0 = blockIdx.x / ACROSS * SIDE;
  const int row = row0 + 4 * lane;
  unsigned int loads[4][4];
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int column = column0 + 4 * (warp * 4 + s) + r;
      loads[s][r] = row < ROWS && column < COLUMNS ? *(const unsigned int*)(from + (long long)column * ROWS + row) : 0u;
    }
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const unsigned int* w = loads[s];
    const unsigned int low01 = __byte_perm(w[0], w[1], 0x5140), low23 = __byte_perm(w[2], w[3], 0x5140);
    const unsigned int high01 = __byte_perm(w[0], w[1], 0x7362), high23 = __byte_perm(w[2], w[3], 0x7362);
    const unsigned int turned[4] = {__byte_perm(low01, low23, 0x5410), __byte_perm(low01, low23, 0x7632),
                                    __byte_perm(high01, high23, 0x5410), __byte_perm(high01, high23, 0x7632)};
#pragma unroll
    for (int j = 0; j < 4; ++j) tile[(4 * lane + j) * WORDS + ((warp * 4 + s) ^ lane)] = turned[j];
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < SIDE / 8; ++s) {
    const int c = warp * (SIDE / 8) + s, column = column0 + 4 * lane;
    if (row0 + c < ROWS && column < COLUMNS)
      *(unsigned int*)(to + (long long)(row0 + c) * COLUMNS + column) = tile[c * WORDS + (lane ^ (c / 4))];
  }
}
