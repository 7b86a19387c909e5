  // The first of the ordered items that have the row of the item at a place.
  const auto begin = [&](unsigned int row, word at) -> word {
    word low = 0;
    while (low < at) {
      const word middle = (low + at) / 2;
      if (items[middle].key() < row) low = middle + 1;
      else at = middle;
    }
    return low;
  };
  // The sum of the piece that begins at a place: rows' first pieces and later ones are each at least a piece apart.
  const auto sum_of = [&](bool head, word o, word at, word c) -> T* {
    return (T*)p5 + (((head ? 0 : outer) + o) * pieces + at / piece) * inner + c;
  };
