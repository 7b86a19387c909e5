//! The header of a `safetensors` file: reading it without trust, and composing one.

use super::{FormatError, Metadata};
use ::safetensors::tensor::{Dtype, Metadata as Places, TensorInfo};
use onestep_ir::{Array, DType};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;

/// The longest header that the format allows.
pub(super) const LARGEST: u64 = 100_000_000;
/// The header's entry that is no tensor.
const METADATA: &str = "__metadata__";

/// A dtype in the format, and its spelling there.
fn format_dtype(dtype: DType) -> (Dtype, &'static str) {
    match dtype {
        DType::F64 => (Dtype::F64, "F64"),
        DType::F32 => (Dtype::F32, "F32"),
        DType::F16 => (Dtype::F16, "F16"),
        DType::BF16 => (Dtype::BF16, "BF16"),
        DType::F8E4M3 => (Dtype::F8_E4M3, "F8_E4M3"),
        DType::F8E5M2 => (Dtype::F8_E5M2, "F8_E5M2"),
        DType::I64 => (Dtype::I64, "I64"),
        DType::I32 => (Dtype::I32, "I32"),
        DType::U32 => (Dtype::U32, "U32"),
        DType::I8 => (Dtype::I8, "I8"),
        DType::U8 => (Dtype::U8, "U8"),
        DType::Bool => (Dtype::BOOL, "BOOL"),
    }
}

/// The dtypes that can be read, for messages.
pub(super) fn supported() -> String {
    DType::ALL.map(|dtype| format_dtype(dtype).1).join(", ")
}

/// A header that has been checked.
pub(super) struct Header {
    /// The tensors in the order of their places, which follow one another without a gap.
    pub entries: Vec<Entry>,
    pub metadata: Metadata,
}

/// A tensor as its header describes it.
pub(super) struct Entry {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub bytes: usize,
}

/// A tensor as the JSON gives it.
#[derive(Deserialize)]
struct Claim {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The JSON as it stands, with names that occur twice.
struct Claims {
    tensors: Vec<(String, Claim)>,
    metadata: Metadata,
}

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ClaimsVisitor)
    }
}

struct ClaimsVisitor;

impl<'de> Visitor<'de> for ClaimsVisitor {
    type Value = Claims;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with an entry for each tensor")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Claims, A::Error> {
        let mut claims = Claims { tensors: vec![], metadata: Metadata::new() };
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                let metadata = map.next_value::<Option<Metadata>>();
                claims.metadata =
                    metadata.map_err(|e| A::Error::custom(format!("metadata: {e}")))?.unwrap_or_default();
                continue;
            }
            let claim = map.next_value().map_err(|e| A::Error::custom(format!("tensor `{name}`: {e}")))?;
            claims.tensors.push((name, claim));
        }
        Ok(claims)
    }
}

/// Reads a header that `data` bytes of tensors follow.
pub(super) fn parse(text: &[u8], data: u64) -> Result<Header, FormatError> {
    let Claims { mut tensors, metadata } = serde_json::from_str(std::str::from_utf8(text)?)?;
    let mut seen = HashSet::new();
    if let Some((name, _)) = tensors.iter().find(|(name, _)| !seen.insert(name.as_str())) {
        return Err(FormatError::Repeated { name: name.clone() });
    }
    tensors.sort_by_key(|(_, claim)| claim.data_offsets);
    let (mut entries, mut next) = (vec![], 0);
    for (name, Claim { dtype, shape, data_offsets: (begin, end) }) in tensors {
        let Some(own) = DType::ALL.into_iter().find(|own| format_dtype(*own).1 == dtype) else {
            return Err(FormatError::DType { name, dtype });
        };
        let (theirs, spelling) = format_dtype(own);
        if begin != next || end < begin {
            return Err(FormatError::Offsets { name, begin, end });
        }
        let bytes = end - begin;
        // At the beginning, a tensor can be wrong only in its size.
        let place = TensorInfo { dtype: theirs, shape: shape.clone(), data_offsets: (0, bytes) };
        if Places::new(None, vec![(String::new(), place)]).is_err() {
            return Err(FormatError::Size { name, dtype: spelling, shape, bytes });
        }
        next = end;
        entries.push(Entry { name, dtype: own, shape, bytes });
    }
    if next as u64 != data {
        return Err(FormatError::DataLength { described: next as u64, found: data });
    }
    Ok(Header { entries, metadata })
}

/// The header of `tensors`, padded so that what follows is aligned, and the tensors in the order of their places.
pub(super) fn compose<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Array)>,
    metadata: &Metadata,
) -> Result<(Vec<u8>, Vec<(&'a str, &'a Array)>), FormatError> {
    let theirs = |array: &Array| format_dtype(array.dtype()).0;
    let mut tensors: Vec<_> = tensors.into_iter().collect();
    tensors.sort_by(|(a, x), (b, y)| theirs(y).cmp(&theirs(x)).then(a.cmp(b)));
    let (mut places, mut next, mut seen) = (vec![], 0, HashSet::from([METADATA]));
    for &(name, array) in &tensors {
        if !seen.insert(name) {
            let name = name.to_string();
            return Err(match &*name {
                METADATA => FormatError::Reserved { name },
                _ => FormatError::Repeated { name },
            });
        }
        let end = next + array.bytes().len();
        let shape = array.shape().to_vec();
        places.push((name, TensorInfo { dtype: theirs(array), shape, data_offsets: (next, end) }));
        next = end;
    }
    let mut text = serde_json::to_vec(&Composed { places, metadata })?;
    text.resize(text.len().next_multiple_of(8), b' ');
    match text.len() as u64 {
        bytes if bytes > LARGEST => Err(FormatError::HeaderTooLarge { bytes }),
        _ => Ok((text, tensors)),
    }
}

/// A header to be written.
struct Composed<'a> {
    places: Vec<(&'a str, TensorInfo)>,
    metadata: &'a Metadata,
}

impl Serialize for Composed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA, self.metadata)?;
        }
        for (name, place) in &self.places {
            map.serialize_entry(name, place)?;
        }
        map.end()
    }
}
