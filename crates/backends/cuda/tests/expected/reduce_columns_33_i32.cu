// Columns { lanes: 32, columns: 8 }, 5 blocks of 256, 8192 bytes shared
__device__ __forceinline__ int add_i32(int a, int b) { return (int)((unsigned int)a + (unsigned int)b); }
__device__ __forceinline__ int mul_i32(int a, int b) { return (int)((unsigned int)a * (unsigned int)b); }
template <class T> __device__ __forceinline__ T max_int(T a, T b) { return a < b ? b : a; }
template <class T> __device__ __forceinline__ T min_int(T a, T b) { return b < a ? b : a; }
extern "C" __global__ void __launch_bounds__(256) reduce_columns_33_i32(const int* b0, int* b1, int* b2, int* b3, int* b4) {
  extern __shared__ long long shared[];
  const int column = threadIdx.x % 8, lane = threadIdx.x / 8;
  for (int first = (int)blockIdx.x * 8; first < 40; first += (int)gridDim.x * 8) {
    const bool inside = first + column < 40;
    const int row = inside ? first + column : 39;
    const int i0 = row;
    int t1[1];
    int t2[1];
    int t3[1];
    int t4[1];
#pragma unroll
    for (int q = 0; q < 1; ++q) {
      int a1[1];
#pragma unroll
      for (int k = 0; k < 1; ++k) a1[k] = 0;
      int a2[1];
#pragma unroll
      for (int k = 0; k < 1; ++k) a2[k] = (-2147483647 - 1);
      int a3[1];
#pragma unroll
      for (int k = 0; k < 1; ++k) a3[k] = 2147483647;
      int a4[1];
#pragma unroll
      for (int k = 0; k < 1; ++k) a4[k] = 1;
      for (int start = lane + q * 32; start < 33; start += 32) {
#pragma unroll
        for (int k = 0; k < 1; ++k) {
          if (start + k * 32 < 33) {
#pragma unroll
            for (int v = 0; v < 1; ++v) {
              const int r = (start + k * 32) * 1 + v;
              const int i1 = r;
              const int e0 = b0[i0 + 40 * i1];
              a1[k] = add_i32(a1[k], e0);
              a2[k] = max_int(a2[k], e0);
              a3[k] = min_int(a3[k], e0);
              a4[k] = mul_i32(a4[k], e0);
            }
          }
        }
      }
      t1[q] = a1[0];
      t2[q] = a2[0];
      t3[q] = a3[0];
      t4[q] = a4[0];
    }
    int p1 = t1[0];
    int p2 = t2[0];
    int p3 = t3[0];
    int p4 = t4[0];
    int* const s1 = (int*)(shared + 0);
    s1[threadIdx.x] = p1;
    int* const s2 = (int*)(shared + 256);
    s2[threadIdx.x] = p2;
    int* const s3 = (int*)(shared + 512);
    s3[threadIdx.x] = p3;
    int* const s4 = (int*)(shared + 768);
    s4[threadIdx.x] = p4;
    __syncthreads();
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      if (lane < offset) {
        p1 = add_i32(p1, s1[threadIdx.x + offset * 8]);
        s1[threadIdx.x] = p1;
        p2 = max_int(p2, s2[threadIdx.x + offset * 8]);
        s2[threadIdx.x] = p2;
        p3 = min_int(p3, s3[threadIdx.x + offset * 8]);
        s3[threadIdx.x] = p3;
        p4 = mul_i32(p4, s4[threadIdx.x + offset * 8]);
        s4[threadIdx.x] = p4;
      }
      __syncthreads();
    }
    p1 = s1[column];
    p2 = s2[column];
    p3 = s3[column];
    p4 = s4[column];
    const int e1 = p1;
    const int e2 = p2;
    const int e3 = p3;
    const int e4 = p4;
    if (inside && lane == 0) b1[i0] = e1;
    if (inside && lane == 0) b2[i0] = e2;
    if (inside && lane == 0) b3[i0] = e3;
    if (inside && lane == 0) b4[i0] = e4;
    __syncthreads();
  }
}
