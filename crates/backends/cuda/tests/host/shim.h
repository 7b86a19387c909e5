// Enough of CUDA C to run a kernel on the host: the threads of a block are fibers that take turns, and who waits at a barrier
// passes. Threads of a warp meet the same shuffles in the same order, which is all that the kernels rely on.
#include <setjmp.h>
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__
#define __launch_bounds__(...)
#define __align__(n)

struct Dim { unsigned x; };
static Dim threadIdx, blockIdx, gridDim;
static const unsigned MOST_THREADS = 1024;

struct Fiber { jmp_buf place; bool begun, done; std::vector<char> stack; };
static Fiber fibers[MOST_THREADS];
static jmp_buf scheduler;
static std::function<void()> body;
static unsigned long long slots[MOST_THREADS];
static char* shared_start;
using std::max;
using std::min;

// A jump makes no system call, as a switch of contexts does.
static void turn() {
  if (_setjmp(fibers[threadIdx.x].place) == 0) _longjmp(scheduler, 1);
}
// Where all threads of a group that have not ended wait for each other.
struct Barrier {
  unsigned members, arrived, passed;
  void release() {
    if (arrived < members) return;
    arrived = 0;
    ++passed;
  }
  void wait() {
    unsigned before = passed;
    ++arrived;
    release();
    while (passed == before) turn();
  }
  void leave() {
    --members;
    if (arrived > 0) release();
  }
};
static Barrier block, warps[MOST_THREADS / 32];
static void turn_of_warp() { warps[threadIdx.x / 32].wait(); }
static void __syncthreads() { block.wait(); }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned all = 0;
  for (int i = 0; i < 4; ++i) all |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return all;
}
template <class T> T exchange(T value, unsigned from) {
  memcpy(&slots[threadIdx.x], &value, sizeof value);
  turn_of_warp();
  T got;
  memcpy(&got, &slots[from], sizeof got);
  turn_of_warp();
  return got;
}
template <class T> T __shfl_xor_sync(unsigned, T value, int lanes) { return exchange(value, threadIdx.x ^ lanes); }
template <class T> T __shfl_down_sync(unsigned, T value, int offset) {
  unsigned me = threadIdx.x;
  return exchange(value, me % 32 + offset < 32 ? me + offset : me);
}
template <class T> T __shfl_sync(unsigned, T value, int lane) {
  return exchange(value, threadIdx.x / 32 * 32 + lane);
}
static unsigned __ballot_sync(unsigned, bool vote) {
  slots[threadIdx.x] = vote;
  turn_of_warp();
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= (unsigned)slots[threadIdx.x / 32 * 32 + lane] << lane;
  turn_of_warp();
  return votes;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static void __syncwarp() {}
static int __ffs(int x) { return __builtin_ffs(x); }
static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static double __longlong_as_double(long long bits) { double x; memcpy(&x, &bits, 8); return x; }

static long long __double_as_longlong(double x) { long long bits; memcpy(&bits, &x, 8); return bits; }
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
// The nearest float towards zero.
static float __double2float_rz(double x) {
  float f = (float)x;
  return std::fabs((double)f) > std::fabs(x) ? std::nextafterf(f, 0.0f) : f;
}
static float host_from_f16(unsigned short h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
static unsigned short host_to_f16(float x) { _Float16 y = (_Float16)x; unsigned short h; memcpy(&h, &y, 2); return h; }
static unsigned short host_to_bf16(float x) {
  unsigned bits = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct float2 { float x, y; };
struct uint4 { unsigned x, y, z, w; };

// What the kernels of attention need of the device: copies into shared memory, which are done at once, and the products of a
// warpgroup, over tiles that are found as the device finds them.
static unsigned shared_address(const void* p) { return (unsigned)((const char*)p - shared_start); }
static void copy_async(void* to, const void* from, bool there) {
  if (there) memcpy(to, from, 16);
  else memset(to, 0, 16);
}
static void copies_done() {}
static void products_begin() {}
static void products_end() {}
template <int RUNNING> void products_wait() {}
template <int N> void settle(float (&)[N]) {}
static float exp2_of(float x) { return exp2f(x); }
template <bool BRAIN> float widen(unsigned short h) { return BRAIN ? __uint_as_float((unsigned)h << 16) : host_from_f16(h); }
template <bool BRAIN> unsigned pack(float low, float high) {
  auto round = [](float x) -> unsigned { return BRAIN ? host_to_bf16(x) : host_to_f16(x); };
  return round(low) | round(high) << 16;
}
// A number of a tile: `out` groups of the distance of panels, `in` of that of eight rows, a row of 128 bytes, a byte in it.
template <bool BRAIN> float number(unsigned long long tile, int out, int in, int row, int byte) {
  unsigned at = (tile & 0x3fff) * 16 + out * (tile >> 16 & 0x3fff) * 16 + in * (tile >> 32 & 0x3fff) * 16 + row * 128 + byte;
  unsigned short h;
  memcpy(&h, shared_start + (at ^ (at >> 7 & 7) << 4), 2);
  return widen<BRAIN>(h);
}
static int sum_row(int e) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + e / 2 % 2 * 8; }
static int sum_column(int e) { return e / 4 * 8 + threadIdx.x % 4 * 2 + e % 2; }
template <bool BRAIN, int N> void wgmma(float (&sums)[N], unsigned long long a, unsigned long long b, bool add) {
  for (int e = 0; e < N; ++e) {
    float sum = add ? sums[e] : 0.0f;
    int i = sum_row(e), j = sum_column(e);
    for (int k = 0; k < 16; ++k) sum += number<BRAIN>(a, 0, i / 8, i % 8, k * 2) * number<BRAIN>(b, 0, j / 8, j % 8, k * 2);
    sums[e] = sum;
  }
}
static unsigned factors[MOST_THREADS][4];
template <bool BRAIN, int N> void wgmma(float (&sums)[N], const unsigned (&a)[4], unsigned long long b, bool add) {
  memcpy(factors[threadIdx.x], a, sizeof a);
  turn_of_warp();
  for (int e = 0; e < N; ++e) {
    float sum = add ? sums[e] : 0.0f;
    int lane = threadIdx.x / 4 * 4, j = sum_column(e);
    for (int k = 0; k < 16; ++k) {
      unsigned both = factors[lane + k % 8 / 2][k / 8 * 2 + e / 2 % 2];
      sum += widen<BRAIN>((unsigned short)(k % 2 ? both >> 16 : both)) * number<BRAIN>(b, j / 64, k / 8, k % 8, j % 64 * 2);
    }
    sums[e] = sum;
  }
  turn_of_warp();
}

// The product of a warp's tensor core, of factors that its threads hold.
static unsigned others[MOST_THREADS][2];
template <bool BRAIN> void mma(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  memcpy(factors[threadIdx.x], a, sizeof a);
  memcpy(others[threadIdx.x], b, sizeof b);
  turn_of_warp();
  unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
  auto half = [](unsigned both, int k) { return widen<BRAIN>((unsigned short)(k % 2 ? both >> 16 : both)); };
  for (int e = 0; e < 4; ++e)
    for (int k = 0; k < 16; ++k) {
      unsigned left = factors[warp + lane / 4 * 4 + k % 8 / 2][k / 8 * 2 + e / 2];
      unsigned right = others[warp + (lane % 4 * 2 + e % 2) * 4 + k % 8 / 2][k / 8];
      sums[e] += half(left, k) * half(right, k);
    }
  turn_of_warp();
}

static void enter() {
  body();
  fibers[threadIdx.x].done = true;
  block.leave();
  warps[threadIdx.x / 32].leave();
  _longjmp(scheduler, 1);
}

// Lets the thread that `threadIdx` names go on until it waits or ends.
static void resume() {
  Fiber& f = fibers[threadIdx.x];
  if (_setjmp(scheduler) != 0) return;
  if (f.begun) _longjmp(f.place, 1);
  f.begun = true;
  f.stack.resize(1 << 16);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = f.stack.data();
  context.uc_stack.ss_size = f.stack.size();
  makecontext(&context, enter, 0);
  setcontext(&context);
}

static void launch(unsigned grid, unsigned threads, void* shared, std::function<void()> kernel) {
  body = kernel;
  gridDim.x = grid;
  shared_start = (char*)shared;
  for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
    block = {threads, 0, 0};
    for (Barrier& w : warps) w = {32, 0, 0};
    for (unsigned t = 0; t < threads; ++t) fibers[t].begun = fibers[t].done = false;
    for (bool live = true; live;) {
      live = false;
      for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
        if (fibers[threadIdx.x].done) continue;
        resume();
        live |= !fibers[threadIdx.x].done;
      }
    }
  }
}

static std::vector<char> take(size_t bytes) {
  std::vector<char> buffer(bytes + 1);
  if (fread(buffer.data(), 1, bytes, stdin) != bytes) throw 1;
  return buffer;
}
static void give(const std::vector<char>& buffer) { fwrite(buffer.data(), 1, buffer.size() - 1, stdout); }

// A buffer's address, as whatever a kernel's parameter is.
struct Any {
  char* p;
  template <class T> operator T*() const { return (T*)p; }
};
