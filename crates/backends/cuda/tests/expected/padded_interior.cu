// Thread, 6 blocks of 256, 0 bytes shared
template <class T, int N> struct alignas(N * sizeof(T)) Group { T at[N]; };
template <int W, class T, int N> __device__ __forceinline__ void store_group(T* p, const Group<T, N>& all) {
#pragma unroll
  for (int i = 0; i < N; i += W) {
    Group<T, W> some;
#pragma unroll
    for (int v = 0; v < W; ++v) some.at[v] = all.at[i + v];
    *(Group<T, W>*)(p + i) = some;
  }
}
extern "C" __global__ void __launch_bounds__(256) padded_interior(const float* b0, const float* b1, float* b2) {
  for (int row = (int)blockIdx.x * 256 + (int)threadIdx.x; row < 1452; row += (int)gridDim.x * 256) {
    const int i0 = row / 33;
    const int i1 = row % 33;
    const float e0 = b0[0];
    {
      const int g = 0, r = 0;
      const int i2 = r;
      Group<float, 2> w0;
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const float e1 = i0 - 2 >= 0 && i0 - 2 < 20 && 2 * i1 + i2 + v - 2 >= 0 && 2 * i1 + i2 + v - 2 < 31 ? b0[31 * i0 + 2 * i1 + i2 + v - 64] : 0.0f;
        const float e2 = i0 - 2 >= 0 && i0 - 2 < 40 && (i0 - 2) % 2 == 0 && 2 * i1 + i2 + v - 3 >= 0 && 2 * i1 + i2 + v - 3 < 62 && (2 * i1 + i2 + v - 3) % 2 == 0 ? b1[66 * i0 + 2 * i1 + i2 + v] : 0.0f;
        const float e3 = e1 + e2;
        const float e4 = e3 - e0;
        w0.at[v] = e4;
      }
      store_group<2>(b2 + 66 * i0 + 2 * i1 + i2, w0);
    }
  }
}
