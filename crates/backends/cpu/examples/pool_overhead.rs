//! Prints the nanoseconds of an empty run, in and out of a session, and after a pause in which the workers slept.
//!
//! `cargo run --release -p onestep-cpu --example pool_overhead [threads…]` (default: 1 2).

use onestep_cpu::pool::Pool;
use std::time::{Duration, Instant};

const RUNS: u32 = 200_000;

fn per_run(pool: &Pool, chunks: usize) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..RUNS {
            pool.run(chunks, &|_, chunk| {
                std::hint::black_box(chunk);
            });
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(RUNS));
    }
    best
}

/// What a run adds to 5 µs when each thread gets a chunk that takes 5 µs.
fn beyond_five_microseconds(pool: &Pool) -> f64 {
    let work = Duration::from_micros(5);
    let mut total = Duration::ZERO;
    for _ in 0..20_000 {
        let start = Instant::now();
        pool.run(pool.threads(), &|_, _| {
            let start = Instant::now();
            while start.elapsed() < work {}
        });
        total += start.elapsed() - work;
    }
    total.as_nanos() as f64 / 20_000.0
}

fn after_a_pause(pool: &Pool) -> f64 {
    let mut total = Duration::ZERO;
    for _ in 0..200 {
        std::thread::sleep(Duration::from_micros(500));
        let start = Instant::now();
        pool.run(pool.threads(), &|_, chunk| {
            std::hint::black_box(chunk);
        });
        total += start.elapsed();
    }
    total.as_nanos() as f64 / 200.0
}

fn main() -> std::io::Result<()> {
    let mut threads: Vec<usize> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    if threads.is_empty() {
        threads = vec![1, 2];
    }
    println!(
        "ns per run of empty chunks; ns beyond the work itself; ns of an empty run with sleeping workers"
    );
    println!(
        "{:>7} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "threads", "2 empty", "16 empty", "session", "5 µs each", "asleep"
    );
    for n in threads {
        let pool = Pool::new(n)?;
        let (few, many) = (per_run(&pool, 2), per_run(&pool, 16));
        let session = pool.session();
        let (hot, working) = (per_run(&pool, 2), beyond_five_microseconds(&pool));
        drop(session);
        let asleep = after_a_pause(&pool);
        println!("{n:7} {few:9.0} {many:9.0} {hot:9.0} {working:9.0} {asleep:9.0}");
    }
    Ok(())
}
