//! The loop over a thread's points of a row, and what happens at each: loads, values, folds or stores.
//!
//! A thread takes a group of `width` neighbouring points at a time. Where an operand's elements of a group are neighbours in
//! memory, aligned to their size together, they are read or written together, up to 16 bytes by one instruction. All loads of
//! a group stand before its stores.

use super::Buffers;
use super::emit::Writer;
use super::group::{Cut, Form, Tree};
use super::scalar;
use onestep_passes::schedule::{Access, Affine, Bound, Expr, LoopKernel};

/// Bytes that one instruction reads or writes, at most.
const MOST_BYTES: usize = 16;
/// Groups whose loads are under way at a time, where a thread takes as many and stores nothing between.
const UNROLLED: usize = 8;

/// How a thread takes the points of a row.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    /// Neighbouring points of a group.
    pub width: usize,
    /// Groups of a row, or of a piece of one.
    pub count: usize,
    /// Threads, or lanes that have one each, that take the groups in turn.
    pub lanes: usize,
    /// Groups of a thread, at most.
    pub each: usize,
    /// Whether the points of a group differ along the last axis alone.
    pub neighbours: bool,
}

impl Groups {
    pub fn of(k: &LoopKernel, form: Form, cut: Cut) -> Groups {
        let span = cut.span(k.row_len());
        let width = form.width(span);
        let count = span / width;
        let lanes = match cut {
            Cut::Lanes => Tree::of(span).lanes,
            Cut::Whole | Cut::Ranges(_) => form.threads_per_row(),
        };
        let along = k.extents.last().is_some_and(|n| n.is_multiple_of(width));
        Groups {
            width,
            count,
            lanes,
            each: count.div_ceil(lanes),
            neighbours: width > 1 && along && k.extents.len() > k.parallel,
        }
    }

    /// Points of a thread.
    pub fn points(self) -> usize {
        self.each * self.width
    }
}

/// The elements of a group that one instruction takes: 1, or neighbours in memory from a place that is a multiple of them.
pub(super) fn together(k: &LoopKernel, groups: Groups, access: &Access, buffers: Buffers<'_>) -> usize {
    let place = &access.place;
    let Some((&step, outer)) = place.coefs.split_last() else { return 1 };
    if !groups.neighbours || step != 1 {
        return 1;
    }
    let size = (buffers.dtype)(access.buffer).size();
    let aligned = |w: usize| {
        let multiple = |c: i64| c.unsigned_abs().is_multiple_of(w as u64);
        (buffers.aligned)(access.buffer).is_multiple_of(w * size)
            && multiple(place.offset)
            && outer.iter().zip(&k.extents).all(|(&c, &n)| n == 1 || multiple(c))
    };
    let mut w = groups.width.min(MOST_BYTES / size);
    while w > 1 && !aligned(w) {
        w /= 2;
    }
    w
}

/// Whether a bound holds for all points of a group or for none.
pub(super) fn uniform(k: &LoopKernel, groups: Groups, b: &Bound) -> bool {
    let Some((&step, outer)) = b.index.coefs.split_last() else { return true };
    let multiple = |c: i64| c.unsigned_abs().is_multiple_of(groups.width as u64);
    let outer = outer.iter().zip(&k.extents).all(|(&c, &n)| n == 1 || multiple(c));
    step == 0 || b.step == 1 && step == 1 && outer && multiple(b.index.offset) && multiple(b.size)
}

impl Writer<'_> {
    /// The loop over the thread's points in pass `pass`; `fold` follows the values of a point.
    pub(super) fn points(&mut self, pass: usize, fold: impl Fn(&mut Self)) {
        let stores = if pass == self.store_pass { self.stores(true) } else { vec![] };
        let groups = self.groups;
        let opened = self.open_groups(pass, !stores.is_empty());
        let axes = self.kernel.parallel..self.kernel.extents.len();
        if groups.width == 1 || groups.neighbours {
            self.axes(axes.clone(), "r");
        }
        if groups.neighbours {
            self.load_groups(pass);
            self.declare_results(&stores);
        }
        let mut inside = 0;
        if groups.width > 1 {
            self.line("#pragma unroll");
            self.line(&format!("for (int v = 0; v < {}; ++v) {{", groups.width));
            inside += 1;
            if !groups.neighbours {
                inside += self.open_if_in_row("r + v");
                self.axes(axes, "(r + v)");
            }
        }
        self.in_group = groups.neighbours;
        self.point_values(pass);
        fold(self);
        for &s in &stores {
            self.store_point(s);
        }
        self.in_group = false;
        (0..inside).for_each(|_| self.close());
        if groups.neighbours {
            self.store_groups(&stores);
        }
        (0..opened).for_each(|_| self.close());
    }

    /// Opens the loop over the thread's groups, of which `r` is the first point; the number of scopes to close.
    fn open_groups(&mut self, pass: usize, stores: bool) -> usize {
        let (groups, threads, index) = (self.groups, self.groups.lanes, self.index);
        for i in 0..self.kept.len() {
            if self.kept[i] != Some(pass) {
                continue;
            }
            let t = scalar::c_type(self.kernel.body[i].dtype);
            self.line(&format!("{t} k{i}[{}];", groups.points()));
        }
        let taken = self.closure(pass).iter().any(|&i| self.kept[i].is_some());
        let lane = match self.cut {
            Cut::Lanes => "i0",
            _ if threads == 1 => "0",
            _ => "lane",
        };
        let begin = self.begin();
        let whole = groups.count.is_multiple_of(threads);
        let first = |g: &str| match groups.width {
            1 => g.into(),
            w => format!("({g}) * {w}"),
        };
        if groups.each == 1 && whole {
            self.line("{");
            let r = if lane == "0" { "0".into() } else { first(lane) };
            self.line(&format!("const {index} g = 0, r = {begin}{r};"));
            return 1 + self.open_if_in_row("r");
        }
        if taken {
            // Unrolled, so that what is kept is in registers.
            self.line("#pragma unroll");
        } else if groups.each >= UNROLLED && !stores {
            self.line(&format!("#pragma unroll {UNROLLED}"));
        }
        self.line(&format!("for ({index} g = 0; g < {}; ++g) {{", groups.each));
        self.line(&format!("const {index} r = {begin}{};", first(&format!("{lane} + g * {threads}"))));
        if whole {
            return 1 + self.open_if_in_row("r");
        }
        let inside = match self.cut {
            Cut::Ranges(_) => format!("{lane} + g * {threads} < {}", groups.count),
            Cut::Whole | Cut::Lanes => format!("r < {}", self.kernel.row_len()),
        };
        self.line(&format!("if ({inside}) {{"));
        2 + self.open_if_in_row("r")
    }

    /// Where a piece of a row begins, to be added to.
    pub(super) fn begin(&self) -> String {
        match self.cut {
            Cut::Ranges(length) => format!("i0 * {length} + "),
            Cut::Whole | Cut::Lanes => String::new(),
        }
    }

    /// Opens what is done if a point lies in the row, which may end before its last piece does; the number of scopes to close.
    pub(super) fn open_if_in_row(&mut self, point: &str) -> usize {
        let n = self.kernel.row_len();
        let short = matches!(self.cut, Cut::Ranges(length) if !n.is_multiple_of(length));
        if short {
            self.line(&format!("if ({point} < {n}) {{"));
        }
        usize::from(short)
    }

    /// The elements that each load of a pass takes together, `l{i}`.
    fn load_groups(&mut self, pass: usize) {
        let width = self.groups.width;
        for i in self.closure(pass) {
            let e = &self.kernel.body[i];
            let Expr::Load { access, bounds, fill } = &e.expr else { continue };
            let (t, together) = (scalar::storage(e.dtype), self.together[i]);
            if together == 1 || self.kept[i].is_some_and(|p| p < pass) {
                continue;
            }
            if self.held == Some(access.buffer) {
                self.line(&format!("const Group<{t}, {width}> l{i} = x;"));
                continue;
            }
            let at = self.affine(&access.place);
            let all = format!("load_group<{width}, {together}>({} + {at})", access.buffer);
            let tests: Vec<String> = bounds.iter().flat_map(|b| self.tests(b)).collect();
            let value = match tests.is_empty() {
                true => all,
                false => {
                    let fill = scalar::stored_literal(e.dtype, *fill);
                    format!("{} ? {all} : group_of<{width}, {t}>({fill})", tests.join(" && "))
                }
            };
            let value = match &mut self.ahead {
                None => value,
                Some(loads) => {
                    loads.push((format!("Group<{t}, {width}> l{i}"), value));
                    format!("loaded.l{i}")
                }
            };
            self.line(&format!("const Group<{t}, {width}> l{i} = {value};"));
        }
    }

    fn declare_results(&mut self, stores: &[usize]) {
        for &s in stores {
            let t = scalar::storage(self.kernel.body[self.kernel.stores[s].value.index()].dtype);
            self.line(&format!("Group<{t}, {}> w{s};", self.groups.width));
        }
    }

    pub(super) fn store_point(&mut self, s: usize) {
        if !self.in_group {
            let inside = if matches!(self.form, Form::Columns { .. }) { "if (inside) " } else { "" };
            return self.store(s, inside);
        }
        let value = self.stored(s);
        self.line(&format!("w{s}.at[v] = {value};"));
    }

    fn store_groups(&mut self, stores: &[usize]) {
        for &s in stores {
            let access = &self.kernel.stores[s].access;
            let at = self.affine(&access.place);
            match access.place.coefs.last() {
                Some(1) => {
                    let together = together(self.kernel, self.groups, access, self.buffers);
                    self.line(&format!("store_group<{together}>({} + {at}, w{s});", access.buffer));
                }
                step => {
                    let step = step.copied().unwrap_or(0);
                    let text = format!("{}[{at} + {step} * v] = w{s}.at[v];", access.buffer);
                    self.line("#pragma unroll");
                    self.line(&format!("for (int v = 0; v < {}; ++v) {text}", self.groups.width));
                }
            }
        }
    }

    /// The values that a pass needs at a point, computed or taken from where they were kept.
    pub(super) fn point_values(&mut self, pass: usize) {
        let at = match self.groups.width {
            1 => "g".into(),
            width => format!("g * {width} + v"),
        };
        for i in self.closure(pass) {
            match self.kept[i] {
                Some(p) if p < pass => {
                    let t = scalar::c_type(self.kernel.body[i].dtype);
                    self.line(&format!("const {t} e{i} = k{i}[{at}];"));
                }
                Some(p) if p == pass => {
                    self.value(i);
                    self.line(&format!("k{i}[{at}] = e{i};"));
                }
                _ => self.value(i),
            }
        }
    }

    /// How far point `v` of a group is from the first one, along an index.
    pub(super) fn beyond(&self, a: &Affine) -> String {
        match a.coefs.last() {
            Some(&step) if self.in_group && step != 0 => match step {
                1 => " + v".into(),
                step if step < 0 => format!(" - {} * v", step.unsigned_abs()),
                step => format!(" + {step} * v"),
            },
            _ => String::new(),
        }
    }
}
