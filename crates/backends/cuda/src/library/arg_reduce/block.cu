  // A block takes candidates [begin, end) of a row.
  const auto take = [&](T& best, word& which, T x, word a) {
    if (beats(x, best) || (!beats(best, x) && a < which)) {
      best = x;
      which = a;
    }
  };
  T* const bests = (T*)shared;
  word* const whiches = (word*)(shared + threads / warp);
  for (word w = (word)blockIdx.x; w < rows * pieces; w += (word)gridDim.x) {
    const word row = w / pieces, begin = w % pieces * length, end = begin + length < count ? begin + length : count;
    // Where there are fewer candidates than threads, several look at the last.
    word which = candidate(row, begin + (word)threadIdx.x < end ? begin + (word)threadIdx.x : end - 1);
    T best = value(row, which);
#pragma unroll 8
    for (word c = begin + (word)threadIdx.x + threads; c < end; c += threads) {
      const word a = candidate(row, c);
      take(best, which, value(row, a), a);
    }
    for (int offset = warp / 2; offset > 0; offset /= 2) {
      const T x = __shfl_down_sync(0xffffffffu, best, offset);
      const word a = __shfl_down_sync(0xffffffffu, which, offset);
      take(best, which, x, a);
    }
    if (threadIdx.x % warp == 0) {
      bests[threadIdx.x / warp] = best;
      whiches[threadIdx.x / warp] = which;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < threads / warp; ++i) take(best, which, bests[i], whiches[i]);
      put(w, which);
    }
    __syncthreads();
  }
