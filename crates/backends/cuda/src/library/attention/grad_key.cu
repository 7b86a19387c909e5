// The gradients of attention's keys and values. A block takes `64 * WARPGROUPS` keys of one key head over the queries that see
// them, head by head of its group, `QUERY_BLOCK` at a time. Scores and weights stand transposed, a key in each row, so that
// they are left factors where they are computed.
constexpr int KEY_ROWS = 64 * WARPGROUPS, UNITS = BATCH * KV_HEADS;
constexpr int K_BYTES = tile_bytes(KEY_ROWS, SIZE), V_BYTES = tile_bytes(KEY_ROWS, VALUE_SIZE);
constexpr int Q_BYTES = tile_bytes(QUERY_BLOCK, SIZE), DOUT_BYTES = tile_bytes(QUERY_BLOCK, VALUE_SIZE), STAGE = Q_BYTES + DOUT_BYTES + 1024;
constexpr int SCORES = QUERY_BLOCK / 2, KEY_SUMS = (SIZE + 15) / 16 * 8, VALUE_SUMS = (VALUE_SIZE + 15) / 16 * 8;

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) kernel_name(const unsigned short* q, const unsigned short* k, const unsigned short* v, const void* mask, const int* lengths, const unsigned short* dout, unsigned short* dk, unsigned short* dv, const float2* rows) {
  extern __shared__ __align__(1024) long long shared[];
  const int unit = (int)blockIdx.x % UNITS, b = unit / KV_HEADS, kv = unit % KV_HEADS;
  const int row0 = (int)blockIdx.x / UNITS * KEY_ROWS, own = (int)threadIdx.x / 128 * 64, first = row0 + own;
  const Band band(lengths, b);

  char *const k_tile = (char*)shared, *const v_tile = k_tile + K_BYTES, *const stages = v_tile + V_BYTES;
  load_tile<KEY_ROWS, SIZE, K.chunks>(k_tile, k + b * K.batch + kv * K.head + row0 * K.row, K.column, band.keys - row0, [](int r) { return r * K.row; });
  load_tile<KEY_ROWS, VALUE_SIZE, V.chunks>(v_tile, v + b * V.batch + kv * V.head + row0 * V.row, V.column, band.keys - row0, [](int r) { return r * V.row; });
  const int start = band.first_query(row0), end = band.end_query(row0 + KEY_ROWS - 1);
  const int first_tile = start / QUERY_BLOCK, tiles = start < end ? (end + QUERY_BLOCK - 1) / QUERY_BLOCK - first_tile : 0;
  const auto head_at = [&](int step) { return GROUP == 1 ? kv : kv * GROUP + step / tiles; };
  const auto query_at = [&](int step) { return (first_tile + (GROUP == 1 ? step : step % tiles)) * QUERY_BLOCK; };
  const auto load = [&](int step) {
    char* const to = stages + step % 2 * STAGE;
    const int h = head_at(step), i = query_at(step);
    load_tile<QUERY_BLOCK, SIZE, Q.chunks>(to, q + b * Q.batch + h * Q.head + i * Q.row, Q.column, QUERIES - i, [](int r) { return r * Q.row; });
    load_tile<QUERY_BLOCK, VALUE_SIZE, DOUT.chunks>(to + Q_BYTES, dout + b * DOUT.batch + h * DOUT.head + i * DOUT.row, DOUT.column, QUERIES - i, [](int r) { return r * DOUT.row; });
    const float2* const from = rows + ((long long)b * HEADS + h) * PADDED_QUERIES + i;
    if (threadIdx.x < QUERY_BLOCK / 2) copy_async(to + Q_BYTES + DOUT_BYTES + threadIdx.x * 16, from + threadIdx.x * 2, true);
  };

  float key_sums[KEY_SUMS], value_sums[VALUE_SUMS];
#pragma unroll
  for (int e = 0; e < KEY_SUMS; ++e) key_sums[e] = 0.0f;
#pragma unroll
  for (int e = 0; e < VALUE_SUMS; ++e) value_sums[e] = 0.0f;
  const int steps = GROUP * tiles;
  if (steps > 0) load(0);
  for (int step = 0; step < steps; ++step) {
    copies_done();
    __syncthreads();
    if (step + 1 < steps) load(step + 1);
    const int h = head_at(step), i0 = query_at(step);
    if (i0 + QUERY_BLOCK <= band.first_query(first) || i0 >= band.end_query(first + 63)) continue;
    char* const stage = stages + step % 2 * STAGE;
    const unsigned int q_tile = shared_address(stage), dout_tile = q_tile + Q_BYTES;
    const float4* const pairs = (const float4*)(stage + Q_BYTES + DOUT_BYTES);
    float s[SCORES], d[SCORES], slopes[CAPPED ? SCORES : 1];
    unsigned int weights[QUERY_BLOCK / 16][4];
    products_begin();
    rows_by_rows<SIZE, KEY_ROWS, QUERY_BLOCK>(s, shared_address(k_tile), own, q_tile);
    products_end();
    if (OF_KEYS) rows_by_rows<VALUE_SIZE, KEY_ROWS, QUERY_BLOCK>(d, shared_address(v_tile), own, dout_tile);
    products_end();
    products_wait<1>();
    settle(s);
    see(s, slopes, band, mask, b, band.cuts(i0, i0 + QUERY_BLOCK - 1, first, first + 63), [&](int e, int& head, int& i, int& j) {
      head = h, i = i0 + column_of(e), j = first + row_of(e);
    });
#pragma unroll
    for (int e = 0; e < SCORES; e += 2) {
      const float4 pair = pairs[column_of(e) / 2];
      s[e] = exp2_of(fmaf(s[e], UNIT, -pair.x));
      s[e + 1] = exp2_of(fmaf(s[e + 1], UNIT, -pair.z));
    }
    if (OF_VALUES) {
#pragma unroll
      for (int part = 0; part < QUERY_BLOCK / 16; ++part) as_factor(weights[part], s, part);
      products_begin();
      weights_by_tile<QUERY_BLOCK>(value_sums, weights, dout_tile);
    }
    products_end();
    if (OF_KEYS) {
      products_wait<1>();
      settle(d);
#pragma unroll
      for (int e = 0; e < SCORES; e += 2) {
        const float4 pair = pairs[column_of(e) / 2];
        s[e] *= d[e] - pair.y;
        s[e + 1] *= d[e + 1] - pair.w;
        if (CAPPED) s[e] *= slopes[e % (CAPPED ? SCORES : 1)], s[e + 1] *= slopes[(e + 1) % (CAPPED ? SCORES : 1)];
      }
      unsigned int slopes_of_scores[QUERY_BLOCK / 16][4];
#pragma unroll
      for (int part = 0; part < QUERY_BLOCK / 16; ++part) as_factor(slopes_of_scores[part], s, part);
      products_begin();
      weights_by_tile<QUERY_BLOCK>(key_sums, slopes_of_scores, q_tile);
      products_end();
    }
    products_wait<0>();
    if (OF_KEYS) settle(key_sums);
    if (OF_VALUES) settle(value_sums);
  }
  if (OF_KEYS)
    store_rows<SIZE, DK.pairs>(dk + b * DK.batch + kv * DK.head, key_sums, {SCALE, SCALE}, [&](int r) { return first + r < KEYS ? (first + r) * DK.row : -1ll; });
  if (OF_VALUES)
    store_rows<VALUE_SIZE, DV.pairs>(dv + b * DV.batch + kv * DV.head, value_sums, {1.0f, 1.0f}, [&](int r) { return first + r < KEYS ? (first + r) * DV.row : -1ll; });
}
