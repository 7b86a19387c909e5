//! Feeding batches: shuffled by seed, read ahead on a thread of their own, taken up at any position.
//!
//! A [`Dataset`] knows its samples; [`Batches`] knows which of them are in which batch, and is a pure function of the
//! position; a [`Loader`] runs it ahead of the consumer. So the batches depend on seed and position alone, never on timing.
//!
//! ```
//! use onestep_io::{Batches, Columns, Last, Loader, Position};
//! use onestep_ir::Array;
//!
//! let images = Array::new(&[10, 2], &[0.5f32; 20])?;
//! let labels = Array::new(&[10], &[0i32, 1, 2, 3, 4, 5, 6, 7, 8, 9])?;
//! let batches = Batches::new(Columns::new([images, labels])?, 4, Last::Drop)?.shuffled(1);
//! let mut loader = Loader::start(batches, Position::default())?;
//! for _ in 0..3 {
//!     let batch = loader.next()?; // &[images, labels], as a program takes them
//!     assert_eq!(batch[0].shape(), [4, 2]);
//! }
//! // Two batches an epoch; this is what a checkpoint keeps.
//! assert_eq!(loader.position(), Position { epoch: 1, batch: 1 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batches;
mod dataset;
mod order;
mod tokens;

pub use batches::{Batches, Last, Position};
pub use dataset::{Columns, Dataset, Field, FromFn, Row, SampleError, from_fn};
pub use tokens::{TokenWidth, TokenWindows, Tokens};

use crate::IoError;
use onestep_ir::Array;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Batches that are ready before they are asked for.
const AHEAD: usize = 2;

/// A batch on its way.
#[derive(Debug)]
struct Filled {
    arrays: Vec<Array>,
    rows: usize,
    /// The place of the batch after it.
    next: Position,
}

/// An endless sequence of batches, epoch after epoch, read ahead on a thread of its own. The arrays are used again; after
/// the first few batches no memory is taken, as long as the caller keeps no clone of them.
///
/// Dropping it ends the thread, as soon as the dataset gives back the sample that it is reading.
#[derive(Debug)]
pub struct Loader {
    /// Both `None` once it is over.
    full: Option<Receiver<Result<Filled, IoError>>>,
    empty: Option<SyncSender<Vec<Array>>>,
    thread: Option<JoinHandle<()>>,
    current: Filled,
}

impl Loader {
    /// Starts reading at a position.
    ///
    /// # Errors
    /// [`IoError::Position`] if there is no such batch; [`IoError::Thread`] if the system has no thread to give.
    pub fn start(batches: Batches, at: Position) -> Result<Loader, IoError> {
        batches.check(at)?;
        let (give_full, full) = sync_channel(AHEAD);
        // One batch with the consumer and one in the making, besides those that wait: returning one never blocks.
        let (empty, take_empty) = sync_channel(AHEAD + 2);
        for _ in 0..AHEAD + 1 {
            // There is room for all.
            let _ = empty.try_send(vec![]);
        }
        let produce = move || produce(&batches, at, &give_full, &take_empty);
        let thread = Builder::new().name("onestep-loader".into()).spawn(produce).map_err(IoError::Thread)?;
        let current = Filled { arrays: vec![], rows: 0, next: at };
        Ok(Loader { full: Some(full), empty: Some(empty), thread: Some(thread), current })
    }

    /// The next batch, valid until the next call.
    ///
    /// # Errors
    /// The dataset's, once, and [`IoError::Panicked`] if it panicked; [`IoError::LoaderEnded`] at every call after that.
    #[expect(clippy::should_implement_trait, reason = "the batch borrows the loader, and reading can fail")]
    pub fn next(&mut self) -> Result<&[Array], IoError> {
        let (Some(full), Some(empty)) = (&self.full, &self.empty) else { return Err(IoError::LoaderEnded) };
        match full.recv().map_err(|_| IoError::LoaderEnded).flatten() {
            Ok(filled) => {
                let used = std::mem::replace(&mut self.current, filled);
                // Where the thread has ended over an error, nobody needs it.
                let _ = empty.try_send(used.arrays);
                Ok(&self.current.arrays)
            }
            Err(error) => {
                self.end();
                Err(error)
            }
        }
    }

    /// The place of the batch that [`Loader::next`] gives next.
    pub fn position(&self) -> Position {
        self.current.next
    }

    /// Samples in the batch given last: fewer than its rows if it was padded.
    pub fn samples(&self) -> usize {
        self.current.rows
    }

    fn end(&mut self) {
        (self.full, self.empty) = (None, None);
        if let Some(thread) = self.thread.take() {
            // Its panics have been caught and told.
            let _ = thread.join();
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread: fills what comes back empty, until nobody is at the other end or something fails.
fn produce(
    batches: &Batches,
    mut at: Position,
    full: &SyncSender<Result<Filled, IoError>>,
    empty: &Receiver<Vec<Array>>,
) {
    while let Ok(mut arrays) = empty.recv() {
        let fill = || batches.fill(at, &mut arrays);
        let rows = catch_unwind(AssertUnwindSafe(fill)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(IoError::Panicked { message: text.unwrap_or_default() })
        });
        at = batches.after(at);
        let failed = rows.is_err();
        let sent = full.send(rows.map(|rows| Filled { arrays, rows, next: at }));
        if sent.is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
