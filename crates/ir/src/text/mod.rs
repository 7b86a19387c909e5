//! The text form of a graph: what is printed, a parser reads back to the same graph, bit for bit.
//!
//! ```text
//! graph "mlp" {
//!   dim B <= 512
//!   input "x" %0: f32[B, 784]
//!   state "w" %1: f32[784, 10] parameter init=uniform(-0.03, 0.03)
//!   %2 = matmul %0, %1 {transpose_a=false, transpose_b=false, dtype=f32} : f32[B, 10]
//!   %3 = call %2 {name=double} : f32[B, 10] region(%4: f32[B, 10]) {
//!     %5 = add %4, %4 : f32[B, 10]
//!     yield %5
//!   }
//!   output "y" %3
//!   update "w" %1 guarded
//! }
//! ```
//!
//! * Values are numbered in the order in which the text defines them, so that equal graphs print equally. A text may
//!   name them with any word: `%loss`.
//! * The types after a node's `:` may be left out; where they stand, they must be what is inferred.
//! * Reals are the shortest decimals that read back to the same bits; `nan(0x7fc01234)` keeps a NaN's bits. A small
//!   array lists its elements, `f32[2](0.5, -0.0)`, or repeats one, `f32[8](splat 0.5)`; a large one is a string of
//!   hexadecimal bytes, little-endian.
//! * A name that is not a plain word stands in double quotes.
//! * `//` and `;` begin a comment.
//!
//! `lex.rs` splits a text into tokens, `literal.rs` prints and reads numbers and arrays, `atoms.rs` reads
//! types and attributes, and `print.rs` and `parse.rs` do the rest.

mod atoms;
mod lex;
mod literal;
mod parse;
mod print;

/// Whether a node may begin with this word as the op's name.
pub(crate) fn is_op_name(name: &str) -> bool {
    lex::is_plain(name) && !parse::KEYWORDS.contains(&name) && !["yield", "graph", "region"].contains(&name)
}
