  // A warp takes `each` times 32 columns of an update.
  const int lane = threadIdx.x % warp;
  for (word w = (word)blockIdx.x * (threads / warp) + (word)threadIdx.x / warp; w < outer * count * tiles; w += (word)gridDim.x * (threads / warp)) {
    const word tile = w % tiles * (warp * each), i = w / tiles % count, o = w / tiles / count;
    // A warp's worth of updates at a time, the next of them while it is not yet known whether the first is its row's first.
    Item x = items[i + lane < count ? i + lane : count - 1];
    const unsigned int before = i > 0 ? items[i - 1].key() : axis;
    const unsigned int row = __shfl_sync(0xffffffffu, x.key(), 0);
    if (row == axis || row == before) continue;
    const word start = (o * axis + row) * inner;
    T total[each];
#pragma unroll
    for (int q = 0; q < each; ++q) {
      const word c = tile + q * warp + lane;
      if (c < inner) total[q] = own(start + c);
    }
    for (word first = i;;) {
      // They are in order: those of the row are the first.
      const int many = __popc(__ballot_sync(0xffffffffu, first + lane < count && x.key() == row));
      for (int m = 0; m < many; m += batch) {
        T term[batch][each];
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          if (b % few == 0 && m + b >= many) break;
          const word j = (word)__shfl_sync(0xffffffffu, x.at(), m + b);
#pragma unroll
          for (int q = 0; q < each; ++q) {
            const word c = tile + q * warp + lane;
            if (m + b < many && c < inner) term[b][q] = update((o * count + j) * inner + c);
          }
        }
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          if (b % few == 0 && m + b >= many) break;
#pragma unroll
          for (int q = 0; q < each; ++q) {
            if (m + b < many) total[q] = sum(total[q], term[b][q]);
          }
        }
      }
      first += warp;
      if (many < warp || first >= count) break;
      x = items[first + lane < count ? first + lane : count - 1];
    }
#pragma unroll
    for (int q = 0; q < each; ++q) {
      const word c = tile + q * warp + lane;
      if (c < inner) put(start + c, total[q]);
    }
  }
