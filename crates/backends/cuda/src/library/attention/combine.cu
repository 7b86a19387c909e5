// Adds the parts of an attention whose keys were shared among blocks, in order: a block for each row, a thread for each column.
constexpr int ROWS = PACK * QUERIES, PART = VALUE_SIZE + 2;

extern "C" __global__ void __launch_bounds__(THREADS) kernel_name(unsigned short* out, float* lse, const float* parts) {
  const int r = (int)blockIdx.x % ROWS, unit = (int)blockIdx.x / ROWS, b = unit / (HEADS / PACK), c = (int)threadIdx.x;
  const int h = unit % (HEADS / PACK) * PACK + r / QUERIES, i = r % QUERIES;
  const float* const part = parts + ((word)unit * SPLITS * ROWS + r) * PART;
  // All loads first.
  float outs[SPLITS], tops[SPLITS], sums[SPLITS];
#pragma unroll
  for (int split = 0; split < SPLITS; ++split) {
    outs[split] = part[split * (ROWS * PART) + min(c, VALUE_SIZE - 1)];
    tops[split] = part[split * (ROWS * PART) + VALUE_SIZE];
    sums[split] = part[split * (ROWS * PART) + VALUE_SIZE + 1];
  }
  float top = -infinity(), sum = 0.0f, o = 0.0f;
#pragma unroll
  for (int split = 0; split < SPLITS; ++split) top = fmaxf(top, tops[split]);
  const float shift = top == -infinity() ? 0.0f : top;
#pragma unroll
  for (int split = 0; split < SPLITS; ++split) {
    const float weight = exp2_of(tops[split] - shift);
    sum = fmaf(sums[split], weight, sum);
    o = fmaf(outs[split], weight, o);
  }
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  if (c < VALUE_SIZE) out[b * OUT.batch + h * OUT.head + i * OUT.row + c] = (unsigned short)pack<BF16>(o * factor, 0.0f);
  if (c == 0) lse[((word)b * HEADS + h) * QUERIES + i] = sum == 0.0f ? -infinity() : (shift + log2f(sum)) * LN2;
}
