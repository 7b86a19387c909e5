//! First values of many tensors: each is a function of the seed and its path alone, so threads may share them out freely.

use crate::Error;
use onestep_ir::{Array, ArrayError, Graph, StatePort};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Elements that are worth threads.
const MANY: usize = 1 << 22;

/// Gives the first value of each state to `keep`, by its path, as it gets ready.
pub(super) fn values(
    graph: &Graph,
    states: &[&StatePort],
    seed: u64,
    keep: &mut dyn FnMut(&str, Array),
) -> Result<(), Error> {
    let first = |s: &StatePort| -> Result<Array, ArrayError> {
        let ty = graph.ty(s.value);
        s.init.array(ty.dtype, &ty.sizes(), seed, &s.name)
    };
    let elements = states.iter().fold(0usize, |sum, s| sum.saturating_add(graph.ty(s.value).numel()));
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let threads = if elements < MANY { 1 } else { cores.min(states.len()) };
    if threads == 1 {
        return states.iter().try_for_each(|s| {
            keep(&s.name, first(s)?);
            Ok(())
        });
    }
    let next = AtomicUsize::new(0);
    // No more tensors wait to be kept than there are threads.
    let (sender, ready) = sync_channel(threads);
    let draw = |sender: SyncSender<_>| {
        while let Some(s) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
            // A receiver that has gone met an error.
            if sender.send((&s.name, first(s))).is_err() {
                return;
            }
        }
    };
    let draw = &draw;
    thread::scope(|scope| {
        // Both end here, whatever happens: threads that still draw find the receiver gone.
        let (sender, ready) = (sender, ready);
        for _ in 0..threads {
            let sender = sender.clone();
            let refused = |e: std::io::Error| Error::Spawn { threads, message: e.to_string() };
            thread::Builder::new().spawn_scoped(scope, move || draw(sender)).map_err(refused)?;
        }
        drop(sender);
        for (name, array) in ready {
            keep(name, array?);
        }
        Ok(())
    })
}
