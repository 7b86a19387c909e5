//! The text of a kernel: its head, the loop over rows, and inside it stages in turn: what the row's points share, then the pass
//! that the next reductions need.

use super::domain::range;
use super::group::{BLOCK, COLUMNS, Form, WARP};
use super::{CudaKernel, scalar};
use onestep_ir::DType;
use onestep_passes::schedule::{Affine, Bound, BufferId, Expr, ExprId, LoopKernel};
use std::fmt::Write;

/// The most values of a row that a thread keeps in registers from one pass to the next.
const MOST_KEPT: usize = 64;

/// Renders an arranged kernel as the function `name`, without the functions that it calls; with `wide`, indices have 64 bits.
/// As a `part` it is a function of the device that is told which block of how many it is.
pub fn emit(
    kernel: &LoopKernel,
    form: Form,
    wide: bool,
    dtype_of: &dyn Fn(BufferId) -> DType,
    name: &str,
    part: bool,
) -> CudaKernel {
    let mut writer = Writer::new(kernel, form, wide);
    writer.part = part;
    let parameters = writer.parameters();
    let writes = kernel.writes();
    let list: Vec<String> = parameters
        .iter()
        .map(|b| {
            let constant = if writes.contains(b) { "" } else { "const " };
            format!("{constant}{}* {b}", scalar::storage(dtype_of(*b)))
        })
        .collect();
    let list = list.join(", ");
    writer.line(&match part {
        false => format!("extern \"C\" __global__ void __launch_bounds__({BLOCK}) {name}({list}) {{"),
        true => format!("__device__ __forceinline__ void {name}(int block, int blocks, {list}) {{"),
    });
    writer.rows();
    writer.close();
    CudaKernel {
        source: writer.text,
        entry: name.into(),
        grid: [form.grid(kernel.rows()) as u32, 1, 1],
        block: [BLOCK as u32, 1, 1],
        shared_bytes: (writer.slots * BLOCK * 8) as u32,
        parameters,
        form,
    }
}

/// Points of a thread from which its loop is unrolled in part.
const MANY_POINTS: usize = 16;

/// The state of the text.
pub(super) struct Writer<'a> {
    pub(super) kernel: &'a LoopKernel,
    pub(super) form: Form,
    /// The type of an index.
    pub(super) index: &'static str,
    /// Whether the block's number is given by the caller.
    part: bool,
    varies: Vec<bool>,
    stages: Vec<usize>,
    /// What some store needs.
    live: Vec<bool>,
    /// What is kept in registers from the pass (by number) that computes it.
    kept: Vec<Option<usize>>,
    /// A buffer whose element at the point is the variable `x`.
    pub(super) held: Option<BufferId>,
    pub(super) text: String,
    indent: usize,
    /// Arrays of shared memory that a stage uses, at most: one for each of its reductions.
    pub(super) slots: usize,
    /// Whether an earlier stage of the row has used them.
    pub(super) stage_shared: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(kernel: &'a LoopKernel, form: Form, wide: bool) -> Writer<'a> {
        let mut live = vec![false; kernel.body.len()];
        kernel.stores.iter().for_each(|s| live[s.value.index()] = true);
        for (i, e) in kernel.body.iter().enumerate().rev() {
            if live[i] {
                e.expr.operands().iter().for_each(|o| live[o.index()] = true);
            }
        }
        let mut writer = Writer {
            kernel,
            form,
            index: if wide { "long long" } else { "int" },
            part: false,
            varies: kernel.varies(),
            stages: kernel.stages(),
            live,
            kept: vec![None; kernel.body.len()],
            held: None,
            text: String::new(),
            indent: 0,
            slots: 0,
            stage_shared: false,
        };
        writer.choose_kept();
        writer
    }

    pub(super) fn line(&mut self, text: &str) {
        if !text.starts_with('#') {
            self.text.extend(std::iter::repeat_n("  ", self.indent));
        }
        self.text += text;
        self.text.push('\n');
        if text.ends_with('{') {
            self.indent += 1;
        }
    }

    pub(super) fn close(&mut self) {
        self.indent -= 1;
        self.line("}");
    }

    /// The buffers that live loads and the stores name.
    fn parameters(&self) -> Vec<BufferId> {
        let loads = self.kernel.body.iter().enumerate().filter_map(|(i, e)| match &e.expr {
            Expr::Load { access, .. } if self.live[i] => Some(access.buffer),
            _ => None,
        });
        let mut all: Vec<BufferId> =
            loads.chain(self.kernel.stores.iter().map(|s| s.access.buffer)).collect();
        all.sort();
        all.dedup();
        all
    }

    fn last_stage(&self) -> usize {
        let live = self.stages.iter().zip(&self.live).filter(|(_, live)| **live);
        live.map(|(s, _)| *s).max().unwrap_or(0)
    }

    /// The reductions that pass `pass` feeds.
    fn reductions(&self, pass: usize) -> Vec<usize> {
        let is = |i: &usize| {
            self.live[*i]
                && self.stages[*i] == pass + 1
                && matches!(self.kernel.body[*i].expr, Expr::Reduce(..))
        };
        (0..self.kernel.body.len()).filter(is).collect()
    }

    /// Whether a store happens at every point of a row.
    fn everywhere(&self, store: usize) -> bool {
        let s = &self.kernel.stores[store];
        let reduced = &s.access.place.coefs[self.kernel.parallel..];
        self.varies[s.value.index()] || reduced.iter().any(|&c| c != 0)
    }

    fn stores(&self, everywhere: bool) -> Vec<usize> {
        (0..self.kernel.stores.len()).filter(|&s| self.everywhere(s) == everywhere).collect()
    }

    /// What a pass needs at a point, as far as it varies and no earlier pass has kept it, in order.
    fn closure(&self, pass: usize) -> Vec<usize> {
        let mut needed = vec![false; self.kernel.body.len()];
        let roots: Vec<usize> = match pass == self.last_stage() {
            true => self.stores(true).iter().map(|&s| self.kernel.stores[s].value.index()).collect(),
            false => {
                let operands = |&i: &usize| self.kernel.body[i].expr.operands();
                self.reductions(pass).iter().flat_map(operands).map(ExprId::index).collect()
            }
        };
        roots.iter().for_each(|&i| needed[i] = true);
        for i in (0..needed.len()).rev() {
            let before = self.kept[i].is_some_and(|p| p < pass);
            needed[i] &= self.varies[i];
            if needed[i] && !before {
                self.kernel.body[i].expr.operands().iter().for_each(|o| needed[o.index()] = true);
            }
        }
        (0..needed.len()).filter(|&i| needed[i]).collect()
    }

    /// Points of a row that each thread takes.
    fn points_per_thread(&self) -> usize {
        self.kernel.row_len().div_ceil(self.form.threads_per_row())
    }

    /// Keeps loads and costly functions that two passes need, while registers last.
    fn choose_kept(&mut self) {
        let each = self.points_per_thread();
        if self.last_stage() == 0 || matches!(self.form, Form::Columns { .. }) || each == 0 {
            return;
        }
        let mut room = MOST_KEPT / each;
        let mut seen: Vec<Option<usize>> = vec![None; self.kernel.body.len()];
        for pass in 0..=self.last_stage() {
            for i in self.closure(pass) {
                let first = *seen[i].get_or_insert(pass);
                if first < pass && self.kept[i].is_none() && room > 0 && costly(&self.kernel.body[i].expr) {
                    self.kept[i] = Some(first);
                    room -= 1;
                }
            }
        }
    }

    /// What a kernel without reduced axes does at a point.
    pub(super) fn point(&mut self) {
        for i in (0..self.kernel.body.len()).filter(|&i| self.live[i]).collect::<Vec<_>>() {
            self.value(i);
        }
        for s in 0..self.kernel.stores.len() {
            self.store(s, "");
        }
    }

    fn rows(&mut self) {
        let (form, rows) = (self.form, self.kernel.rows());
        let (index, step) = (self.index, form.rows_per_block());
        if form.shares() {
            self.slots = (0..self.last_stage()).map(|p| self.reductions(p).len()).max().unwrap_or(0);
        }
        if self.slots > 0 {
            self.line("extern __shared__ long long shared[];");
        }
        let (block, blocks) = if self.part { ("block", "blocks") } else { ("blockIdx.x", "gridDim.x") };
        let (block, stride) = (format!("({index}){block}"), format!("({index}){blocks}"));
        let looped = |first: String, step: usize| {
            let by = if step == 1 { stride.clone() } else { format!("{stride} * {step}") };
            format!("for ({index} row = {first}; row < {rows}; row += {by}) {{")
        };
        match form {
            Form::Thread => self.line(&looped(format!("{block} * {step} + (int)threadIdx.x"), step)),
            Form::Warp => {
                self.line(&format!("const int lane = threadIdx.x % {WARP};"));
                self.line(&looped(format!("{block} * {step} + (int)threadIdx.x / {WARP}"), step));
            }
            Form::Block => {
                self.line("const int lane = threadIdx.x;");
                self.line(&looped(block, step));
            }
            Form::Columns { .. } => {
                // Threads beyond the last row work on it too, so that all meet at the barriers, and store nothing.
                self.line(&format!(
                    "const int column = threadIdx.x % {COLUMNS}, lane = threadIdx.x / {COLUMNS};"
                ));
                self.line(&format!(
                    "for ({index} first = {block} * {step}; first < {rows}; first += {stride} * {step}) {{"
                ));
                self.line(&format!("const bool inside = first + column < {rows};"));
                self.line(&format!(
                    "const {index} row = inside ? first + column : {};",
                    rows.saturating_sub(1)
                ));
            }
        }
        self.axes(0..self.kernel.parallel, "row");
        for stage in 0..=self.last_stage() {
            self.row_values(stage);
            match stage == self.last_stage() {
                false => self.reduce_pass(stage),
                true => self.store_pass(stage),
            }
        }
        self.row_stores();
        if self.slots > 0 {
            // The next row's partial results take the place of this one's.
            self.line("__syncthreads();");
        }
        self.close();
    }

    /// The axes of a flat index, as far as something uses them.
    pub(super) fn axes(&mut self, axes: std::ops::Range<usize>, flat: &str) {
        let extents = &self.kernel.extents;
        for axis in axes.clone() {
            if self.kernel.affines().iter().all(|a| a.coefs[axis] == 0) {
                continue;
            }
            let inner: usize = extents[axis + 1..axes.end].iter().product();
            let mut text = flat.to_string();
            // A domain without points takes no step.
            if inner > 1 {
                let _ = write!(text, " / {inner}");
            }
            if axis > axes.start && extents[axis] > 0 {
                let _ = write!(text, " % {}", extents[axis]);
            }
            let index = self.index;
            self.line(&format!("const {index} i{axis} = {text};"));
        }
    }

    /// What the points of a row share, of one stage.
    fn row_values(&mut self, stage: usize) {
        for i in 0..self.kernel.body.len() {
            let reduce = matches!(self.kernel.body[i].expr, Expr::Reduce(..));
            if self.live[i] && !self.varies[i] && !reduce && self.stages[i] == stage {
                self.value(i);
            }
        }
    }

    fn value(&mut self, i: usize) {
        let t = scalar::c_type(self.kernel.body[i].dtype);
        let text = self.expression(i);
        self.line(&format!("const {t} e{i} = {text};"));
    }

    /// The values that a pass needs at point `k` of a thread's points, computed or taken from where they were kept.
    pub(super) fn point_values(&mut self, pass: usize) {
        for i in self.closure(pass) {
            match self.kept[i] {
                Some(p) if p < pass => {
                    let t = scalar::c_type(self.kernel.body[i].dtype);
                    self.line(&format!("const {t} e{i} = k{i}[k];"));
                }
                Some(p) if p == pass => {
                    self.value(i);
                    self.line(&format!("k{i}[k] = e{i};"));
                }
                _ => self.value(i),
            }
        }
    }

    /// Opens the loop over a thread's points `r` of a row; the number of scopes to close.
    pub(super) fn open_points(&mut self, pass: usize) -> usize {
        let (n, threads, index) = (self.kernel.row_len(), self.form.threads_per_row(), self.index);
        let keeps: Vec<usize> = (0..self.kept.len()).filter(|&i| self.kept[i] == Some(pass)).collect();
        let each = self.points_per_thread();
        for i in &keeps {
            let t = scalar::c_type(self.kernel.body[*i].dtype);
            self.line(&format!("{t} k{i}[{each}];"));
        }
        let taken = self.closure(pass).iter().any(|&i| self.kept[i].is_some());
        let lane = if threads == 1 { "0" } else { "lane" };
        let opened = if !taken {
            let start = if threads == 1 { "0".into() } else { format!("({index}){lane}") };
            if each >= MANY_POINTS {
                // Loads of several points are under way at a time.
                self.line("#pragma unroll 8");
            }
            self.line(&format!("for ({index} r = {start}; r < {n}; r += {threads}) {{"));
            1
        } else {
            // Unrolled, so that what is kept is in registers.
            self.line("#pragma unroll");
            self.line(&format!("for (int k = 0; k < {each}; ++k) {{"));
            let lane = if threads == 1 { "k".into() } else { format!("lane + k * {threads}") };
            self.line(&format!("const {index} r = {lane};"));
            if n % threads == 0 {
                1
            } else {
                self.line(&format!("if (r < {n}) {{"));
                2
            }
        };
        self.axes(self.kernel.parallel..self.kernel.extents.len(), "r");
        opened
    }

    fn reduce_pass(&mut self, pass: usize) {
        let reductions = self.reductions(pass);
        let reductions: Vec<_> = reductions
            .iter()
            .filter_map(|&i| match self.kernel.body[i].expr {
                Expr::Reduce(kind, operand) => Some((i, kind, operand, self.kernel.body[i].dtype)),
                _ => None,
            })
            .collect();
        self.reduce(pass, &reductions);
    }

    fn store_pass(&mut self, pass: usize) {
        let stores = self.stores(true);
        if stores.is_empty() {
            return;
        }
        let opened = self.open_points(pass);
        self.point_values(pass);
        let columns = matches!(self.form, Form::Columns { .. });
        for s in stores {
            self.store(s, if columns { "if (inside) " } else { "" });
        }
        (0..opened).for_each(|_| self.close());
    }

    /// Stores of the row's own values, by one of its threads.
    fn row_stores(&mut self) {
        let who = match self.form {
            Form::Thread => "",
            Form::Warp | Form::Block => "if (lane == 0) ",
            Form::Columns { .. } => "if (inside && lane == 0) ",
        };
        for s in self.stores(false) {
            self.store(s, who);
        }
    }

    fn store(&mut self, store: usize, condition: &str) {
        let s = &self.kernel.stores[store];
        let value = scalar::to_storage(self.kernel.body[s.value.index()].dtype, &format!("e{}", s.value.0));
        let text = format!("{condition}{}[{}] = {value};", s.access.buffer, self.affine(&s.access.place));
        self.line(&text);
    }

    fn expression(&self, i: usize) -> String {
        let e = &self.kernel.body[i];
        let dtype_of = |id: &ExprId| self.kernel.body[id.index()].dtype;
        let v = |id: &ExprId| format!("e{}", id.0);
        match &e.expr {
            Expr::Load { access, .. } if self.held == Some(access.buffer) => "x".into(),
            Expr::Load { access, bounds, fill } => {
                let at = format!("{}[{}]", access.buffer, self.affine(&access.place));
                let value = scalar::from_storage(e.dtype, &at);
                let tests: Vec<String> = bounds.iter().flat_map(|b| self.tests(b)).collect();
                match tests.is_empty() {
                    true => value,
                    false => {
                        format!("{} ? {value} : {}", tests.join(" && "), scalar::literal(e.dtype, *fill))
                    }
                }
            }
            Expr::Literal(bits) => scalar::literal(e.dtype, *bits),
            Expr::Index(a) => scalar::cast(DType::I64, e.dtype, &format!("(long long)({})", self.affine(a))),
            Expr::Unary(kind, a) => scalar::unary(*kind, dtype_of(a), &v(a)),
            Expr::Binary(kind, a, b) => scalar::binary(*kind, e.dtype, &v(a), &v(b)),
            Expr::Compare(kind, a, b) => scalar::compare(*kind, &v(a), &v(b)),
            Expr::Select(c, a, b) => format!("{} ? {} : {}", v(c), v(a), v(b)),
            Expr::Cast(a) => scalar::cast(dtype_of(a), e.dtype, &v(a)),
            Expr::RandomBits { key: [k0, k1], counter, index, stream } => {
                format!("philox({}, {}, {}, {}, 0x{stream:016x}ull)", v(k0), v(k1), v(counter), v(index))
            }
            Expr::Reduce(..) => v(&ExprId(i as u32)),
        }
    }

    /// The tests of a bound that do not hold over the whole domain.
    fn tests(&self, b: &Bound) -> Vec<String> {
        let (low, high) = range(self.kernel, &b.index);
        let index = self.affine(&b.index);
        let mut tests = vec![];
        if low < 0 {
            tests.push(format!("{index} >= 0"));
        }
        if high >= b.size as i128 {
            tests.push(format!("{index} < {}", b.size));
        }
        if b.step != 1 {
            tests.push(format!("({index}) % {} == 0", b.step));
        }
        tests
    }

    fn affine(&self, a: &Affine) -> String {
        let mut text = String::new();
        for (axis, &c) in a.coefs.iter().enumerate().filter(|(_, c)| **c != 0) {
            let sign = match (text.is_empty(), c < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            text += sign;
            match c.unsigned_abs() {
                1 => _ = write!(text, "i{axis}"),
                n => _ = write!(text, "{n} * i{axis}"),
            }
        }
        match (text.is_empty(), a.offset) {
            (true, n) => format!("{n}"),
            (false, 0) => text,
            (false, n) if n < 0 => format!("{text} - {}", n.unsigned_abs()),
            (false, n) => format!("{text} + {n}"),
        }
    }
}

/// Whether a value is worth a register for each point.
fn costly(e: &Expr) -> bool {
    match e {
        Expr::Load { .. } | Expr::RandomBits { .. } => true,
        Expr::Unary(kind, _) => kind.is_costly(),
        _ => false,
    }
}
