  struct Item {
    unsigned long long bits;
    static __device__ Item of(unsigned int key, unsigned int at) { return {(unsigned long long)key << 32 | at}; }
    __device__ unsigned int key() const { return (unsigned int)(bits >> 32); }
    __device__ unsigned int at() const { return (unsigned int)bits; }
    __device__ bool before(Item x) const { return bits < x.bits; }
  };
