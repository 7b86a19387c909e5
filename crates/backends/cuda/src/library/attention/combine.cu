// Adds the parts of an attention whose keys were shared among blocks, in order: a block for each row.
constexpr int ROWS = PACK * QUERIES;

extern "C" __global__ void __launch_bounds__(THREADS) kernel_name(unsigned short* out, float* lse, const float* parts) {
  const int r = (int)blockIdx.x % ROWS, unit = (int)blockIdx.x / ROWS, b = unit / (HEADS / PACK);
  const int h = unit % (HEADS / PACK) * PACK + r / QUERIES, i = r % QUERIES;
  const auto part = [&](int split) { return parts + ((long long)(unit * SPLITS + split) * ROWS + r) * (VALUE_SIZE + 2); };
  float top = -infinity(), sum = 0.0f;
#pragma unroll 8
  for (int split = 0; split < SPLITS; ++split) top = fmaxf(top, part(split)[VALUE_SIZE]);
  const float shift = top == -infinity() ? 0.0f : top;
#pragma unroll 8
  for (int split = 0; split < SPLITS; ++split) sum = fmaf(part(split)[VALUE_SIZE + 1], exp2_of(part(split)[VALUE_SIZE] - shift), sum);
  if (threadIdx.x == 0) lse[((long long)b * HEADS + h) * QUERIES + i] = sum == 0.0f ? -infinity() : (shift + log2f(sum)) * LN2;
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int c = threadIdx.x; c < VALUE_SIZE; c += THREADS) {
    float o = 0.0f;
#pragma unroll 8
    for (int split = 0; split < SPLITS; ++split) o = fmaf(part(split)[c], exp2_of(part(split)[VALUE_SIZE] - shift), o);
    out[b * OUT.batch + h * OUT.head + i * OUT.row + c] = (unsigned short)pack<BF16>(o * factor, 0.0f);
  }
}
