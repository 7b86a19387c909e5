// Thread, 11 blocks of 256, 0 bytes shared
extern "C" __global__ void __launch_bounds__(256) transposed_broadcast(const float* b0, const float* b1, const float* b2, float* b3) {
  for (int row = (int)blockIdx.x * 256 + (int)threadIdx.x; row < 2772; row += (int)gridDim.x * 256) {
    const int i0 = row / 396;
    const int i1 = row / 33 % 12;
    const int i2 = row % 33;
    const float e0 = b0[i0 + 7 * i1 + 84 * i2];
    const float e1 = b1[i2];
    const float e2 = b2[i0];
    const float e3 = e0 + e1;
    const float e4 = e3 * e2;
    b3[396 * i0 + 33 * i1 + i2] = e4;
  }
}
