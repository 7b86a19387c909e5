//! Instructions of the device, as functions of the shim.

/// A text without instructions of the device.
pub fn on_host(source: &str) -> String {
    source
        .replace("asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h))", "x = host_from_f16(h)")
        .replace("asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x))", "h = host_to_f16(x)")
        .replace(
            "asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(both) : \"f\"(x), \"f\"(0.0f))",
            "both = (unsigned int)host_to_bf16(x) << 16",
        )
        .replace("asm volatile(\"ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\" : \"=r\"(v.x), \"=r\"(v.y), \"=r\"(v.z), \"=r\"(v.w) : \"l\"(p))", "v = *(const uint4*)p")
}
