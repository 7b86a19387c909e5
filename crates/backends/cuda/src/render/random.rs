//! Random bits for neighbouring points. A block of Philox is four words, those of four elements from a multiple of 4 on: where a
//! group's points are such elements, each block is computed once.

use super::emit::Writer;
use super::points::Groups;
use onestep_passes::schedule::{Affine, Expr, ExprId, LoopKernel};

/// Words of a block.
const WORDS: usize = 4;

/// Whether each of the group's whole fours of points has one block.
pub(super) fn shares_block(k: &LoopKernel, groups: Groups, i: usize) -> bool {
    let Expr::RandomBits { key, counter, index, .. } = &k.body[i].expr else { return false };
    let Expr::Index(index) = &k.body[index.index()].expr else { return false };
    groups.neighbours
        && groups.width.is_multiple_of(WORDS)
        && begins_blocks(k, index)
        && [key[0], key[1], *counter].iter().all(|e| is_uniform(k, *e))
}

/// Whether an index goes up by one from point to point, and is a multiple of a block's words at the first one.
fn begins_blocks(k: &LoopKernel, index: &Affine) -> bool {
    let multiple = |c: i64| c.unsigned_abs().is_multiple_of(WORDS as u64);
    let Some((&step, outer)) = index.coefs.split_last() else { return false };
    step == 1 && multiple(index.offset) && outer.iter().zip(&k.extents).all(|(&c, &n)| n == 1 || multiple(c))
}

/// Whether a value is the same at all points of a group.
fn is_uniform(k: &LoopKernel, e: ExprId) -> bool {
    let still = |a: &Affine| a.coefs.last().is_none_or(|step| *step == 0);
    match &k.body[e.index()].expr {
        Expr::Load { access, bounds, .. } => still(&access.place) && bounds.iter().all(|b| still(&b.index)),
        Expr::Index(a) => still(a),
        other => other.operands().iter().all(|e| is_uniform(k, *e)),
    }
}

impl Writer<'_> {
    /// Whether a value is a word of a block that its neighbours share.
    pub(super) fn is_word(&self, i: usize) -> bool {
        self.in_group && shares_block(self.kernel, self.groups, i)
    }

    /// The blocks that the points of a group share, `q{i}`.
    pub(super) fn declare_blocks(&mut self, pass: usize) {
        for i in self.closure(pass) {
            let kept = self.kept[i].is_some_and(|p| p < pass);
            if !kept && shares_block(self.kernel, self.groups, i) {
                self.line(&format!("uint4 q{i};"));
            }
        }
    }

    /// The block of the next points, at the first of them.
    pub(super) fn next_block(&mut self, i: usize) {
        let Expr::RandomBits { key: [k0, k1], counter, index, stream } = self.kernel.body[i].expr else {
            return;
        };
        let [k0, k1, counter, index] = [k0, k1, counter, index].map(|e| e.0);
        let block = format!("philox_block(e{k0}, e{k1}, e{counter}, e{index}, 0x{stream:016x}ull)");
        self.line(&format!("if (v % {WORDS} == 0) q{i} = {block};"));
    }
}

/// The word of a point of the group.
pub(super) fn word(i: usize) -> String {
    format!("philox_word(q{i}, v % {WORDS})")
}
