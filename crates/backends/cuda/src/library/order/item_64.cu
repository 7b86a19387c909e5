  struct Item {
    unsigned long long key, place;
    static __device__ Item of(unsigned long long key, unsigned int at) { return {key, at}; }
    __device__ unsigned int at() const { return (unsigned int)place; }
    __device__ bool before(Item x) const { return key < x.key || (key == x.key && place < x.place); }
  };
