//! Recorded answers of other programs: packed safetensors files of `tests/data`.

use onestep_ir::{Array, DType};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// Runs with their tensors, named `RUN/…@STEP`, and what is given to all.
pub struct Recorded {
    pub tensors: BTreeMap<String, Array>,
    pub runs: BTreeMap<String, Value>,
    pub steps: Vec<usize>,
}

impl Recorded {
    /// Reads `tests/data/NAME.safetensors.zst`.
    pub fn read(name: &str) -> Recorded {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data");
        let mut packed = std::fs::File::open(format!("{folder}/{name}.safetensors.zst")).unwrap();
        let mut bytes = vec![];
        ruzstd::decoding::StreamingDecoder::new(&mut packed).unwrap().read_to_end(&mut bytes).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().clone().unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let array = |t: safetensors::tensor::TensorView<'_>| {
            let dtype = if t.dtype() == safetensors::Dtype::F64 { DType::F64 } else { DType::F32 };
            Array::from_bytes(dtype, t.shape(), t.data()).unwrap()
        };
        Recorded {
            tensors: file.tensors().into_iter().map(|(name, t)| (name, array(t))).collect(),
            runs: serde_json::from_str(&metadata["runs"]).unwrap(),
            steps: metadata.get("steps").map_or(vec![], |steps| serde_json::from_str(steps).unwrap()),
        }
    }

    /// Every recorded tensor of `run` at `step`, by its name after the run's.
    pub fn at_step(&self, run: &str, step: usize) -> Vec<(&str, &Array)> {
        let (before, after) = (format!("{run}/"), format!("@{step}"));
        let from = self.tensors.range(before.clone()..);
        let named = from.take_while(|(n, _)| n.starts_with(&before));
        named.filter_map(|(n, t)| Some((n.strip_prefix(&before)?.strip_suffix(&after)?, t))).collect()
    }
}
