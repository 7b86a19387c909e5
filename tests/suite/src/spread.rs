//! Spreads the cases of a suite over the cores. Where compiling them all takes long, as for a GPU, the environment's
//! `ONESTEP_SUITE_PART=3/8` takes every eighth case, from the fourth on.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Which part of the cases is asked for: its number and how many there are.
pub fn part() -> (usize, usize) {
    let Ok(text) = std::env::var("ONESTEP_SUITE_PART") else { return (0, 1) };
    let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((k, n)) if k < n => (k, n),
        _ => panic!("ONESTEP_SUITE_PART is '{text}', not a part such as 0/8"),
    }
}

/// Calls `check` with each case of the part, and its number; the answers in order.
pub fn each<T: Sync, R: Send>(cases: &[T], check: impl Fn(usize, &T) -> R + Sync) -> Vec<(usize, R)> {
    let (first, step) = part();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = vec![];
        loop {
            let i = first + step * next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(i) else { return done };
            done.push((i, check(i, case)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut all: Vec<(usize, R)> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    all.sort_by_key(|(i, _)| *i);
    all
}

/// Checks each case, and fails with the first of what is wrong if anything is; otherwise what was found, in order.
pub fn all_hold<T: Sync, R: Send>(
    what: &str,
    cases: &[T],
    check: impl Fn(usize, &T) -> Result<R, String> + Sync,
) -> Vec<R> {
    let (mut good, mut bad) = (vec![], vec![]);
    for (_, result) in each(cases, check) {
        match result {
            Ok(found) => good.push(found),
            Err(why) => bad.push(why),
        }
    }
    let first = bad.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(bad.is_empty(), "{what}: {} of {} cases fail:\n{first}", bad.len(), bad.len() + good.len());
    good
}
