//! Windows of a text of tokens, in memory or in a file: what a language model reads, and the same moved on by one.
//!
//! A file is read at the place of each window when that is asked for; the system keeps what is read often in memory, as it
//! would for a mapped file. Unlike one, a file that shrinks or fails meanwhile is an error and not the end of the process.

use super::dataset::{Dataset, Field, Row};
use crate::IoError;
use onestep_ir::DType;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// How a file stores a token: an unsigned little-endian number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenWidth {
    /// One byte, such as text as it is.
    U8,
    /// Two bytes: vocabularies of up to 65,536.
    U16,
    /// Four bytes. A token above `i32::MAX` is an error when it is met.
    U32,
}

impl TokenWidth {
    fn bytes(self) -> usize {
        match self {
            TokenWidth::U8 => 1,
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }

    fn token(self, b: &[u8]) -> u32 {
        match self {
            TokenWidth::U8 => u32::from(b[0]),
            TokenWidth::U16 => u32::from(u16::from_le_bytes([b[0], b[1]])),
            TokenWidth::U32 => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        }
    }
}

#[derive(Debug)]
enum Source {
    Memory(Cow<'static, [u8]>),
    File(File, PathBuf),
}

/// A sequence of tokens.
#[derive(Debug)]
pub struct Tokens {
    source: Source,
    width: TokenWidth,
    len: usize,
}

impl Tokens {
    /// Bytes in memory, each a token.
    pub fn bytes(text: impl Into<Cow<'static, [u8]>>) -> Tokens {
        let text = text.into();
        Tokens { len: text.len(), source: Source::Memory(text), width: TokenWidth::U8 }
    }

    /// A file of nothing but tokens.
    ///
    /// # Errors
    /// [`IoError::Unreadable`]; [`IoError::TokenFile`] if its length is not a whole number of tokens.
    pub fn open(path: impl AsRef<Path>, width: TokenWidth) -> Result<Tokens, IoError> {
        let path = path.as_ref();
        let unreadable = |source| IoError::Unreadable { path: path.into(), source };
        let file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if about.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()));
        }
        let (bytes, size) = (about.len(), width.bytes());
        match usize::try_from(bytes) {
            Ok(n) if n.is_multiple_of(size) => {
                Ok(Tokens { source: Source::File(file, path.into()), width, len: n / size })
            }
            _ => Err(IoError::TokenFile { path: path.into(), bytes, size }),
        }
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Windows of `length` tokens, of which one begins every `stride` tokens: 1 for training, so that any place may begin
    /// one; `length` for a pass in which every token is predicted once.
    ///
    /// # Errors
    /// [`IoError::TextTooShort`] without room for one; [`IoError::EmptyWindow`] for a length or stride of 0.
    pub fn windows(self, length: usize, stride: usize) -> Result<TokenWindows, IoError> {
        let all = 0..self.len;
        TokenWindows::new(self, all, length, stride)
    }

    /// The same of a part of the tokens only, as a split for validation asks for.
    ///
    /// # Errors
    /// As those of [`Tokens::windows`]; a range beyond the end is cut off there.
    pub fn windows_of(
        self,
        range: Range<usize>,
        length: usize,
        stride: usize,
    ) -> Result<TokenWindows, IoError> {
        TokenWindows::new(self, range, length, stride)
    }
}

/// Windows of tokens: field 0 is what the model reads, `i32[length]`; field 1 what it should predict, the same moved on by
/// one token.
#[derive(Debug)]
pub struct TokenWindows {
    tokens: Tokens,
    begin: usize,
    len: usize,
    length: usize,
    stride: usize,
}

impl TokenWindows {
    fn new(
        tokens: Tokens,
        range: Range<usize>,
        length: usize,
        stride: usize,
    ) -> Result<TokenWindows, IoError> {
        if length == 0 || stride == 0 {
            return Err(IoError::EmptyWindow { length, stride });
        }
        let end = range.end.min(tokens.len);
        let begin = range.start.min(end);
        // The last token of a window is only predicted.
        match (end - begin).checked_sub(length.saturating_add(1)) {
            Some(room) => Ok(TokenWindows { tokens, begin, len: room / stride + 1, length, stride }),
            None => Err(IoError::TextTooShort { needed: length.saturating_add(1), found: end - begin }),
        }
    }
}

impl Dataset for TokenWindows {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> Vec<Field> {
        vec![Field::new(DType::I32, &[self.length]), Field::new(DType::I32, &[self.length])]
    }

    fn read(&self, index: usize, row: &mut Row<'_>) -> Result<(), IoError> {
        let (width, size) = (self.tokens.width, self.tokens.width.bytes());
        let start = self.begin + index * self.stride;
        let whole = (self.length + 1) * size;
        let copied;
        let window = match &self.tokens.source {
            Source::Memory(text) => &text[start * size..start * size + whole],
            Source::File(file, path) => {
                let mut bytes = vec![0; whole];
                read_at(file, &mut bytes, start as u64 * size as u64)
                    .map_err(|source| IoError::Unreadable { path: path.clone(), source })?;
                copied = bytes;
                &copied
            }
        };
        for (field, shift) in [(0, 0), (1, size)] {
            let places = row.field::<i32>(field)?.iter_mut().zip(window[shift..].chunks_exact(size));
            for (place, bytes) in places {
                let token = width.token(bytes);
                *place = i32::try_from(token).map_err(|_| IoError::Token { token })?;
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, place)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut place: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, place)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                bytes = &mut bytes[n..];
                place += n as u64;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batches, Last, Position};

    fn window(windows: TokenWindows, index: usize) -> Result<[Vec<i32>; 2], IoError> {
        let batches = Batches::new(windows, 1, Last::Drop)?;
        let arrays = batches.get(Position { epoch: 0, batch: index as u64 })?;
        Ok([0, 1].map(|i| arrays[i].as_slice::<i32>().unwrap().to_vec()))
    }

    #[test]
    fn targets_are_inputs_moved_on() {
        let text = Tokens::bytes(b"abcdefgh".to_vec());
        assert_eq!(
            window(text.windows(3, 1).unwrap(), 4).unwrap(),
            [vec![101, 102, 103], vec![102, 103, 104]]
        );
    }

    #[test]
    fn how_many_there_are() {
        let len =
            |n: usize, length, stride| Tokens::bytes(vec![0; n]).windows(length, stride).map(|w| w.len());
        assert_eq!(len(8, 3, 1).unwrap(), 5);
        assert_eq!(len(8, 3, 3).unwrap(), 2);
        assert_eq!(len(7, 3, 3).unwrap(), 2);
        assert_eq!(len(6, 3, 3).unwrap(), 1);
        assert_eq!(len(4, 3, 9).unwrap(), 1);
        assert!(matches!(len(3, 3, 1), Err(IoError::TextTooShort { needed: 4, found: 3 })));
        assert!(matches!(len(0, usize::MAX, 1), Err(IoError::TextTooShort { .. })));
        assert!(matches!(len(8, 0, 1), Err(IoError::EmptyWindow { length: 0, stride: 1 })));
        assert!(matches!(len(8, 1, 0), Err(IoError::EmptyWindow { .. })));
    }

    #[test]
    fn a_part_is_a_text_of_its_own() {
        let text = || Tokens::bytes((0..20u8).collect::<Vec<_>>());
        let part = text().windows_of(10..99, 4, 4).unwrap();
        assert_eq!(part.len(), 2);
        assert_eq!(window(part, 1).unwrap(), [vec![14, 15, 16, 17], vec![15, 16, 17, 18]]);
        assert!(text().windows_of(18..20, 4, 1).is_err());
        assert!(matches!(text().windows_of(30..40, 1, 1), Err(IoError::TextTooShort { found: 0, .. })));
    }

    #[test]
    fn files_of_every_width() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.bin");
        let tokens: [u32; 5] = [1, 2, 200, 4, 5];
        for width in [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32] {
            let bytes: Vec<u8> =
                tokens.iter().flat_map(|t| t.to_le_bytes()[..width.bytes()].to_vec()).collect();
            std::fs::write(&path, bytes).unwrap();
            let windows = Tokens::open(&path, width).unwrap().windows(3, 1).unwrap();
            assert_eq!(window(windows, 1).unwrap(), [vec![2, 200, 4], vec![200, 4, 5]]);
        }
        std::fs::write(&path, [0; 7]).unwrap();
        assert!(matches!(
            Tokens::open(&path, TokenWidth::U16),
            Err(IoError::TokenFile { bytes: 7, size: 2, .. })
        ));
        std::fs::write(&path, [255; 8]).unwrap();
        let windows = Tokens::open(&path, TokenWidth::U32).unwrap().windows(1, 1).unwrap();
        assert!(matches!(window(windows, 0), Err(IoError::Token { token: u32::MAX })));
        assert!(matches!(Tokens::open(folder.path(), TokenWidth::U8), Err(IoError::Unreadable { .. })));
        assert!(matches!(
            Tokens::open(folder.path().join("none"), TokenWidth::U8),
            Err(IoError::Unreadable { .. })
        ));
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.bin");
        std::fs::write(&path, [7; 100]).unwrap();
        let windows = Tokens::open(&path, TokenWidth::U8).unwrap().windows(10, 1).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20).unwrap();
        assert!(matches!(window(windows, 50), Err(IoError::Unreadable { .. })));
    }
}
