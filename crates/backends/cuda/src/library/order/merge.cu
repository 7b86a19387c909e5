  for (word i = (word)blockIdx.x * threads + threadIdx.x; i < rows * length; i += (word)gridDim.x * threads) {
    const word row = i / length, group = i % length / (run * ways) * (run * ways);
    const Item* const items = from + row * length;
    const Item own = items[i % length];
    // How many of each run stand before it, by binary search, all at a time.
    word before[ways] = {};
    for (word step = run; step > 0; step /= 2) {
#pragma unroll
      for (int w = 0; w < ways; ++w) {
        const word last = before[w] + step - 1, at = group + w * run + last;
        if (last < run && at < length && items[at].before(own)) before[w] += step;
      }
    }
    word to = group;
#pragma unroll
    for (int w = 0; w < ways; ++w) to += before[w];
    put(row, to, own);
  }
