//! The text of a reduction pass: each thread's partial results, then the tree that [`group`](super::group) describes.

use super::emit::Writer;
use super::group::{BLOCK, COLUMNS, Form, Tree, WARP};
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
            Form::Columns { lanes } => self.column_partials(pass, reductions, lanes / WARP),
            _ => self.partials(pass, reductions),
        }
        match self.form {
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
            Form::Columns { .. } => {
                self.share(reductions);
                self.column_tree(reductions);
            }
        }
        for (i, _, _, dtype) in reductions {
            let value = scalar::rounded(*dtype, format!("p{i}"));
            self.line(&format!("const {} e{i} = {value};", scalar::c_type(*dtype)));
        }
    }

    fn fold(&mut self, (i, kind, _, dtype): &Reduction, term: &str) {
        let partial = format!("p{i}");
        let text = scalar::combine(*kind, *dtype, &partial, term);
        self.line(&format!("{partial} = {text};"));
    }

    /// One partial result in each thread.
    fn partials(&mut self, pass: usize, reductions: &[Reduction]) {
        for (i, kind, _, dtype) in reductions {
            let start = scalar::identity(*kind, *dtype);
            self.line(&format!("{} p{i} = {start};", scalar::c_type(*dtype)));
        }
        self.points(pass, |writer| {
            reductions.iter().for_each(|r| writer.fold(r, &format!("e{}", r.2.0)));
        });
    }

    /// `each` partial results in a thread, of lanes equal modulo 32, made one in order.
    fn column_partials(&mut self, pass: usize, reductions: &[Reduction], each: usize) {
        let (n, index) = (self.kernel.row_len(), self.index);
        let width = Tree::of(n).width;
        let groups = n / width;
        for (i, kind, _, dtype) in reductions {
            let (t, start) = (scalar::c_type(*dtype), scalar::identity(*kind, *dtype));
            self.line(&format!("{t} a{i}[{each}];"));
            self.line("#pragma unroll");
            self.line(&format!("for (int k = 0; k < {each}; ++k) a{i}[k] = {start};"));
        }
        self.line(&format!("for ({index} start = lane; start < {groups}; start += {}) {{", each * WARP));
        self.line("#pragma unroll");
        self.line(&format!("for (int k = 0; k < {each}; ++k) {{"));
        self.line(&format!("if (start + k * {WARP} < {groups}) {{"));
        self.line("#pragma unroll");
        self.line(&format!("for (int v = 0; v < {width}; ++v) {{"));
        self.line(&format!("const {index} r = (start + k * {WARP}) * {width} + v;"));
        self.axes(self.kernel.parallel..self.kernel.extents.len(), "r");
        self.point_values(pass);
        for (i, kind, operand, dtype) in reductions {
            let partial = format!("a{i}[k]");
            let text = scalar::combine(*kind, *dtype, &partial, &format!("e{}", operand.0));
            self.line(&format!("{partial} = {text};"));
        }
        (0..4).for_each(|_| self.close());
        for r @ (i, _, _, dtype) in reductions {
            self.line(&format!("{} p{i} = a{i}[0];", scalar::c_type(*dtype)));
            if each > 1 {
                self.line("#pragma unroll");
                self.line(&format!("for (int k = 1; k < {each}; ++k) {{"));
                self.fold(r, &format!("a{i}[k]"));
                self.close();
            }
        }
    }

    /// The tree by halves between the 32 threads of a column, in shared memory.
    fn column_tree(&mut self, reductions: &[Reduction]) {
        self.line("#pragma unroll");
        self.line(&format!("for (int offset = {}; offset > 0; offset /= 2) {{", WARP / 2));
        self.line("if (lane < offset) {");
        for r in reductions {
            self.fold(r, &format!("s{}[threadIdx.x + offset * {COLUMNS}]", r.0));
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
