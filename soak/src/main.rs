//! `cargo xtask soak`: random traces against the oracle, random ways through worlds of `plimsoll-check`, then random threads over one ledger after another.
//!
//! Options: `--events N` (of traces, a million unless given), `--steps N` (of the walks, a tenth as many unless given), `--seconds N` (of threads, 20 unless given), `--threads N`
//! (8), `--seed N` (printed; the same seed makes the same traces, and threads that do the same things in another
//! interleaving).

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll_soak::{actor, trace, walks};

struct Options {
    events: usize,
    steps: Option<usize>,
    seconds: u64,
    threads: u64,
    seed: u64,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(advice) => {
            eprintln!("{advice}");
            return ExitCode::FAILURE;
        }
    };
    println!("seed {}", options.seed);
    traces(&options);
    walks(&options);
    threads(&options);
    ExitCode::SUCCESS
}

fn options() -> Result<Options, String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let mut options = Options { events: 1_000_000, steps: None, seconds: 20, threads: 8, seed: now as u64 };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let number = args.next().and_then(|value| value.parse().ok()).ok_or(format!("{name} takes a number"))?;
        match name.as_str() {
            "--events" => options.events = number as usize,
            "--steps" => options.steps = Some(number as usize),
            "--seconds" => options.seconds = number,
            "--threads" => options.threads = number.max(1),
            "--seed" => options.seed = number,
            _ => {
                return Err(format!(
                    "unknown option {name}; there are --events, --steps, --seconds, --threads and --seed"
                ));
            }
        }
    }
    Ok(options)
}

fn traces(options: &Options) {
    let started = Instant::now();
    let (mut events, mut count) = (0, 0);
    while events < options.events {
        let seed = options.seed.wrapping_add(count);
        let ran = std::panic::catch_unwind(|| trace::run_random(seed));
        match ran {
            Ok(ran) => events += ran,
            Err(_) => {
                eprintln!("the trace of seed {seed} failed: --seed {seed} --events 1 begins with it");
                std::process::exit(1);
            }
        }
        count += 1;
    }
    println!("{events} events in {count} traces, {:.1} s", started.elapsed().as_secs_f64());
}

/// A tenth as many steps as the traces have, unless told otherwise: each is checked by trying all orders.
fn walks(options: &Options) {
    let started = Instant::now();
    let (mut steps, mut count) = (0, 0);
    while steps < options.steps.unwrap_or(options.events / 10) {
        let seed = options.seed.wrapping_add(count);
        match walks::run(seed) {
            Ok(report) => steps += report.transitions,
            Err(error) => {
                eprintln!("the walk of seed {seed} failed: --seed {seed} --events 10 begins with it\n{error}");
                eprintln!("its world: {}", walks::declared(seed));
                std::process::exit(1);
            }
        }
        count += 1;
    }
    println!("{steps} steps in {count} walks, {:.1} s", started.elapsed().as_secs_f64());
}

fn threads(options: &Options) {
    let started = Instant::now();
    let lasts = Duration::from_secs(options.seconds);
    let (mut rounds, mut snapshots) = (0u64, 0u64);
    while started.elapsed() < lasts {
        let seed = options.seed.wrapping_add(rounds);
        let ledger = actor::ledger(seed);
        let running = AtomicU64::new(options.threads);
        std::thread::scope(|scope| {
            for thread in 0..options.threads {
                let (ledger, running) = (&ledger, &running);
                scope.spawn(move || {
                    let _end = End(running);
                    actor::act(ledger, seed.wrapping_mul(31).wrapping_add(thread), 400);
                });
            }
            let round = Instant::now();
            while running.load(Relaxed) > 0 {
                actor::check(&ledger);
                snapshots += 1;
                std::thread::yield_now();
                if round.elapsed() > Duration::from_secs(120) {
                    eprintln!("seed {seed}: nobody gets on\n{:#?}", ledger.snapshot());
                    std::process::exit(1);
                }
            }
        });
        ledger.quiesce(Duration::ZERO).unwrap_or_else(|left| panic!("seed {seed}: something is left: {left:#?}"));
        assert!(ledger.snapshot().is_empty(), "seed {seed}: something was not returned");
        rounds += 1;
    }
    let acts = rounds * options.threads * 400;
    println!("{acts} acts of {} threads in {rounds} ledgers, {snapshots} pictures checked", options.threads);
}

/// Counts a thread down, also when it panics.
struct End<'a>(&'a AtomicU64);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
