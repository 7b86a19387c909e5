  for (word w = (word)blockIdx.x * threads + (word)threadIdx.x; w < outer * inner * count; w += (word)gridDim.x * threads) {
    const word row = w / count, i = w % count, o = row / inner, c = row % inner;
    const Item* const x = items + row * count;
    const unsigned int a = x[i].key();
    if (a == axis || (i > 0 && x[i - 1].key() == a)) continue;
    const word at = (o * axis + a) * inner + c;
    T total = own(at);
    for (word j = i; j < count && x[j].key() == a; ++j) total = sum(total, update((o * count + x[j].at()) * inner + c));
    put(at, total);
  }
