//! IDX files, the format of MNIST and its kin: a magic number with dtype and rank, sizes, and raw elements. Those of bytes
//! are read, plain or compressed by gzip, and cut into labelled images.
//!
//! A file's claims are checked before they are believed: no more memory is taken than the file's sizes say, those are at
//! most [`LARGEST`], and data of another length is an error.

use crate::{IoError, LabelledImages};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Elements of the largest file that is read.
pub const LARGEST: usize = 1 << 30;

/// A tensor of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxArray {
    /// Sizes, one to four.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub data: Vec<u8>,
}

/// What is wrong with an IDX file.
#[derive(Debug, thiserror::Error)]
pub enum IdxError {
    /// It ends early, is damaged, or cannot be read.
    #[error("it is damaged or ends early: {0}")]
    Read(#[source] io::Error),
    /// It does not begin as an IDX file does.
    #[error(
        "it begins with {0:02x?}, not with the magic number of an IDX file of bytes (00 00 08 and a rank of 1 to 4)"
    )]
    Magic([u8; 4]),
    /// Its sizes multiply to more than is read.
    #[error("its sizes {0:?} have more than {LARGEST} elements")]
    TooLarge(Vec<usize>),
    /// Something follows the elements.
    #[error("more follows the {0} elements that its sizes give")]
    Longer(usize),
    /// It has another rank or other sizes than asked for.
    #[error("its sizes are {found:?}, not {wanted}")]
    Shape {
        /// What the file has.
        found: Vec<usize>,
        /// What was asked for.
        wanted: &'static str,
    },
    /// Images and labels that do not belong together.
    #[error("it has {labels} labels for {images} images")]
    Count {
        /// Labels of the file.
        labels: usize,
        /// Images that they should be for.
        images: usize,
    },
}

/// Reads a file, plain or compressed.
///
/// # Errors
/// [`IoError::Unreadable`], or [`IoError::Idx`] for a file that is not sound in every part.
pub fn read_idx(path: impl AsRef<Path>) -> Result<IdxArray, IoError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| IoError::Unreadable { path: path.into(), source })?;
    parse_idx(BufReader::new(file)).map_err(|source| IoError::Idx { path: path.into(), source })
}

/// The same from any source.
///
/// # Errors
/// An [`IdxError`] that says which part is wrong.
pub fn parse_idx(mut source: impl Read) -> Result<IdxArray, IdxError> {
    let mut first = [0; 2];
    source.read_exact(&mut first).map_err(IdxError::Read)?;
    let compressed = first == [0x1f, 0x8b];
    let mut source = first.chain(source);
    if compressed { plain(&mut flate2::read::GzDecoder::new(source)) } else { plain(&mut source) }
}

fn plain(source: &mut dyn Read) -> Result<IdxArray, IdxError> {
    let mut word = || {
        let mut bytes = [0; 4];
        source.read_exact(&mut bytes).map(|()| bytes).map_err(IdxError::Read)
    };
    let magic = word()?;
    let [0, 0, 8, rank @ 1..=4] = magic else { return Err(IdxError::Magic(magic)) };
    let mut shape = vec![];
    for _ in 0..rank {
        shape.push(u32::from_be_bytes(word()?) as usize);
    }
    let count = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size)).filter(|&n| n <= LARGEST);
    let Some(count) = count else { return Err(IdxError::TooLarge(shape)) };
    // Grows with what is really there.
    let mut data = vec![];
    source.take(count as u64 + 1).read_to_end(&mut data).map_err(IdxError::Read)?;
    if data.len() > count {
        return Err(IdxError::Longer(count));
    }
    if data.len() < count {
        let what = format!("{} of {count} elements", data.len());
        return Err(IdxError::Read(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
    }
    Ok(IdxArray { shape, data })
}

/// Images to train on and images to test on, from a folder with the four files of MNIST or Fashion-MNIST
/// (`train-images-idx3-ubyte` and so on, plain or with `.gz`).
///
/// # Errors
/// [`IoError::Unreadable`] for a file that is missing, or [`IoError::Idx`] for one that is not sound.
pub fn idx_folder(folder: impl AsRef<Path>) -> Result<[LabelledImages; 2], IoError> {
    let folder = folder.as_ref();
    Ok([labelled(folder, "train")?, labelled(folder, "t10k")?])
}

fn labelled(folder: &Path, part: &str) -> Result<LabelledImages, IoError> {
    let find = |name: String| {
        let plain = folder.join(&name);
        if plain.exists() { plain } else { folder.join(name + ".gz") }
    };
    let (images_at, labels_at) =
        (find(format!("{part}-images-idx3-ubyte")), find(format!("{part}-labels-idx1-ubyte")));
    let (images, labels) = (read_idx(&images_at)?, read_idx(&labels_at)?);
    let shape = |path: &Path, found: &IdxArray, wanted| IoError::Idx {
        path: path.into(),
        source: IdxError::Shape { found: found.shape.clone(), wanted },
    };
    let [count, height, width] = images.shape[..] else {
        return Err(shape(&images_at, &images, "[images, height, width]"));
    };
    if labels.shape.len() != 1 {
        return Err(shape(&labels_at, &labels, "[images]"));
    }
    if labels.shape[0] != count {
        let source = IdxError::Count { labels: labels.shape[0], images: count };
        return Err(IoError::Idx { path: labels_at, source });
    }
    Ok(LabelledImages {
        height,
        width,
        images: images.data.iter().map(|&pixel| f32::from(pixel) / 255.0).collect(),
        labels: labels.data.iter().map(|&label| i32::from(label)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn bytes(magic: [u8; 4], sizes: &[u32], data: &[u8]) -> Vec<u8> {
        let sizes: Vec<u8> = sizes.iter().flat_map(|n| n.to_be_bytes()).collect();
        [&magic, &sizes[..], data].concat()
    }

    fn gz(data: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        out.write_all(data).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn sound_files_are_read_plain_and_compressed() {
        let file = bytes([0, 0, 8, 2], &[2, 3], &[1, 2, 3, 4, 5, 6]);
        let want = IdxArray { shape: vec![2, 3], data: vec![1, 2, 3, 4, 5, 6] };
        assert_eq!(parse_idx(&file[..]).unwrap(), want);
        assert_eq!(parse_idx(&gz(&file)[..]).unwrap(), want);
        let empty = bytes([0, 0, 8, 3], &[0, 28, 28], &[]);
        assert!(parse_idx(&empty[..]).unwrap().data.is_empty());
    }

    #[test]
    fn claims_are_checked_before_they_are_believed() {
        let message = |file: &[u8]| parse_idx(file).unwrap_err().to_string();
        assert!(message(&[]).contains("ends early"));
        assert!(message(&bytes([0, 0, 8, 3], &[1, 2], &[])).contains("ends early"));
        for magic in [[0, 0, 9, 1], [0, 0, 8, 0], [0, 0, 8, 5], [1, 0, 8, 1], *b"PK\x03\x04"] {
            assert!(message(&bytes(magic, &[1], &[0])).contains("magic number"), "{magic:?}");
        }
        let max = u32::MAX;
        for sizes in [vec![max], vec![max, max, max, max], vec![1 << 16, 1 << 15]] {
            assert!(message(&bytes([0, 0, 8, sizes.len() as u8], &sizes, &[0])).contains("more than"));
        }
        // A billion elements claimed, three there: no memory is taken for the others.
        assert!(message(&bytes([0, 0, 8, 1], &[1 << 30], &[1, 2, 3])).contains("3 of 1073741824"));
        assert!(message(&bytes([0, 0, 8, 1], &[2], &[1, 2, 3])).contains("more follows"));
        // A compressed file that unpacks to far more than it claims is not unpacked further.
        assert!(message(&gz(&bytes([0, 0, 8, 1], &[4], &vec![0; 1 << 22]))).contains("more follows"));
        let mut damaged = gz(&bytes([0, 0, 8, 1], &[4000], &noise(4000)));
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0xff;
        assert!(parse_idx(&damaged[..]).is_err());
        assert!(parse_idx(&damaged[..middle]).is_err());
    }

    fn noise(n: usize) -> Vec<u8> {
        let mut rng = crate::SplitMix64::new(1);
        (0..n).map(|_| rng.next_u64() as u8).collect()
    }

    #[test]
    fn folders_are_checked_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, data: &[u8]| std::fs::write(folder.path().join(name), data).unwrap();
        assert!(matches!(idx_folder(folder.path()), Err(IoError::Unreadable { .. })));
        put("train-images-idx3-ubyte", &bytes([0, 0, 8, 3], &[2, 1, 2], &[0, 255, 51, 102]));
        put("train-labels-idx1-ubyte.gz", &gz(&bytes([0, 0, 8, 1], &[2], &[7, 9])));
        put("t10k-images-idx3-ubyte", &bytes([0, 0, 8, 3], &[1, 1, 2], &[0, 0]));
        put("t10k-labels-idx1-ubyte", &bytes([0, 0, 8, 1], &[1], &[3]));
        let [train, test] = idx_folder(folder.path()).unwrap();
        assert_eq!(
            (train.images.as_slice(), train.labels.as_slice()),
            (&[0.0, 1.0, 0.2, 0.4][..], &[7, 9][..])
        );
        assert_eq!((test.len(), test.height, test.width), (1, 1, 2));
        put("t10k-labels-idx1-ubyte", &bytes([0, 0, 8, 1], &[2], &[3, 3]));
        assert!(idx_folder(folder.path()).unwrap_err().to_string().contains("2 labels for 1 images"));
        put("t10k-labels-idx1-ubyte", &bytes([0, 0, 8, 2], &[1, 1], &[3]));
        assert!(idx_folder(folder.path()).unwrap_err().to_string().contains("not [images]"));
    }
}
