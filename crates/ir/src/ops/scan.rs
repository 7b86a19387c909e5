//! `scan`: its one region, a number of times over. What the iterations hand on are the **carries**; of each **sequence**
//! an iteration sees one slice along the first axis; the **constants** it sees whole.
//!
//! The region is compiled once, however long the scan is: it is the op for recurrent networks, for deep stacks of equal
//! layers, and for any loop whose length is known when the dimensions are bound.

use crate::attrs::{Attr, AttrReader, Attrs, int};
use crate::op::{OpRule, OpTable, RegionEval, RegionType, Sample};
use crate::{Data, Dense, Dim, Mistake, Shape, Type};

/// Runs its region `length` times.
///
/// Operands: the carries' first values, the sequences (each `[length, ..]`), the constants. The region takes the carries,
/// one slice of each sequence (without the first axis) and the constants, and gives the carries' next values, of the same
/// types, then the **outputs**. Results: the carries' last values, then each output of all iterations, `[length, ..]`.
/// A scan of length 0 gives its carries' first values and empty outputs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scan {
    /// How many of the operands, at the front, are carries.
    pub carries: usize,
    /// How many of the operands after these are sequences.
    pub sequences: usize,
    /// The number of iterations.
    pub length: Dim,
    /// Whether the iterations go from the last slice to the first. The output of an iteration stands where its slice does.
    pub reverse: bool,
}

fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

impl Scan {
    /// The types of the region's parameters.
    pub fn params(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let least = self.carries.saturating_add(self.sequences);
        if operands.len() < least {
            let what = format!("has {least} carries and sequences, got {} operand(s)", operands.len());
            return Err(Mistake::new(what, "give it that many"));
        }
        let slice = |i: usize, ty: &Type| match ty.shape.0.split_first() {
            Some((first, rest)) if *first == self.length => Ok(Type::new(ty.dtype, Shape(rest.to_vec()))),
            _ => Err(Mistake::new(
                format!("sequence {i} is {ty}, whose first axis is not the length {}", self.length),
                "give sequences of one length, with the axis that is walked along at the front",
            )),
        };
        let is_sequence = |i: usize| (self.carries..least).contains(&i);
        let one = |(i, ty): (usize, &Type)| {
            if is_sequence(i) { slice(i - self.carries, ty) } else { Ok(ty.clone()) }
        };
        operands.iter().enumerate().map(one).collect()
    }

    /// The type of an output of all iterations.
    pub fn stacked(&self, ty: &Type) -> Type {
        Type::new(ty.dtype, Shape([vec![self.length.clone()], ty.shape.0.clone()].concat()))
    }

    /// The slices' numbers in the order in which iterations take them, of a bound scan.
    pub fn order(length: usize, reverse: bool) -> impl Iterator<Item = usize> {
        (0..length).map(move |i| if reverse { length - 1 - i } else { i })
    }
}

impl OpRule for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }
    fn attrs(&self) -> Attrs {
        vec![
            ("carries", int(self.carries)),
            ("sequences", int(self.sequences)),
            ("length", Attr::Dims(vec![self.length.clone()])),
            ("reverse", Attr::Bool(self.reverse)),
        ]
    }
    fn infer(&self, _: &[Type]) -> Result<Vec<Type>, Mistake> {
        Err(Mistake::new("takes one region, got none", "build it with GraphBuilder::scan"))
    }
    fn infer_regions(&self, operands: &[Type], regions: &[RegionType]) -> Result<Vec<Type>, Mistake> {
        let [region] = regions else {
            let what = format!("takes one region, got {}", regions.len());
            return Err(Mistake::new(what, "give it that many"));
        };
        let params = self.params(operands)?;
        if region.params != params {
            let (want, got) = (list(&params), list(&region.params));
            let what = format!("the region should take ({want}) but takes ({got})");
            return Err(Mistake::new(what, "take the carries, a slice of each sequence, and the constants"));
        }
        if region.results.len() < self.carries {
            let what = format!("has {} carries, but its region gives {}", self.carries, region.results.len());
            return Err(Mistake::new(what, "give the next value of each carry"));
        }
        if region.results.is_empty() {
            return Err(Mistake::new("gives nothing", "give it a carry or an output"));
        }
        let (next, outputs) = region.results.split_at(self.carries);
        for (i, (first, next)) in params.iter().zip(next).enumerate() {
            if first != next {
                let what = format!("carry {i} is {first} at first, but its next value is {next}");
                return Err(Mistake::new(what, "cast, reshape or broadcast one, so that the type stays"));
            }
        }
        Ok(next.iter().cloned().chain(outputs.iter().map(|ty| self.stacked(ty))).collect())
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
        results: &[Type],
        eval: &mut RegionEval<'_>,
    ) -> Result<Vec<Dense>, Mistake> {
        let length = self.length.size().ok_or_else(|| {
            Mistake::new(format!("its length {} is not a number", self.length), "bind the variable first")
        })?;
        let (first, rest) = inputs.split_at(self.carries);
        let (sequences, constants) = rest.split_at(self.sequences);
        let mut carries: Vec<Dense> = first.iter().map(|&d| d.clone()).collect();
        let stacks = results[self.carries..].iter().map(|ty| Dense::full(ty.dtype, &ty.sizes(), 0.0));
        let mut stacks: Vec<Dense> = stacks.collect();
        for at in Scan::order(length, self.reverse) {
            let slices = sequences.iter().map(|s| slice(s, at));
            let args = carries.into_iter().chain(slices).chain(constants.iter().map(|&d| d.clone()));
            carries = eval(0, args.collect())?;
            for (stack, part) in stacks.iter_mut().zip(carries.split_off(self.carries)) {
                let places: Vec<usize> = (at * part.len()..(at + 1) * part.len()).collect();
                stack.place(&places, &part);
            }
        }
        carries.append(&mut stacks);
        Ok(carries)
    }
}

/// Slice `at` along the first axis.
fn slice(d: &Dense, at: usize) -> Dense {
    let shape = d.shape[1..].to_vec();
    let n: usize = shape.iter().product();
    let data = match &d.data {
        Data::Reals(v) => Data::Reals(v[at * n..][..n].to_vec()),
        Data::Ints(v) => Data::Ints(v[at * n..][..n].to_vec()),
    };
    Dense { dtype: d.dtype, shape, data }
}

impl OpTable for Scan {
    const NAMES: &'static [&'static str] = &["scan"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        let (carries, sequences) = (attrs.size("carries")?, attrs.size("sequences")?);
        let [length] = <[Dim; 1]>::try_from(attrs.dims("length")?)
            .map_err(|_| Mistake::new("attribute 'length' has the wrong form", "write length=[n]"))?;
        Ok(Scan { carries, sequences, length, reverse: attrs.bool("reverse")? })
    }
    /// None: a sample has no region. `tests/scan.rs` tests the op, here and in the crates that follow.
    fn samples() -> Vec<Sample> {
        vec![]
    }
}
