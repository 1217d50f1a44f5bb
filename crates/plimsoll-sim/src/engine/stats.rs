//! What is remembered of a run: sums and maxima, so that a long run takes no more memory than a short one.

use crate::Nanos;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All proofs are done.
    Done,
    /// More host memory was needed than there is: the kernel killed the process.
    OutOfMemory,
    /// Jobs wait, and nothing runs that could wake them: a wake-up was lost.
    Stuck {
        /// How many wait.
        waiting: u64,
    },
    /// A job's work was thrown away again and again, and no job came to its end in between.
    NoProgress {
        /// How often work of any job was thrown away.
        thrown_away: u64,
    },
    /// More happened than was allowed to.
    TooManyEvents,
    /// It would take more than a hundred years.
    TooLong,
    /// A job was refused for good.
    Refused {
        /// Why, in the ledger's words.
        why: String,
    },
}

impl End {
    /// The word for it, as traces and JSON have it.
    pub fn name(&self) -> &'static str {
        match self {
            End::Done => "done",
            End::OutOfMemory => "out-of-memory",
            End::Stuck { .. } => "stuck",
            End::NoProgress { .. } => "no-progress",
            End::TooManyEvents => "too-many-events",
            End::TooLong => "too-long",
            End::Refused { .. } => "refused",
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// When.
    pub time: Nanos,
    /// Proofs that were done.
    pub proofs: u64,
    /// Proofs that were lost because a stage failed.
    pub proofs_lost: u64,
    /// Jobs that were done.
    pub jobs: u64,
    /// Proofs that were late.
    pub late: u64,
    /// Seconds a proof from the first request to the last result.
    pub seconds_per_proof: f64,
    /// The same without the first quarter of the jobs, in which the line fills; by jobs, since proofs may end out of order.
    pub seconds_per_proof_steady: f64,
    /// The most host memory that was really used, runtime included.
    pub host_peak: u64,
    /// What it was made of, by class.
    pub host_peak_by_class: Vec<(&'static str, u64)>,
    /// The most that the ledger had charged, runtime included, where there was a ledger.
    pub charged_peak: Option<u64>,
    /// The most of a device's memory.
    pub device_peak: u64,
    /// The part of the time in which the devices computed.
    pub device_busy: f64,
    /// The most products that were made and not taken by a device.
    pub backlog_peak: u64,
    /// How many there were when the run ended.
    pub backlog: u64,
    /// The longest that a job waited, once it had asked to start, for that.
    pub wait_longest: Nanos,
    /// How long the first proof took that was done, from its arrival: with all that had to be loaded for it.
    pub proof_first: Nanos,
    /// The longest that a proof took, from its arrival.
    pub proof_longest: Nanos,
    /// Half of all proofs took no longer than this; and ninety-nine of a hundred.
    pub proof_median: Nanos,
    /// See `proof_median`.
    pub proof_p99: Nanos,
    /// Jobs that were begun again for want of memory.
    pub thrown_away: u64,
    /// How many things happened.
    pub events: u64,
    /// The work in progress that the pacer has settled on, circuit by circuit and rope by rope.
    pub tokens: Vec<Vec<u64>>,
}

impl Outcome {
    /// How it ended, in a sentence.
    pub fn in_words(&self) -> String {
        let Outcome { proofs, time, events, backlog, .. } = self;
        match &self.end {
            End::Done => format!("{proofs} proofs in {time}"),
            End::OutOfMemory => {
                format!("out of memory after {proofs} proofs, at {time}, with {backlog} products queued")
            }
            End::Stuck { waiting } => {
                format!("stuck after {proofs} proofs: {waiting} jobs wait and nothing runs that could wake them")
            }
            End::NoProgress { thrown_away } => format!(
                "no progress after {proofs} proofs, at {time}: work was thrown away and begun again {thrown_away} times, and no \
                 job comes to its end any more"
            ),
            End::TooManyEvents => format!("given up after {events} events, with {proofs} proofs done, at {time}"),
            End::TooLong => format!(
                "given up after {time}: the next event is more than a hundred years away; make stages shorter, or the machine \
                 faster"
            ),
            End::Refused { why } => format!("refused: {why}"),
        }
    }
}

/// Times by size: eight classes for each doubling.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    all: u64,
}

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram { counts: vec![0; 8 * 64], all: 0 }
    }

    pub(super) fn add(&mut self, value: u64) {
        let value = value.max(8);
        let octave = value.ilog2();
        let eighth = (value >> (octave - 3)) & 7;
        self.counts[(octave * 8) as usize + eighth as usize] += 1;
        self.all += 1;
    }

    /// The middle of the class in which so many of a thousand are below.
    pub(super) fn quantile(&self, of_a_thousand: u64) -> u64 {
        let mut left = self.all * of_a_thousand / 1000;
        for (at, &count) in self.counts.iter().enumerate() {
            if count > left {
                let (octave, eighth) = (at as u32 / 8, at as u64 % 8);
                return ((1u64 << octave) >> 4) * (2 * (8 + eighth) + 1);
            }
            left -= count;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let mut histogram = Histogram::new();
        (1..=100_000).for_each(|value| histogram.add(value * 1000));
        for (of, exact) in [(500, 50_000_000.0), (990, 99_000_000.0)] {
            let got = histogram.quantile(of) as f64;
            assert!((got / exact - 1.0).abs() < 1.0 / 15.0, "{got} for {exact}");
        }
    }
}
