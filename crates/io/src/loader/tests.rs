//! The loader and its batches: orders, ends of epochs, places to go on from, and what goes wrong on the other thread.

use super::*;
use onestep_ir::DType;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Samples that are their own number.
fn numbers(n: usize) -> Columns {
    let all: Vec<i32> = (0..n as i32).collect();
    let pairs: Vec<f32> = (0..2 * n).map(|i| (i / 2) as f32).collect();
    Columns::new([Array::new(&[n], &all).unwrap(), Array::new(&[n, 2], &pairs).unwrap()]).unwrap()
}

fn of(arrays: &[Array]) -> Vec<i32> {
    let numbers = arrays[0].as_slice::<i32>().unwrap().to_vec();
    let pairs: Vec<i32> = arrays[1].as_slice::<f32>().unwrap().iter().map(|&x| x as i32).collect();
    assert_eq!(pairs, numbers.iter().flat_map(|&n| [n, n]).collect::<Vec<_>>());
    numbers
}

fn epoch(batches: &Batches, epoch: u64) -> Vec<Vec<i32>> {
    (0..batches.per_epoch()).map(|batch| of(&batches.get(Position { epoch, batch }).unwrap())).collect()
}

#[test]
fn an_epoch_has_every_sample_once_in_an_order_of_its_own() {
    let batches = Batches::new(numbers(23), 5, Last::Keep).unwrap().shuffled(4);
    let [first, second] = [0, 1].map(|e| epoch(&batches, e));
    assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5, 5, 5, 3]);
    assert_ne!(first, second);
    for epoch in [first, second] {
        assert_eq!(epoch.concat().into_iter().collect::<BTreeSet<_>>(), (0..23).collect());
    }
    let other = Batches::new(numbers(23), 5, Last::Drop).unwrap().shuffled(5);
    assert_ne!(epoch(&batches, 0)[..4], epoch(&other, 0));
    let plain = Batches::new(numbers(4), 2, Last::Drop).unwrap();
    assert_eq!(epoch(&plain, 7), [[0, 1], [2, 3]]);
}

#[test]
fn what_is_left_over() {
    let new = |n, last| Batches::new(numbers(n), 4, last).unwrap();
    assert_eq!(epoch(&new(10, Last::Drop), 0).concat(), (0..8).collect::<Vec<_>>());
    assert_eq!(new(8, Last::Keep).per_epoch(), 2);
    assert_eq!(epoch(&new(3, Last::Keep), 0), [[0, 1, 2]]);
    let padded = new(10, Last::Pad);
    assert_eq!(padded.per_epoch(), 3);
    let mut arrays = padded.get(Position { epoch: 0, batch: 1 }).unwrap();
    assert_eq!(arrays[2].as_slice::<f32>().unwrap(), [1.0; 4]);
    // Over the rows of another batch, which must be gone.
    assert_eq!(padded.fill(Position { epoch: 0, batch: 2 }, &mut arrays).unwrap(), 2);
    assert_eq!(of(&arrays), [8, 9, 0, 0]);
    assert_eq!(arrays[2].as_slice::<f32>().unwrap(), [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn ranks_together_are_one_larger_process() {
    let whole = Batches::new(numbers(29), 6, Last::Drop).unwrap().shuffled(9);
    let ranks: Vec<Batches> = (0..3)
        .map(|rank| Batches::new(numbers(29), 2, Last::Drop).unwrap().shuffled(9).shard(rank, 3).unwrap())
        .collect();
    for e in 0..2 {
        let shares: Vec<_> = ranks.iter().map(|b| epoch(b, e)).collect();
        for (n, batch) in epoch(&whole, e).into_iter().enumerate() {
            assert_eq!(shares.iter().flat_map(|s| s[n].clone()).collect::<Vec<_>>(), batch);
        }
    }
    // Padded, every rank has a last batch, be it without a sample.
    let padded = |rank| Batches::new(numbers(7), 2, Last::Pad).unwrap().shard(rank, 3).unwrap();
    let weights = |rank: usize| {
        let arrays = padded(rank).get(Position { epoch: 0, batch: 1 }).unwrap();
        arrays[2].as_slice::<f32>().unwrap().to_vec()
    };
    assert_eq!([0, 1, 2].map(weights), [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]);
}

#[test]
fn batches_that_cannot_be() {
    let new = |n, batch| Batches::new(numbers(n), batch, Last::Drop);
    assert!(matches!(new(0, 1), Err(IoError::NoBatch { samples: 0, .. })));
    assert!(matches!(new(3, 0), Err(IoError::NoBatch { batch: 0, .. })));
    assert!(matches!(new(3, 4), Err(IoError::NoBatch { samples: 3, batch: 4, ranks: 1 })));
    assert!(matches!(new(9, 4).unwrap().shard(0, 3), Err(IoError::NoBatch { ranks: 3, .. })));
    assert!(matches!(new(9, 4).unwrap().shard(2, 2), Err(IoError::Rank { rank: 2, ranks: 2 })));
    assert!(matches!(new(9, 4).unwrap().shard(0, 0), Err(IoError::Rank { .. })));
    assert!(matches!(new(9, 2).unwrap().shard(0, usize::MAX), Err(IoError::NoBatch { .. })));
    let kept = Batches::new(numbers(9), 2, Last::Keep).unwrap();
    assert!(matches!(kept.shard(0, 2), Err(IoError::KeepShards { ranks: 2 })));
    let beyond = Position { epoch: 0, batch: 2 };
    assert!(matches!(new(9, 4).unwrap().get(beyond), Err(IoError::Position { batches: 2, .. })));
    assert!(matches!(Loader::start(new(9, 4).unwrap(), beyond), Err(IoError::Position { .. })));
    assert!(Columns::new([]).is_err());
    assert!(Columns::new([Array::scalar(1f32)]).is_err());
    let (a, b) = (Array::zeros(DType::F32, &[3]).unwrap(), Array::zeros(DType::F32, &[2]).unwrap());
    assert!(Columns::new([a, b]).unwrap_err().to_string().contains("[3], [2]"));
}

#[test]
fn a_loader_gives_what_batches_give_and_is_taken_up_anywhere() {
    let batches = || Batches::new(numbers(11), 3, Last::Keep).unwrap().shuffled(2);
    let (mut all, mut places) = (vec![], vec![Position::default()]);
    let mut loader = Loader::start(batches(), Position::default()).unwrap();
    for _ in 0..10 {
        all.push(of(loader.next().unwrap()));
        assert_eq!(loader.samples(), all.last().unwrap().len());
        places.push(loader.position());
    }
    assert_eq!(all, (0..3).flat_map(|e| epoch(&batches(), e)).take(10).collect::<Vec<_>>());
    assert_eq!(places[5], Position { epoch: 1, batch: 1 });
    for (done, at) in places.into_iter().enumerate().take(10) {
        let mut resumed = Loader::start(batches(), at).unwrap();
        assert_eq!(resumed.position(), at);
        assert_eq!(of(resumed.next().unwrap()), all[done]);
    }
}

#[test]
fn arrays_are_used_again_and_a_clone_is_the_callers_own() {
    let mut loader =
        Loader::start(Batches::new(numbers(64), 2, Last::Drop).unwrap(), Position::default()).unwrap();
    let mut kept = loader.next().unwrap()[0].clone();
    let before = kept.clone();
    let mut addresses = BTreeSet::new();
    for _ in 0..100 {
        addresses.insert(loader.next().unwrap()[0].bytes().as_ptr() as usize);
    }
    assert!(addresses.len() <= AHEAD + 2 + 1, "{addresses:?}");
    assert_eq!(kept, before, "the caller's clone has not changed");
    kept.as_mut_slice::<i32>().unwrap()[0] = 9;
    assert_ne!(kept, before);
}

#[test]
fn a_failure_reaches_the_consumer_once_and_in_its_place() {
    for panics in [false, true] {
        let read = move |index: usize, row: &mut Row<'_>| {
            row.field::<u8>(0)?[0] = index as u8;
            match index {
                5 if panics => panic!("sample {index} is cursed"),
                5 => Err(format!("sample {index} is lost").into()),
                _ => Ok(()),
            }
        };
        let set = from_fn(8, [Field::new(DType::U8, &[1])], read);
        let mut loader =
            Loader::start(Batches::new(set, 2, Last::Drop).unwrap(), Position::default()).unwrap();
        assert_eq!(loader.next().unwrap()[0].bytes(), [0, 1]);
        assert_eq!(loader.next().unwrap()[0].bytes(), [2, 3]);
        let error = loader.next().unwrap_err();
        match panics {
            true => assert!(error.to_string().contains("sample 5 is cursed"), "{error}"),
            false => assert!(matches!(error, IoError::Sample { index: 5, .. }), "{error}"),
        }
        assert!(matches!(loader.next(), Err(IoError::LoaderEnded)));
        assert_eq!(loader.position(), Position { epoch: 0, batch: 2 });
    }
}

#[test]
fn a_closure_that_writes_the_wrong_field() {
    let set = |read: fn(usize, &mut Row<'_>) -> Result<(), SampleError>| {
        let set = from_fn(1, [Field::new(DType::F32, &[2])], read);
        Batches::new(set, 1, Last::Drop).unwrap().get(Position::default()).unwrap_err().to_string()
    };
    assert!(set(|_, row| Ok(row.field::<i32>(0).map(|_| ())?)).contains("f32"));
    assert!(set(|_, row| Ok(row.bytes(1).map(|_| ())?)).contains("no field 1"));
}

#[test]
fn truth_values_are_0_or_1() {
    let read = |_: usize, row: &mut Row<'_>| {
        row.bytes(0)?.copy_from_slice(&[0, 2, 255]);
        Ok(())
    };
    let set = from_fn(1, [Field::new(DType::Bool, &[3])], read);
    assert_eq!(
        Batches::new(set, 1, Last::Drop).unwrap().get(Position::default()).unwrap()[0].bytes(),
        [0, 1, 1]
    );
}

/// It stops although it has batches left to read, and nothing of it stays.
#[test]
fn dropping_ends_the_thread() {
    let alive = Arc::new(AtomicUsize::new(0));
    let (count, held) = (Arc::new(AtomicUsize::new(0)), alive.clone());
    let reads = count.clone();
    let set = from_fn(usize::MAX, [Field::new(DType::U8, &[])], move |_, _| {
        held.fetch_add(0, Ordering::Relaxed);
        reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut loader = Loader::start(Batches::new(set, 1, Last::Drop).unwrap(), Position::default()).unwrap();
    loader.next().unwrap();
    drop(loader);
    assert_eq!(Arc::strong_count(&alive), 1, "the dataset went with the thread");
    let read = count.load(Ordering::Relaxed);
    assert!((1..=AHEAD + 2).contains(&read), "it read ahead without bound: {read}");
}
