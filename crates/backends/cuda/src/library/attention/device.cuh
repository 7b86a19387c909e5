// The instructions of the device that attention is written with. A host that runs the text brings functions of these names.
#ifdef __CUDACC_RTC__

// Begins to copy 16 bytes into shared memory; zeros, if they are not there.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// Waits for this thread's copies, and shows all that it wrote to shared memory to the tensor cores, behind the next barrier.
__device__ __forceinline__ void copies_done() {
  asm volatile("cp.async.wait_all;\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <bool BRAIN>
__device__ __forceinline__ float widen(unsigned short h) {
  float x;
  if (BRAIN) return __uint_as_float((unsigned int)h << 16);
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
// Two numbers rounded to 16 bits each; the first in the low half.
template <bool BRAIN>
__device__ __forceinline__ unsigned int pack(float low, float high) {
  unsigned int both;
  if (BRAIN) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

#endif
