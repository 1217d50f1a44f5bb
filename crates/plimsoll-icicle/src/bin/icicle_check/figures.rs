//! Milliseconds beside the processor's, taken in turns in one process.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use blstrs::Scalar;
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, Cpu, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_icicle::Icicle;

use crate::points;

/// Runs of each; the median is told.
const RUNS: usize = 5;
/// Multiplications in G2 are a quarter of the size.
const G2_PART: usize = 4;

fn scratch(bytes: u64) -> Result<Reservation, String> {
    let class = Class::new("scratch", Space::HOST);
    Ledger::unlimited().reserve(class, Bytes(bytes)).wait().map_err(|error| error.to_string())
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2] * 1e3
}

fn timed<R>(f: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = f();
    (start.elapsed().as_secs_f64(), result)
}

fn row(what: &str, log_size: u32, ours: Vec<f64>, cpu: Vec<f64>) {
    let (ours, cpu) = (median(ours), median(cpu));
    println!("| {what} | 2^{log_size} | {ours:.2} | {cpu:.2} | {:.2} |", cpu / ours);
}

/// Prints the table.
pub(crate) fn print(icicle: &Icicle, sizes: RangeInclusive<u32>) -> Result<(), String> {
    let largest = 1_usize << sizes.end();
    let key = points::key(largest, largest / G2_PART)?;
    icicle.adopt_key(&key);
    let scalars = points::scalars(largest);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = plimsoll::pool::Pool::new(plimsoll::pool::PoolConfig { threads, ..Default::default() });
    let pool = pool.map_err(|error| error.to_string())?;
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
    println!("| what | size | icicle ms | cpu ms ({threads} threads) | cpu ÷ icicle |\n|---|---|---|---|---|");
    for log_size in sizes.step_by(2) {
        let n = 1_usize << log_size;
        let mut rows: [(Vec<f64>, Vec<f64>); 4] = Default::default();
        let told = |error: plimsoll_groth16::backend::BackendError| error.to_string();
        let domain = Domain::with_log_size(log_size).ok_or("too large")?;
        // The first run loads points, tables and the domain, and is not counted.
        for run in 0..=RUNS {
            let mut both = |index: usize, f: &mut (dyn FnMut(&dyn Backend) -> Result<(), String> + Send)| {
                let (ours, first) = timed(|| f(icicle));
                let (theirs, second) = timed(|| pool.install(|| f(&*cpu)));
                if run > 0 {
                    rows[index].0.push(ours);
                    rows[index].1.push(theirs);
                }
                first.and(second)
            };
            both(0, &mut |backend| {
                let mut scratch = scratch(backend.msm_scratch_bytes(CurveGroup::G1, n, threads))?;
                backend.msm_g1(&key.l[..n], &scalars[..n], &mut scratch).map(drop).map_err(told)
            })?;
            both(1, &mut |backend| {
                let n = n / G2_PART;
                let mut scratch = scratch(backend.msm_scratch_bytes(CurveGroup::G2, n, threads))?;
                backend.msm_g2(&key.b_g2[..n], &scalars[..n], &mut scratch).map(drop).map_err(told)
            })?;
            for (index, transform) in [(2, Transform::Forward), (3, Transform::CosetForward)] {
                both(index, &mut |backend| {
                    let mut data: Vec<Scalar> = scalars[..n].to_vec();
                    let mut scratch = scratch(backend.ntt_scratch_bytes(n, threads))?;
                    backend.ntt(&domain, &mut data, transform, &mut scratch).map_err(told)
                })?;
            }
        }
        let [g1, g2, plain, coset] = rows;
        row("msm G1, points resident, scalars from the host", log_size, g1.0, g1.1);
        row("msm G2, the same", log_size - G2_PART.ilog2(), g2.0, g2.1);
        row("transform, from the host and back", log_size, plain.0, plain.1);
        row("transform on the coset", log_size, coset.0, coset.1);
    }
    println!();
    Ok(())
}
