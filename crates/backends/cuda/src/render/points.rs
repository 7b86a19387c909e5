//! The loop over a thread's points of a row, and what happens at each: loads, values, folds or stores.
//!
//! A thread takes a group of `width` neighbouring points at a time. Where an operand's elements of a group are neighbours in
//! memory, aligned to their size together, they are read or written together, up to 16 bytes by one instruction. All loads of
//! a group stand before its stores.

use super::Buffers;
use super::emit::Writer;
use super::group::{self, Cut, Form, Tree};
use super::scalar;
use onestep_passes::schedule::{Access, Affine, Bound, Expr, LoopKernel};

/// Bytes that one instruction reads or writes, at most.
const MOST_BYTES: usize = 16;
/// Groups whose loads are under way at a time, where a thread takes as many and stores nothing between.
const UNROLLED: usize = 8;
/// Bytes of a row that a thread had better have under way at a time.
const UNDER_WAY: usize = 64;

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
    pub fn of(k: &LoopKernel, form: Form, cut: Cut, buffers: Buffers<'_>) -> Groups {
        let span = cut.span(k.row_len());
        let reduces = k.body.iter().any(|e| matches!(e.expr, Expr::Reduce(..)));
        let width = match form {
            Form::Block if !reduces => group::neighbours(k, buffers),
            _ => form.width(span),
        };
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
        self.declare_kept(pass);
        let done = self.chunks(pass, &stores, &fold);
        if done == self.groups.each {
            return;
        }
        let opened = self.open_groups(pass, done, !stores.is_empty());
        if self.groups.width == 1 || self.groups.neighbours {
            self.axes(self.kernel.parallel..self.kernel.extents.len(), "r");
        }
        if self.groups.neighbours {
            self.load_groups(pass, |i, group| format!("const {group} l{i}"));
        }
        self.group(pass, &stores, &fold);
        (0..opened).for_each(|_| self.close());
    }

    /// What happens at each point of a group whose loads are done.
    fn group(&mut self, pass: usize, stores: &[usize], fold: &impl Fn(&mut Self)) {
        let groups = self.groups;
        if groups.neighbours {
            self.declare_blocks(pass);
            self.declare_results(stores);
        }
        let mut inside = 0;
        if groups.width > 1 {
            self.line("#pragma unroll");
            self.line(&format!("for (int v = 0; v < {}; ++v) {{", groups.width));
            inside += 1;
            if !groups.neighbours {
                inside += self.open_if_in_row("r + v");
                self.axes(self.kernel.parallel..self.kernel.extents.len(), "(r + v)");
            }
        }
        self.in_group = groups.neighbours;
        let opened = self.open_columns(Some(pass));
        self.point_values(pass);
        fold(self);
        self.close_columns(opened);
        for &s in stores {
            self.store_point(s);
        }
        self.in_group = false;
        (0..inside).for_each(|_| self.close());
        if groups.neighbours {
            self.store_groups(stores);
        }
    }

    /// What is kept of the thread's points from this pass on.
    fn declare_kept(&mut self, pass: usize) {
        for i in (0..self.kept.len()).filter(|&i| self.kept[i] == Some(pass)).collect::<Vec<_>>() {
            let t = scalar::c_type(self.kernel.body[i].dtype);
            self.line(&format!("{t} k{i}[{}];", self.groups.points()));
        }
    }

    /// Whether a pass takes or leaves what is kept in registers, for which its loop is unrolled.
    fn is_kept(&self, pass: usize) -> bool {
        self.closure(pass).iter().any(|&i| self.kept[i].is_some())
    }

    /// The turns in which every lane has a group, as many at a time as keep enough bytes under way: all of them are loaded, then
    /// all are worked on. How many turns these are; a pass in which one group is enough has none.
    fn chunks(&mut self, pass: usize, stores: &[usize], fold: &impl Fn(&mut Self)) -> usize {
        let (groups, index) = (self.groups, self.index);
        let at_once = self.at_once(pass);
        if at_once < 2 {
            return 0;
        }
        let turns = groups.count / groups.lanes;
        let axes = self.kernel.parallel..self.kernel.extents.len();
        self.line("#pragma unroll 1");
        self.line(&format!("for ({index} c = 0; c < {}; ++c) {{", turns / at_once));
        for i in self.grouped(pass) {
            let t = scalar::storage(self.kernel.body[i].dtype);
            self.line(&format!("Group<{t}, {}> m{i}[{at_once}];", groups.width));
        }
        let each = |writer: &mut Self, what: &mut dyn FnMut(&mut Self)| {
            writer.line("#pragma unroll");
            writer.line(&format!("for (int u = 0; u < {at_once}; ++u) {{"));
            let group = format!("{} + (c * {at_once} + u) * {}", writer.lane(), groups.lanes);
            let r = format!("const {index} r = {}({group}) * {};", writer.begin(), groups.width);
            writer.line(&r);
            writer.axes(axes.clone(), "r");
            what(writer);
            writer.close();
        };
        each(self, &mut |w| w.load_groups(pass, |i, _| format!("m{i}[u]")));
        each(self, &mut |w| {
            for i in w.grouped(pass) {
                let t = scalar::storage(w.kernel.body[i].dtype);
                w.line(&format!("const Group<{t}, {}> l{i} = m{i}[u];", groups.width));
            }
            w.group(pass, stores, fold);
        });
        self.close();
        turns / at_once * at_once
    }

    /// How many groups a thread loads at a time in a pass: 0 or 1 where that is not worth a loop.
    fn at_once(&self, pass: usize) -> usize {
        let short = matches!(self.cut, Cut::Ranges(length) if !self.kernel.row_len().is_multiple_of(length));
        if self.is_kept(pass) || short {
            return 0;
        }
        let enough = UNDER_WAY.checked_div(self.streamed(pass)).unwrap_or(0);
        enough.min(self.groups.count / self.groups.lanes)
    }

    /// Registers that what a thread loads at a time takes.
    pub(super) fn words_under_way(&self, pass: usize) -> usize {
        match self.at_once(pass) {
            // Two of 16 bits in one.
            _ if self.form.abreast().is_some() => UNROLLED * self.groups.width / 2,
            0 | 1 => 0,
            n => (n * self.streamed(pass)).div_ceil(4),
        }
    }

    /// Bytes of a group that a pass loads and that other rows do not share.
    fn streamed(&self, pass: usize) -> usize {
        let streams = |access: &Access| access.place.coefs[..self.kernel.parallel].iter().any(|&c| c != 0);
        let bytes = |i: usize| match &self.kernel.body[i].expr {
            Expr::Load { access, .. } if streams(access) => {
                self.groups.width * (self.buffers.dtype)(access.buffer).size()
            }
            _ => 0,
        };
        self.grouped(pass).into_iter().map(bytes).sum()
    }

    /// The loads of a pass that take several elements together.
    fn grouped(&self, pass: usize) -> Vec<usize> {
        let loaded = |i: &usize| self.together[*i] > 1 && self.kept[*i].is_none_or(|p| p >= pass);
        let is_load = |i: &usize| matches!(self.kernel.body[*i].expr, Expr::Load { .. });
        self.closure(pass).into_iter().filter(is_load).filter(loaded).collect()
    }

    /// The number of the thread among those that take a row's groups in turn.
    fn lane(&self) -> &'static str {
        match self.cut {
            Cut::Lanes => "i0",
            _ if self.groups.lanes == 1 => "0",
            _ => "lane",
        }
    }

    /// Opens the loop over the thread's groups from turn `start` on, of which `r` is the first point; the number of scopes to
    /// close.
    fn open_groups(&mut self, pass: usize, start: usize, stores: bool) -> usize {
        let (groups, threads, index) = (self.groups, self.groups.lanes, self.index);
        let lane = self.lane();
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
        if self.is_kept(pass) {
            // Unrolled, so that what is kept is in registers.
            self.line("#pragma unroll");
        } else if groups.each - start >= UNROLLED && !stores {
            let turns = UNROLLED / self.form.abreast().unwrap_or(1);
            self.line(&format!("#pragma unroll {turns}"));
        }
        self.line(&format!("for ({index} g = {start}; g < {}; ++g) {{", groups.each));
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

    /// The elements that each load of a pass takes together, assigned to what `to` says of the load and of their type.
    fn load_groups(&mut self, pass: usize, to: impl Fn(usize, &str) -> String) {
        let width = self.groups.width;
        for i in self.grouped(pass) {
            let e = &self.kernel.body[i];
            let Expr::Load { access, bounds, fill } = &e.expr else { continue };
            let (t, together) = (scalar::storage(e.dtype), self.together[i]);
            let target = to(i, &format!("Group<{t}, {width}>"));
            if let Some(held) = self.held(access.buffer) {
                self.line(&format!("{target} = {held};"));
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
            self.line(&format!("{target} = {value};"));
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
