//! `call`: a named part of the graph, kept together as a nested region. The operands become the region's parameters,
//! and the region's results are the op's.
//!
//! It computes nothing of its own: lowering sees the graph after [`crate::inline_calls`]. A call may be a **checkpoint**:
//! then its gradient computes the region again instead of keeping what the region computed (Chen, Xu, Zhang and Guestrin,
//! "Training deep nets with sublinear memory cost", 2016).

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, RegionEval, RegionType, Sample};
use crate::{Dense, GraphBuilder, Mistake, Tensor, Type};

/// A call of its one region.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// What the part is called, such as the path of a layer.
    pub name: String,
    /// Whether the gradient computes the region again.
    pub checkpoint: bool,
}

impl Call {
    /// A call that is no checkpoint.
    pub fn new(name: &str) -> Call {
        Call { name: name.to_string(), checkpoint: false }
    }

    /// A call whose gradient computes its region again.
    pub fn checkpoint(name: &str) -> Call {
        Call { name: name.to_string(), checkpoint: true }
    }
}

fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

impl OpRule for Call {
    fn name(&self) -> &'static str {
        "call"
    }
    fn attrs(&self) -> Attrs {
        let mut attrs = vec![("name", Attr::Word(self.name.clone()))];
        if self.checkpoint {
            attrs.push(("checkpoint", Attr::Bool(true)));
        }
        attrs
    }
    fn infer(&self, _: &[Type]) -> Result<Vec<Type>, Mistake> {
        Err(Mistake::new("takes one region, got none", "build it with GraphBuilder::call"))
    }
    fn infer_regions(&self, operands: &[Type], regions: &[RegionType]) -> Result<Vec<Type>, Mistake> {
        let [region] = regions else {
            return Err(Mistake::new(
                format!("takes one region, got {}", regions.len()),
                "give it that many",
            ));
        };
        if region.params != operands {
            return Err(Mistake::new(
                format!(
                    "the operands are ({}) but the region takes ({})",
                    list(operands),
                    list(&region.params)
                ),
                "pass what the region takes",
            ));
        }
        Ok(region.results.clone())
    }
    fn region_count(&self) -> usize {
        1
    }
    fn reference(&self, _: &[&Dense], _: &[Type]) -> Result<Vec<Dense>, Mistake> {
        Err(Mistake::new("has no value without its region", "evaluate it with reference_regions"))
    }
    fn reference_regions(
        &self,
        inputs: &[&Dense],
        _: &[Type],
        eval: &mut RegionEval<'_>,
    ) -> Result<Vec<Dense>, Mistake> {
        eval(0, inputs.iter().map(|&x| x.clone()).collect())
    }
}

impl OpTable for Call {
    const NAMES: &'static [&'static str] = &["call"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(Call { name: attrs.word("name")?, checkpoint: attrs.bool_or("checkpoint", false)? })
    }
    /// None: a sample has no region. `inline.rs` tests the op.
    fn samples() -> Vec<Sample> {
        vec![]
    }
}

impl GraphBuilder {
    /// A part of the graph as one node: `body` gets handles that stand for the operands, and may use nothing else from
    /// outside.
    #[track_caller]
    pub fn call<'g>(
        &'g self,
        name: &str,
        operands: &[Tensor<'g>],
        body: impl FnOnce(&[Tensor<'g>]) -> Vec<Tensor<'g>>,
    ) -> Vec<Tensor<'g>> {
        match operands.iter().map(|t| t.ty()).collect::<Option<Vec<Type>>>() {
            Some(types) => self.emit_with_region(Call::new(name), operands, &types, body),
            None => vec![self.poison()],
        }
    }
}
