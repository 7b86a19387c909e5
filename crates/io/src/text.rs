//! Text as bytes: an embedded megabyte of Shakespeare, its split, and the bigram baseline.
//!
//! A token is a byte, so that there is no vocabulary to load: 256 classes. A language model reads windows of it
//! ([`crate::Tokens`]).

use crate::IoError;

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
}
