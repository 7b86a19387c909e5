//! Handwritten digits, 8×8 pixels: 1797 images of ten classes that ship inside the crate.
//!
//! The default data of a classifier: it needs no download, and a fixed split makes accuracies comparable.

use std::io::Read;

use crate::{IoError, SplitMix64};

const COMPRESSED: &[u8] = include_bytes!("../data/digits.csv.gz");
/// Width and height of an image multiplied.
const PIXELS: usize = 64;
/// The largest pixel value stored.
const INK: f32 = 16.0;
const SPLIT_SEED: u64 = 0x0D16_1750;

/// Images and their labels, in equal order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digits {
    /// f32 `[n, 64]`, row-major: each image's 8 rows of 8 pixels, from 0 (empty) to 1 (ink).
    pub images: Vec<f32>,
    /// i32 `[n]`: the digit shown, 0 to 9.
    pub labels: Vec<i32>,
}

/// A part to train on and a part to test on.
#[derive(Clone, Debug, PartialEq)]
pub struct DigitsSplit {
    /// Four fifths of the images, rounded down: 1437 of 1797.
    pub train: Digits,
    /// The rest: 360 of 1797.
    pub test: Digits,
}

/// The 1797 digits in the order of their source.
///
/// # Errors
/// [`IoError::Decompress`] or [`IoError::DigitsRow`] if the embedded data is damaged.
pub fn digits() -> Result<Digits, IoError> {
    let mut csv = String::new();
    flate2::read::GzDecoder::new(COMPRESSED).read_to_string(&mut csv).map_err(IoError::Decompress)?;
    parse(&csv)
}

impl Digits {
    /// How many images there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The images numbered `rows`, in that order.
    ///
    /// # Errors
    /// [`IoError::NoSuchDigit`] for a number that is out of range.
    pub fn select(&self, rows: &[usize]) -> Result<Digits, IoError> {
        let mut chosen = Digits::default();
        for &row in rows {
            let image = self.images.as_chunks::<PIXELS>().0.get(row);
            let (Some(image), Some(&label)) = (image, self.labels.get(row)) else {
                return Err(IoError::NoSuchDigit { row, digits: self.len() });
            };
            chosen.images.extend_from_slice(image);
            chosen.labels.push(label);
        }
        Ok(chosen)
    }

    /// The fixed split: a shuffle by a fixed seed, of which the first four fifths are for training and the rest for
    /// testing. The same for every call and on every machine, so that accuracies can be compared.
    ///
    /// # Errors
    /// [`IoError::NoSuchDigit`] if there are more labels than images.
    pub fn split(&self) -> Result<DigitsSplit, IoError> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        SplitMix64::new(SPLIT_SEED).shuffle(&mut order);
        let (train, test) = order.split_at(self.len() * 4 / 5);
        Ok(DigitsSplit { train: self.select(train)?, test: self.select(test)? })
    }
}

fn parse(csv: &str) -> Result<Digits, IoError> {
    let mut digits = Digits::default();
    for (at, line) in csv.lines().enumerate() {
        let wrong = |reason: String| IoError::DigitsRow { row: at + 1, reason };
        let fields = line
            .split(',')
            .map(|field| field.parse::<u8>().map_err(|_| wrong(format!("`{field}` is not a small integer"))))
            .collect::<Result<Vec<u8>, IoError>>()?;
        let [pixels @ .., label] = fields.as_slice() else {
            return Err(wrong("it is empty".into()));
        };
        if pixels.len() != PIXELS {
            return Err(wrong(format!("it has {} pixels, not {PIXELS}", pixels.len())));
        }
        if let Some(pixel) = pixels.iter().find(|&&pixel| f32::from(pixel) > INK) {
            return Err(wrong(format!("a pixel is {pixel}, more than {INK}")));
        }
        if *label > 9 {
            return Err(wrong(format!("its label is {label}, not a digit")));
        }
        digits.images.extend(pixels.iter().map(|&pixel| f32::from(pixel) / INK));
        digits.labels.push(i32::from(*label));
    }
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_to_the_documented_shapes() {
        let digits = digits().unwrap();
        assert_eq!(digits.len(), 1797);
        assert_eq!(digits.images.len(), 1797 * PIXELS);
        assert!(digits.images.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        // The source's first row begins 0,0,5,13,9,1,0,0 and shows a zero.
        assert_eq!(digits.images[..8], [0.0, 0.0, 0.3125, 0.8125, 0.5625, 0.0625, 0.0, 0.0]);
        let mut classes = [0; 10];
        digits.labels.iter().for_each(|&label| classes[label as usize] += 1);
        assert_eq!(classes, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!(digits.labels[..12], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
    }

    #[test]
    fn the_split_is_fixed_and_loses_nothing() {
        let digits = digits().unwrap();
        let split = digits.split().unwrap();
        assert_eq!((split.train.len(), split.test.len()), (1437, 360));
        assert_eq!(split, digits.split().unwrap());
        let sum = |part: &Digits| part.images.iter().map(|&pixel| f64::from(pixel)).sum::<f64>();
        assert_eq!(sum(&split.train) + sum(&split.test), sum(&digits));
        let mut labels = [split.train.labels.as_slice(), &split.test.labels].concat();
        let mut whole = digits.labels.clone();
        labels.sort_unstable();
        whole.sort_unstable();
        assert_eq!(labels, whole);
        assert_eq!(split.test.labels[..8], [0, 9, 3, 4, 0, 5, 2, 3]);
    }

    #[test]
    fn select_takes_rows_in_order() {
        let digits = digits().unwrap();
        let chosen = digits.select(&[3, 1]).unwrap();
        assert_eq!(chosen.labels, [3, 1]);
        assert_eq!(chosen.images[PIXELS..], digits.images[PIXELS..2 * PIXELS]);
        assert!(digits.select(&[]).unwrap().is_empty());
        let error = digits.select(&[usize::MAX]).unwrap_err();
        assert!(matches!(error, IoError::NoSuchDigit { row: usize::MAX, digits: 1797 }));
        let more_labels_than_images = Digits { images: Vec::new(), labels: vec![1] };
        assert!(more_labels_than_images.split().is_err());
    }

    #[test]
    fn damaged_rows_are_named() {
        let row =
            |pixel: &str, count: usize, label: &str| format!("{},{label}\n", vec![pixel; count].join(","));
        let good = row("16", 64, "9");
        for (bad, reason) in [
            (row("x", 64, "1"), "row 2 of the digits: `x` is not a small integer"),
            (row("1", 63, "1"), "row 2 of the digits: it has 63 pixels, not 64"),
            (row("17", 64, "1"), "row 2 of the digits: a pixel is 17, more than 16"),
            (row("1", 64, "10"), "row 2 of the digits: its label is 10, not a digit"),
        ] {
            assert_eq!(parse(&(good.clone() + &bad)).unwrap_err().to_string(), reason);
        }
    }
}
