//! The table from PyTorch's operators to graphs of ours. An entry names one operator or several that mean the same, and
//! builds from the arguments of a call, with PyTorch's defaults, through the same handles that users have.
//!
//! To add an operator, write an entry in its family's file, run the suite, and write `docs/torch-operators.md` anew with
//! the example `torch_table`. An entry may refuse a call with a reason: the sample is then left out and counted under it.

mod activations;
mod attention;
mod binary;
mod call;
mod constants;
mod convolutions;
mod counting;
mod fourier;
mod gaps;
mod helpers;
mod indexing;
mod interpolate;
mod layout;
mod linear;
mod losses;
mod masked;
mod matmul;
mod norms;
mod order;
mod pads;
mod prefix;
mod reductions;
mod sampling;
mod scatters;
mod shape;
mod unary;

pub use call::{Built, Call, Trouble};
pub use gaps::{NO_ENTRY, RANDOM, why_not};

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Builds the graph of one call.
pub type Build = for<'a, 'g> fn(&Call<'a, 'g>) -> Built<'g>;

/// Operators that share a meaning, separated by spaces, and what builds them. A name without a variant stands for all
/// variants that have no entry of their own.
pub type Entry = (&'static str, Build);

fn table() -> &'static BTreeMap<&'static str, Build> {
    static TABLE: OnceLock<BTreeMap<&'static str, Build>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let families = [
            activations::TABLE,
            attention::TABLE,
            binary::TABLE,
            constants::TABLE,
            convolutions::TABLE,
            counting::TABLE,
            fourier::TABLE,
            indexing::TABLE,
            interpolate::TABLE,
            layout::TABLE,
            linear::TABLE,
            losses::TABLE,
            masked::TABLE,
            matmul::TABLE,
            norms::TABLE,
            order::TABLE,
            pads::TABLE,
            prefix::TABLE,
            reductions::TABLE,
            sampling::TABLE,
            scatters::TABLE,
            shape::TABLE,
            unary::TABLE,
        ];
        let mut table = BTreeMap::new();
        for (names, build) in families.into_iter().flatten() {
            for name in names.split_whitespace() {
                assert!(table.insert(name, *build).is_none(), "{name} has two entries");
            }
        }
        table
    })
}

/// What builds the operator of this key, `name` or `name/variant`.
pub fn find(key: &str) -> Option<Build> {
    let name = key.split('/').next().unwrap_or(key);
    table().get(key).or_else(|| table().get(name)).copied()
}

/// Every name in the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    table().keys().copied()
}
