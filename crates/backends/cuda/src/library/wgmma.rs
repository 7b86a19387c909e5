//! Hopper's products of a warpgroup, as functions of the text: `sums += a · b` of 64 rows and 16 summed columns.

use onestep_ir::DType;

/// How products are ordered, and where their factors are found.
pub(super) const ORDER: &str = include_str!("wgmma.cuh");

/// Where the factors are, and along which axis they are contiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Factors {
    /// Both in shared memory, contiguous along the sum or across it.
    Shared { left_along: bool, right_along: bool },
    /// The left one in registers, the right one in shared memory, contiguous across the sum.
    LeftInRegisters,
}

/// The function for results of `columns` columns (a multiple of 8, at most 256).
pub(super) fn wgmma(dtype: DType, columns: usize, factors: Factors) -> String {
    let count = columns / 2;
    let dtype = if dtype == DType::BF16 { "bf16" } else { "f16" };
    let list =
        |from: usize, n: usize| (from..from + n).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ");
    let (left, parameter, operands, options, next) = match factors {
        Factors::LeftInRegisters => (
            format!("{{{}}}", list(count, 4)),
            "const unsigned int (&a)[4]",
            "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])",
            "1, 1, 1".to_string(),
            count + 4,
        ),
        Factors::Shared { left_along, right_along } => (
            format!("%{count}"),
            "unsigned long long a",
            "\"l\"(a)",
            format!("1, 1, {}, {}", u8::from(!left_along), u8::from(!right_along)),
            count + 1,
        ),
    };
    let sums = (0..count).map(|i| format!("\"+f\"(sums[{i}])")).collect::<Vec<_>>().join(", ");
    format!(
        "template <bool>\n__device__ __forceinline__ void wgmma(float (&sums)[{count}], {parameter}, unsigned long long b, bool add) {{\n  \
         asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{}, 0;\\n\"\n    \
         \"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} {{{}}}, {left}, %{next}, p, {options};\\n}}\"\n    \
         : {sums} : {operands}, \"l\"(b), \"r\"((int)add));\n}}\n",
        next + 1,
        list(0, count),
    )
}
