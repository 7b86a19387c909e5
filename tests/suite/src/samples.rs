//! Reads the recorded samples of PyTorch's operators (`tests/data/torch-op-samples`; the format is described at the head
//! of `tests/data/make_torch_op_samples.py`).

use onestep_ir::{Array, DType};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// An argument of a recorded call.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// The tensor of this number.
    Tensor(usize),
    /// A list or tuple.
    List(Vec<Value>),
    /// An integer.
    Int(i64),
    /// A float, perhaps infinite or NaN.
    Float(f64),
    /// A string.
    Text(String),
    /// A truth value.
    Bool(bool),
    /// Python's `None`; also what a missing argument reads as.
    None,
    /// A dtype.
    DType(String),
    /// Start, stop, step.
    Slice([Option<i64>; 3]),
    /// `...`
    Ellipsis,
}

/// One recorded call: what PyTorch was given, what it gave, and the gradients for random cotangents.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The operator's key: its name, with `/variant` behind where there is one.
    pub key: String,
    /// `f32` or `f64`: what the sample was drawn in.
    pub dtype: DType,
    /// The input, then the positional arguments.
    pub args: Vec<Value>,
    /// The keyword arguments.
    pub kwargs: BTreeMap<String, Value>,
    /// The numbers of the outputs.
    pub outputs: Vec<usize>,
    /// The number of each output's cotangent; `None` for an output without gradient.
    pub cotangents: Vec<Option<usize>>,
    /// Input tensors that have a gradient, each with the number of that gradient.
    pub gradients: Vec<(usize, usize)>,
}

impl Sample {
    /// The numbers of the tensors among the arguments, each once, in the order of the call.
    pub fn inputs(&self) -> Vec<usize> {
        fn walk(value: &Value, found: &mut Vec<usize>) {
            match value {
                Value::Tensor(n) if !found.contains(n) => found.push(*n),
                Value::List(items) => items.iter().for_each(|v| walk(v, found)),
                _ => {}
            }
        }
        let mut found = vec![];
        self.args.iter().chain(self.kwargs.values()).for_each(|v| walk(v, &mut found));
        found
    }
}

/// The recorded samples with their tensors.
#[derive(Clone, Debug)]
pub struct Samples {
    /// The samples, in the recorded order.
    pub samples: Vec<Sample>,
    /// The tensors, by number.
    pub tensors: Vec<Array>,
    /// How many samples each operator of the *whole* PyTorch suite has, recorded here or not.
    pub suite: BTreeMap<String, usize>,
}

impl Samples {
    /// Reads the files of the repository.
    pub fn read() -> Result<Samples, String> {
        let dir: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "data", "torch-op-samples"].iter().collect();
        let index = unpacked(&dir.join("index.jsonl.zst"))?;
        let index = String::from_utf8(index).map_err(|e| e.to_string())?;
        let samples = index.lines().map(|line| sample(line).ok_or_else(|| format!("cannot read {line}")));
        let samples = samples.collect::<Result<_, _>>()?;
        let tensors = tensors(&unpacked(&dir.join("tensors.safetensors.zst"))?)?;
        let suite = std::fs::read_to_string(dir.join("suite.json")).map_err(|e| e.to_string())?;
        let suite: Json = serde_json::from_str(&suite).map_err(|e| e.to_string())?;
        let counts = suite["operators"].as_object().ok_or("suite.json has no operators")?;
        let count = |(k, v): (&String, &Json)| Some((k.clone(), usize::try_from(v.as_u64()?).ok()?));
        let suite = counts.iter().map(count).collect::<Option<_>>().ok_or("suite.json has a bad count")?;
        Ok(Samples { samples, tensors, suite })
    }

    /// How many samples the whole suite has.
    pub fn whole(&self) -> usize {
        self.suite.values().sum()
    }
}

fn unpacked(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).map_err(|e| e.to_string())?;
    let mut bytes = vec![];
    decoder.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

fn tensors(bytes: &[u8]) -> Result<Vec<Array>, String> {
    use safetensors::Dtype;
    let file = safetensors::SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let one = |n: usize| {
        let t = file.tensor(&n.to_string()).map_err(|e| e.to_string())?;
        let dtype = match t.dtype() {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::I64 => DType::I64,
            Dtype::I32 => DType::I32,
            Dtype::I8 => DType::I8,
            Dtype::U8 => DType::U8,
            Dtype::BOOL => DType::Bool,
            other => return Err(format!("tensor {n} is {other:?}")),
        };
        Array::from_bytes(dtype, t.shape(), t.data()).map_err(|e| e.to_string())
    };
    (0..file.len()).map(one).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let row: Json = serde_json::from_str(line).ok()?;
    let number = |v: &Json| usize::try_from(v.as_u64()?).ok();
    let key = match (row["op"].as_str()?, row["variant"].as_str()?) {
        (op, "") => op.to_string(),
        (op, variant) => format!("{op}/{variant}"),
    };
    let mut args = vec![value(&row["input"])?];
    args.extend(row["args"].as_array()?.iter().map(value).collect::<Option<Vec<_>>>()?);
    let kwargs = row["kwargs"].as_object()?.iter().map(|(k, v)| Some((k.clone(), value(v)?)));
    let cotangent = |v: &Json| if v.is_null() { Some(None) } else { number(v).map(Some) };
    let gradient = |(k, v): (&String, &Json)| Some((k.parse().ok()?, number(v)?));
    Some(Sample {
        key,
        dtype: if row["dtype"] == "float64" { DType::F64 } else { DType::F32 },
        args,
        kwargs: kwargs.collect::<Option<_>>()?,
        outputs: row["outputs"].as_array()?.iter().map(number).collect::<Option<_>>()?,
        cotangents: row["cotangents"].as_array()?.iter().map(cotangent).collect::<Option<_>>()?,
        gradients: row["gradients"].as_object()?.iter().map(gradient).collect::<Option<_>>()?,
    })
}

fn value(v: &Json) -> Option<Value> {
    Some(match v {
        Json::Null => Value::None,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => n.as_i64().map(Value::Int).or(n.as_f64().map(Value::Float))?,
        Json::String(s) => Value::Text(s.clone()),
        Json::Array(items) => Value::List(items.iter().map(value).collect::<Option<_>>()?),
        Json::Object(o) => {
            let (kind, what) = o.iter().next()?;
            match kind.as_str() {
                "t" => Value::Tensor(usize::try_from(what.as_u64()?).ok()?),
                "dtype" => Value::DType(what.as_str()?.to_string()),
                "float" => Value::Float(what.as_str()?.parse().ok()?),
                "ellipsis" => Value::Ellipsis,
                "slice" => {
                    let part = |i: usize| what.get(i).and_then(Json::as_i64);
                    Value::Slice([part(0), part(1), part(2)])
                }
                _ => return None,
            }
        }
    })
}
