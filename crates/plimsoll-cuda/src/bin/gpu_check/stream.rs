//! Streams of proofs: how many a second, how busy the device, how many bytes; under each budget, and by each policy.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::pipeline::Pacing;
use plimsoll::pool::Pool;
use plimsoll::{Ledger, Space};
use plimsoll_groth16::device::Residence;
use plimsoll_groth16::prover::Prover;

use crate::circuits::Chain;
use crate::prove::{kind, pool, prover_of};
use crate::setting::{Failed, Setting};
use crate::{Outcome, number, say};

/// What a stream was like.
struct Line {
    residence: String,
    /// From the first proof's beginning to the last one's end.
    a_second: f64,
    share: f64,
    /// From the middle of the stream: neither its beginning nor its end.
    steady_a_second: f64,
    steady_share: f64,
    kernels: f64,
    device: [u64; 2],
    host: Host,
    stages: String,
}

fn measure(
    prover: &Prover,
    pool: &Pool,
    circuit: Chain,
    proofs: u32,
    device_bytes: u64,
    residence: Option<Residence>,
    pacing: Pacing,
) -> Result<Line, Failed> {
    let setting = Setting::new(prover, pool, device_bytes, residence, pacing)?;
    // The key's load is not the stream's.
    for proof in setting.pipeline.run_all((0..4).map(|i| (format!("warm {i}"), circuit))) {
        proof.1?;
    }
    setting.pipeline.drain();
    drop(setting.marks());
    let held = |ledger: &Ledger| ledger.snapshot().space(Space::HOST).map_or(0, |space| space.held.0);
    let (held_before, resident_before) = (held(&setting.ledger), resident());
    let (busy, started) = (setting.device.driver().busy(), Instant::now());
    let over = AtomicBool::new(false);
    let (outcome, wall, host) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut host = Host { before: resident_before, ..Host::default() };
            while !over.load(Ordering::Relaxed) {
                host.look(resident(), &setting.ledger.snapshot(), held_before);
                std::thread::park_timeout(Duration::from_millis(1));
            }
            host
        });
        let mut outcome = Ok(());
        for proof in setting.pipeline.run_all((0..proofs).map(|i| (format!("{i}"), circuit))) {
            outcome = outcome.and(proof.1.map(drop));
        }
        let wall = started.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        (outcome, wall, sampler.join().unwrap_or_default())
    });
    outcome?;
    let all_busy = (setting.device.driver().busy() - busy).as_secs_f64();
    let snapshot = setting.ledger.snapshot();
    let marks = setting.marks();
    let (from, to) = (marks[marks.len() / 4], marks[marks.len() - 1 - marks.len() / 8]);
    let between = (marks.len() - 1 - marks.len() / 8 - marks.len() / 4) as f64;
    let steady = (to.computed - from.computed).as_secs_f64();
    Ok(Line {
        residence: format!("{:?}", setting.prover.residence()),
        a_second: f64::from(proofs) / wall,
        share: all_busy / wall * 100.0,
        steady_a_second: between / steady,
        steady_share: (to.busy - from.busy).as_secs_f64() / steady * 100.0,
        kernels: all_busy * 1e3 / f64::from(proofs),
        device: [
            snapshot.space(Space::device(0)).map_or(0, |space| space.peak.0 >> 20),
            setting.device.driver().used_peak_bytes() >> 20,
        ],
        host,
        stages: setting.stages(),
    })
}

impl Line {
    fn say(&self, name: &str) {
        let Self { residence, a_second, share, steady_a_second, steady_share, kernels, device, host, stages } = self;
        say(&format!(
            "{name} | {residence} | {a_second:.2} | {share:.1} % | {steady_a_second:.2} | {steady_share:.1} % | {kernels:.1} | \
             {}, {} | {} | {stages}",
            device[0],
            device[1],
            host.text(),
        ));
    }
}

const HEAD: &str = "| key | proofs a second, kernels' share: of all | of the middle | kernels ms a proof | device MiB: ledger, \
    arena | host MiB: ledger, process (at most; the ledger when the process had most), process before, process when the ledger had most (of which class) | \
     stages";

/// The same stream under each device budget. Behind a budget, `p` says that points pass through although the key has room.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (log, kind, proofs) = (number(args, 0, 20)?, kind(args, 1)?, number(args, 2, 64)?);
    let (pool, circuit) = (pool()?, Chain::new(log, kind));
    let prover = prover_of(circuit)?;
    say(&format!("budget MiB {HEAD}"));
    for budget in args.iter().skip(3) {
        let (mib, residence) = match budget.strip_suffix('p') {
            Some(mib) => (mib, Some(Residence::Streamed)),
            None => (&budget[..], None),
        };
        let bytes = mib.parse::<u64>()? << 20;
        measure(&prover, &pool, circuit, proofs, bytes, residence, Pacing::Auto)?.say(budget);
    }
    Ok(())
}

/// The same stream by each policy: a permit that comes back when synthesis has ended (as many as there are workers), a
/// permit that comes back with the proof, and pacing.
pub(crate) fn pile_up(args: &[String]) -> Outcome {
    let (log, kind, proofs, mib) = (number(args, 0, 20)?, kind(args, 1)?, number(args, 2, 96)?, number(args, 3, 4096)?);
    let (pool, circuit) = (pool()?, Chain::new(log, kind));
    let prover = prover_of(circuit)?;
    let permits = pool.threads() as u64;
    say(&format!("policy {HEAD}"));
    for (name, pacing) in [
        (format!("{permits} permits, back after synthesis"), Pacing::Unpaced),
        (format!("{permits} permits, back with the proof"), Pacing::Fixed(permits)),
        ("paced".to_owned(), Pacing::Auto),
    ] {
        measure(&prover, &pool, circuit, proofs, u64::from(mib) << 20, None, pacing)?.say(&name);
    }
    Ok(())
}

/// Host memory while a stream runs, beyond what there was before: by the ledger, and by the kernel.
#[derive(Clone, Debug, Default)]
struct Host {
    before: u64,
    held_most: u64,
    /// By how much the process had grown by then, and what the ledger held of each class.
    grown_then: u64,
    classes: Vec<(&'static str, u64)>,
    grown_most: u64,
    /// What the ledger said when the process was largest.
    held_then: u64,
}

impl Host {
    fn look(&mut self, resident: u64, ledger: &Snapshot, held_before: u64) {
        let held = ledger.space(Space::HOST).map_or(0, |space| space.held.0) - held_before;
        let grown = resident.saturating_sub(self.before);
        if held > self.held_most {
            (self.held_most, self.grown_then) = (held, grown);
            let of_host = ledger.classes.iter().filter(|usage| usage.class.space() == Space::HOST);
            self.classes = of_host.map(|usage| (usage.class.name(), usage.totals.held)).collect();
        }
        if grown > self.grown_most {
            (self.grown_most, self.held_then) = (grown, held);
        }
    }

    fn text(&self) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let Self { before, held_most, grown_then, ref classes, grown_most, held_then } = *self;
        let classes: Vec<_> = classes.iter().map(|(class, bytes)| format!("{class} {}", mib(*bytes))).collect();
        format!(
            "{}, {} ({}), {}, {} ({})",
            mib(held_most),
            mib(grown_most),
            mib(held_then),
            mib(before),
            mib(grown_then),
            classes.join(" ")
        )
    }
}

/// What the kernel says this process holds.
fn resident() -> u64 {
    const PAGE: u64 = 4096;
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE
}
