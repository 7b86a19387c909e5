//! The schedule's text: what the filetests, `inspect` and the compile report show. It is not read back.

use super::{Access, Affine, BufferId, BufferKind, Expr, Kernel, LoopKernel, ScanKernel, Schedule, View};
use onestep_ir::DType;
use std::fmt::{self, Display, Formatter};

impl Display for BufferId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl Display for Affine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (axis, &c) in self.coefs.iter().enumerate().filter(|(_, c)| **c != 0) {
            if !first {
                f.write_str(" + ")?;
            }
            first = false;
            match c {
                1 => write!(f, "i{axis}")?,
                _ => write!(f, "{c}*i{axis}")?,
            }
        }
        match (first, self.offset) {
            (true, n) => write!(f, "{n}"),
            (false, 0) => Ok(()),
            (false, n) => write!(f, " + {n}"),
        }
    }
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.buffer, self.place)
    }
}

impl Display for View {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_dense() && self.offset == 0 {
            return write!(f, "{}{:?}", self.buffer, self.shape);
        }
        write!(f, "{}{:?}", self.buffer, self.shape)?;
        write!(f, " strides {:?}", self.strides)?;
        if self.offset != 0 {
            write!(f, " from {}", self.offset)?;
        }
        Ok(())
    }
}

/// A literal's bits as a number of its dtype.
pub fn literal(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::F64 => format!("{:?}", f64::from_bits(bits)),
        DType::F32 => format!("{:?}", f32::from_bits(bits as u32)),
        DType::I64 => format!("{}", bits as i64),
        DType::I32 => format!("{}", bits as u32 as i32),
        DType::I8 => format!("{}", bits as u8 as i8),
        DType::Bool => format!("{}", bits != 0),
        DType::F16 | DType::BF16 => format!("0x{bits:04x}"),
        DType::F8E4M3 | DType::F8E5M2 => format!("0x{bits:02x}"),
        DType::U32 | DType::U8 => format!("{bits}"),
    }
}

impl LoopKernel {
    /// One line: the domain.
    fn head(&self) -> String {
        let (p, r) = self.extents.split_at(self.parallel);
        match r {
            [] => format!("loop {p:?}"),
            _ => format!("loop {p:?} reduce {r:?}"),
        }
    }

    fn lines(&self, f: &mut Formatter<'_>, indent: &str) -> fmt::Result {
        writeln!(f, "{indent}{}", self.head())?;
        for (i, e) in self.body.iter().enumerate() {
            write!(f, "{indent}  e{i} = ")?;
            match &e.expr {
                Expr::Load { access, bounds, fill } => {
                    write!(f, "load {access}")?;
                    for b in bounds {
                        write!(f, " if 0 <= {} < {}", b.index, b.size)?;
                        if b.step != 1 {
                            write!(f, " step {}", b.step)?;
                        }
                    }
                    if !bounds.is_empty() {
                        write!(f, " else {}", literal(e.dtype, *fill))?;
                    }
                }
                Expr::Literal(bits) => write!(f, "{}", literal(e.dtype, *bits))?,
                Expr::Index(a) => write!(f, "index {a}")?,
                Expr::Unary(k, a) => write!(f, "{} e{}", k.name(), a.0)?,
                Expr::Binary(k, a, b) => write!(f, "{} e{} e{}", k.name(), a.0, b.0)?,
                Expr::Compare(k, a, b) => write!(f, "{} e{} e{}", k.name(), a.0, b.0)?,
                Expr::Select(a, b, c) => write!(f, "select e{} e{} e{}", a.0, b.0, c.0)?,
                Expr::Cast(a) => write!(f, "cast e{}", a.0)?,
                Expr::Bitcast(a) => write!(f, "bitcast e{}", a.0)?,
                Expr::Reduce(k, a) => write!(f, "reduce {} e{}", k.name(), a.0)?,
                Expr::RandomBits { key, counter, index, stream } => write!(
                    f,
                    "random_bits e{} e{} e{} e{} stream {stream}",
                    key[0].0, key[1].0, counter.0, index.0
                )?,
            }
            writeln!(f, " : {}", e.dtype)?;
        }
        for s in &self.stores {
            writeln!(f, "{indent}  store {} = e{}", s.access, s.value.0)?;
        }
        Ok(())
    }
}

impl Display for LoopKernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.lines(f, "")
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Loops(parts) => {
                for p in parts {
                    p.lines(f, "  ")?;
                }
                Ok(())
            }
            Kernel::Matmul(m) => {
                let (batch, rows, n, k) = m.sizes();
                writeln!(
                    f,
                    "  matmul {} = {} · {}  (batch {batch}, m {rows}, n {n}, k {k})",
                    m.out, m.lhs, m.rhs
                )?;
                match &m.epilogue {
                    Some(e) => {
                        writeln!(f, "    epilogue")?;
                        e.lines(f, "    ")
                    }
                    None => Ok(()),
                }
            }
            Kernel::Library(l) => {
                let result = |v: &View| if v.is_dense() { v.buffer.to_string() } else { v.to_string() };
                let results: Vec<_> = l.results.iter().map(result).collect();
                let operands: Vec<_> = l.operands.iter().map(|v| v.to_string()).collect();
                writeln!(f, "  {} {} = {}", l.op.rule().name(), results.join(", "), operands.join(", "))
            }
            Kernel::Scan(s) => scan(s, f),
        }
    }
}

/// A scan: its operands by what they are, then the schedule of an iteration, further in.
fn scan(s: &ScanKernel, f: &mut Formatter<'_>) -> fmt::Result {
    let results: Vec<_> = s.results.iter().map(|b| b.to_string()).collect();
    let way = if s.reverse { ", from the last" } else { "" };
    write!(f, "  scan {} (length {}{way})", results.join(", "), s.length)?;
    for (what, views) in [("carries", &s.carries), ("sequences", &s.sequences), ("constants", &s.constants)] {
        let views: Vec<_> = views.iter().map(|v| v.to_string()).collect();
        if !views.is_empty() {
            write!(f, " {what} {}", views.join(", "))?;
        }
    }
    if let Some(arena) = s.arena {
        write!(f, " scratch {arena}")?;
    }
    writeln!(f)?;
    s.body.to_string().lines().try_for_each(|line| writeln!(f, "    {line}"))
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "schedule \"{}\" {{", self.name)?;
        if self.allow_tf32 {
            writeln!(f, "  products of f32 may be in tf32")?;
        }
        for (i, b) in self.buffers.iter().enumerate() {
            let kind = match &b.kind {
                BufferKind::Input(n) => format!("input {n}"),
                BufferKind::State(n) => format!("state {n}"),
                BufferKind::Constant(_) => "constant".to_string(),
                BufferKind::Temp => "temp".to_string(),
            };
            writeln!(f, "  buffer b{i}: {}{:?} {kind} \"{}\"", b.dtype, b.shape, b.name)?;
        }
        for (i, k) in self.kernels.iter().enumerate() {
            if let Kernel::Loops(parts) = k
                && parts.len() > 1
            {
                writeln!(f, "k{i}: {} loops in one dispatch", parts.len())?;
            } else {
                writeln!(f, "k{i}:")?;
            }
            write!(f, "{k}")?;
        }
        for (name, b) in &self.outputs {
            writeln!(f, "  output \"{name}\" {b}")?;
        }
        for s in &self.states {
            if let Some(u) = s.update {
                writeln!(f, "  update \"{}\" {u}", s.name)?;
            }
        }
        f.write_str("}\n")
    }
}
