  // Slot s of a block is item s % run of its run s / run; those beyond the end of a row stand last.
  Item* const slot = (Item*)shared;
  constexpr word runs = (length + run - 1) / run, each = slots / run;
  for (word first = (word)blockIdx.x * each; first < rows * runs; first += (word)gridDim.x * each) {
    for (word s = threadIdx.x; s < slots; s += threads) {
      const word which = first + s / run, row = which / runs, a = which % runs * run + s % run;
      slot[s] = which < rows * runs && a < length ? Item::of(key(row, a), a) : Item::of(~0ull, ~0u);
    }
    __syncthreads();
    // Bitonic: two ascending halves meet, one of them backwards, and then halves of halves.
    for (word size = 2; size <= run; size *= 2) {
      for (word half = size / 2; half > 0; half /= 2) {
        for (word pair = threadIdx.x; pair < slots / 2; pair += threads) {
          const word inside = pair & (half - 1), low = 2 * pair - inside;
          const word high = half == size / 2 ? low - inside + size - 1 - inside : low + half;
          const Item x = slot[low], y = slot[high];
          if (y.before(x)) {
            slot[low] = y;
            slot[high] = x;
          }
        }
        __syncthreads();
      }
    }
    for (word s = threadIdx.x; s < slots; s += threads) {
      const word which = first + s / run, row = which / runs, to = which % runs * run + s % run;
      if (which < rows * runs && to < length) put(row, to, slot[s]);
    }
    __syncthreads();
  }
