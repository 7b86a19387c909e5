// Block, 64 blocks of 256, 2048 bytes shared
__device__ __forceinline__ float max_f32(float a, float b) { return a != a ? a : b != b ? b : fmaxf(a, b); }
extern "C" __global__ void __launch_bounds__(256) softmax_64x1000(const float* b0, float* b1, float* b2) {
  extern __shared__ long long shared[];
  const int lane = threadIdx.x;
  for (int row = (int)blockIdx.x; row < 64; row += (int)gridDim.x) {
    const int i0 = row;
    float p1 = __uint_as_float(0xff800000u);
    float k0[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int r = lane + k * 256;
      if (r < 1000) {
        const int i1 = r;
        const float e0 = b0[1000 * i0 + i1];
        k0[k] = e0;
        p1 = max_f32(p1, e0);
      }
    }
    float* const s1 = (float*)(shared + 0);
    s1[threadIdx.x] = p1;
    __syncthreads();
    p1 = s1[lane % 32];
    for (int w = 1; w < 8; ++w) {
      p1 = max_f32(p1, s1[w * 32 + lane % 32]);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_down_sync(0xffffffffu, p1, offset);
      p1 = max_f32(p1, other);
    }
    p1 = __shfl_sync(0xffffffffu, p1, 0);
    const float e1 = p1;
    float p4 = 0.0f;
    float k3[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int r = lane + k * 256;
      if (r < 1000) {
        const int i1 = r;
        const float e0 = k0[k];
        const float e2 = e0 - e1;
        const float e3 = expf(e2);
        k3[k] = e3;
        p4 = p4 + e3;
      }
    }
    __syncthreads();
    float* const s4 = (float*)(shared + 0);
    s4[threadIdx.x] = p4;
    __syncthreads();
    p4 = s4[lane % 32];
    for (int w = 1; w < 8; ++w) {
      p4 = p4 + s4[w * 32 + lane % 32];
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_down_sync(0xffffffffu, p4, offset);
      p4 = p4 + other;
    }
    p4 = __shfl_sync(0xffffffffu, p4, 0);
    const float e4 = p4;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int r = lane + k * 256;
      if (r < 1000) {
        const int i1 = r;
        const float e3 = k3[k];
        const float e5 = e3 / e4;
        b1[1000 * i0 + i1] = e5;
      }
    }
    if (lane == 0) b2[i0] = e4;
    __syncthreads();
  }
}
