//! The options of attention that are a choice between named ones.

use crate::Mistake;

/// The order of the axes of queries, keys, values and output. It is declared, never guessed from sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttentionLayout {
    /// `[batch, heads, sequence, head size]`
    Bhtd,
    /// `[batch, sequence, heads, head size]`
    Bthd,
}

impl AttentionLayout {
    /// The keyword of the text form.
    pub fn name(self) -> &'static str {
        match self {
            AttentionLayout::Bhtd => "bhtd",
            AttentionLayout::Bthd => "bthd",
        }
    }

    /// The layout of this keyword.
    pub(super) fn parse(word: &str) -> Result<AttentionLayout, Mistake> {
        let found = [AttentionLayout::Bhtd, AttentionLayout::Bthd].into_iter().find(|l| l.name() == word);
        found.ok_or_else(|| Mistake::new(format!("there is no layout '{word}'"), "write bhtd or bthd"))
    }

    /// Four things in this layout's order from those in the order batch, heads, sequence, head size; and back.
    pub fn arrange<T>(self, [b, h, t, d]: [T; 4]) -> [T; 4] {
        match self {
            AttentionLayout::Bhtd => [b, h, t, d],
            AttentionLayout::Bthd => [b, t, h, d],
        }
    }
}

/// Where the queries stand among the keys, for `causal` and `window`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AttentionAlign {
    /// Query `i` stands at key `i`.
    #[default]
    TopLeft,
    /// The last query stands at the last key, which is that of the length where lengths are given.
    BottomRight,
}

impl AttentionAlign {
    /// The keyword of the text form.
    pub fn name(self) -> &'static str {
        match self {
            AttentionAlign::TopLeft => "top_left",
            AttentionAlign::BottomRight => "bottom_right",
        }
    }

    /// The alignment of this keyword.
    pub(super) fn parse(word: &str) -> Result<AttentionAlign, Mistake> {
        let all = [AttentionAlign::TopLeft, AttentionAlign::BottomRight];
        let found = all.into_iter().find(|a| a.name() == word);
        found.ok_or_else(|| {
            Mistake::new(format!("there is no alignment '{word}'"), "write top_left or bottom_right")
        })
    }
}
