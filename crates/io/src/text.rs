//! Text as bytes: an embedded megabyte of Shakespeare, its split, the bigram baseline, and batches of windows.
//!
//! A token is a byte, so that there is no vocabulary to load: 256 classes. A language model reads `inputs` and predicts
//! `targets`, the same window moved on by one byte. Training draws windows at random ([`TextBatches`]); validation walks
//! over all of them in order ([`TextWindows`]).

use std::ops::Range;

use crate::{IoError, SplitMix64};

/// Number of values that a byte, and so a token, can take.
const SYMBOLS: usize = 256;

/// Nine plays of Shakespeare in plain ASCII: 1,148,207 bytes, 65 different symbols.
///
/// A speaker's name stands on a line of its own and ends in a colon; an empty line ends a speech. The last play is
/// *The Tempest*. The bigram baseline on the last tenth is 2.514 nats per byte.
pub fn shakespeare() -> &'static [u8] {
    include_bytes!("../data/shakespeare.txt")
}

/// A text to train on and the text that follows it, to validate on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The beginning.
    pub train: &'a [u8],
    /// The end, of `val_fraction` of the whole.
    pub val: &'a [u8],
}

/// Parts the last `val_fraction` of `text`, rounded down to bytes, from the rest. A tenth is the usual choice.
///
/// # Errors
/// [`IoError::Fraction`] if `val_fraction` is not between 0 and 1.
pub fn split(text: &[u8], val_fraction: f64) -> Result<Split<'_>, IoError> {
    if !(0.0..=1.0).contains(&val_fraction) {
        return Err(IoError::Fraction(val_fraction));
    }
    let held_out = ((text.len() as f64 * val_fraction) as usize).min(text.len());
    let (train, val) = text.split_at(text.len() - held_out);
    Ok(Split { train, val })
}

/// The probability of a byte given the byte before it, counted with add-one smoothing over 256 values.
///
/// The baseline of a language model: one that does not get below its loss has learnt nothing from context.
#[derive(Clone, Debug)]
pub struct BigramModel {
    /// `[256, 256]`, row-major: how often the column's byte followed the row's.
    pairs: Vec<u64>,
    /// `[256]`: the sum of each row.
    firsts: Vec<u64>,
}

impl BigramModel {
    /// Counts the pairs of `train`. An empty text is allowed and makes every byte equally likely.
    pub fn fit(train: &[u8]) -> Self {
        let mut model = Self { pairs: vec![0; SYMBOLS * SYMBOLS], firsts: vec![0; SYMBOLS] };
        for pair in train.windows(2) {
            model.pairs[usize::from(pair[0]) * SYMBOLS + usize::from(pair[1])] += 1;
            model.firsts[usize::from(pair[0])] += 1;
        }
        model
    }

    /// The model's mean cross-entropy, in nats, over every byte of `val` but the first.
    ///
    /// # Errors
    /// [`IoError::TextTooShort`] if `val` holds no pair.
    pub fn nats_per_byte(&self, val: &[u8]) -> Result<f64, IoError> {
        if val.len() < 2 {
            return Err(IoError::TextTooShort { needed: 2, found: val.len() });
        }
        let nats: f64 = val.windows(2).map(|pair| -self.probability(pair[0], pair[1]).ln()).sum();
        Ok(nats / (val.len() - 1) as f64)
    }

    /// The probability that `second` follows `first`.
    pub fn probability(&self, first: u8, second: u8) -> f64 {
        let first = usize::from(first);
        let pairs = self.pairs[first * SYMBOLS + usize::from(second)];
        (pairs + 1) as f64 / (self.firsts[first] + SYMBOLS as u64) as f64
    }
}

/// Windows of a text, side by side: both i32 `[batch, length]`, row-major, values 0 to 255.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextBatch {
    /// What the model reads.
    pub inputs: Vec<i32>,
    /// What it should predict: `inputs` moved on by one byte.
    pub targets: Vec<i32>,
}

/// Batches of windows at random places of a text: an endless iterator, the same for equal seeds.
#[derive(Clone, Debug)]
pub struct TextBatches<'a> {
    windows: Windows<'a>,
    seed: u64,
    position: u64,
}

impl<'a> TextBatches<'a> {
    /// Batches of `batch` windows of `length` bytes, at offsets drawn from `seed`.
    ///
    /// # Errors
    /// [`IoError::TextTooShort`] if `text` has not `length + 1` bytes; [`IoError::EmptyBatch`] and
    /// [`IoError::BatchTooLarge`] if the shape cannot be.
    pub fn new(text: &'a [u8], batch: usize, length: usize, seed: u64) -> Result<Self, IoError> {
        Ok(Self { windows: Windows::new(text, batch, length)?, seed, position: 0 })
    }

    /// How many batches have been drawn. It is all that a checkpoint needs to keep beside the seed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on as if `position` batches had been drawn.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// Writes the next batch into buffers of `batch * length` elements each, allocating nothing.
    ///
    /// # Errors
    /// [`IoError::BufferLength`] if a buffer has another length; no batch is then drawn.
    pub fn fill(&mut self, inputs: &mut [i32], targets: &mut [i32]) -> Result<(), IoError> {
        self.windows.check(inputs, targets)?;
        let Windows { text, batch, length } = self.windows;
        let mut rng = SplitMix64::at(self.seed, self.position.wrapping_mul(batch as u64));
        let starts = (0..batch).map(|_| rng.below(text.len() - length));
        self.windows.copy(starts, inputs, targets);
        self.position = self.position.wrapping_add(1);
        Ok(())
    }
}

impl Iterator for TextBatches<'_> {
    type Item = TextBatch;

    fn next(&mut self) -> Option<TextBatch> {
        let mut batch = self.windows.zeroed();
        self.fill(&mut batch.inputs, &mut batch.targets).ok()?;
        Some(batch)
    }
}

/// Consecutive windows of a text, from its beginning: row `r` of batch `n` starts at byte `(n * batch + r) * length`.
///
/// Every byte is a target at most once. The last bytes, which do not fill a batch, are left out.
#[derive(Clone, Debug)]
pub struct TextWindows<'a> {
    windows: Windows<'a>,
    left: Range<usize>,
}

impl<'a> TextWindows<'a> {
    /// All batches of `batch` windows of `length` bytes.
    ///
    /// # Errors
    /// [`IoError::TextTooShort`] if `text` has not the `batch * length + 1` bytes of one batch;
    /// [`IoError::EmptyBatch`] and [`IoError::BatchTooLarge`] if the shape cannot be.
    pub fn new(text: &'a [u8], batch: usize, length: usize) -> Result<Self, IoError> {
        let windows = Windows::new(text, batch, length)?;
        let batches = (text.len() - 1) / windows.elements();
        if batches == 0 {
            return Err(IoError::TextTooShort { needed: windows.elements() + 1, found: text.len() });
        }
        Ok(Self { windows, left: 0..batches })
    }
}

impl Iterator for TextWindows<'_> {
    type Item = TextBatch;

    fn next(&mut self) -> Option<TextBatch> {
        let number = self.left.next()?;
        let Windows { batch, length, .. } = self.windows;
        let mut next = self.windows.zeroed();
        let starts = (0..batch).map(|row| (number * batch + row) * length);
        self.windows.copy(starts, &mut next.inputs, &mut next.targets);
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for TextWindows<'_> {}

/// A text and the shape of its batches. Invariant: neither side of the shape is zero, their product fits an i32, and
/// the text has at least `length + 1` bytes.
#[derive(Clone, Copy, Debug)]
struct Windows<'a> {
    text: &'a [u8],
    batch: usize,
    length: usize,
}

impl<'a> Windows<'a> {
    fn new(text: &'a [u8], batch: usize, length: usize) -> Result<Self, IoError> {
        if batch == 0 || length == 0 {
            return Err(IoError::EmptyBatch { batch, length });
        }
        if batch.checked_mul(length).is_none_or(|elements| elements > i32::MAX as usize) {
            return Err(IoError::BatchTooLarge { batch, length });
        }
        if text.len() <= length {
            return Err(IoError::TextTooShort { needed: length + 1, found: text.len() });
        }
        Ok(Self { text, batch, length })
    }

    fn elements(&self) -> usize {
        self.batch * self.length
    }

    fn zeroed(&self) -> TextBatch {
        TextBatch { inputs: vec![0; self.elements()], targets: vec![0; self.elements()] }
    }

    fn check(&self, inputs: &[i32], targets: &[i32]) -> Result<(), IoError> {
        let needed = self.elements();
        for (which, found) in [("inputs", inputs.len()), ("targets", targets.len())] {
            if found != needed {
                return Err(IoError::BufferLength { which, needed, found });
            }
        }
        Ok(())
    }

    /// Copies the window at each start into its row. A start is at most `text.len() - length - 1`.
    fn copy(&self, starts: impl Iterator<Item = usize>, inputs: &mut [i32], targets: &mut [i32]) {
        let rows = inputs.chunks_exact_mut(self.length).zip(targets.chunks_exact_mut(self.length));
        for (start, (input, target)) in starts.zip(rows) {
            let window = &self.text[start..=start + self.length];
            for (at, pair) in window.windows(2).enumerate() {
                input[at] = i32::from(pair[0]);
                target[at] = i32::from(pair[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shakespeare_is_clean_ascii() {
        let text = shakespeare();
        assert_eq!(text.len(), 1_148_207);
        assert!(text.iter().all(|&byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
        assert!(!text.iter().any(|byte| b"*_/#\\".contains(byte)));
        let mut symbols = text.to_vec();
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols.len(), 65);
        let text = std::str::from_utf8(text).unwrap();
        assert!(text.contains("\n\nBERNARDO:\nWho's there?\n\nFRANCISCO:\nNay, answer me"));
        assert!(!text.contains("\n\n\n") && !text.contains(" \n") && text.ends_with('\n'));
    }

    #[test]
    fn the_last_tenth_validates() {
        let text = shakespeare();
        let Split { train, val } = split(text, 0.1).unwrap();
        assert_eq!((train.len(), val.len()), (1_033_387, 114_820));
        assert_eq!([train, val].concat(), text);
        assert_eq!(split(text, 0.0).unwrap().val, b"");
        assert_eq!(split(text, 1.0).unwrap().train, b"");
        for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(split(text, fraction), Err(IoError::Fraction(_))));
        }
    }

    #[test]
    fn the_bigram_baseline_is_pinned() {
        let Split { train, val } = split(shakespeare(), 0.1).unwrap();
        let nats = BigramModel::fit(train).nats_per_byte(val).unwrap();
        assert!((nats - 2.513_901_660_3).abs() < 1e-9, "{nats}");
    }

    #[test]
    fn bigram_probabilities_by_hand() {
        let model = BigramModel::fit(b"abab");
        assert_eq!(model.probability(b'a', b'b'), 3.0 / 258.0);
        assert_eq!(model.probability(b'b', b'a'), 2.0 / 257.0);
        assert_eq!(model.probability(b'z', b'a'), 1.0 / 256.0);
        let expected = (-(3.0f64 / 258.0).ln() - (2.0f64 / 257.0).ln()) / 2.0;
        assert!((model.nats_per_byte(b"aba").unwrap() - expected).abs() < 1e-15);
        let uniform = BigramModel::fit(b"").nats_per_byte(b"any text").unwrap();
        assert!((uniform - 256f64.ln()).abs() < 1e-12);
        assert!(matches!(model.nats_per_byte(b"a"), Err(IoError::TextTooShort { needed: 2, found: 1 })));
    }

    #[test]
    fn targets_are_inputs_moved_on() {
        let text = shakespeare();
        let batch = TextBatches::new(text, 4, 32, 1).unwrap().next().unwrap();
        assert_eq!((batch.inputs.len(), batch.targets.len()), (128, 128));
        for (input, target) in batch.inputs.chunks(32).zip(batch.targets.chunks(32)) {
            assert_eq!(input[1..], target[..31]);
            let window: Vec<u8> = input.iter().chain(target.last()).map(|&byte| byte as u8).collect();
            assert!(text.windows(33).any(|part| part == window));
        }
    }

    #[test]
    fn equal_seeds_give_equal_batches_and_a_position_resumes() {
        let new = |seed| TextBatches::new(shakespeare(), 3, 16, seed).unwrap();
        let whole: Vec<TextBatch> = new(5).take(6).collect();
        assert_eq!(whole, new(5).take(6).collect::<Vec<_>>());
        assert_ne!(whole, new(6).take(6).collect::<Vec<_>>());
        assert_ne!(whole[0], whole[1]);
        let mut resumed = new(5);
        resumed.seek(4);
        assert_eq!(resumed.position(), 4);
        assert_eq!(whole[4..], resumed.by_ref().take(2).collect::<Vec<_>>());
        assert_eq!(resumed.position(), 6);
    }

    #[test]
    fn every_offset_is_drawn() {
        let starts: std::collections::BTreeSet<i32> = TextBatches::new(&[0, 1, 2, 3, 4], 8, 2, 0)
            .unwrap()
            .take(20)
            .flat_map(|batch| batch.inputs.into_iter().step_by(2))
            .collect();
        assert_eq!(starts, [0, 1, 2].into());
        let only = TextBatches::new(b"abc", 1, 2, 0).unwrap().next().unwrap();
        assert_eq!((only.inputs, only.targets), (vec![97, 98], vec![98, 99]));
    }

    #[test]
    fn windows_follow_each_other() {
        let text: Vec<u8> = (0..14).collect();
        let windows = TextWindows::new(&text, 2, 3).unwrap();
        assert_eq!(windows.len(), 2);
        let batches: Vec<TextBatch> = windows.collect();
        assert_eq!(batches[0].inputs, (0..6).collect::<Vec<_>>());
        assert_eq!(batches[1].inputs, (6..12).collect::<Vec<_>>());
        assert_eq!(batches[1].targets, (7..13).collect::<Vec<_>>());
        // One byte more than a batch is exactly enough.
        assert_eq!(TextWindows::new(&text[..7], 2, 3).unwrap().len(), 1);
    }

    #[test]
    fn impossible_batches_are_errors() {
        assert!(matches!(
            TextBatches::new(b"abc", 1, 3, 0),
            Err(IoError::TextTooShort { needed: 4, found: 3 })
        ));
        assert!(matches!(TextBatches::new(b"", 1, 1, 0), Err(IoError::TextTooShort { needed: 2, found: 0 })));
        assert!(matches!(
            TextBatches::new(b"abc", 0, 1, 0),
            Err(IoError::EmptyBatch { batch: 0, length: 1 })
        ));
        assert!(matches!(TextBatches::new(b"abc", 1, 0, 0), Err(IoError::EmptyBatch { .. })));
        assert!(matches!(TextBatches::new(b"abc", usize::MAX, 2, 0), Err(IoError::BatchTooLarge { .. })));
        assert!(matches!(TextBatches::new(b"abc", 1, usize::MAX, 0), Err(IoError::BatchTooLarge { .. })));
        assert!(matches!(
            TextWindows::new(b"abcdef", 2, 3),
            Err(IoError::TextTooShort { needed: 7, found: 6 })
        ));
    }

    #[test]
    fn buffers_of_the_wrong_length_draw_nothing() {
        let mut batches = TextBatches::new(b"abcdef", 2, 2, 0).unwrap();
        let error = batches.fill(&mut [0; 4], &mut [0; 3]).unwrap_err();
        assert_eq!(error.to_string(), "the targets buffer has 3 elements, but the batch has 4");
        assert_eq!(batches.position(), 0);
    }
}
