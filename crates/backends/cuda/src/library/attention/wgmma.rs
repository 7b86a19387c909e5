//! Hopper's products of a warpgroup, as functions of the text: `sums += a · b` of 64 rows and 16 summed columns.

use onestep_ir::DType;

/// The function for results of `columns` columns (a multiple of 8, at most 256): with both factors in shared memory and
/// summed along their rows, or with the left one in registers and the right one summed across its rows.
pub(super) fn wgmma(dtype: DType, columns: usize, left_in_registers: bool) -> String {
    let count = columns / 2;
    let dtype = if dtype == DType::BF16 { "bf16" } else { "f16" };
    let list =
        |from: usize, n: usize| (from..from + n).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ");
    let (left, parameter, operands, options) = match left_in_registers {
        true => (
            format!("{{{}}}", list(count, 4)),
            "const unsigned int (&a)[4]",
            "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])",
            "1, 1, 1",
        ),
        false => (format!("%{count}"), "unsigned long long a", "\"l\"(a)", "1, 1, 0, 0"),
    };
    let next = count + if left_in_registers { 4 } else { 1 };
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
