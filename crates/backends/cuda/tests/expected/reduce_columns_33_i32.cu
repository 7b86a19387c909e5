// Columns { lanes: 32 }, 2 blocks of 256, 8192 bytes shared
__device__ __forceinline__ int add_i32(int a, int b) { return (int)((unsigned int)a + (unsigned int)b); }
__device__ __forceinline__ int mul_i32(int a, int b) { return (int)((unsigned int)a * (unsigned int)b); }
template <class T> __device__ __forceinline__ T max_int(T a, T b) { return a < b ? b : a; }
template <class T> __device__ __forceinline__ T min_int(T a, T b) { return b < a ? b : a; }
extern "C" __global__ void __launch_bounds__(256) reduce_columns_33_i32(const int* b0, int* b1, int* b2, int* b3, int* b4) {
  extern __shared__ long long shared[];
  const int column = threadIdx.x % 32, lane = threadIdx.x / 32;
  for (int first = (int)blockIdx.x * 32; first < 40; first += (int)gridDim.x * 32) {
    const bool inside = first + column < 40;
    const int row = inside ? first + column : 39;
    const int i0 = row;
    int a1[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) a1[k] = 0;
    int a2[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) a2[k] = (-2147483647 - 1);
    int a3[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) a3[k] = 2147483647;
    int a4[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) a4[k] = 1;
    for (int start = lane; start < 33; start += 32) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int r = start + k * 8;
        if (r < 33) {
          const int i1 = r;
          const int e0 = b0[i0 + 40 * i1];
          a1[k] = add_i32(a1[k], e0);
          a2[k] = max_int(a2[k], e0);
          a3[k] = min_int(a3[k], e0);
          a4[k] = mul_i32(a4[k], e0);
        }
      }
    }
    a1[0] = add_i32(a1[0], a1[2]);
    a1[1] = add_i32(a1[1], a1[3]);
    a1[0] = add_i32(a1[0], a1[1]);
    int p1 = a1[0];
    a2[0] = max_int(a2[0], a2[2]);
    a2[1] = max_int(a2[1], a2[3]);
    a2[0] = max_int(a2[0], a2[1]);
    int p2 = a2[0];
    a3[0] = min_int(a3[0], a3[2]);
    a3[1] = min_int(a3[1], a3[3]);
    a3[0] = min_int(a3[0], a3[1]);
    int p3 = a3[0];
    a4[0] = mul_i32(a4[0], a4[2]);
    a4[1] = mul_i32(a4[1], a4[3]);
    a4[0] = mul_i32(a4[0], a4[1]);
    int p4 = a4[0];
    int* const s1 = (int*)(shared + 0);
    s1[threadIdx.x] = p1;
    int* const s2 = (int*)(shared + 256);
    s2[threadIdx.x] = p2;
    int* const s3 = (int*)(shared + 512);
    s3[threadIdx.x] = p3;
    int* const s4 = (int*)(shared + 768);
    s4[threadIdx.x] = p4;
    __syncthreads();
    const int q1_0 = add_i32(s1[column + 0], s1[column + 128]);
    const int q1_1 = add_i32(s1[column + 32], s1[column + 160]);
    const int q1_2 = add_i32(s1[column + 64], s1[column + 192]);
    const int q1_3 = add_i32(s1[column + 96], s1[column + 224]);
    const int h1_0 = add_i32(q1_0, q1_2);
    const int h1_1 = add_i32(q1_1, q1_3);
    p1 = add_i32(h1_0, h1_1);
    const int q2_0 = max_int(s2[column + 0], s2[column + 128]);
    const int q2_1 = max_int(s2[column + 32], s2[column + 160]);
    const int q2_2 = max_int(s2[column + 64], s2[column + 192]);
    const int q2_3 = max_int(s2[column + 96], s2[column + 224]);
    const int h2_0 = max_int(q2_0, q2_2);
    const int h2_1 = max_int(q2_1, q2_3);
    p2 = max_int(h2_0, h2_1);
    const int q3_0 = min_int(s3[column + 0], s3[column + 128]);
    const int q3_1 = min_int(s3[column + 32], s3[column + 160]);
    const int q3_2 = min_int(s3[column + 64], s3[column + 192]);
    const int q3_3 = min_int(s3[column + 96], s3[column + 224]);
    const int h3_0 = min_int(q3_0, q3_2);
    const int h3_1 = min_int(q3_1, q3_3);
    p3 = min_int(h3_0, h3_1);
    const int q4_0 = mul_i32(s4[column + 0], s4[column + 128]);
    const int q4_1 = mul_i32(s4[column + 32], s4[column + 160]);
    const int q4_2 = mul_i32(s4[column + 64], s4[column + 192]);
    const int q4_3 = mul_i32(s4[column + 96], s4[column + 224]);
    const int h4_0 = mul_i32(q4_0, q4_2);
    const int h4_1 = mul_i32(q4_1, q4_3);
    p4 = mul_i32(h4_0, h4_1);
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
