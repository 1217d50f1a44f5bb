//! What was learned of a device: corrections of predictions, and what is gone for good.
//!
//! Pure bookkeeping; who asks the device, and who tells the ledger, is [`crate::icicle`].

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::Bytes;
use plimsoll_groth16::backend::CurveGroup;

use crate::memory::scale;

/// Thousandths: predictions as they are.
const UNCHANGED: u64 = 1000;
/// Above this a correction says that something else is the matter.
const CORRECTION_MAX: u64 = 16_000;
/// What a failure for want of memory adds, where nobody knows how much was wanting.
const AFTER_FAILURE: u64 = 1250;

/// What takes memory of its own besides multiplications. Nearly nothing is predicted for it beforehand, so that what is learned is no
/// factor of the prediction, but a part of the bytes that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The domain: of the roots' bytes.
    Domain,
    /// Transforms and operations on vectors: of a vector's bytes.
    Vectors,
}

/// What something besides a multiplication is predicted to take by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predicted {
    pub(crate) kind: Kind,
    /// What it is about.
    pub(crate) bytes: u64,
    /// The step in which the device's allocator grows, or 0: less than that nobody can learn from.
    pub(crate) step: u64,
    /// What is predicted before anything is learned.
    pub(crate) plain: u64,
    /// What was learned when this was predicted, in thousandths of `bytes`.
    pub(crate) addition: u64,
}

impl Predicted {
    /// All of it. A step is added once anything was seen that was not predicted.
    pub(crate) fn total(&self) -> u64 {
        let added = if self.addition == 0 { 0 } else { self.step + scale(self.bytes, self.addition) };
        self.plain + added
    }
}

/// Counters and corrections. Relaxed everywhere: each stands for itself.
#[derive(Debug)]
pub(crate) struct Account {
    calls: AtomicU64,
    undersized: AtomicU64,
    undersized_bytes_peak: AtomicU64,
    overdrawn_peak: AtomicU64,
    squeezed: AtomicU64,
    out_of_memory: AtomicU64,
    leaked: AtomicU64,
    g1: AtomicU64,
    g2: AtomicU64,
    others: AtomicU64,
    others_undersized: AtomicU64,
    domain: AtomicU64,
    vectors: AtomicU64,
    last_predicted: AtomicU64,
    last_seen: AtomicU64,
}

/// What an account of predictions has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Learned {
    /// Multiplications that were made.
    pub calls: u64,
    /// How often one was seen to take more than predicted.
    pub undersized: u64,
    /// By how much at the most.
    pub undersized_bytes_peak: u64,
    /// Of that, what the ledger had no room to book while the call ran, at the most: the device was over its budget by so much.
    pub overdrawn_bytes_peak: u64,
    /// How often less was free than a call needs to keep to its plan, because somebody else uses the device.
    pub squeezed: u64,
    /// How often the device was out of memory.
    pub out_of_memory: u64,
    /// Bytes that failed calls have left behind, as far as they are not seen to be free again.
    pub leaked_bytes: u64,
    /// What predictions in G1 are multiplied by, in thousandths.
    pub correction_g1: u64,
    /// The same in G2.
    pub correction_g2: u64,
    /// Transforms, operations on vectors, and domains that were made.
    pub others: u64,
    /// How often one of these was seen to take more than predicted.
    pub others_undersized: u64,
    /// What is added to predictions of domains, in thousandths of the roots' bytes.
    pub addition_domain: u64,
    /// What is added to predictions for vectors, in thousandths of a vector's bytes.
    pub addition_vectors: u64,
    /// What the last multiplication was predicted to allocate by itself.
    pub last_predicted_bytes: u64,
    /// What it was seen to have allocated when it had been begun, where the device tells.
    pub last_seen_bytes: u64,
}

impl Learned {
    /// What of it is worth telling, in words.
    pub fn remarks(&self) -> Option<String> {
        let mut all = Vec::new();
        if self.undersized > 0 {
            let most = Bytes(self.undersized_bytes_peak);
            all.push(format!(
                "{} of {} calls took more than predicted, {most} at the most",
                self.undersized, self.calls
            ));
        }
        if self.others_undersized > 0 {
            all.push(format!(
                "{} of {} domains, transforms and operations on vectors took more than predicted",
                self.others_undersized, self.others
            ));
        }
        if self.overdrawn_bytes_peak > 0 {
            all.push(format!("the device was {} over its budget", Bytes(self.overdrawn_bytes_peak)));
        }
        if self.squeezed > 0 {
            all.push(format!(
                "{} calls found less free than there should be: somebody else uses the device",
                self.squeezed
            ));
        }
        if self.out_of_memory > 0 {
            all.push(format!("{} calls were out of memory and made again", self.out_of_memory));
        }
        if self.leaked_bytes > 0 {
            all.push(format!("failed calls have leaked {}", Bytes(self.leaked_bytes)));
        }
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Account {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            calls: zero(),
            undersized: zero(),
            undersized_bytes_peak: zero(),
            overdrawn_peak: zero(),
            squeezed: zero(),
            out_of_memory: zero(),
            leaked: zero(),
            g1: AtomicU64::new(UNCHANGED),
            g2: AtomicU64::new(UNCHANGED),
            others: zero(),
            others_undersized: zero(),
            domain: zero(),
            vectors: zero(),
            last_predicted: zero(),
            last_seen: zero(),
        }
    }

    fn of(&self, group: CurveGroup) -> &AtomicU64 {
        if group == CurveGroup::G1 { &self.g1 } else { &self.g2 }
    }

    /// In thousandths, at least 1000.
    pub(crate) fn correction(&self, group: CurveGroup) -> u64 {
        self.of(group).load(Ordering::Relaxed)
    }

    /// A call was predicted to allocate `predicted` bytes, under a correction of `correction`, and was seen to allocate `used`.
    /// How many that is too many.
    pub(crate) fn saw(&self, group: CurveGroup, predicted: u64, correction: u64, used: u64) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.last_predicted.store(predicted, Ordering::Relaxed);
        self.last_seen.store(used, Ordering::Relaxed);
        let over = used.saturating_sub(predicted);
        if over > 0 {
            self.undersized.fetch_add(1, Ordering::Relaxed);
            self.undersized_bytes_peak.fetch_max(over, Ordering::Relaxed);
            let corrected = u128::from(used) * u128::from(correction);
            let corrected = u64::try_from(corrected.div_ceil(u128::from(predicted.max(1)))).unwrap_or(u64::MAX);
            if !mutant!("icicle-learns-nothing") {
                self.of(group).fetch_max(corrected.min(CORRECTION_MAX), Ordering::Relaxed);
            }
        }
        over
    }

    /// What something besides a multiplication takes by itself: `plain`, and what was learned.
    pub(crate) fn predict(&self, kind: Kind, bytes: u64, step: u64, plain: u64) -> Predicted {
        Predicted { kind, bytes, step, plain, addition: self.addition(kind).load(Ordering::Relaxed) }
    }

    fn addition(&self, kind: Kind) -> &AtomicU64 {
        match kind {
            Kind::Domain => &self.domain,
            Kind::Vectors => &self.vectors,
        }
    }

    /// It was seen to allocate `used`. How many bytes that is too many.
    pub(crate) fn saw_other(&self, predicted: &Predicted, used: u64) -> u64 {
        self.others.fetch_add(1, Ordering::Relaxed);
        let over = used.saturating_sub(predicted.total());
        if over > 0 {
            self.others_undersized.fetch_add(1, Ordering::Relaxed);
            self.undersized_bytes_peak.fetch_max(over, Ordering::Relaxed);
            let added = used.saturating_sub(predicted.plain + predicted.step);
            let addition = (u128::from(added) * 1000).div_ceil(u128::from(predicted.bytes.max(1)));
            self.learn_addition(predicted.kind, u64::try_from(addition).unwrap_or(u64::MAX));
        }
        over
    }

    /// It failed for want of memory. A domain takes what it takes; of vectors the next one is expected to take more, so that it is
    /// made in smaller pieces.
    pub(crate) fn failed_other(&self, predicted: &Predicted) {
        self.out_of_memory.fetch_add(1, Ordering::Relaxed);
        if predicted.kind == Kind::Vectors {
            self.learn_addition(predicted.kind, predicted.addition + (AFTER_FAILURE - UNCHANGED));
        }
    }

    fn learn_addition(&self, kind: Kind, addition: u64) {
        if !mutant!("icicle-learns-multiplications-alone") {
            self.addition(kind).fetch_max(addition.clamp(1, CORRECTION_MAX), Ordering::Relaxed);
        }
    }

    /// A call failed for want of memory, under this correction.
    pub(crate) fn failed(&self, group: CurveGroup, correction: u64) {
        self.out_of_memory.fetch_add(1, Ordering::Relaxed);
        let corrected = (correction * AFTER_FAILURE).div_ceil(1000);
        self.of(group).fetch_max(corrected.min(CORRECTION_MAX), Ordering::Relaxed);
    }

    /// So much was allocated beyond a prediction, and could not be booked.
    pub(crate) fn overdrawn(&self, bytes: u64) {
        self.overdrawn_peak.fetch_max(bytes, Ordering::Relaxed);
    }

    pub(crate) fn squeezed(&self) {
        self.squeezed.fetch_add(1, Ordering::Relaxed);
    }

    /// So much of what failed calls have left behind is not seen to be free again.
    pub(crate) fn has_leaked(&self, bytes: u64) {
        self.leaked.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn learned(&self) -> Learned {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Learned {
            calls: get(&self.calls),
            undersized: get(&self.undersized),
            undersized_bytes_peak: get(&self.undersized_bytes_peak),
            overdrawn_bytes_peak: get(&self.overdrawn_peak),
            squeezed: get(&self.squeezed),
            out_of_memory: get(&self.out_of_memory),
            leaked_bytes: get(&self.leaked),
            correction_g1: get(&self.g1),
            correction_g2: get(&self.g2),
            others: get(&self.others),
            others_undersized: get(&self.others_undersized),
            addition_domain: get(&self.domain),
            addition_vectors: get(&self.vectors),
            last_predicted_bytes: get(&self.last_predicted),
            last_seen_bytes: get(&self.last_seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_that_was_too_small_is_counted_and_learned() {
        let account = Account::new();
        assert_eq!(account.saw(CurveGroup::G1, 100, 1000, 90), 0);
        assert_eq!(account.correction(CurveGroup::G1), 1000);
        assert_eq!(account.saw(CurveGroup::G1, 100, 1000, 130), 30);
        assert_eq!((account.correction(CurveGroup::G1), account.correction(CurveGroup::G2)), (1300, 1000));
        // Under the correction it fits; and less is not unlearned.
        assert_eq!(account.saw(CurveGroup::G1, 130, 1300, 130), 0);
        assert_eq!(account.saw(CurveGroup::G1, 100, 1000, 101), 1);
        let learned = account.learned();
        assert_eq!((learned.correction_g1, learned.calls, learned.undersized), (1300, 4, 2));
        assert_eq!(learned.undersized_bytes_peak, 30);
        assert_eq!((learned.last_predicted_bytes, learned.last_seen_bytes), (100, 101));
    }

    #[test]
    fn what_is_worth_telling_is_told() {
        let account = Account::new();
        assert_eq!(account.saw(CurveGroup::G1, 100, 1000, 90), 0);
        assert_eq!(account.learned().remarks(), None);
        account.saw(CurveGroup::G1, 100, 1000, 130);
        account.overdrawn(7 << 20);
        account.squeezed();
        account.failed(CurveGroup::G1, 1000);
        account.has_leaked(3 << 20);
        let text = account.learned().remarks().expect("all of it");
        for part in [
            "1 of 2 calls took more than predicted",
            "7.00 MiB over",
            "1 calls found less",
            "out of memory",
            "leaked 3.00 MiB",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_failure_raises_the_correction_from_what_it_failed_with() {
        let account = Account::new();
        account.failed(CurveGroup::G2, 1000);
        account.failed(CurveGroup::G2, 1000);
        assert_eq!(account.correction(CurveGroup::G2), 1250);
        account.failed(CurveGroup::G2, 1250);
        assert_eq!((account.correction(CurveGroup::G2), account.correction(CurveGroup::G1)), (1563, 1000));
        for _ in 0..100 {
            account.failed(CurveGroup::G2, account.correction(CurveGroup::G2));
        }
        assert_eq!(account.correction(CurveGroup::G2), CORRECTION_MAX);
    }

    #[test]
    fn what_else_takes_more_than_predicted_is_learned_as_a_part_of_its_bytes() {
        let account = Account::new();
        let predict = |kind, bytes, step, plain| account.predict(kind, bytes, step, plain);
        assert_eq!(predict(Kind::Domain, 1000, 0, 1000).total(), 1000);
        assert_eq!(account.saw_other(&predict(Kind::Domain, 1000, 0, 1000), 1500), 500);
        assert_eq!(predict(Kind::Domain, 2000, 0, 2000).total(), 3000);
        assert_eq!(account.saw_other(&predict(Kind::Domain, 2000, 0, 2000), 3000), 0);
        // Vectors of 1000 bytes, for which nothing is predicted at first, on an allocator that grows by 64.
        assert_eq!(account.saw_other(&predict(Kind::Vectors, 1000, 64, 0), 0), 0);
        assert_eq!(account.saw_other(&predict(Kind::Vectors, 1000, 64, 0), 64), 64);
        // That was one step, and nobody knows how much of it was wanted: from now on a step is expected.
        assert_eq!((account.learned().addition_vectors, predict(Kind::Vectors, 1000, 64, 0).total()), (1, 65));
        assert_eq!(account.saw_other(&predict(Kind::Vectors, 1000, 64, 0), 64), 0);
        assert_eq!(account.saw_other(&predict(Kind::Vectors, 1000, 64, 20), 20 + 64 + 100), 99);
        assert_eq!(predict(Kind::Vectors, 5000, 64, 20).total(), 20 + 64 + 500);
        account.failed_other(&predict(Kind::Vectors, 1000, 64, 0));
        account.failed_other(&predict(Kind::Domain, 1000, 0, 1000));
        let learned = account.learned();
        assert_eq!((learned.addition_vectors, learned.addition_domain, learned.out_of_memory), (350, 500, 2));
        assert_eq!(
            (learned.correction_g1, learned.correction_g2, learned.calls, learned.undersized),
            (1000, 1000, 0, 0)
        );
        assert_eq!((learned.others, learned.others_undersized, learned.undersized_bytes_peak), (6, 3, 500));
        assert!(learned.remarks().expect("it is told").contains("3 of 6 domains"));
    }
}
