  // A warp takes `each` times 32 columns of an update.
  const int lane = threadIdx.x % warp;
  for (word w = (word)blockIdx.x * (threads / warp) + (word)threadIdx.x / warp; w < outer * count * tiles; w += (word)gridDim.x * (threads / warp)) {
    const word tile = w % tiles * (warp * each), i = w / tiles % count, o = w / tiles / count;
    // A warp's worth of updates at a time, the next of them while it is not yet known whether the first begins a piece.
    Item x = items[i + lane < count ? i + lane : count - 1];
    const unsigned int before = i > 0 ? items[i - 1].key() : axis;
    const unsigned int row = __shfl_sync(0xffffffffu, x.key(), 0);
    if (row == axis) continue;
    // Within the first piece, of which most rows have no more, one look is enough.
    const bool head = row != before;
    if (!head && (i < piece || items[i - piece].key() != row || (i - begin(row, i)) % piece != 0)) continue;
    const word start = (o * axis + row) * inner;
    T total[each];
#pragma unroll
    for (int q = 0; q < each; ++q) {
      const word c = tile + q * warp + lane;
      if (c < inner) total[q] = head ? own(start + c) : (T)0;
    }
    word next = i;
    for (bool more = true; more;) {
      // They are in order: those of the row are the first.
      const int many = __popc(__ballot_sync(0xffffffffu, next + lane < count && x.key() == row));
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
      next += warp;
      more = many == warp && next < count;
      if (more) x = items[next + lane < count ? next + lane : count - 1];
      if (next - i == piece) break;
    }
    // The one piece of a row is its sum; those of a longer one are added up by the next launch.
    const bool single = head && !(next - i == piece && next < count && items[next].key() == row);
#pragma unroll
    for (int q = 0; q < each; ++q) {
      const word c = tile + q * warp + lane;
      if (c < inner && single) put(start + c, total[q]);
      if (c < inner && !single) *sum_of(head, o, i, c) = total[q];
    }
  }
