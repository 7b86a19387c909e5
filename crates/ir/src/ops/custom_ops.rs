//! The ops of the user's own that a text may name: what the parser knows besides the table.

use super::custom::check_name;
use super::{Custom, CustomOp};
use crate::op::OpRule;
use crate::{AttrReader, GraphError, Mistake, Op};
use std::collections::BTreeMap;

/// Ops by name, for [`crate::Graph::parse_with`].
#[derive(Clone, Debug, Default)]
pub struct CustomOps {
    ops: BTreeMap<&'static str, Custom>,
}

impl CustomOps {
    /// None.
    pub fn new() -> CustomOps {
        CustomOps::default()
    }

    /// One more op, in place of one with its name: any op of its type, since its attributes are read from the text.
    pub fn with(mut self, op: impl CustomOp) -> CustomOps {
        self.ops.insert(op.name(), Custom::new(op));
        self
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.ops.keys().copied()
    }

    /// The op with this name, and these attributes; `None` where there is none.
    pub(crate) fn read(&self, name: &str, attrs: &mut AttrReader) -> Option<Result<Op, Mistake>> {
        let op = self.ops.get(name)?;
        Some(op.op().read(attrs).and_then(|read| {
            if read.name() == name {
                return Ok(Op::Custom(read));
            }
            let what = format!("'{name}' reads its attributes as an op '{}'", read.name());
            Err(Mistake::new(what, "read() gives an op of its own type"))
        }))
    }

    /// Refuses names that cannot be read.
    pub(crate) fn check(&self) -> Result<(), GraphError> {
        let faults: Vec<String> =
            self.names().filter_map(|n| Some(check_name(n).err()?.to_string())).collect();
        if faults.is_empty() { Ok(()) } else { Err(GraphError::Invalid(faults)) }
    }
}
