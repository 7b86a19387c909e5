// Enough of CUDA C to run a rendered kernel on the host: the threads of a block are fibers that take turns, and each barrier
// or shuffle is a turn. Threads of a warp meet the same ones in the same order, which is all that the kernels rely on.
#include <ucontext.h>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__
#define __launch_bounds__(n)

struct Dim { unsigned x; };
static Dim threadIdx, blockIdx, gridDim;
static const unsigned MOST_THREADS = 1024;
static unsigned threads;

struct Fiber { ucontext_t context; bool done; std::vector<char> stack; };
static Fiber fibers[MOST_THREADS];
static ucontext_t scheduler;
static std::function<void()> body;
static unsigned long long slots[MOST_THREADS];

static void turn() {
  unsigned me = threadIdx.x;
  swapcontext(&fibers[me].context, &scheduler);
  threadIdx.x = me;
}
static void __syncthreads() { turn(); }
template <class T> T exchange(T value, unsigned from) {
  memcpy(&slots[threadIdx.x], &value, sizeof value);
  turn();
  T got;
  memcpy(&got, &slots[from], sizeof got);
  turn();
  return got;
}
template <class T> T __shfl_down_sync(unsigned, T value, int offset) {
  unsigned me = threadIdx.x;
  return exchange(value, me % 32 + offset < 32 ? me + offset : me);
}
template <class T> T __shfl_sync(unsigned, T value, int lane) {
  return exchange(value, threadIdx.x / 32 * 32 + lane);
}
static unsigned __ballot_sync(unsigned, bool vote) {
  slots[threadIdx.x] = vote;
  turn();
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= (unsigned)slots[threadIdx.x / 32 * 32 + lane] << lane;
  turn();
  return votes;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static long long __double_as_longlong(double x) { long long bits; memcpy(&bits, &x, 8); return bits; }
static double __longlong_as_double(long long bits) { double x; memcpy(&x, &bits, 8); return x; }

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

static void enter() {
  body();
  fibers[threadIdx.x].done = true;
  swapcontext(&fibers[threadIdx.x].context, &scheduler);
}

static void launch(unsigned grid, unsigned block, std::function<void()> kernel) {
  body = kernel;
  threads = block;
  gridDim.x = grid;
  for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
    for (unsigned t = 0; t < threads; ++t) {
      Fiber& f = fibers[t];
      f.done = false;
      f.stack.resize(1 << 16);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = &scheduler;
      makecontext(&f.context, enter, 0);
    }
    for (bool live = true; live;) {
      live = false;
      for (unsigned t = 0; t < threads; ++t) {
        if (fibers[t].done) continue;
        threadIdx.x = t;
        swapcontext(&scheduler, &fibers[t].context);
        live |= !fibers[t].done;
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
