  // A warp takes `each` times 32 columns of an update.
  const int lane = threadIdx.x % warp;
  for (word w = (word)blockIdx.x * (threads / warp) + (word)threadIdx.x / warp; w < outer * count * tiles; w += (word)gridDim.x * (threads / warp)) {
    const word tile = w % tiles * (warp * each), i = w / tiles % count, o = w / tiles / count;
    const unsigned int row = items[i].key();
    if (row == axis || (i > 0 && items[i - 1].key() == row)) continue;
    const word start = (o * axis + row) * inner;
    T total[each];
#pragma unroll
    for (int q = 0; q < each; ++q) {
      const word c = tile + q * warp + lane;
      if (c < inner) total[q] = own(start + c);
    }
    int many = warp;
    for (word first = i; many == warp; first += warp) {
      const word next = first + lane;
      const Item x = items[next < count ? next : count - 1];
      // They are in order: those of the row are the first.
      many = __popc(__ballot_sync(0xffffffffu, next < count && x.key() == row));
      for (int m = 0; m < many; m += batch) {
        T term[batch][each];
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const word j = (word)__shfl_sync(0xffffffffu, x.at(), m + b);
#pragma unroll
          for (int q = 0; q < each; ++q) {
            const word c = tile + q * warp + lane;
            if (m + b < many && c < inner) term[b][q] = update((o * count + j) * inner + c);
          }
        }
#pragma unroll
        for (int b = 0; b < batch; ++b) {
#pragma unroll
          for (int q = 0; q < each; ++q) {
            if (m + b < many) total[q] = sum(total[q], term[b][q]);
          }
        }
      }
    }
#pragma unroll
    for (int q = 0; q < each; ++q) {
      const word c = tile + q * warp + lane;
      if (c < inner) put(start + c, total[q]);
    }
  }
