//! The text of a reduction pass: each thread's partial results, then the tree that [`group`](super::group) describes.

use super::emit::Writer;
use super::group::{BLOCK, Form, Tree, WARP};
use super::scalar;
use onestep_ir::DType;
use onestep_ir::ops::ReduceKind;
use onestep_passes::schedule::ExprId;

/// A reduction: its place in the body, kind, operand and dtype.
type Reduction = (usize, ReduceKind, ExprId, DType);

impl Writer<'_> {
    /// The values of `reductions`, in every thread of the row, as row values `e{i}`.
    pub(super) fn reduce(&mut self, pass: usize, reductions: &[Reduction]) {
        match self.form {
            Form::Columns { lanes, .. } => self.column_partials(pass, reductions, lanes / WARP),
            _ => self.partials(pass, reductions),
        }
        match self.form {
            // The partial results of the columns are their results.
            Form::Abreast(_) => return,
            Form::Thread => {}
            Form::Warp => reductions.iter().for_each(|r| self.halves(r, WARP / 2)),
            Form::Block => {
                self.share(reductions);
                // Lanes equal modulo 32, in order. Every warp does the same and so knows the result.
                for r in reductions {
                    let part = |w: &str| format!("s{}[{w}lane % {WARP}]", r.0);
                    self.line(&format!("p{} = {};", r.0, part("")));
                    self.line(&format!("for (int w = 1; w < {}; ++w) {{", BLOCK / WARP));
                    self.fold(r, &part(&format!("w * {WARP} + ")));
                    self.close();
                }
                reductions.iter().for_each(|r| self.halves(r, WARP / 2));
            }
            Form::Columns { columns, .. } => {
                if self.form.shares() {
                    self.share(reductions);
                    self.column_tree(reductions, columns);
                }
            }
        }
        for (i, _, _, dtype) in reductions {
            let value = scalar::rounded(*dtype, format!("p{i}"));
            self.line(&format!("const {} e{i} = {value};", scalar::c_type(*dtype)));
            self.prepare(*i);
        }
    }

    /// Takes a term into the thread's partial result.
    fn fold(&mut self, r: &Reduction, term: &str) {
        let partial = if self.in_columns { format!("p{}[c]", r.0) } else { format!("p{}", r.0) };
        self.combine(r, &partial, term);
    }

    /// Takes a term into a partial result.
    fn combine(&mut self, (_, kind, _, dtype): &Reduction, partial: &str, term: &str) {
        let text = scalar::combine(*kind, *dtype, partial, term);
        self.line(&format!("{partial} = {text};"));
    }

    /// One partial result in each thread.
    fn partials(&mut self, pass: usize, reductions: &[Reduction]) {
        for (i, kind, _, dtype) in reductions {
            let (t, start) = (scalar::c_type(*dtype), scalar::identity(*kind, *dtype));
            match self.form.abreast() {
                None => self.line(&format!("{t} p{i} = {start};")),
                Some(w) => {
                    self.line(&format!("{t} p{i}[{w}];"));
                    self.line("#pragma unroll");
                    self.line(&format!("for (int c = 0; c < {w}; ++c) p{i}[c] = {start};"));
                }
            }
        }
        self.points(pass, |writer| {
            reductions.iter().for_each(|r| writer.fold(r, &format!("e{}", r.2.0)));
        });
    }

    /// A thread's part of a column: of its threads, `threads` in all, one takes the lanes equal to its own number modulo 32, to
    /// that and `threads`, to that and twice `threads` …: each time `each` lanes, made one in order. Then those are made one by
    /// halves.
    fn column_partials(&mut self, pass: usize, reductions: &[Reduction], each: usize) {
        let threads = self.form.threads_per_row().min(WARP);
        let turns = WARP / threads;
        for (i, _, _, dtype) in reductions {
            self.line(&format!("{} t{i}[{turns}];", scalar::c_type(*dtype)));
        }
        // Many copies of the points of many lanes would be a long text.
        self.line(if each == 1 { "#pragma unroll" } else { "#pragma unroll 1" });
        self.line(&format!("for (int q = 0; q < {turns}; ++q) {{"));
        self.lanes_partials(pass, reductions, each, &format!("lane + q * {threads}"));
        for (i, ..) in reductions {
            self.line(&format!("t{i}[q] = a{i}[0];"));
        }
        self.close();
        // Each offset by itself, so that all are in registers.
        for offset in (0..turns.ilog2()).rev().map(|n| 1 << n) {
            self.line("#pragma unroll");
            self.line(&format!("for (int q = 0; q < {offset}; ++q) {{"));
            for r in reductions {
                self.combine(r, &format!("t{}[q]", r.0), &format!("t{}[q + {offset}]", r.0));
            }
            self.close();
        }
        for (i, _, _, dtype) in reductions {
            self.line(&format!("{} p{i} = t{i}[0];", scalar::c_type(*dtype)));
        }
    }

    /// The partial results `a{i}[0]` of `each` lanes equal to `lane` modulo 32.
    fn lanes_partials(&mut self, pass: usize, reductions: &[Reduction], each: usize, lane: &str) {
        let index = self.index;
        let span = self.cut.span(self.kernel.row_len());
        let width = Tree::of(span).width;
        let groups = span / width;
        for (i, kind, _, dtype) in reductions {
            let (t, start) = (scalar::c_type(*dtype), scalar::identity(*kind, *dtype));
            self.line(&format!("{t} a{i}[{each}];"));
            self.line("#pragma unroll");
            self.line(&format!("for (int k = 0; k < {each}; ++k) a{i}[k] = {start};"));
        }
        let stride = each * WARP;
        self.line(&format!("for ({index} start = {lane}; start < {groups}; start += {stride}) {{"));
        self.line("#pragma unroll");
        self.line(&format!("for (int k = 0; k < {each}; ++k) {{"));
        let mut opened = 3;
        if !groups.is_multiple_of(stride) {
            self.line(&format!("if (start + k * {WARP} < {groups}) {{"));
            opened += 1;
        }
        self.line("#pragma unroll");
        self.line(&format!("for (int v = 0; v < {width}; ++v) {{"));
        let begin = self.begin();
        self.line(&format!("const {index} r = {begin}(start + k * {WARP}) * {width} + v;"));
        opened += self.open_if_in_row("r");
        self.axes(self.kernel.parallel..self.kernel.extents.len(), "r");
        self.point_values(pass);
        if pass == self.store_pass {
            self.stores(true).into_iter().for_each(|s| self.store_point(s));
        }
        for r in reductions {
            self.combine(r, &format!("a{}[k]", r.0), &format!("e{}", r.2.0));
        }
        (0..opened).for_each(|_| self.close());
        if each > 1 {
            self.line("#pragma unroll");
            self.line(&format!("for (int k = 1; k < {each}; ++k) {{"));
            reductions.iter().for_each(|r| self.combine(r, &format!("a{}[0]", r.0), &format!("a{}[k]", r.0)));
            self.close();
        }
    }

    /// The tree by halves between the threads of a column, in shared memory.
    fn column_tree(&mut self, reductions: &[Reduction], columns: usize) {
        self.line("#pragma unroll");
        self.line(&format!(
            "for (int offset = {}; offset > 0; offset /= 2) {{",
            self.form.threads_per_row() / 2
        ));
        self.line("if (lane < offset) {");
        for r in reductions {
            self.fold(r, &format!("s{}[threadIdx.x + offset * {columns}]", r.0));
            self.line(&format!("s{0}[threadIdx.x] = p{0};", r.0));
        }
        self.close();
        self.line("__syncthreads();");
        self.close();
        for (i, ..) in reductions {
            self.line(&format!("p{i} = s{i}[column];"));
        }
    }

    /// Writes the partial results to shared memory, an array for each reduction, and waits for all.
    fn share(&mut self, reductions: &[Reduction]) {
        let reused = self.stage_shared;
        if reused {
            // All must have read the last stage's partial results.
            self.line("__syncthreads();");
        }
        self.stage_shared = true;
        for (slot, (i, _, _, dtype)) in reductions.iter().enumerate() {
            let (t, at) = (scalar::c_type(*dtype), slot * BLOCK);
            self.line(&format!("{t}* const s{i} = ({t}*)(shared + {at});"));
            self.line(&format!("s{i}[threadIdx.x] = p{i};"));
        }
        self.line("__syncthreads();");
    }

    /// The tree by halves within a warp; lane 0's result goes to all.
    fn halves(&mut self, r: &Reduction, from: usize) {
        let (i, dtype) = (r.0, r.3);
        let shuffle = |f: &str, by: &str| match dtype {
            DType::I8 | DType::U8 | DType::Bool => {
                format!("({}){f}(0xffffffffu, (int)p{i}, {by})", scalar::c_type(dtype))
            }
            _ => format!("{f}(0xffffffffu, p{i}, {by})"),
        };
        self.line("#pragma unroll");
        self.line(&format!("for (int offset = {from}; offset > 0; offset /= 2) {{"));
        // Named first, so that every lane takes part whatever the function does with it.
        let other = shuffle("__shfl_down_sync", "offset");
        self.line(&format!("const {} other = {other};", scalar::c_type(dtype)));
        self.fold(r, "other");
        self.close();
        let first = shuffle("__shfl_sync", "0");
        self.line(&format!("p{i} = {first};"));
    }
}
