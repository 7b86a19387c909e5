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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batches, Last, Position};

    #[test]
    fn images_are_fed_with_their_labels() {
        let all =
            LabelledImages { height: 1, width: 2, images: vec![0.0, 0.1, 0.2, 0.3], labels: vec![5, 6] };
        let batches = Batches::new(all.clone().into_columns().unwrap(), 1, Last::Keep).unwrap();
        let second = batches.get(Position { epoch: 0, batch: 1 }).unwrap();
        assert_eq!(second[0], Array::new(&[1, 2], &[0.2f32, 0.3]).unwrap());
        assert_eq!(second[1], Array::new(&[1], &[6i32]).unwrap());
        let torn = LabelledImages { labels: vec![5], ..all };
        assert!(matches!(torn.into_columns(), Err(IoError::Array(_))));
    }
}
