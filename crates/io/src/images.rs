//! Labelled images: what every data set of pictures becomes.

use crate::{Columns, Digits, IoError};
use onestep_ir::Array;

/// Images and their labels, in equal order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelledImages {
    /// Rows of an image.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
    /// f32 `[n, height·width]`, from 0 to 1.
    pub images: Vec<f32>,
    /// i32 `[n]`: the class of each.
    pub labels: Vec<i32>,
}

impl From<Digits> for LabelledImages {
    fn from(digits: Digits) -> LabelledImages {
        LabelledImages { height: 8, width: 8, images: digits.images, labels: digits.labels }
    }
}

impl LabelledImages {
    /// How many images there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Pixels of an image.
    pub fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// As samples for a loader: images, `f32[height·width]`, and labels, `i32`.
    ///
    /// # Errors
    /// [`IoError::Array`] if there are not as many pixels as `len` images have.
    pub fn into_columns(self) -> Result<Columns, IoError> {
        let images = Array::new(&[self.len(), self.pixels()], &self.images)?;
        Columns::new([images, Array::new(&[self.len()], &self.labels)?])
    }

    /// The images numbered `rows`, in that order.
    ///
    /// # Errors
    /// [`IoError::NoSuchImage`] for a number that is out of range.
    pub fn select(&self, rows: impl IntoIterator<Item = usize>) -> Result<LabelledImages, IoError> {
        let pixels = self.pixels();
        let mut chosen = LabelledImages { height: self.height, width: self.width, ..Default::default() };
        for row in rows {
            let end = row.saturating_add(1).saturating_mul(pixels);
            let image = self.images.get(row.saturating_mul(pixels)..end);
            let (Some(image), Some(&label)) = (image, self.labels.get(row)) else {
                return Err(IoError::NoSuchImage { row, images: self.len() });
            };
            chosen.images.extend_from_slice(image);
            chosen.labels.push(label);
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_takes_rows_in_order() {
        let all =
            LabelledImages { height: 1, width: 2, images: vec![0.0, 0.1, 0.2, 0.3], labels: vec![5, 6] };
        let chosen = all.select([1, 0, 1]).unwrap();
        assert_eq!(chosen.labels, [6, 5, 6]);
        assert_eq!(chosen.images, [0.2, 0.3, 0.0, 0.1, 0.2, 0.3]);
        for row in [2, usize::MAX] {
            assert!(matches!(all.select([row]), Err(IoError::NoSuchImage { images: 2, .. })));
        }
    }
}
