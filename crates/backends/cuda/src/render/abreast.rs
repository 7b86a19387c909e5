//! Neighbouring columns that a thread reduces abreast, so that it reads several elements of a row with one instruction. Each has a
//! partial result of its own, to which nothing but its own elements are added: the bits are those of a thread for each.

use super::Buffers;
use super::emit::Writer;
use super::group::{BLOCK, MANY_BLOCKS};
use super::scalar;
use onestep_passes::schedule::{Access, Affine, Expr, LoopKernel, Store};

/// How many columns are taken abreast: as many as leave blocks enough, of a kernel whose loads are neighbours along the last
/// parallel axis and that stores its reductions alone.
pub fn columns(k: &LoopKernel, buffers: Buffers<'_>) -> usize {
    let Some(last) = k.parallel.checked_sub(1) else { return 1 };
    let varies = k.varies();
    let plain = k.body.iter().zip(&varies).all(|(e, varies)| match &e.expr {
        // What the points of a row share is computed once for all of a thread's columns.
        Expr::Load { access, bounds, .. } => {
            bounds.iter().all(|b| b.index.coefs[last] == 0) && (*varies || access.place.coefs[last] == 0)
        }
        Expr::Index(a) => *varies || a.coefs[last] == 0,
        _ => true,
    });
    let reduction = |s: &Store| matches!(k.body[s.value.index()].expr, Expr::Reduce(..));
    if !plain || !k.stores.iter().all(reduction) {
        return 1;
    }
    let loads = k.body.iter().filter_map(|e| match &e.expr {
        Expr::Load { access, .. } if access.place.coefs[last] != 0 => Some(access),
        _ => None,
    });
    let loads: Vec<&Access> = loads.collect();
    let fits = |w: &usize| {
        k.extents[last].is_multiple_of(*w)
            && k.rows() / w >= BLOCK * MANY_BLOCKS
            && loads.iter().all(|a| together(k, last, a, *w, buffers) == *w)
    };
    [4, 2].into_iter().find(fits).unwrap_or(1)
}

/// The elements of `w` neighbouring columns that one instruction takes.
fn together(k: &LoopKernel, axis: usize, access: &Access, w: usize, buffers: Buffers<'_>) -> usize {
    let multiple = |c: i64| c.unsigned_abs().is_multiple_of(w as u64);
    let outer = access.place.coefs.iter().zip(&k.extents).enumerate().filter(|(d, _)| *d != axis);
    let aligned = multiple(access.place.offset)
        && outer.into_iter().all(|(_, (&c, &n))| n == 1 || multiple(c))
        && (buffers.aligned)(access.buffer).is_multiple_of(w * (buffers.dtype)(access.buffer).size());
    if aligned && access.place.coefs[axis] == 1 { w } else { 1 }
}

/// The kernel whose last parallel axis counts groups of `w` columns.
pub fn arranged(mut k: LoopKernel, w: usize) -> LoopKernel {
    let last = k.parallel - 1;
    k.extents[last] /= w;
    k.for_each_affine(|a| a.coefs[last] = a.coefs[last].saturating_mul(w as i64));
    k
}

impl Writer<'_> {
    /// Opens the loop over a thread's columns, after the elements that `pass` needs of them; `false` where it has one.
    pub(super) fn open_columns(&mut self, pass: Option<usize>) -> bool {
        let Some(w) = self.form.abreast() else { return false };
        for i in pass.map(|p| self.closure(p)).unwrap_or_default() {
            let e = &self.kernel.body[i];
            let Expr::Load { access, bounds, fill } = &e.expr else { continue };
            if !self.of_columns(access) {
                continue;
            }
            let t = scalar::storage(e.dtype);
            let all = format!("load_group<{w}, {w}>({} + {})", access.buffer, self.affine(&access.place));
            let tests: Vec<String> = bounds.iter().flat_map(|b| self.tests(b)).collect();
            let value = match tests.is_empty() {
                true => all,
                false => {
                    let fill = scalar::stored_literal(e.dtype, *fill);
                    format!("{} ? {all} : group_of<{w}, {t}>({fill})", tests.join(" && "))
                }
            };
            self.line(&format!("const Group<{t}, {w}> c{i} = {value};"));
        }
        self.line("#pragma unroll");
        self.line(&format!("for (int c = 0; c < {w}; ++c) {{"));
        self.in_columns = true;
        true
    }

    pub(super) fn close_columns(&mut self, opened: bool) {
        if opened {
            self.in_columns = false;
            self.close();
        }
    }

    /// Whether an access is to another element in each of a thread's columns.
    pub(super) fn of_columns(&self, access: &Access) -> bool {
        self.form.abreast().is_some() && access.place.coefs[self.kernel.parallel - 1] != 0
    }

    /// How far the thread's column `c` is from its first one, along an index.
    pub(super) fn beside(&self, a: &Affine) -> String {
        match (self.form.abreast(), a.coefs.get(self.kernel.parallel.wrapping_sub(1))) {
            (Some(w), Some(&step)) if self.in_columns && step != 0 => match step / w as i64 {
                1 => " + c".into(),
                step if step < 0 => format!(" - {} * c", step.unsigned_abs()),
                step => format!(" + {step} * c"),
            },
            _ => String::new(),
        }
    }
}
