// Attention. A block takes `64 * WARPGROUPS` rows (queries of one head, or of the `PACK` heads that share a key head) over the
// keys that they see, `KEY_BLOCK` at a time: a running maximum, sum and output for each row. With `SPLITS` the keys are shared
// among blocks, and the parts go to scratch.
constexpr int ROWS = PACK * QUERIES, ROW_BLOCK = 64 * WARPGROUPS, ROW_BLOCKS = (ROWS + ROW_BLOCK - 1) / ROW_BLOCK;
constexpr int UNITS = BATCH * HEADS / PACK;
constexpr int Q_BYTES = tile_bytes(ROW_BLOCK, SIZE), K_BYTES = tile_bytes(KEY_BLOCK, SIZE), V_BYTES = tile_bytes(KEY_BLOCK, VALUE_SIZE);
constexpr int SCORES = KEY_BLOCK / 2, OUTS = (VALUE_SIZE + 15) / 16 * 8;

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) kernel_name(const unsigned short* q, const unsigned short* k, const unsigned short* v, const void* mask, const int* lengths, unsigned short* out, float* lse, float* parts) {
  extern __shared__ __align__(1024) long long shared[];
  // Blocks with the most keys go first.
  const int unit = (int)blockIdx.x % UNITS, split = (int)blockIdx.x / UNITS % SPLITS, block = ROW_BLOCKS - 1 - (int)blockIdx.x / UNITS / SPLITS;
  const int b = unit / (HEADS / PACK), h0 = unit % (HEADS / PACK) * PACK;
  const int row0 = block * ROW_BLOCK, own = (int)threadIdx.x / 128 * 64, first = row0 + own;
  const Band band(lengths, b);
  const auto query_of = [](int r) { return PACK == 1 ? r : r < ROWS ? r % QUERIES : QUERIES; };
  const auto head_of = [](int r) { return PACK == 1 ? 0 : r / QUERIES; };
  // The queries of some rows, at most.
  const auto low = [](int r) { return PACK == 1 ? r : 0; };
  const auto high = [](int r) { return PACK == 1 ? min(r, QUERIES - 1) : QUERIES - 1; };

  char* const q_tile = (char*)shared;
  char* const stages = q_tile + Q_BYTES;
  const unsigned short *const q_head = q + b * Q.batch + h0 * Q.head, *const k_head = k + b * K.batch + h0 / GROUP * K.head, *const v_head = v + b * V.batch + h0 / GROUP * V.head;
  load_tile<ROW_BLOCK, SIZE, Q.chunks>(q_tile, q_head, Q.column, ROWS - row0, [&](int r) {
    return head_of(row0 + r) * Q.head + query_of(row0 + r) * Q.row;
  });
  const auto load = [&](int tile) {
    char* const to = stages + tile % 2 * (K_BYTES + V_BYTES);
    const int j = tile * KEY_BLOCK;
    load_tile<KEY_BLOCK, SIZE, K.chunks>(to, k_head + j * K.row, K.column, band.keys - j, [](int r) { return r * K.row; });
    load_tile<KEY_BLOCK, VALUE_SIZE, V.chunks>(to + K_BYTES, v_head + j * V.row, V.column, band.keys - j, [](int r) { return r * V.row; });
  };

  constexpr int CHUNK = (KEYS + SPLITS * KEY_BLOCK - 1) / (SPLITS * KEY_BLOCK) * KEY_BLOCK;
  const int start = max(band.from(low(row0)), split * CHUNK), end = min(band.to(high(row0 + ROW_BLOCK - 1)), SPLITS == 1 ? KEYS : split * CHUNK + CHUNK);
  const int tiles = start < end ? (end + KEY_BLOCK - 1) / KEY_BLOCK : 0;

  float o[OUTS], top[2] = {-infinity(), -infinity()}, sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int e = 0; e < OUTS; ++e) o[e] = 0.0f;
  const unsigned long long q_rows = describe<ROW_BLOCK>(q_tile + own * 128);
  int tile = start / KEY_BLOCK;
  if (tile < tiles) load(tile);
  for (; tile < tiles; ++tile) {
    copies_done();
    __syncthreads();
    if (tile + 1 < tiles) load(tile + 1);
    const int j0 = tile * KEY_BLOCK;
    // What the other warpgroup alone sees.
    if (j0 >= band.to(high(first + 63)) || j0 + KEY_BLOCK <= band.from(low(first))) continue;
    const char* const stage = stages + tile % 2 * (K_BYTES + V_BYTES);
    const unsigned long long k_tile = describe<KEY_BLOCK>(stage), v_tile = describe<KEY_BLOCK>(stage + K_BYTES);
    float s[SCORES], slopes[1];
    products_begin();
    rows_by_rows<SIZE, ROW_BLOCK, KEY_BLOCK>(s, q_rows, k_tile);
    products_end();
    products_wait<0>();
    settle(s);
    const bool cut = band.cuts(low(first), PACK == 1 ? first + 63 : QUERIES - 1, j0, j0 + KEY_BLOCK - 1);
    see(s, slopes, band, mask, b, cut, [&](int e, int& h, int& i, int& j) {
      const int r = first + row_of(e);
      h = h0 + head_of(r), i = query_of(r), j = j0 + column_of(e);
    });
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
#pragma unroll
      for (int e = half * 2; e < SCORES; e += 4) most = fmaxf(most, fmaxf(s[e], s[e + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shift = most == -infinity() ? 0.0f : most * UNIT, fade = exp2_of(fmaf(top[half], UNIT, -shift));
      top[half] = most;
      float added = 0.0f;
#pragma unroll
      for (int e = half * 2; e < SCORES; e += 4) {
        s[e] = exp2_of(fmaf(s[e], UNIT, -shift));
        s[e + 1] = exp2_of(fmaf(s[e + 1], UNIT, -shift));
        added += s[e] + s[e + 1];
      }
      sum[half] = fmaf(sum[half], fade, added);
#pragma unroll
      for (int e = half * 2; e < OUTS; e += 4) o[e] *= fade, o[e + 1] *= fade;
    }
    unsigned int weights[KEY_BLOCK / 16][4];
#pragma unroll
    for (int step = 0; step < KEY_BLOCK / 16; ++step) as_factor(weights[step], s, step);
    settle(o);
    products_begin();
    weights_by_tile(o, weights, v_tile);
    products_end();
    products_wait<0>();
    settle(o);
  }

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    factor[half] = sum[half] == 0.0f ? 0.0f : 1.0f / sum[half];
    const int r = first + row_of(half * 2);
    if (r >= ROWS || threadIdx.x % 4 != 0) continue;
    if (SPLITS > 1) {
      float* const part = parts + ((word)(unit * SPLITS + split) * ROWS + r) * (VALUE_SIZE + 2) + VALUE_SIZE;
      part[0] = top[half] * UNIT;
      part[1] = sum[half];
    } else {
      lse[((word)b * HEADS + h0 + head_of(r)) * QUERIES + query_of(r)] = sum[half] == 0.0f ? -infinity() : (fmaf(top[half], UNIT, log2f(sum[half]))) * LN2;
    }
  }
  if (SPLITS > 1) {
#pragma unroll
    for (int e = 0; e < OUTS; ++e) {
      const int r = first + row_of(e), c = column_of(e);
      if (r < ROWS && c < VALUE_SIZE) parts[((word)(unit * SPLITS + split) * ROWS + r) * (VALUE_SIZE + 2) + c] = o[e];
    }
    return;
  }
  store_rows<VALUE_SIZE, OUT.pairs>(out + b * OUT.batch + h0 * OUT.head, o, factor, [&](int r) {
    return first + r < ROWS ? head_of(first + r) * OUT.head + query_of(first + r) * OUT.row : (word)-1;
  });
}
