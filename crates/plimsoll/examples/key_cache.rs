//! A cache of proving keys that gives way to the work: keys stay while there is room, and go when a job needs it.
//!
//! Three kinds of proofs need three keys, of which only two fit beside a proof. Each key is loaded once for all jobs that
//! want it at the time, and the one that costs least to miss goes first.
//!
//! ```text
//! cargo run --example key_cache
//! ```

use std::error::Error;
use std::thread;
use std::time::Duration;

use plimsoll::ledger::{Load, Residency};
use plimsoll::{Budget, Bytes, Charged, Class, Demand, JobSpec, Ledger, Profile, Space};

const KEYS: Class = Class::new("keys", Space::HOST);
const SCRATCH: Class = Class::new("scratch", Space::HOST);

/// A key is a buffer that its residency pays for.
type Key = Charged<Vec<u8>>;

/// The size of a key, and what a proof needs beside it.
const KEY: usize = 1 << 20;
const PROOF: Bytes = Bytes(512 << 10);

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let limit = Bytes(2 * KEY as u64) + PROOF;
    let ledger = Ledger::new(Budget::new().space(Space::HOST, limit));
    let key = |name, seconds| ledger.residency(name, KEYS, Bytes(KEY as u64), Duration::from_secs(seconds));
    // What it takes to load them again: from a disk, over a network, by computing it.
    let keys: Vec<Residency<Key>> = vec![key("window", 2)?, key("winning", 15)?, key("snap", 90)?];

    // Twelve jobs on three threads.
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                scope.spawn({
                    let (ledger, keys) = (&ledger, &keys);
                    move || (0..4).try_for_each(|round| prove(ledger, &keys[(worker + round) % 3]))
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;

    let snapshot = ledger.snapshot();
    for usage in &snapshot.residencies {
        let (name, loads, evictions) = (&usage.name, usage.loads, usage.evictions);
        println!("{name}: loaded {loads} times, evicted {evictions} times, {} held now", usage.held);
    }
    let peak = snapshot.space(Space::HOST).expect("it has a limit").peak;
    println!("peak {peak} of {limit}");
    assert!(peak <= limit);

    // Who is about to end, and wants nothing left behind, closes the ledger.
    ledger.close();
    assert!(ledger.snapshot().is_empty());
    Ok(())
}

/// One job: its key is pinned from its admission to its end.
fn prove(ledger: &Ledger, key: &Residency<Key>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let profile = Profile::new().stage("prove", Demand::new().bytes(SCRATCH, PROOF), Demand::new());
    let mut job = ledger.submit(JobSpec::new(key.name(), profile).needs(key))?;
    // To one job at a time falls the load. Whoever drops it unfilled, as `?` does here, leaves it to another one.
    while let Some(load) = job.load().wait()? {
        let mut load: Load<Key> = load.of(key).map_err(|other| format!("{other:?} was not asked for"))?;
        let value = read(&mut load)?;
        load.fill(value).map_err(|_| "the job has ended")?;
    }
    let mut grant = job.enter(0).wait()?;
    let scratch: Charged<Vec<u8>> = grant.vec(SCRATCH, PROOF.0 as usize)?;
    let key = grant.pinned(key).ok_or("the job needs it")?;
    assert!(key.len() == KEY && scratch.capacity() > 0);
    Ok(())
}

/// Stands for reading a file: the buffer is taken from what the residency pays for.
fn read(load: &mut Load<Key>) -> Result<Key, Box<dyn Error + Send + Sync>> {
    let mut key = load.vec(KEY)?;
    key.resize(KEY, 7)?;
    Ok(key)
}
