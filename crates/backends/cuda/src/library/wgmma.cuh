// How products of a warpgroup are ordered. A host that runs the text brings functions of these names.
#ifdef __CUDACC_RTC__

// The place of an address in the block's shared memory, as descriptors name it.
__device__ __forceinline__ unsigned int shared_address(const void* p) { return (unsigned int)__cvta_generic_to_shared(p); }

// Orders registers and shared memory before the products that follow.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of products.
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most so many groups run.
template <int RUNNING>
__device__ __forceinline__ void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(RUNNING) : "memory"); }
// Sums are not read before this point.
template <int N>
__device__ __forceinline__ void settle(float (&sums)[N]) {
#pragma unroll
  for (int e = 0; e < N; ++e) asm volatile("" : "+f"(sums[e])::"memory");
}

#endif
