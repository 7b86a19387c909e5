  // A row of several pieces holds a place that is a multiple of a piece's length; a warp takes 32 columns at the first of those.
  const int lane = threadIdx.x % warp;
  for (word w = (word)blockIdx.x * (threads / warp) + (word)threadIdx.x / warp; w < outer * pieces * strips; w += (word)gridDim.x * (threads / warp)) {
    const word c = w % strips * warp + lane, i = w / strips % pieces * piece, o = w / strips / pieces;
    const unsigned int row = items[i].key();
    if (row == axis) continue;
    const word first = begin(row, i);
    if (i - first >= piece || first + piece >= count || items[first + piece].key() != row || c >= inner) continue;
    T total = *sum_of(true, o, first, c);
    for (word j = first + piece; j < count && items[j].key() == row; j += piece) total = sum(total, *sum_of(false, o, j, c));
    put((o * axis + row) * inner + c, total);
  }
