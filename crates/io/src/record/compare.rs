//! Comparing two records: the first step after which the states are not equal bit for bit, and what is to blame.

use super::{RecordError, RecordReader, RecordedStep, RecordedTensor, RecordedValue, RunLine};
use std::path::Path;
use std::sync::Arc;

/// What two records have to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// All steps that both have are equal.
    Identical {
        /// How many there are, not counting the state before the first.
        steps: u64,
        /// The last of them.
        last: u64,
    },
    /// They part.
    Parted(Box<Parting>),
}

/// Where two runs part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parting {
    /// The first step that differs.
    pub step: u64,
    /// The step before it that both have, if there is one: there they were equal.
    pub equal: Option<u64>,
    /// The runs that took it.
    pub runs: [Arc<RunLine>; 2],
    /// The inputs that differ, by name: then the data is to blame.
    pub inputs: Vec<String>,
    /// The state tensors that differ after it, in the order in which the first's graph computes them. There may be none:
    /// then only inputs or values of ops differ.
    pub tensors: Vec<RecordedTensor>,
    /// What is known of the ops inside the step.
    pub inside: Inside,
}

/// What two records know of the ops of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inside {
    /// The first op in the graph's order whose result differs.
    Op(RecordedValue),
    /// All ops agree when they are computed one by one, as they are for a record of values.
    Equal,
    /// Not both have recorded the values of this step.
    NotRecorded,
    /// The graphs have other values, so that these cannot be compared.
    OtherGraph,
}

/// Compares the records in two files, step by step. Steps that only one of them has are passed over.
///
/// # Errors
/// Those of reading; [`RecordError::Program`] and [`RecordError::Interface`] for records of programs that cannot be compared;
/// [`RecordError::NoCommonStep`].
pub fn compare(a: impl AsRef<Path>, b: impl AsRef<Path>) -> Result<Comparison, RecordError> {
    let mut readers = [RecordReader::open(a)?, RecordReader::open(b)?];
    comparable(readers[0].run(), readers[1].run())?;
    let mut ranges = [None, None];
    let mut next = |i: usize| {
        let step = readers[i].next_step()?;
        if let Some(s) = &step {
            let (first, _) = ranges[i].unwrap_or((s.step.step, 0));
            ranges[i] = Some((first, s.step.step));
        }
        Ok(step)
    };
    let (mut left, mut right) = (next(0)?, next(1)?);
    let (mut common, mut last) = (0, None);
    while let (Some(a), Some(b)) = (&left, &right) {
        match a.step.step.cmp(&b.step.step) {
            std::cmp::Ordering::Less => left = next(0)?,
            std::cmp::Ordering::Greater => right = next(1)?,
            std::cmp::Ordering::Equal => {
                comparable(&a.run, &b.run)?;
                let fed = !a.step.inputs.is_empty() && !b.step.inputs.is_empty();
                if a.step.state != b.step.state || fed && a.step.inputs != b.step.inputs {
                    return Ok(Comparison::Parted(Box::new(part(a, b, last))));
                }
                common += u64::from(a.step.step > 0);
                last = Some(a.step.step);
                (left, right) = (next(0)?, next(1)?);
            }
        }
    }
    match last {
        Some(last) => Ok(Comparison::Identical { steps: common, last }),
        None => {
            // To the ends of both, for the message.
            for i in [0, 1] {
                while next(i)?.is_some() {}
            }
            let [a, b] = ranges.map(|range| match range {
                Some((first, last)) => format!("steps {first} to {last}"),
                None => "none".to_string(),
            });
            Err(RecordError::NoCommonStep { a, b })
        }
    }
}

/// Refuses runs whose digests are not of the same things.
fn comparable(a: &RunLine, b: &RunLine) -> Result<(), RecordError> {
    if a.program != b.program {
        return Err(RecordError::Program { a: a.program.clone(), b: b.program.clone() });
    }
    if a.inputs != b.inputs {
        let what = format!("their inputs are {:?} and {:?}", a.inputs, b.inputs);
        return Err(RecordError::Interface { what });
    }
    let [kinds, others] = [a, b].map(|run| run.tensors.iter().map(|t| (&t.name, &t.ty)).collect::<Vec<_>>());
    if kinds == others {
        return Ok(());
    }
    let show = |kind: Option<&(&String, &String)>| {
        kind.map_or("no further state".to_string(), |(name, ty)| format!("state '{name}' of type {ty}"))
    };
    let at = kinds.iter().zip(&others).take_while(|(x, y)| x == y).count();
    let what = format!("where one has {}, the other has {}", show(kinds.get(at)), show(others.get(at)));
    Err(RecordError::Interface { what })
}

fn part(a: &RecordedStep, b: &RecordedStep, equal: Option<u64>) -> Parting {
    let differ = |x: &[_], y: &[_]| -> Vec<usize> {
        x.iter().zip(y).enumerate().filter(|(_, (x, y))| x != y).map(|(i, _)| i).collect()
    };
    let inputs = differ(&a.step.inputs, &b.step.inputs);
    let mut tensors: Vec<RecordedTensor> =
        differ(&a.step.state, &b.step.state).into_iter().map(|i| a.run.tensors[i].clone()).collect();
    // `%12` before `%112`; what no op computes first: somebody else has changed it.
    tensors.sort_by_key(|t| t.update.as_ref().map(|u| (u.value.len(), u.value.clone())));
    Parting {
        step: a.step.step,
        equal,
        runs: [a.run.clone(), b.run.clone()],
        inputs: inputs.into_iter().map(|i| a.run.inputs[i].clone()).collect(),
        tensors,
        inside: inside(&a.step.values, &b.step.values),
    }
}

/// The first value in the graph's order that differs. Graphs that differ only in lines of source or first values of state
/// have the same values.
fn inside(a: &[RecordedValue], b: &[RecordedValue]) -> Inside {
    let same = |x: &RecordedValue, y: &RecordedValue| {
        (&x.origin.value, &x.origin.op, &x.ty) == (&y.origin.value, &y.origin.op, &y.ty)
    };
    if a.is_empty() || b.is_empty() {
        return Inside::NotRecorded;
    }
    if a.len() != b.len() || !a.iter().zip(b).all(|(x, y)| same(x, y)) {
        return Inside::OtherGraph;
    }
    match a.iter().zip(b).find(|(x, y)| x.digest != y.digest) {
        Some((value, _)) => Inside::Op(value.clone()),
        None => Inside::Equal,
    }
}
