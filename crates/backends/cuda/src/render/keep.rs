//! What a thread has at hand for all its points: values that it keeps in registers from one pass over a row to the next, and
//! divisors that it prepares once.

use super::emit::Writer;
use super::group::{BLOCK, Form};
use onestep_ir::DType;
use onestep_ir::ops::BinaryKind;
use onestep_passes::schedule::{Expr, ExprId};
use std::collections::BTreeSet;

/// The most values of a row that a thread keeps in registers from one pass to the next.
const MOST_KEPT: usize = 72;
/// Registers of a processor, and those of a thread beside what it keeps.
const REGISTERS: usize = 65_536;
const WORKING: usize = 48;
/// Blocks of a processor for which a thread's registers are limited, at most: beyond, large bodies would not fit theirs.
const MOST_RESIDENT: usize = 4;
/// Points of a thread for which the inverse of what they are divided by is worth its preparation.
const WORTH_AN_INVERSE: usize = 8;

impl Writer<'_> {
    /// Prepares what enough points of a thread are divided by.
    pub(super) fn choose_divisors(&mut self) {
        if self.groups.points() < WORTH_AN_INVERSE {
            return;
        }
        for i in (0..self.kernel.body.len()).filter(|&i| self.live[i]) {
            if let Some((_, by)) = self.division(i) {
                self.divisors[by.index()] = true;
            }
        }
    }

    /// The operands of a division of a point's value by one of the row.
    pub(super) fn division(&self, i: usize) -> Option<(ExprId, ExprId)> {
        let e = &self.kernel.body[i];
        let single = e.dtype.is_float() && e.dtype != DType::F64;
        match e.expr {
            Expr::Binary(BinaryKind::Div, a, by) if single && self.varies[i] && !self.varies[by.index()] => {
                Some((a, by))
            }
            _ => None,
        }
    }

    /// Prepares value `i` as a divisor, if it is one.
    pub(super) fn prepare(&mut self, i: usize) {
        if self.divisors[i] {
            self.line(&format!("const Divisor d{i} = divisor(e{i});"));
        }
    }

    /// Keeps from one pass to the next, while registers last, the values that save most loads and costly functions; and loads
    /// from memory for a later pass with what the first one loads, so that no pass waits for memory again.
    pub(super) fn choose_kept(&mut self) {
        let (each, last) = (self.groups.points(), self.last_stage());
        if last == 0 || matches!(self.form, Form::Columns { .. }) || each == 0 {
            return;
        }
        let mut room = MOST_KEPT / each;
        while room > 0
            && let Some((i, pass)) = self.most_saving()
        {
            self.kept[i] = Some(pass);
            room -= 1;
        }
        let late: BTreeSet<usize> = (1..=last).flat_map(|pass| self.closure(pass)).collect();
        let streams = |i: &usize| match &self.kernel.body[*i].expr {
            Expr::Load { access, .. } => access.place.coefs[..self.kernel.parallel].iter().any(|&c| c != 0),
            _ => false,
        };
        let late = late.into_iter().filter(|&i| self.kept[i].is_none()).filter(streams).take(room);
        late.collect::<Vec<_>>().into_iter().for_each(|i| self.kept[i] = Some(0));
    }

    /// Blocks that a processor is to hold where threads keep values or load several groups at a time: so many that each thread
    /// has registers for those and for its work. Left alone, the compiler takes more for the one and fewer for the other, and
    /// less is under way. 0 where there is neither.
    pub(super) fn resident(&self) -> usize {
        let words = |i: usize| self.kernel.body[i].dtype.size().div_ceil(4);
        let kept: usize = (0..self.kept.len()).filter(|&i| self.kept[i].is_some()).map(words).sum();
        let loaded = (0..=self.last_stage()).map(|pass| self.words_under_way(pass)).max().unwrap_or(0);
        match loaded.max(kept * self.groups.points()) {
            0 => 0,
            held => (REGISTERS / BLOCK / (held + WORKING)).clamp(1, MOST_RESIDENT),
        }
    }

    /// The value that a pass computes and that saves most in the later ones, and that pass; of equal ones the last, which has
    /// most arithmetic behind it.
    fn most_saving(&mut self) -> Option<(usize, usize)> {
        let costs = |w: &Self, pass| w.closure(pass).into_iter().map(|i| w.cost(i)).sum::<usize>();
        let mut best = (0, None);
        for pass in 0..self.last_stage() {
            let later = pass + 1..=self.last_stage();
            let before: usize = later.clone().map(|p| costs(self, p)).sum();
            for i in self.closure(pass).into_iter().filter(|&i| self.kept[i].is_none()).collect::<Vec<_>>() {
                self.kept[i] = Some(pass);
                let saved = before - later.clone().map(|p| costs(self, p)).sum::<usize>();
                self.kept[i] = None;
                if saved > best.0 || saved == best.0 && saved > 0 && best.1 < Some((i, pass)) {
                    best = (saved, Some((i, pass)));
                }
            }
        }
        best.1
    }

    /// What it takes to have a value again, in a pass that needs it.
    fn cost(&self, i: usize) -> usize {
        match &self.kernel.body[i].expr {
            _ if self.kept[i].is_some() => 0,
            Expr::Load { .. } | Expr::RandomBits { .. } => 1,
            Expr::Unary(kind, _) => usize::from(kind.is_costly()),
            _ => 0,
        }
    }
}
