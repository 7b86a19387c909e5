//! `random_bits`: 32 random bits per element, from a key and a counter that are operands (see [`crate::random`]).

use crate::attrs::{Attr, AttrReader, Attrs};
use crate::op::{OpRule, OpTable, Range, Sample, arity};
use crate::{DType, Dense, Dim, Mistake, Shape, Type, random};

/// Operands `key` (`u32[2]`) and `counter` (`u32[]`). Element `i`, counted row-major, is
/// `random::draw(key, stream, counter, i)`: the same on every device.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RandomBits {
    /// The result's shape: at most 2^34 elements.
    pub dims: Vec<Dim>,
    /// Tells this op's numbers from those of others with the same key and counter. The text form shows its bits as a
    /// signed integer.
    pub stream: u64,
}

impl OpRule for RandomBits {
    fn name(&self) -> &'static str {
        "random_bits"
    }
    fn attrs(&self) -> Attrs {
        vec![("dims", Attr::Dims(self.dims.clone())), ("stream", Attr::Int(self.stream as i64))]
    }
    fn infer(&self, operands: &[Type]) -> Result<Vec<Type>, Mistake> {
        let [key, counter] = arity(operands)?;
        if *key != Type::new(DType::U32, Shape::fixed(&[2])) {
            return Err(Mistake::new(
                format!("the key is {key}"),
                "give the u32[2] state of the random numbers' key",
            ));
        }
        if *counter != Type::new(DType::U32, Shape::scalar()) {
            return Err(Mistake::new(format!("the counter is {counter}"), "give a u32 scalar"));
        }
        let shape = Shape(self.dims.clone());
        let small = |n: Dim| n.size().is_none_or(|n| n as u64 <= 1 << 34);
        if !shape.count().is_some_and(small) {
            return Err(Mistake::new(
                format!("{shape} has more than 2^34 elements"),
                "draw a smaller tensor",
            ));
        }
        Ok(vec![Type::new(DType::U32, shape)])
    }
    fn reference(&self, inputs: &[&Dense], results: &[Type]) -> Result<Vec<Dense>, Mistake> {
        let (key, counter) = (inputs[0].ints(), inputs[1].ints()[0] as u32);
        let key = [key[0] as u32, key[1] as u32];
        let draw = |i: usize| random::draw(key, self.stream, counter, i as u64) as i64;
        let out = (0..results[0].numel()).map(draw).collect();
        Ok(vec![Dense::from_ints(DType::U32, &results[0].sizes(), out)])
    }
}

impl OpTable for RandomBits {
    const NAMES: &'static [&'static str] = &["random_bits"];
    fn parse(_: &str, attrs: &mut AttrReader) -> Result<Self, Mistake> {
        Ok(RandomBits { dims: attrs.dims("dims")?, stream: attrs.int("stream")? as u64 })
    }
    fn samples() -> Vec<Sample> {
        let word = Range::Int(0, 1 << 32);
        let bits = |sizes: &[usize], stream| RandomBits { dims: Shape::fixed(sizes).0, stream };
        [bits(&[2, 5], 7), bits(&[], u64::MAX - 3), bits(&[0, 3], 1)]
            .into_iter()
            .map(|op| Sample::reals(op, &[]).and(DType::U32, &[2], word).and(DType::U32, &[], word))
            .collect()
    }
}
