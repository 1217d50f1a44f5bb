//! Milliseconds beside the processor's, taken in turns in one process.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use blstrs::{G1Projective, G2Projective, Scalar};
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, Cpu, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_icicle::Icicle;

use crate::points;

/// Runs of each, at the most; the median is told.
const RUNS: usize = 5;
pub(crate) fn scratch(bytes: u64) -> Result<Reservation, String> {
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

/// What to measure.
#[derive(Clone, Copy)]
pub(crate) struct What {
    pub(crate) msm: bool,
    pub(crate) ntt: bool,
    /// Multiplications in G2 are smaller by this factor.
    pub(crate) g2_part: usize,
}

/// What comes of an operation: the same here and on the processor.
#[derive(PartialEq)]
enum Answer {
    G1(G1Projective),
    G2(G2Projective),
    Scalars(Vec<Scalar>),
}

/// One row's times, here and on the processor, and by this project's own kernels for CUDA.
#[derive(Default)]
struct Row {
    ours: Vec<f64>,
    cpu: Vec<f64>,
    cuda: Vec<f64>,
}

impl Row {
    /// Makes it on both in turns, up to five times, and not again once it has taken so many seconds.
    fn take(seconds: f64, mut both: impl FnMut() -> Result<(f64, f64), String>) -> Result<Self, String> {
        let mut row = Self::default();
        while row.ours.len() < RUNS && row.ours.iter().chain(&row.cpu).sum::<f64>() < seconds {
            let (ours, cpu) = both()?;
            row.ours.push(ours);
            row.cpu.push(cpu);
        }
        Ok(row)
    }

    #[cfg(feature = "beside-cuda")]
    fn beside(self, cuda: Vec<f64>, is_the_same: bool) -> Result<Self, String> {
        if is_the_same { Ok(Self { cuda, ..self }) } else { Err("the two devices' answers differ".to_owned()) }
    }

    fn print(self, what: &str, log_size: u32) {
        let runs = self.ours.len();
        let (ours, cpu) = (median(self.ours), median(self.cpu));
        let cuda = match self.cuda.is_empty() {
            true => "| |".to_owned(),
            false => {
                let cuda = median(self.cuda);
                format!("| {cuda:.2} | {:.2} |", cuda / ours)
            }
        };
        println!("| {what} | 2^{log_size} | {ours:.2} | {cpu:.2} | {:.2} {cuda} {runs} |", cpu / ours);
    }
}

/// Prints the table; each answer is compared.
pub(crate) fn print(icicle: &Icicle, what: What, sizes: RangeInclusive<u32>, seconds: f64) -> Result<(), String> {
    let largest = 1_usize << sizes.end();
    let g2_part = what.g2_part;
    let points = if what.msm { largest } else { g2_part };
    let key = points::key(points, points / g2_part)?;
    if what.msm {
        icicle.adopt_key(&key);
    }
    let scalars = points::scalars(largest);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = plimsoll::pool::Pool::new(plimsoll::pool::PoolConfig { threads, ..Default::default() });
    let pool = pool.map_err(|error| error.to_string())?;
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new());
    println!(
        "| what | size | icicle ms | cpu ms ({threads} threads) | cpu ÷ icicle | cuda ms | cuda ÷ icicle | runs |\n\
         |---|---|---|---|---|---|---|---|"
    );
    let told = |error: plimsoll_groth16::backend::BackendError| error.to_string();
    let both = |f: &mut (dyn FnMut(&dyn Backend) -> Result<Answer, String> + Send)| -> Result<(f64, f64), String> {
        let (ours, first) = timed(|| f(icicle));
        let (theirs, second) = timed(|| pool.install(|| f(&*cpu)));
        if first? != second? {
            return Err("the device's answer is not the processor's".to_owned());
        }
        Ok((ours, theirs))
    };
    let msm_g1 = |backend: &dyn Backend, n: usize| {
        let mut scratch = scratch(backend.msm_scratch_bytes(CurveGroup::G1, n, threads))?;
        backend.msm_g1(&key.l[..n], &scalars[..n], &mut scratch).map(Answer::G1).map_err(told)
    };
    let msm_g2 = |backend: &dyn Backend, n: usize| {
        let mut scratch = scratch(backend.msm_scratch_bytes(CurveGroup::G2, n, threads))?;
        backend.msm_g2(&key.b_g2[..n], &scalars[..n], &mut scratch).map(Answer::G2).map_err(told)
    };
    let ntt = |backend: &dyn Backend, log_size: u32, transform: Transform| {
        let domain = Domain::with_log_size(log_size).ok_or("too large")?;
        let n = 1 << log_size;
        let mut data: Vec<Scalar> = scalars[..n].to_vec();
        let mut scratch = scratch(backend.ntt_scratch_bytes(n, threads))?;
        backend.ntt(&domain, &mut data, transform, &mut scratch).map(|()| Answer::Scalars(data)).map_err(told)
    };
    if what.msm {
        // All points of the key are loaded for the first of them.
        msm_g1(icicle, 1)?;
        msm_g2(icicle, 1)?;
    }
    #[cfg(feature = "beside-cuda")]
    let beside = crate::cuda::Beside::open(icicle.owner().name().id())?;
    let mut memory = Vec::new();
    for log_size in sizes.step_by(2) {
        let n = 1_usize << log_size;
        if what.msm {
            let row = Row::take(seconds, || both(&mut |backend| msm_g1(backend, n)))?;
            #[cfg(feature = "beside-cuda")]
            let row = {
                let (times, sum) = beside.msm(CurveGroup::G1, &key.l[..n], &scalars[..n], RUNS)?;
                row.beside(times, msm_g1(icicle, n)? == Answer::G1(sum))?
            };
            memory.push(("G1", log_size, icicle.learned()));
            row.print("msm G1, points resident, scalars from the host", log_size);
            let row = Row::take(seconds, || both(&mut |backend| msm_g2(backend, n / g2_part)))?;
            #[cfg(feature = "beside-cuda")]
            let row = {
                let n = n / g2_part;
                let (times, sum) = beside.msm(CurveGroup::G2, &key.b_g2[..n], &scalars[..n], RUNS)?;
                row.beside(times, msm_g2(icicle, n)? == Answer::G2(sum))?
            };
            memory.push(("G2", log_size - g2_part.ilog2(), icicle.learned()));
            row.print("msm G2, the same", log_size - g2_part.ilog2());
        }
        if !what.ntt {
            continue;
        }
        for (transform, what) in [
            (Transform::Forward, "transform, from the host and back"),
            (Transform::CosetForward, "transform on the coset"),
        ] {
            // The first makes tables and the domain, and is not counted.
            ntt(icicle, log_size, transform)?;
            pool.install(|| ntt(&*cpu, log_size, transform))?;
            let row = Row::take(seconds, || both(&mut |backend| ntt(backend, log_size, transform)))?;
            #[cfg(feature = "beside-cuda")]
            let row = {
                let domain = Domain::with_log_size(log_size).ok_or("too large")?;
                let mut data = Vec::new();
                let times = (0..RUNS).map(|_| {
                    data = scalars[..1 << log_size].to_vec();
                    beside.ntt(&domain, &mut data, transform)
                });
                let times = times.collect::<Result<_, _>>()?;
                row.beside(times, ntt(icicle, log_size, transform)? == Answer::Scalars(data))?
            };
            row.print(what, log_size);
        }
    }
    if !memory.is_empty() {
        println!("\n| multiplication | size | scratch predicted | seen |\n|---|---|---|---|");
    }
    for (group, log_size, learned) in memory {
        let (predicted, seen) = (Bytes(learned.last_predicted_bytes), Bytes(learned.last_seen_bytes));
        println!("| {group} | 2^{log_size} | {predicted} | {seen} |");
    }
    println!("\nlearned: {:?}\nbooks: {:?}\n", icicle.learned(), icicle.reconcile());
    Ok(())
}
