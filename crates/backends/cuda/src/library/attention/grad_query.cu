// The gradient of attention's queries. A block takes `64 * WARPGROUPS` queries of one head over the keys that they see, as
// attention itself does. It also leaves, for the gradient of keys and values, two numbers for each query: its log-sum-exp as an
// exponent of 2 (+inf if it sees nothing, so that its weights are 0), and Σ dout · out.
constexpr int ROW_BLOCK = 64 * WARPGROUPS, ROW_BLOCKS = (QUERIES + ROW_BLOCK - 1) / ROW_BLOCK, UNITS = BATCH * HEADS;
constexpr int Q_BYTES = tile_bytes(ROW_BLOCK, SIZE), DOUT_BYTES = tile_bytes(ROW_BLOCK, VALUE_SIZE);
constexpr int K_BYTES = tile_bytes(KEY_BLOCK, SIZE), V_BYTES = tile_bytes(KEY_BLOCK, VALUE_SIZE);
constexpr int SCORES = KEY_BLOCK / 2, SUMS = (SIZE + 15) / 16 * 8;

// Σ dout · out over half of a row: every other group of eight, or every other number.
__device__ __forceinline__ float half_dot(const unsigned short* x, const unsigned short* y, int half) {
  float sum = 0.0f;
  if (OUT.chunks && DOUT.chunks) {
#pragma unroll
    for (int c0 = 0; c0 < VALUE_SIZE; c0 += 16) {
      const int c = c0 + half * 8;
      if (VALUE_SIZE % 16 != 0 && c >= VALUE_SIZE) break;
      const uint4 a = *(const uint4*)(x + c), b = *(const uint4*)(y + c);
      const unsigned int left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum = fmaf(widen<BF16>((unsigned short)left[e]), widen<BF16>((unsigned short)right[e]), sum);
        sum = fmaf(widen<BF16>((unsigned short)(left[e] >> 16)), widen<BF16>((unsigned short)(right[e] >> 16)), sum);
      }
    }
  } else {
    for (int c = half; c < VALUE_SIZE; c += 2) sum = fmaf(widen<BF16>(x[c * OUT.column]), widen<BF16>(y[c * DOUT.column]), sum);
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) kernel_name(const unsigned short* q, const unsigned short* k, const unsigned short* v, const void* mask, const int* lengths, const unsigned short* out, const float* lse, const unsigned short* dout, unsigned short* dq, float2* rows) {
  extern __shared__ __align__(1024) long long shared[];
  const int unit = (int)blockIdx.x % UNITS, block = ROW_BLOCKS - 1 - (int)blockIdx.x / UNITS;
  const int b = unit / HEADS, h = unit % HEADS;
  const int row0 = block * ROW_BLOCK, own = (int)threadIdx.x / 128 * 64, first = row0 + own;
  const Band band(lengths, b);

  char *const q_tile = (char*)shared, *const dout_tile = q_tile + Q_BYTES, *const stages = dout_tile + DOUT_BYTES;
  float2* const own_rows = (float2*)(stages + 2 * (K_BYTES + V_BYTES));
  const unsigned short *const q_head = q + b * Q.batch + h * Q.head, *const dout_head = dout + b * DOUT.batch + h * DOUT.head;
  const unsigned short *const k_head = k + b * K.batch + h / GROUP * K.head, *const v_head = v + b * V.batch + h / GROUP * V.head;
  load_tile<ROW_BLOCK, SIZE, Q.chunks>(q_tile, q_head + row0 * Q.row, Q.column, QUERIES - row0, [](int r) { return r * Q.row; });
  load_tile<ROW_BLOCK, VALUE_SIZE, DOUT.chunks>(dout_tile, dout_head + row0 * DOUT.row, DOUT.column, QUERIES - row0, [](int r) { return r * DOUT.row; });
  const auto load = [&](int tile) {
    char* const to = stages + tile % 2 * (K_BYTES + V_BYTES);
    const int j = tile * KEY_BLOCK;
    load_tile<KEY_BLOCK, SIZE, K.chunks>(to, k_head + j * K.row, K.column, band.keys - j, [](int r) { return r * K.row; });
    load_tile<KEY_BLOCK, VALUE_SIZE, V.chunks>(to + K_BYTES, v_head + j * V.row, V.column, band.keys - j, [](int r) { return r * V.row; });
  };
  const int start = band.from(row0), end = band.to(min(row0 + ROW_BLOCK, QUERIES) - 1);
  const int tiles = start < end ? (end + KEY_BLOCK - 1) / KEY_BLOCK : 0;
  int tile = start / KEY_BLOCK;
  if (tile < tiles) load(tile);

  {
    const int r = (int)threadIdx.x / 2, half = (int)threadIdx.x % 2, i = row0 + r;
    float2 row = {infinity(), 0.0f};
    if (i < QUERIES) {
      const float x = lse[b * LSE.batch + h * LSE.head + i * LSE.row];
      if (x != -infinity()) row.x = x * LOG2E;
      row.y = half_dot(out + b * OUT.batch + h * OUT.head + i * OUT.row, dout_head + i * DOUT.row, half);
    }
    row.y += __shfl_xor_sync(0xffffffffu, row.y, 1);
    if (half == 0) own_rows[r] = rows[(long long)unit * (ROW_BLOCKS * ROW_BLOCK) + i] = row;
  }

  float sums[SUMS];
#pragma unroll
  for (int e = 0; e < SUMS; ++e) sums[e] = 0.0f;
  for (; tile < tiles; ++tile) {
    copies_done();
    __syncthreads();
    if (tile + 1 < tiles) load(tile + 1);
    const int j0 = tile * KEY_BLOCK;
    if (j0 >= band.to(min(first + 63, QUERIES - 1)) || j0 + KEY_BLOCK <= band.from(first)) continue;
    const unsigned int k_tile = shared_address(stages + tile % 2 * (K_BYTES + V_BYTES)), v_tile = k_tile + K_BYTES;
    float s[SCORES], d[SCORES], slopes[CAPPED ? SCORES : 1];
    products_begin();
    rows_by_rows<SIZE, ROW_BLOCK, KEY_BLOCK>(s, shared_address(q_tile), own, k_tile);
    products_end();
    rows_by_rows<VALUE_SIZE, ROW_BLOCK, KEY_BLOCK>(d, shared_address(dout_tile), own, v_tile);
    products_end();
    products_wait<1>();
    settle(s);
    see(s, slopes, band, mask, b, band.cuts(first, first + 63, j0, j0 + KEY_BLOCK - 1), [&](int e, int& head, int& i, int& j) {
      head = h, i = first + row_of(e), j = j0 + column_of(e);
    });
    const float2 pair[2] = {own_rows[own + row_of(0)], own_rows[own + row_of(2)]};
#pragma unroll
    for (int e = 0; e < SCORES; ++e) s[e] = exp2_of(fmaf(s[e], UNIT, -pair[e / 2 % 2].x));
    products_wait<0>();
    settle(d);
#pragma unroll
    for (int e = 0; e < SCORES; ++e) {
      s[e] *= d[e] - pair[e / 2 % 2].y;
      if (CAPPED) s[e] *= slopes[e % (CAPPED ? SCORES : 1)];
    }
    unsigned int weights[KEY_BLOCK / 16][4];
#pragma unroll
    for (int step = 0; step < KEY_BLOCK / 16; ++step) as_factor(weights[step], s, step);
    settle(sums);
    products_begin();
    weights_by_tile<KEY_BLOCK>(sums, weights, k_tile);
    products_end();
    products_wait<0>();
    settle(sums);
  }
  store_rows<SIZE, DQ.pairs>(dq + b * DQ.batch + h * DQ.head, sums, {SCALE, SCALE}, [&](int r) {
    return first + r < QUERIES ? (first + r) * DQ.row : -1ll;
  });
}
