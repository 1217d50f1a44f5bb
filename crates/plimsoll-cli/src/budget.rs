//! From the line (the most that the process may hold) to the ledger's limit, and back.
//!
//! The ledger counts the large buffers. Besides them the process holds its code, its threads' stacks, small allocations, and what
//! the allocator rounds up. That share is fixed here, from measurements on x86-64 Linux; a test sweeps budgets and compares the
//! process's peak with the line.

use std::fmt;

use plimsoll::{Bytes, Demand, Profile, Resource};

use crate::machine::{Limit, Machine, Source};

/// Code, static data, the runtime, the argument parser, buffers of the terminal and of files. Measured: a run of a debug build on two
/// threads holds 17 MiB more than its ledger, 14 of these pages of the program's own file, of which Linux 6.18 and later map up to
/// 2 MiB for each that is touched.
pub const PROCESS: Bytes = Bytes(14 << 20);
/// What a worker holds beside the ledger: its stack's touched pages, the allocator's caches.
pub const PER_THREAD: Bytes = Bytes(2 << 20);
/// One part in so many of the line for the allocator: rounding of large buffers to its size classes and pages.
pub const SLACK_DIVISOR: u64 = 32;
/// Smallest budgets are told in whole units of this.
const STEP: Bytes = Bytes(1 << 20);
/// By default one part in so many of the machine's limit is left to others.
const MARGIN_DIVISOR: u64 = 8;

/// The most bytes that a stage of this profile holds, its slots aside.
pub fn largest_stage(profile: &Profile) -> Bytes {
    let bytes_of = |demand: &Demand| {
        let bytes =
            demand.iter().filter_map(|(resource, amount)| matches!(resource, Resource::Class(_)).then_some(amount));
        bytes.map(Bytes).sum::<Bytes>()
    };
    profile.stages().iter().map(|stage| bytes_of(&stage.peak)).max().unwrap_or(Bytes::ZERO)
}

/// A budget: the line, who drew it, and what of it the ledger may give out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most that the process may hold.
    pub line: Limit,
    /// The limit or memory that a default line was taken from; the line itself where it was asked for.
    pub machine: Bytes,
    /// Threads that compute.
    pub threads: usize,
    /// What of the line a device has that computes in host memory.
    pub device: Bytes,
    /// What the ledger may give out.
    pub ledger: Bytes,
}

/// Why there is no budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// The machine does not say what it has.
    #[error("neither a control group nor the kernel tells how much memory there is; say it with --memory")]
    Unknown,
    /// The line is too low for even one partition.
    #[error("{}", too_small(line, *needed, what))]
    TooSmall {
        /// The line.
        line: Limit,
        /// The lowest line that would do.
        needed: Bytes,
        /// What needs so much.
        what: &'static str,
    },
}

fn too_small(line: &Limit, needed: Bytes, what: &str) -> String {
    let remedy = match line.source {
        Source::Asked => format!("the smallest that will do is --memory {}", exact(needed)),
        _ => format!("at least {} are needed; free some memory, or raise the limit", exact(needed)),
    };
    format!("a budget of {} ({}) is too small for {what}; {remedy}", line.bytes, line.source)
}

/// A whole number of MiB, as it can be typed.
fn exact(bytes: Bytes) -> impl fmt::Display {
    format!("{}MiB", bytes.0 / STEP.0)
}

impl Budget {
    /// The line asked for, or the machine's smallest limit less a margin.
    pub fn choose(asked: Option<Bytes>, machine: &Machine, threads: usize) -> Result<Self, BudgetError> {
        let (line, machine) = match asked {
            Some(bytes) => (Limit { bytes, source: Source::Asked }, bytes),
            None => {
                let limit = machine.smallest_limit().ok_or(BudgetError::Unknown)?;
                let bytes = Bytes(limit.bytes.0 - limit.bytes.0 / MARGIN_DIVISOR);
                (Limit { bytes, source: limit.source }, limit.bytes)
            }
        };
        let ledger = line.bytes.saturating_sub(overhead(line.bytes, threads));
        Ok(Self { line, machine, threads, device: Bytes::ZERO, ledger })
    }

    /// Takes off the ledger's part what a device has of the same memory, under a ledger of its own.
    #[must_use]
    pub fn beside(self, device: Bytes) -> Self {
        Self { device, ledger: self.ledger.saturating_sub(device), ..self }
    }

    /// What of the line is neither the ledger's nor a device's.
    pub fn overhead(&self) -> Bytes {
        overhead(self.line.bytes, self.threads)
    }

    /// The lowest line, in whole MiB, that leaves `need` to the ledger.
    pub fn smallest_line(&self, need: Bytes) -> Bytes {
        smallest_line(need + self.device, self.threads)
    }

    /// Refuses a line under which `need` does not fit.
    pub fn require(&self, need: Bytes, what: &'static str) -> Result<(), BudgetError> {
        if need <= self.ledger {
            return Ok(());
        }
        Err(BudgetError::TooSmall { line: self.line.clone(), needed: self.smallest_line(need), what })
    }
}

/// What the process holds besides the ledger's bytes when it may hold `line` in all.
fn overhead(line: Bytes, threads: usize) -> Bytes {
    PROCESS + PER_THREAD.times(threads as u64) + Bytes(line.0.div_ceil(SLACK_DIVISOR))
}

/// The lowest line, in whole MiB, that leaves `need` to the ledger.
fn smallest_line(need: Bytes, threads: usize) -> Bytes {
    let fixed = need + PROCESS + PER_THREAD.times(threads as u64);
    // line − line/32 ≥ fixed, first without rounding, then the next steps: rounding costs one at most.
    let estimate = fixed.0.saturating_add(fixed.0 / (SLACK_DIVISOR - 1)).div_ceil(STEP.0);
    (estimate..=estimate.saturating_add(2))
        .map(|steps| STEP.times(steps))
        .find(|line| line.saturating_sub(overhead(*line, threads)) >= need)
        .unwrap_or(Bytes::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: Bytes, threads: usize) -> Budget {
        Budget::choose(Some(line), &Machine::at("/nowhere"), threads).unwrap()
    }

    #[test]
    fn a_device_in_host_memory_has_its_part_of_the_line() {
        let alone = asked(Bytes(1 << 30), 2);
        let beside = alone.clone().beside(Bytes(256 << 20));
        assert_eq!(alone.ledger, beside.ledger + Bytes(256 << 20));
        let need = Bytes(300 << 20);
        let line = beside.smallest_line(need);
        assert!(line > alone.smallest_line(need));
        assert!(asked(line, 2).beside(Bytes(256 << 20)).require(need, "work").is_ok());
        assert!(asked(line.saturating_sub(STEP), 2).beside(Bytes(256 << 20)).require(need, "work").is_err());
        assert_eq!(asked(Bytes(1 << 20), 2).beside(Bytes::GIB).ledger, Bytes::ZERO);
    }

    #[test]
    fn the_smallest_line_does_and_one_step_less_does_not() {
        for need in [1, 1 << 20, (30 << 20) + 17, 5 << 30] {
            for threads in [1, 2, 64] {
                let line = smallest_line(Bytes(need), threads);
                assert_eq!(asked(line, threads).require(Bytes(need), "x"), Ok(()));
                let less = asked(Bytes(line.0 - STEP.0), threads).require(Bytes(need), "x");
                assert!(matches!(less, Err(BudgetError::TooSmall { needed, .. }) if needed == line));
            }
        }
    }

    #[test]
    fn the_refusal_can_be_typed_back() {
        let error = asked(Bytes(10 << 20), 2).require(Bytes(20 << 20), "proving").unwrap_err().to_string();
        assert!(error.contains("10.00 MiB (--memory)"), "{error}");
        let typed = error.rsplit_once("--memory ").unwrap().1;
        assert_eq!(asked(typed.parse().unwrap(), 2).require(Bytes(20 << 20), "proving"), Ok(()));
    }

    #[test]
    fn absurd_needs_are_refused_not_wrapped() {
        assert!(asked(Bytes::MAX, 2).require(Bytes::MAX, "x").is_err());
    }

    #[test]
    fn an_unknown_machine_needs_the_flag() {
        assert_eq!(Budget::choose(None, &Machine::at("/nowhere"), 1), Err(BudgetError::Unknown));
    }

    #[test]
    fn the_default_leaves_a_margin() {
        let budget = Budget::choose(None, &Machine::new(), 2).unwrap();
        assert!(budget.line.bytes < budget.machine && budget.ledger < budget.line.bytes);
        assert_ne!(budget.line.source, Source::Asked);
    }
}
