//! What can be wrong with a graph, an array or a text: typed, and each with its remedy.

use crate::{DType, Type};
use std::fmt;
use std::panic::Location;
use thiserror::Error;

/// Where in the user's program a call was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loc(pub &'static Location<'static>);

impl Loc {
    /// The caller of the `#[track_caller]` function that calls this.
    #[track_caller]
    pub fn caller() -> Loc {
        Loc(Location::caller())
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0.file(), self.0.line(), self.0.column())
    }
}

/// What an op's own rule says of wrong operands or attributes: the fault and the remedy, without the context that
/// the builder, the parser or the verifier adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub help: String,
}

impl Mistake {
    /// A mistake from its two parts.
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> Mistake {
        Mistake { what: what.into(), help: help.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.help)
    }
}

/// One mistake made while building a graph.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{op}({operands}) at {loc}: {mistake}", operands = list(.operands))]
pub struct BuildError {
    /// The op, input, state or call that is wrong.
    pub op: String,
    /// The types of its operands.
    pub operands: Vec<Type>,
    /// The fault and the remedy.
    pub mistake: Mistake,
    /// The line that made the call.
    pub loc: Loc,
}

fn list(types: &[Type]) -> String {
    types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
}

/// A graph that cannot be built, read, verified or evaluated.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum GraphError {
    /// Every mistake made while building, in the order of the calls.
    #[error("the graph has {} mistake(s):\n{}", .0.len(), .0.iter().map(|e| format!("  {e}")).collect::<Vec<_>>().join("\n"))]
    Build(Vec<BuildError>),
    /// The text form could not be read.
    #[error("line {line}, column {column}: {message}")]
    Parse {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected or is wrong.
        message: String,
    },
    /// The verifier's findings, one line each.
    #[error("the graph is not valid:\n  {}", .0.join("\n  "))]
    Invalid(Vec<String>),
    /// An input that the caller did not give.
    #[error("input '{name}' of {ty} was not given{}", suggest(.nearest))]
    MissingInput {
        /// Its name.
        name: String,
        /// Its type.
        ty: Box<Type>,
        /// The nearest name that was given.
        nearest: Option<String>,
    },
    /// A state tensor that the caller did not give.
    #[error("state '{name}' of {ty} is missing; initialise, load or bind it first")]
    MissingState {
        /// Its path.
        name: String,
        /// Its type.
        ty: Box<Type>,
    },
    /// A fed array with the wrong type.
    #[error("'{name}' is {want} in the graph but {got_dtype}{got_shape:?} was given")]
    Feed {
        /// Name of the input or state.
        name: String,
        /// The type that the graph declares.
        want: Box<Type>,
        /// The given dtype.
        got_dtype: DType,
        /// The given shape.
        got_shape: Vec<usize>,
    },
    /// The shape given for an input does not fit the declared one.
    #[error("input '{name}' is {want} in the graph but has shape {got:?}: {message}")]
    InputShape {
        /// Name of the input.
        name: String,
        /// The type that the graph declares.
        want: Box<Type>,
        /// The given shape.
        got: Vec<usize>,
        /// What does not fit.
        message: String,
    },
    /// An op refused its operands' values, such as an index out of range.
    #[error("{op} at {loc}: {mistake}")]
    Eval {
        /// The op.
        op: String,
        /// The line that built it.
        loc: String,
        /// The fault and the remedy.
        mistake: Mistake,
    },
    /// Dimension variables that have no size yet, or a size above their bound.
    #[error("dimension '{name}': {message}")]
    Dim {
        /// The variable.
        name: String,
        /// What is wrong.
        message: String,
    },
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!("; did you mean it by '{n}'?")).unwrap_or_default()
}

/// A host array that does not fit its description.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ArrayError {
    /// The number of elements (or bytes) does not fit the shape.
    #[error("shape {shape:?} needs {want} elements (or bytes), got {got}")]
    Length {
        /// The shape asked for.
        shape: Vec<usize>,
        /// What it needs.
        want: usize,
        /// What was given.
        got: usize,
    },
    /// Another dtype was asked for than the array has.
    #[error("the array holds {got}, not {want}; convert it explicitly")]
    DType {
        /// Asked for.
        want: DType,
        /// Held.
        got: DType,
    },
    /// The size overflows.
    #[error("shape {shape:?} has more elements than there is memory for")]
    TooLarge {
        /// The shape asked for.
        shape: Vec<usize>,
    },
}

/// The candidate nearest to `name` by edit distance, if any is near enough to be a slip.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    candidates
        .into_iter()
        .map(|c| (edit_distance(name, c), c))
        .filter(|(d, c)| *d <= 1 + c.len().max(name.len()) / 3)
        .min()
        .map(|(_, c)| c.to_string())
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = diagonal + (ca != *cb) as usize;
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names() {
        assert_eq!(nearest("imput", ["input", "label"]), Some("input".into()));
        assert_eq!(nearest("zzzzzz", ["input", "label"]), None);
    }
}
