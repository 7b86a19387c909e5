//! Functions that the rendered text calls where an operator of C does not say what the op means. A kernel's text starts with
//! those that it uses.

/// Name and text; a later one may call those before it.
const FUNCTIONS: &[(&str, &str)] = &[
    // Neighbouring elements. Of them, W at a time are read or written by one instruction, from a place that is a multiple of W.
    ("Group", "template <class T, int N> struct alignas(N * sizeof(T)) Group { T at[N]; };"),
    (
        "load_group",
        "template <int N, int W, class T> Group<T, N> load_group(const T* p) {
  Group<T, N> all;
#pragma unroll
  for (int i = 0; i < N; i += W) {
    const Group<T, W> some = *(const Group<T, W>*)(p + i);
#pragma unroll
    for (int v = 0; v < W; ++v) all.at[i + v] = some.at[v];
  }
  return all;
}",
    ),
    (
        "store_group",
        "template <int W, class T, int N> void store_group(T* p, const Group<T, N>& all) {
#pragma unroll
  for (int i = 0; i < N; i += W) {
    Group<T, W> some;
#pragma unroll
    for (int v = 0; v < W; ++v) some.at[v] = all.at[i + v];
    *(Group<T, W>*)(p + i) = some;
  }
}",
    ),
    // Where a result goes that replaces a range of a larger one; its own place where the range leaves the axis.
    (
        "range_of",
        "template <class T, class I> T* range_of(T* own, T* larger, const I* start, long long last, long long step) {
  const long long at = (long long)*start;
  return at < 0 || at > last ? own : larger + at * step;
}",
    ),
    (
        "group_of",
        "template <int N, class T> Group<T, N> group_of(T x) {
  Group<T, N> all;
#pragma unroll
  for (int v = 0; v < N; ++v) all.at[v] = x;
  return all;
}",
    ),
    (
        "f16_to_f32",
        "float f16_to_f32(unsigned short h) { float x; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h)); return x; }",
    ),
    (
        "f32_to_f16",
        "unsigned short f32_to_f16(float x) { unsigned short h; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x)); return h; }",
    ),
    ("bf16_to_f32", "float bf16_to_f32(unsigned short h) { return __uint_as_float((unsigned int)h << 16); }"),
    // The storage of a float that is a bf16.
    ("upper_half", "unsigned short upper_half(float x) { return (unsigned short)(__float_as_uint(x) >> 16); }"),
    ("round_f16", "float round_f16(float x) { return f16_to_f32(f32_to_f16(x)); }"),
    (
        // With a zero as the lower half the upper one is the float already; the conversion of a single float is another, slower
        // instruction.
        "round_bf16",
        "float round_bf16(float x) { unsigned int both; asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(both) : \"f\"(x), \"f\"(0.0f)); return __uint_as_float(both); }",
    ),
    (
        // By digits behind the leading one, bias, and the bits of the largest number and of what is beyond. `magic` leaves a
        // subnormal significand, rounded, in the low bits.
        "f32_to_fp8",
        "unsigned char f32_to_fp8(float x, int digits, int bias, unsigned int largest, unsigned int beyond) {
  unsigned int bits = __float_as_uint(x), size = bits & 0x7fffffffu, cut = 23 - digits;
  unsigned int magic = (unsigned int)(128 - bias + (int)cut) << 23;
  unsigned int subnormal = __float_as_uint(__uint_as_float(size) + __uint_as_float(magic)) - magic;
  unsigned int normal = (size - ((unsigned int)(127 - bias) << 23) + (1u << (cut - 1)) - 1u + (size >> cut & 1u)) >> cut;
  unsigned int finite = size < (unsigned int)(128 - bias) << 23 ? subnormal : normal;
  unsigned int bounded = finite <= largest ? finite : beyond;
  return x != x || bounded == 0x7fu ? 0x7f : (unsigned char)(bounded | (bits >> 24 & 0x80u));
}",
    ),
    (
        "fp8_to_f32",
        "float fp8_to_f32(unsigned char h, int digits, int bias, unsigned int largest, unsigned int infinity) {
  unsigned int size = h & 0x7fu;
  float finite = __uint_as_float(size << (23 - digits)) * __uint_as_float((unsigned int)(254 - bias) << 23);
  unsigned int value = size <= largest ? __float_as_uint(finite) : size == infinity ? 0x7f800000u : 0x7fc00000u;
  return __uint_as_float(value | (unsigned int)(h & 0x80) << 24);
}",
    ),
    (
        // The instruction saturates: what rounds beyond 448, from 464 on, is NaN all the same.
        "f32_to_f8e4m3",
        "unsigned char f32_to_f8e4m3(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm(\"cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\" : \"=h\"(pair) : \"f\"(0.0f), \"f\"(x));
  return fabsf(x) > 464.0f ? 0x7f : (unsigned char)pair;
#else
  return f32_to_fp8(x, 3, 7, 0x7eu, 0x7fu);
#endif
}",
    ),
    (
        // The instruction saturates: what rounds beyond 57344, 61440 too, is infinity all the same.
        "f32_to_f8e5m2",
        "unsigned char f32_to_f8e5m2(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm(\"cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;\" : \"=h\"(pair) : \"f\"(0.0f), \"f\"(x));
  return fabsf(x) >= 61440.0f ? 0x7c | (__float_as_uint(x) >> 24 & 0x80u) : (unsigned char)pair;
#else
  return f32_to_fp8(x, 2, 15, 0x7bu, 0x7cu);
#endif
}",
    ),
    ("f8e4m3_to_f32", "float f8e4m3_to_f32(unsigned char h) { return fp8_to_f32(h, 3, 7, 0x7eu, 0x80u); }"),
    ("f8e5m2_to_f32", "float f8e5m2_to_f32(unsigned char h) { return fp8_to_f32(h, 2, 15, 0x7bu, 0x7cu); }"),
    (
        // Rounds to odd: a later rounding to a shorter format is then as if from x itself.
        "f64_to_odd",
        "float f64_to_odd(double x) { float f = __double2float_rz(x); return x != x || (double)f == x ? f : __uint_as_float(__float_as_uint(f) | 1u); }",
    ),
    (
        "to_i64",
        "template <class T> long long to_i64(T x) { return x != x ? 0 : x <= (T)-9223372036854775808.0 ? -9223372036854775807ll - 1 : x >= (T)9223372036854775808.0 ? 9223372036854775807ll : (long long)x; }",
    ),
    (
        "to_i32",
        "template <class T> int to_i32(T x) { return x != x ? 0 : x <= (T)-2147483648.0 ? -2147483647 - 1 : x >= (T)2147483648.0 ? 2147483647 : (int)x; }",
    ),
    (
        "to_u32",
        "template <class T> unsigned int to_u32(T x) { return !(x > (T)0) ? 0u : x >= (T)4294967296.0 ? 4294967295u : (unsigned int)x; }",
    ),
    (
        "to_i8",
        "template <class T> signed char to_i8(T x) { return x != x ? 0 : x <= (T)-128 ? -128 : x >= (T)127 ? 127 : (signed char)(int)x; }",
    ),
    (
        "to_u8",
        "template <class T> unsigned char to_u8(T x) { return !(x > (T)0) ? 0 : x >= (T)256 ? 255 : (unsigned char)(int)x; }",
    ),
    // Integers wrap: the arithmetic is unsigned.
    ("add_i32", "int add_i32(int a, int b) { return (int)((unsigned int)a + (unsigned int)b); }"),
    ("sub_i32", "int sub_i32(int a, int b) { return (int)((unsigned int)a - (unsigned int)b); }"),
    ("mul_i32", "int mul_i32(int a, int b) { return (int)((unsigned int)a * (unsigned int)b); }"),
    ("add_i64", "long long add_i64(long long a, long long b) { return (long long)((unsigned long long)a + (unsigned long long)b); }"),
    ("sub_i64", "long long sub_i64(long long a, long long b) { return (long long)((unsigned long long)a - (unsigned long long)b); }"),
    ("mul_i64", "long long mul_i64(long long a, long long b) { return (long long)((unsigned long long)a * (unsigned long long)b); }"),
    // By 0: 0, and the dividend remains. By −1 apart, for the least number.
    ("div_i32", "int div_i32(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (unsigned int)a) : a / b; }"),
    ("rem_i32", "int rem_i32(int a, int b) { return b == 0 ? a : b == -1 ? 0 : a % b; }"),
    ("div_i64", "long long div_i64(long long a, long long b) { return b == 0 ? 0 : b == -1 ? (long long)(0ull - (unsigned long long)a) : a / b; }"),
    ("rem_i64", "long long rem_i64(long long a, long long b) { return b == 0 ? a : b == -1 ? 0 : a % b; }"),
    ("div_u32", "unsigned int div_u32(unsigned int a, unsigned int b) { return b == 0 ? 0 : a / b; }"),
    ("rem_u32", "unsigned int rem_u32(unsigned int a, unsigned int b) { return b == 0 ? a : a % b; }"),
    ("max_int", "template <class T> T max_int(T a, T b) { return a < b ? b : a; }"),
    ("min_int", "template <class T> T min_int(T a, T b) { return b < a ? b : a; }"),
    // A count that is negative or too large becomes a large unsigned one.
    (
        "shl_int",
        "template <class T> T shl_int(T a, T b) { return (unsigned long long)b < 8 * sizeof(T) ? (T)((unsigned long long)a << b) : (T)0; }",
    ),
    (
        "shr_int",
        "template <class T> T shr_int(T a, T b) { return (unsigned long long)b < 8 * sizeof(T) ? (T)(a >> b) : a < (T)0 ? (T)-1 : (T)0; }",
    ),
    (
        "max_f32",
        "float max_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float x;
  asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b));
  return x;
#else
  return a != a ? a : b != b ? b : fmaxf(a, b);
#endif
}",
    ),
    (
        "min_f32",
        "float min_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float x;
  asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b));
  return x;
#else
  return a != a ? a : b != b ? b : fminf(a, b);
#endif
}",
    ),
    ("max_f64", "double max_f64(double a, double b) { return a != a ? a : b != b ? b : fmax(a, b); }"),
    ("min_f64", "double min_f64(double a, double b) { return a != a ? a : b != b ? b : fmin(a, b); }"),
    (
        "sign_of",
        "template <class T> T sign_of(T x) { return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x; }",
    ),
    ("relu_of", "template <class T> T relu_of(T x) { return x < (T)0 ? (T)0 : x; }"),
    // One exponential, of −|x|, which does not overflow.
    (
        "sigmoid_f32",
        "float sigmoid_f32(float x) { float e = expf(-fabsf(x)); return (x < 0.0f ? e : 1.0f) / (1.0f + e); }",
    ),
    (
        "sigmoid_f64",
        "double sigmoid_f64(double x) { double e = exp(-fabs(x)); return (x < 0.0 ? e : 1.0) / (1.0 + e); }",
    ),
    (
        // What many numbers are divided by: its inverse as the sum of two floats, and how large at least a number must be for
        // `divided` to go by them.
        "divisor",
        "struct Divisor { float b, inverse, rest, least; };
__device__ __forceinline__ Divisor divisor(float b) {
  const float inverse = 1.0f / b, size = fabsf(b);
  const bool moderate = size >= 0x1p-40f && size <= 0x1p40f;
  return {b, inverse, fmaf(-b, inverse, 1.0f) * inverse, moderate ? 0x1p-80f : __uint_as_float(0x7f800000u)};
}",
    ),
    (
        // The quotient, correctly rounded: the first guess is off by less than one unit in the last place, so that what remains
        // of a is exact, and the correctly rounded inverse then corrects the guess exactly (Markstein).
        "divided",
        "float divided(float a, const Divisor& d) {
  const float guess = fmaf(a, d.inverse, a * d.rest);
  const float corrected = fmaf(fmaf(-guess, d.b, a), d.inverse, guess);
  return fabsf(a) >= d.least && fabsf(a) <= 0x1p80f ? corrected : a / d.b;
}",
    ),
    (
        // Philox 4x32-10: the block (index / 4, counter, stream).
        "philox_block",
        "uint4 philox_block(unsigned int k0, unsigned int k1, unsigned int counter, long long index, unsigned long long stream) {
  uint4 c = {(unsigned int)((unsigned long long)index >> 2), counter, (unsigned int)stream, (unsigned int)(stream >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned long long p0 = 0xd2511f53ull * c.x, p1 = 0xcd9e8d57ull * c.z;
    c = {(unsigned int)(p1 >> 32) ^ c.y ^ k0, (unsigned int)p1, (unsigned int)(p0 >> 32) ^ c.w ^ k1, (unsigned int)p0};
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return c;
}",
    ),
    (
        "philox_word",
        "unsigned int philox_word(uint4 block, int word) { return word == 0 ? block.x : word == 1 ? block.y : word == 2 ? block.z : block.w; }",
    ),
    (
        "philox",
        "unsigned int philox(unsigned int k0, unsigned int k1, unsigned int counter, long long index, unsigned long long stream) { return philox_word(philox_block(k0, k1, counter, index, stream), (int)(index & 3)); }",
    ),
];

/// The definitions of the functions that `body` calls, and of those that they call.
pub fn of(body: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let calls = |text: &str, name: &str| {
        let called = |at: usize| text[at + name.len()..].starts_with(['(', '<']);
        text.match_indices(name).any(|(at, _)| called(at) && !text[..at].ends_with(word))
    };
    let mut used: Vec<&str> = vec![];
    for (name, text) in FUNCTIONS.iter().rev() {
        if calls(body, name) || used.iter().any(|t| calls(t, name)) {
            used.push(text);
        }
    }
    let mut out = String::new();
    for text in used.iter().rev() {
        let (template, rest) = match text.split_once("> ") {
            Some((head, rest)) if head.starts_with("template") => (format!("{head}> "), rest),
            _ => (String::new(), *text),
        };
        let device = if rest.starts_with("struct") { "" } else { "__device__ __forceinline__ " };
        out += &format!("{template}{device}{rest}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_called_and_what_that_calls() {
        assert_eq!(of("x = a + b;"), "");
        let text = of("e1 = round_f16(e0);");
        for name in ["f16_to_f32", "f32_to_f16", "round_f16"] {
            assert_eq!(
                text.matches(&format!("{name}(unsigned")).count()
                    + text.matches(&format!("{name}(float")).count(),
                1,
                "{text}"
            );
        }
        assert!(!text.contains("bf16"));
        assert!(of("to_i32(x)").starts_with("template <class T> __device__ __forceinline__ int to_i32(T x)"));
    }
}
