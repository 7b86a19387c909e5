// What a query sees and its scores, as exponents of 2 over `UNIT`.

constexpr float LOG2E = 1.44269504088896341f, LN2 = 0.693147180559945309f;
// Plain scores stay as the products that they are; the scale goes into the exponent.
constexpr bool FOLDED = SCALE > 0.0f && !CAPPED && MASK != ADDED;
constexpr float UNIT = FOLDED ? SCALE * LOG2E : 1.0f;

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// The keys that queries of a sequence see by place: a band along the diagonal.
struct Band {
  int shift, keys;
  // A length out of range is taken to the nearest: the flag of bad indices is raised elsewhere.
  __device__ __forceinline__ Band(const int* lengths, int b) {
    keys = LENGTHS ? max(0, min(KEYS, lengths[(long long)b * LENGTH_STRIDE])) : KEYS;
    shift = AT_END ? keys - QUERIES : 0;
  }
  // Query i sees keys from here …
  __device__ __forceinline__ int from(int i) const { return max(0, i + shift - LEFT); }
  // … to here.
  __device__ __forceinline__ int to(int i) const { return min(keys, i + shift + RIGHT + 1); }
  // Keys from `first` to `last` are seen by queries from here …
  __device__ __forceinline__ int first_query(int first) const { return first < keys ? max(0, first - RIGHT - shift) : QUERIES; }
  // … to here.
  __device__ __forceinline__ int end_query(int last) const { return min(QUERIES, last + LEFT - shift + 1); }
  // Whether there may be a key from j to `last_j` that not all queries from i to `last_i` see.
  __device__ __forceinline__ bool cuts(int i, int last_i, int j, int last_j) const {
    return j < from(last_i) || last_j >= to(i);
  }
};

// 1 − 2 / (1 + exp 2x): its error is absolute, as a score's is.
__device__ __forceinline__ float tanh_of(float x) { return 1.0f - 2.0f / (1.0f + exp2_of(x * (2.0f * LOG2E))); }

// Products of queries and keys become scores. `at(e, h, i, j)` sets head, query and key of element e; `cut`: the band does not
// allow all of them. `slopes` are those along the products, but for the scale, and used under a cap alone.
template <int N, int S, class At>
__device__ __forceinline__ void see(float (&s)[N], float (&slopes)[S], const Band& band, const void* mask, long long b, bool cut, At at) {
  if (CAPPED) {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float tanh = tanh_of(s[e] * (SCALE / SOFTCAP));
      s[e] = tanh * (SOFTCAP * LOG2E);
      if (S == N) slopes[e % S] = 1.0f - tanh * tanh;
    }
  } else if (!FOLDED) {
#pragma unroll
    for (int e = 0; e < N; ++e) s[e] = s[e] * (SCALE * LOG2E);
  }
  if (MASK == NONE && !cut) return;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    int h, i, j;
    at(e, h, i, j);
    bool seen = i < QUERIES && j >= band.from(i) && j < band.to(i);
    if (MASK != NONE && seen) {
      const long long place = b * MASK_VIEW.batch + h * MASK_VIEW.head + i * MASK_VIEW.row + j * MASK_VIEW.column;
      if (MASK == ADDED) s[e] += widen<BF16>(((const unsigned short*)mask)[place]) * LOG2E;
      else seen = ((const unsigned char*)mask)[place] != 0;
    }
    if (!seen) s[e] = -infinity();
  }
}
