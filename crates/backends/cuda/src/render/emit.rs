//! The text of a kernel: its head, the loop over rows, and inside it stages in turn: what the row's points share, then the pass
//! that the next reductions need.

use super::group::{BLOCK, Cut, Form, WARP};
use super::points::{Groups, together, uniform};
use super::{Buffers, CudaKernel, MOST_REDUCTIONS, RenderError, scalar};
use onestep_passes::schedule::{BufferId, Expr, LoopKernel};
use std::fmt::Write;

/// Renders an arranged kernel as the function `name`, without the functions that it calls; with `wide`, indices have 64 bits.
/// As a `part` it is a function of the device that is told which block of how many it is.
pub fn emit(
    kernel: &LoopKernel,
    (form, cut): (Form, Cut),
    wide: bool,
    buffers: Buffers<'_>,
    name: &str,
    part: bool,
) -> Result<CudaKernel, RenderError> {
    let mut writer = Writer::new(kernel, (form, cut), wide, buffers);
    match writer.slots {
        count if count > MOST_REDUCTIONS => return Err(RenderError::TooManyReductions { count }),
        _ => {}
    }
    writer.part = part;
    let parameters = writer.parameters();
    let writes = kernel.writes();
    let list: Vec<String> = parameters
        .iter()
        .map(|b| {
            let constant = if writes.contains(b) { "" } else { "const " };
            format!("{constant}{}* {b}", scalar::storage((buffers.dtype)(*b)))
        })
        .collect();
    let list = list.join(", ");
    writer.line(&match part {
        false => format!("extern \"C\" __global__ void {} {name}({list}) {{", bounds(writer.resident())),
        true => format!("__device__ __forceinline__ void {name}(int block, int blocks, {list}) {{"),
    });
    writer.rows();
    writer.close();
    let resident = writer.resident();
    Ok(CudaKernel {
        source: writer.text,
        entry: name.into(),
        grid: [form.grid(kernel.rows()) as u32, 1, 1],
        block: [BLOCK as u32, 1, 1],
        shared_bytes: (writer.slots * BLOCK * 8) as u32,
        resident,
        parameters,
        form,
    })
}

/// What a kernel's text says of its launch: the threads of a block, and how many blocks a processor must be able to hold.
pub fn bounds(resident: usize) -> String {
    match resident {
        0 => format!("__launch_bounds__({BLOCK})"),
        n => format!("__launch_bounds__({BLOCK}, {n})"),
    }
}

/// The state of the text.
pub(super) struct Writer<'a> {
    pub(super) kernel: &'a LoopKernel,
    pub(super) form: Form,
    /// What of a row a group of threads takes.
    pub(super) cut: Cut,
    pub(super) buffers: Buffers<'a>,
    /// The type of an index.
    pub(super) index: &'static str,
    /// How a thread takes its points of a row.
    pub(super) groups: Groups,
    /// For each load, how many elements of a group one instruction takes.
    pub(super) together: Vec<usize>,
    /// Whether the text is at point `v` of a group whose axes are those of its first point.
    pub(super) in_group: bool,
    /// Whether the text is at column `c` of those that the thread takes abreast.
    pub(super) in_columns: bool,
    /// Whether the block's number is given by the caller.
    part: bool,
    pub(super) varies: Vec<bool>,
    stages: Vec<usize>,
    /// What some store needs.
    pub(super) live: Vec<bool>,
    /// What a row's points share and are divided by: `d{i}` is prepared for that.
    pub(super) divisors: Vec<bool>,
    /// What is kept in registers from the pass (by number) that computes it.
    pub(super) kept: Vec<Option<usize>>,
    /// The pass that stores what is stored at every point.
    pub(super) store_pass: usize,
    /// The loads of groups that are made before, by who takes the text: each as a member of the variable `loaded`, and its value.
    pub(super) ahead: Option<Vec<(String, String)>>,
    /// Buffers whose elements at the point are the variables `x0`, `x1`, …; `None` for one that the kernel does not read.
    pub(super) held: Vec<Option<BufferId>>,
    pub(super) text: String,
    indent: usize,
    /// Arrays of shared memory that a stage uses, at most: one for each of its reductions.
    pub(super) slots: usize,
    /// Whether an earlier stage of the row has used them.
    pub(super) stage_shared: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        kernel: &'a LoopKernel,
        (form, cut): (Form, Cut),
        wide: bool,
        buffers: Buffers<'a>,
    ) -> Writer<'a> {
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
            cut,
            buffers,
            groups: Groups::of(kernel, form, cut, buffers),
            together: vec![],
            in_group: false,
            in_columns: false,
            store_pass: 0,
            index: if wide { "long long" } else { "int" },
            part: false,
            varies: kernel.varies(),
            stages: kernel.stages(),
            live,
            divisors: vec![false; kernel.body.len()],
            kept: vec![None; kernel.body.len()],
            ahead: None,
            held: vec![],
            text: String::new(),
            indent: 0,
            slots: 0,
            stage_shared: false,
        };
        writer.together = (0..kernel.body.len()).map(|i| writer.elements(i)).collect();
        writer.store_pass = writer.choose_store_pass();
        writer.slots = writer.most_reductions();
        writer.choose_divisors();
        writer.choose_kept();
        writer
    }

    /// How many elements of a group a load takes by one instruction.
    fn elements(&self, i: usize) -> usize {
        let Expr::Load { access, bounds, .. } = &self.kernel.body[i].expr else { return 1 };
        let whole = |b| self.tests(b).is_empty() || uniform(self.kernel, self.groups, b);
        match bounds.iter().all(whole) {
            true => together(self.kernel, self.groups, access, self.buffers),
            false => 1,
        }
    }

    /// The last pass; or the one before it, of the last reductions, if that knows all that is stored at every point. Nothing is
    /// loaded after it, so a result may still take an operand's place.
    fn choose_store_pass(&self) -> usize {
        let last = self.last_stage();
        let values = self.stores(true).into_iter().map(|s| self.kernel.stores[s].value.index());
        let known = values.map(|i| self.stages[i]).max().unwrap_or(0);
        if known < last { last - 1 } else { last }
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

    pub(super) fn last_stage(&self) -> usize {
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

    /// The most reductions of a stage whose threads meet in shared memory.
    fn most_reductions(&self) -> usize {
        let of = |pass| self.reductions(pass).len();
        if self.form.shares() { (0..self.last_stage()).map(of).max().unwrap_or(0) } else { 0 }
    }

    /// Whether a store happens at every point of a row.
    fn everywhere(&self, store: usize) -> bool {
        let s = &self.kernel.stores[store];
        let reduced = &s.access.place.coefs[self.kernel.parallel..];
        self.varies[s.value.index()] || reduced.iter().any(|&c| c != 0)
    }

    pub(super) fn stores(&self, everywhere: bool) -> Vec<usize> {
        (0..self.kernel.stores.len()).filter(|&s| self.everywhere(s) == everywhere).collect()
    }

    /// What a pass needs at a point, as far as it varies and no earlier pass has kept it, in order.
    pub(super) fn closure(&self, pass: usize) -> Vec<usize> {
        let mut needed = vec![false; self.kernel.body.len()];
        let operands = |i: usize| self.kernel.body[i].expr.operands();
        self.reductions(pass).into_iter().flat_map(operands).for_each(|o| needed[o.index()] = true);
        if pass == self.store_pass {
            self.stores(true).iter().for_each(|&s| needed[self.kernel.stores[s].value.index()] = true);
        }
        (0..needed.len()).filter(|&i| self.kept[i] == Some(pass)).for_each(|i| needed[i] = true);
        for i in (0..needed.len()).rev() {
            let before = self.kept[i].is_some_and(|p| p < pass);
            needed[i] &= self.varies[i];
            if needed[i] && !before {
                self.kernel.body[i].expr.operands().iter().for_each(|o| needed[o.index()] = true);
            }
        }
        (0..needed.len()).filter(|&i| needed[i]).collect()
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

    /// The variable that has what stands in a buffer at the point, or at the group, if it is held.
    pub(super) fn held(&self, buffer: BufferId) -> Option<String> {
        self.held.iter().position(|held| *held == Some(buffer)).map(|n| format!("x{n}"))
    }

    /// What a kernel without reduced axes, whose last axis is a group of neighbours, does at a group.
    pub(super) fn at_group(&mut self) {
        self.row_values(0);
        self.points(0, |_| {});
    }

    fn rows(&mut self) {
        let (form, rows) = (self.form, self.kernel.rows());
        let (index, step) = (self.index, form.rows_per_block());
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
            Form::Thread | Form::Abreast(_) => {
                self.line(&looped(format!("{block} * {step} + (int)threadIdx.x"), step))
            }
            Form::Warp => {
                self.line(&format!("const int lane = threadIdx.x % {WARP};"));
                self.line(&looped(format!("{block} * {step} + (int)threadIdx.x / {WARP}"), step));
            }
            Form::Block => {
                self.line("const int lane = threadIdx.x;");
                self.line(&looped(block, step));
            }
            Form::Columns { columns, .. } => {
                // Threads beyond the last row work on it too, so that all meet at the barriers, and store nothing.
                self.line(&format!(
                    "const int column = threadIdx.x % {columns}, lane = threadIdx.x / {columns};"
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
            if stage < self.last_stage() {
                self.reduce_pass(stage);
            } else if stage == self.store_pass && !self.stores(true).is_empty() {
                self.points(stage, |_| {});
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

    pub(super) fn value(&mut self, i: usize) {
        if self.is_word(i) {
            self.next_block(i);
        }
        let t = scalar::c_type(self.kernel.body[i].dtype);
        let text = self.expression(i);
        self.line(&format!("const {t} e{i} = {text};"));
        self.prepare(i);
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

    /// Stores of the row's own values, by one of its threads.
    fn row_stores(&mut self) {
        let who = match self.form {
            Form::Thread | Form::Abreast(_) => "",
            Form::Warp | Form::Block => "if (lane == 0) ",
            Form::Columns { .. } => "if (inside && lane == 0) ",
        };
        let opened = self.open_columns(None);
        if opened {
            let reductions: Vec<usize> = (0..=self.last_stage()).flat_map(|p| self.reductions(p)).collect();
            for i in reductions {
                let t = scalar::c_type(self.kernel.body[i].dtype);
                self.line(&format!("const {t} e{i} = p{i}[c];"));
            }
        }
        for s in self.stores(false) {
            self.store(s, who);
        }
        self.close_columns(opened);
    }

    pub(super) fn store(&mut self, store: usize, condition: &str) {
        let access = &self.kernel.stores[store].access;
        let (place, value) = (self.affine(&access.place), self.stored(store));
        let text = format!("{condition}{}[{place}] = {value};", access.buffer);
        self.line(&text);
    }

    /// What a store writes.
    pub(super) fn stored(&self, store: usize) -> String {
        let value = self.kernel.stores[store].value;
        scalar::to_storage(self.kernel.body[value.index()].dtype, &format!("e{}", value.0))
    }
}
