//! Onestep's graph: a pure SSA graph of typed ops plus named state.
//!
//! This crate holds everything that is true on every device: dtypes, shapes, the ops with their shape rules,
//! references and decompositions, the builder, the text form, the verifier, and the interpreter that defines what a
//! graph computes.

pub mod attrs;
pub mod interp;
pub mod op;
pub mod ops;
pub mod random;
pub mod rewrite;
pub mod shape;
pub mod testing;

mod array;
mod bind;
mod builder;
mod dead;
mod dtype;
mod error;
mod fp8;
mod graph;
mod init;
mod inline;
mod outline;
mod tensor;
mod text;
mod verify;

pub use array::{Array, Element};
pub use attrs::{Attr, AttrReader, Attrs, Real};
pub use bind::bind;
pub use builder::{GraphBuilder, ScanOptions, Scanned};
pub use dtype::DType;
pub use error::{ArrayError, BuildError, GraphError, Loc, Mistake, nearest};
pub use fp8::Fp8;
pub use graph::{Def, Graph, Node, NodeId, Port, Region, Role, StatePort, Update, Value, ValueId};
pub use init::Init;
pub use inline::inline_calls;
pub use interp::{Data, Dense};
pub use op::OpRule;
pub use ops::Op;
pub use outline::outline;
pub use shape::{Dim, DimSpec, DimVar, IntoShape, Shape, Type, dim, row_major};
pub use tensor::{
    AttentionOptions, Complex, ConvOptions, CrossEntropyOptions, CtcOptions, CtcReduction, Divisor,
    FourierNorm, GridSample, Interpolation, Lu, Meeting, Outside, QuantileKind, Resize, Rhs, RotaryOptions,
    RotaryPairing, RotaryScaling, Tensor, concat, stack,
};
