//! Dtypes and scalar functions as text of C.
//!
//! A value of f16 or bf16 is a `float` that is always rounded to it, an 8-bit float its byte (it is only cast and moved), a `bool`
//! is a `bool` (one byte in memory), and every other dtype is the type of C. f32 arithmetic rounded to f16 or bf16 is what one rounding of the exact result gives, because f32
//! has more than twice their digits and two.

use onestep_ir::ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind};
use onestep_ir::{Array, DType};

/// The type of a value.
pub fn c_type(d: DType) -> &'static str {
    match d {
        DType::F64 => "double",
        DType::F32 | DType::F16 | DType::BF16 => "float",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::U32 => "unsigned int",
        DType::I8 => "signed char",
        DType::U8 | DType::F8E4M3 | DType::F8E5M2 => "unsigned char",
        DType::Bool => "bool",
    }
}

/// The type in memory.
pub fn storage(d: DType) -> &'static str {
    match d {
        DType::F16 | DType::BF16 => "unsigned short",
        DType::Bool => "unsigned char",
        d => c_type(d),
    }
}

/// The value of what stands in memory.
pub fn from_storage(d: DType, x: &str) -> String {
    match d {
        DType::F16 => format!("f16_to_f32({x})"),
        DType::BF16 => format!("bf16_to_f32({x})"),
        DType::Bool => format!("{x} != 0"),
        _ => x.into(),
    }
}

/// What stands in memory for a value.
pub fn to_storage(d: DType, x: &str) -> String {
    match d {
        DType::F16 => format!("f32_to_f16({x})"),
        // Always rounded already.
        DType::BF16 => format!("upper_half({x})"),
        _ => x.into(),
    }
}

/// A value computed in the type of C, rounded to the dtype.
pub fn rounded(d: DType, x: String) -> String {
    match d {
        DType::F16 => format!("round_f16({x})"),
        DType::BF16 => format!("round_bf16({x})"),
        _ => x,
    }
}

/// A literal, from its bits in memory.
pub fn literal(d: DType, bits: u64) -> String {
    match d {
        DType::F64 if f64::from_bits(bits).is_finite() => format!("{:?}", f64::from_bits(bits)),
        DType::F64 => format!("__longlong_as_double(0x{bits:016x}ll)"),
        DType::F32 if f32::from_bits(bits as u32).is_finite() => {
            format!("{:?}f", f32::from_bits(bits as u32))
        }
        DType::F32 => format!("__uint_as_float(0x{:08x}u)", bits as u32),
        DType::F16 => {
            let wide = Array::from_bytes(d, &[1], &(bits as u16).to_le_bytes()).map(|a| a.to_f64()[0] as f32);
            // Two bytes are one f16.
            literal(DType::F32, wide.unwrap_or(f32::NAN).to_bits() as u64)
        }
        DType::BF16 => literal(DType::F32, (bits & 0xffff) << 16),
        DType::I64 if bits as i64 == i64::MIN => "(-9223372036854775807ll - 1)".into(),
        DType::I64 => format!("{}ll", bits as i64),
        DType::I32 if bits as u32 as i32 == i32::MIN => "(-2147483647 - 1)".into(),
        DType::I32 => format!("{}", bits as u32 as i32),
        DType::U32 => format!("{}u", bits as u32),
        DType::I8 => format!("{}", bits as u8 as i8),
        DType::U8 | DType::F8E4M3 | DType::F8E5M2 => format!("{}", bits as u8),
        DType::Bool => format!("{}", bits & 0xff != 0),
    }
}

/// A literal as it stands in memory.
pub fn stored_literal(d: DType, bits: u64) -> String {
    match d {
        DType::F16 | DType::BF16 => format!("({}){}", storage(d), bits & 0xffff),
        d => format!("({}){}", storage(d), literal(d, bits)),
    }
}

/// The result of a reduction over nothing.
pub fn identity(kind: ReduceKind, d: DType) -> String {
    if d == DType::F64 {
        return literal(d, kind.identity(d).to_bits());
    }
    if d.is_float() {
        return literal(DType::F32, (kind.identity(d) as f32).to_bits() as u64);
    }
    literal(d, kind.identity_int(d) as u64)
}

/// Two partial results of a reduction made one. Those of f16 and bf16 are f32.
pub fn combine(kind: ReduceKind, d: DType, a: &str, b: &str) -> String {
    let wide = if d.is_float() && d != DType::F64 { DType::F32 } else { d };
    binary(kind.combine(), wide, a, b)
}

/// A function of `x`, which has dtype `d`.
pub fn unary(kind: UnaryKind, d: DType, x: &str) -> String {
    if d.is_float() {
        return float_unary(kind, d, x);
    }
    let signed = matches!(d, DType::I32 | DType::I64);
    // Computed as int and cut back: −128 is its own negative.
    let small = d == DType::I8;
    let (t, zero) = (c_type(d), literal(d, 0));
    match kind {
        UnaryKind::Neg if small => format!("({t})(-{x})"),
        UnaryKind::Abs if small => format!("({t})({x} < 0 ? -{x} : {x})"),
        UnaryKind::Relu if small => format!("({t})({x} < 0 ? 0 : {x})"),
        UnaryKind::Neg if signed => format!("sub_{}({zero}, {x})", d.name()),
        UnaryKind::Neg => format!("({t})(0u - {x})"),
        UnaryKind::Abs if signed => format!("({x} < 0 ? sub_{}({zero}, {x}) : {x})", d.name()),
        UnaryKind::Sign => format!("({t})(({x} > 0) - ({x} < 0))"),
        UnaryKind::Relu if signed => format!("({x} < 0 ? {zero} : {x})"),
        UnaryKind::Not if d == DType::Bool => format!("!{x}"),
        UnaryKind::Not => format!("({t})~{x}"),
        // Of unsigned numbers, Abs and Relu; integers have no other.
        _ => x.into(),
    }
}

fn float_unary(kind: UnaryKind, d: DType, x: &str) -> String {
    let double = d == DType::F64;
    let call = |f: &str| format!("{f}{}({x})", if double { "" } else { "f" });
    let one = if double { "1.0" } else { "1.0f" };
    let text = match kind {
        UnaryKind::Neg => return format!("-{x}"),
        UnaryKind::Sign => return format!("sign_of({x})"),
        UnaryKind::Relu => return format!("relu_of({x})"),
        // x − x is 0 but for infinities and NaN.
        UnaryKind::IsFinite => return format!("{x} - {x} == 0"),
        UnaryKind::IsNan => return format!("{x} != {x}"),
        UnaryKind::Not => return format!("{x} == 0"),
        UnaryKind::Abs => return call("fabs"),
        UnaryKind::Floor => call("floor"),
        UnaryKind::Ceil => call("ceil"),
        UnaryKind::Round => call("rint"),
        UnaryKind::Trunc => call("trunc"),
        UnaryKind::Exp => call("exp"),
        UnaryKind::Log => call("log"),
        UnaryKind::Expm1 => call("expm1"),
        UnaryKind::Log1p => call("log1p"),
        UnaryKind::Sqrt => call("sqrt"),
        UnaryKind::Rsqrt => format!("{one} / {}", call("sqrt")),
        UnaryKind::Reciprocal => format!("{one} / {x}"),
        UnaryKind::Sin => call("sin"),
        UnaryKind::Cos => call("cos"),
        UnaryKind::Tanh => call("tanh"),
        UnaryKind::Erf => call("erf"),
        UnaryKind::Sigmoid => format!("sigmoid_{}({x})", if double { "f64" } else { "f32" }),
        UnaryKind::Tan
        | UnaryKind::Asin
        | UnaryKind::Acos
        | UnaryKind::Atan
        | UnaryKind::Sinh
        | UnaryKind::Cosh
        | UnaryKind::Asinh
        | UnaryKind::Acosh
        | UnaryKind::Atanh
        | UnaryKind::Erfc => call(kind.name()),
    };
    rounded(d, text)
}

/// A function of two values of dtype `d`.
pub fn binary(kind: BinaryKind, d: DType, a: &str, b: &str) -> String {
    let (double, t) = (d == DType::F64, c_type(d));
    let wide = if double { "f64" } else { "f32" };
    let call = |f: &str| rounded(d, format!("{f}{}({a}, {b})", if double { "" } else { "f" }));
    let infix = |op: &str| match d {
        d if d.is_float() => rounded(d, format!("{a} {op} {b}")),
        DType::U32 => format!("{a} {op} {b}"),
        _ => format!("({t})({a} {op} {b})"),
    };
    let small = match d {
        DType::U8 => "u32",
        DType::I8 => "i32",
        _ => d.name(),
    };
    match kind {
        BinaryKind::Add | BinaryKind::Sub | BinaryKind::Mul => {
            let op = if kind == BinaryKind::Add {
                "+"
            } else if kind == BinaryKind::Sub {
                "-"
            } else {
                "*"
            };
            match d {
                DType::I32 | DType::I64 => format!("{}_{}({a}, {b})", kind.name(), d.name()),
                _ => infix(op),
            }
        }
        BinaryKind::Div if d.is_float() => infix("/"),
        BinaryKind::Rem if d.is_float() => call("fmod"),
        BinaryKind::Div | BinaryKind::Rem => {
            let text = format!("{}_{small}({a}, {b})", kind.name());
            if d.size() == 1 { format!("({t}){text}") } else { text }
        }
        BinaryKind::Pow => call("pow"),
        BinaryKind::Max | BinaryKind::Min if d.is_float() => format!("{}_{wide}({a}, {b})", kind_word(kind)),
        BinaryKind::Max if d == DType::Bool => infix("|"),
        BinaryKind::Min if d == DType::Bool => infix("&"),
        BinaryKind::Max | BinaryKind::Min => format!("{}_int({a}, {b})", kind_word(kind)),
        BinaryKind::And => infix("&"),
        BinaryKind::Or => infix("|"),
        BinaryKind::Xor => infix("^"),
        BinaryKind::Atan2 => call("atan2"),
        BinaryKind::Shl | BinaryKind::Shr => format!("{}_int({a}, {b})", kind.name()),
    }
}

fn kind_word(kind: BinaryKind) -> &'static str {
    if kind == BinaryKind::Max { "max" } else { "min" }
}

/// A comparison; a `bool`.
pub fn compare(kind: CompareKind, a: &str, b: &str) -> String {
    let op = match kind {
        CompareKind::Eq => "==",
        CompareKind::Ne => "!=",
        CompareKind::Lt => "<",
        CompareKind::Le => "<=",
        CompareKind::Gt => ">",
        CompareKind::Ge => ">=",
    };
    format!("{a} {op} {b}")
}

/// A conversion. Integers pass through f64 on the way to a float, as the op defines it; i32 and shorter ones to f32 need not.
pub fn cast(from: DType, to: DType, x: &str) -> String {
    if from == to {
        return x.into();
    }
    if from.is_fp8() {
        return cast(DType::F32, to, &format!("{from}_to_f32({x})"));
    }
    if to.is_fp8() {
        let wide = match from {
            DType::F32 | DType::F16 | DType::BF16 => x.into(),
            _ => format!("f64_to_odd((double){x})"),
        };
        return format!("f32_to_{to}({wide})");
    }
    match (from.is_float(), to) {
        (_, DType::Bool) => format!("{x} != 0"),
        (_, DType::F64) => format!("(double){x}"),
        (true, DType::F32) => {
            if from == DType::F64 {
                format!("(float){x}")
            } else {
                x.into()
            }
        }
        (true, DType::F16 | DType::BF16) if from != DType::F64 => rounded(to, x.into()),
        (true, DType::F16 | DType::BF16) => rounded(to, format!("f64_to_odd({x})")),
        (true, _) => format!("to_{}({x})", to.name()),
        (false, DType::F32) if from == DType::I64 => format!("(float)(double){x}"),
        (false, DType::F32) => format!("(float){x}"),
        (false, DType::F16 | DType::BF16) => rounded(to, format!("f64_to_odd((double){x})")),
        (false, _) => format!("({}){x}", c_type(to)),
    }
}

/// The same bits as another dtype of 4 or 8 bytes.
pub fn bitcast(from: DType, to: DType, x: &str) -> String {
    match (from, to) {
        _ if from.is_float() == to.is_float() => format!("({}){x}", c_type(to)),
        (DType::F32, _) => format!("({})__float_as_uint({x})", c_type(to)),
        (DType::F64, _) => format!("__double_as_longlong({x})"),
        (_, DType::F32) => format!("__uint_as_float((unsigned int){x})"),
        _ => format!("__longlong_as_double({x})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_exact() {
        assert_eq!(literal(DType::F32, 0.1f32.to_bits() as u64), "0.1f");
        assert_eq!(literal(DType::F32, 1e-30f32.to_bits() as u64), "1e-30f");
        assert_eq!(literal(DType::F32, f32::NEG_INFINITY.to_bits() as u64), "__uint_as_float(0xff800000u)");
        assert_eq!(literal(DType::F16, 0x3c00), "1.0f");
        assert_eq!(literal(DType::BF16, 0x3f80), "1.0f");
        assert_eq!(literal(DType::I32, (-5i32) as u32 as u64), "-5");
        assert_eq!(literal(DType::I64, i64::MIN as u64), "(-9223372036854775807ll - 1)");
        assert_eq!(literal(DType::Bool, 1), "true");
    }

    #[test]
    fn identities() {
        assert_eq!(identity(ReduceKind::Sum, DType::BF16), "0.0f");
        assert_eq!(identity(ReduceKind::Max, DType::F64), "__longlong_as_double(0xfff0000000000000ll)");
        assert_eq!(identity(ReduceKind::Min, DType::U32), "4294967295u");
        assert_eq!(identity(ReduceKind::Min, DType::Bool), "true");
        assert_eq!(identity(ReduceKind::Max, DType::I64), "(-9223372036854775807ll - 1)");
    }
}
