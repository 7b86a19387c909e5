//! Which samples are in which batch, and how they get there: a pure function of the dataset, the seed and the position.
//!
//! An epoch's order is cut into batches of `batch · ranks` samples, and each batch into a share for each rank. So the
//! ranks' batches together are those of a single process with the larger batch, and a run may be taken up by another number
//! of ranks with the same batches in all.

use super::dataset::{Dataset, Field, Row, normalise, zeros};
use super::order::Order;
use crate::IoError;
use onestep_ir::{Array, DType};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// A place in the sequence of all batches: that of the next one. It is all that a checkpoint needs to keep of the data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// The pass over the data, counted from 0.
    pub epoch: u64,
    /// The batch in it, counted from 0.
    pub batch: u64,
}

/// What becomes of the last samples of an epoch, which do not fill a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// They are left out of this epoch; another order leaves out others.
    Drop,
    /// They are a smaller batch. A program with a variable first dimension compiles once for it.
    Keep,
    /// They are filled up with zeros to a batch of the usual size. Every batch has one more array behind the dataset's
    /// fields: the weight of each row, `f32[batch]`, 1 for a sample and 0 for padding.
    Pad,
}

/// A dataset cut into batches.
#[derive(Clone)]
pub struct Batches {
    dataset: Arc<dyn Dataset>,
    fields: Vec<Field>,
    len: usize,
    batch: usize,
    seed: Option<u64>,
    last: Last,
    rank: usize,
    ranks: usize,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Batches { len, batch, seed, last, rank, ranks, .. } = self;
        write!(f, "{len} samples by {batch}, seed {seed:?}, {last:?} the last, rank {rank} of {ranks}")
    }
}

impl Batches {
    /// Batches of `batch` samples in the dataset's own order; `last` is what becomes of those left over.
    ///
    /// # Errors
    /// [`IoError::NoBatch`] if the dataset or the batch is empty, or there are too few samples for one that is not smaller.
    pub fn new(dataset: impl Dataset + 'static, batch: usize, last: Last) -> Result<Batches, IoError> {
        let (fields, len) = (dataset.fields(), dataset.len());
        let dataset = Arc::new(dataset);
        let made = Batches { dataset, fields, len, batch, seed: None, last, rank: 0, ranks: 1 };
        match len {
            0 => Err(made.no_batch()),
            _ => made.checked(),
        }
    }

    /// Another order in every epoch, decided by the seed and the epoch alone.
    pub fn shuffled(self, seed: u64) -> Batches {
        Batches { seed: Some(seed), ..self }
    }

    /// The share of process `rank` of `ranks`, in batches of the size given for each. All ranks have equally many batches.
    ///
    /// # Errors
    /// [`IoError::Rank`] if `rank` is not below `ranks`; [`IoError::NoBatch`] if there is no batch for all;
    /// [`IoError::KeepShards`] for [`Last::Keep`] on several ranks, some of which might lack the last batch.
    pub fn shard(self, rank: usize, ranks: usize) -> Result<Batches, IoError> {
        if rank >= ranks {
            return Err(IoError::Rank { rank, ranks });
        }
        Batches { rank, ranks, ..self }.checked()
    }

    fn checked(self) -> Result<Batches, IoError> {
        let together = self.batch.checked_mul(self.ranks);
        let enough = match self.last {
            Last::Drop => together.is_some_and(|n| n <= self.len),
            Last::Keep | Last::Pad => together.is_some(),
        };
        if self.last == Last::Keep && self.ranks > 1 {
            return Err(IoError::KeepShards { ranks: self.ranks });
        }
        if self.batch == 0 || !enough { Err(self.no_batch()) } else { Ok(self) }
    }

    fn no_batch(&self) -> IoError {
        IoError::NoBatch { samples: self.len, batch: self.batch, ranks: self.ranks }
    }

    /// Batches of an epoch: at least one.
    pub fn per_epoch(&self) -> u64 {
        let together = self.batch * self.ranks;
        let batches = match self.last {
            Last::Drop => self.len / together,
            Last::Keep | Last::Pad => self.len.div_ceil(together),
        };
        batches as u64
    }

    /// The dataset's samples.
    pub fn samples(&self) -> usize {
        self.len
    }

    /// Whether there is a batch at this place.
    ///
    /// # Errors
    /// [`IoError::Position`] if there is none.
    pub fn check(&self, at: Position) -> Result<(), IoError> {
        match at.batch < self.per_epoch() {
            true => Ok(()),
            false => Err(IoError::Position { at, batches: self.per_epoch() }),
        }
    }

    /// The place after this one, in the next epoch after the last.
    pub fn after(&self, at: Position) -> Position {
        match at.batch + 1 < self.per_epoch() {
            true => Position { batch: at.batch + 1, ..at },
            false => Position { epoch: at.epoch.wrapping_add(1), batch: 0 },
        }
    }

    /// The arrays of the batch at a place: the dataset's fields in order, each with the batch as its first axis, and the
    /// weights if the last batch is padded.
    ///
    /// # Errors
    /// [`IoError::Position`]; [`IoError::Array`] for sizes that memory cannot hold; the dataset's own.
    pub fn get(&self, at: Position) -> Result<Vec<Array>, IoError> {
        let mut arrays = vec![];
        self.fill(at, &mut arrays)?;
        Ok(arrays)
    }

    /// The same in arrays of an earlier batch, whose storage is used again where the shape is the same. Gives the number of
    /// samples in it.
    ///
    /// # Errors
    /// As those of [`Batches::get`].
    pub fn fill(&self, at: Position, arrays: &mut Vec<Array>) -> Result<usize, IoError> {
        self.check(at)?;
        let places = self.places(at.batch as usize);
        let rows = if self.last == Last::Pad { self.batch } else { places.len() };
        let (padded, fields) = (self.last == Last::Pad, self.fields.len());
        if arrays.len() != fields + usize::from(padded) || arrays.iter().any(|a| a.shape()[0] != rows) {
            *arrays = zeros(&self.fields, rows)?;
            if padded {
                arrays.push(Array::zeros(DType::F32, &[rows])?);
            }
        }
        let order = match self.seed {
            Some(seed) => Order::shuffled(self.len, seed, at.epoch),
            None => Order::sequential(self.len),
        };
        let filled = places.len();
        for (row, place) in places.enumerate() {
            self.dataset.read(order.at(place), &mut Row { arrays: &mut arrays[..fields], row })?;
        }
        if padded {
            self.pad(filled, &mut arrays[..])?;
        }
        normalise(arrays);
        Ok(filled)
    }

    /// The places in the epoch's order of this rank's share of a batch.
    fn places(&self, batch: usize) -> Range<usize> {
        let begin = (batch * self.ranks + self.rank).saturating_mul(self.batch).min(self.len);
        begin..begin.saturating_add(self.batch).min(self.len)
    }

    /// Zeros behind the samples, and the weights.
    fn pad(&self, filled: usize, arrays: &mut [Array]) -> Result<(), IoError> {
        let Some((weights, fields)) = arrays.split_last_mut() else { return Ok(()) };
        for (row, weight) in weights.as_mut_slice::<f32>()?.iter_mut().enumerate() {
            *weight = f32::from(u8::from(row < filled));
        }
        for array in fields {
            let bytes = array.bytes_mut();
            let used = bytes.len() / self.batch * filled;
            bytes[used..].fill(0);
        }
        Ok(())
    }
}
