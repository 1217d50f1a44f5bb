//! The certificate at run time: nothing more piles up behind a stage than was promised.
//!
//! Whenever a stage has ended, the ledger is asked what jobs of the certified profile hold before the next one. With a limit
//! L in force, a claim c from the next stage on and k kept, that is never above L − c + k (`certificate.rs` says why). The
//! question is answered in one critical section, so it never sees half of an event.

use std::sync::atomic::{AtomicU64, Ordering};

use super::certificate::{by_kind, claims};
use crate::ledger::state::Kind;
use crate::{Ledger, Profile, Space};

/// What is asserted of a pipeline whose largest job was declared.
#[derive(Debug)]
pub(super) struct Certified {
    /// With everything that the pipeline adds to it.
    profile: Profile,
    /// For each stage but the last: space, what is kept, what is claimed from the next stage on.
    bounds: Vec<Vec<(Space, u64, u64)>>,
    violations: AtomicU64,
    #[cfg(test)]
    less: std::sync::atomic::AtomicBool,
}

impl Certified {
    pub(super) fn new(profile: Profile) -> Self {
        let claims = claims(&profile);
        let of_stage = |(stage, next): (&crate::StageProfile, &std::collections::BTreeMap<Kind, u64>)| {
            let spaces = by_kind(&stage.keep).into_iter().filter_map(|(kind, kept)| match kind {
                Kind::Space(space) => Some((space, kept, next.get(&kind).copied().unwrap_or(kept).max(kept))),
                Kind::Slots(_) => None,
            });
            spaces.collect()
        };
        let bounds = profile.stages().iter().zip(claims.iter().skip(1)).map(of_stage).collect();
        Self {
            profile,
            bounds,
            violations: AtomicU64::new(0),
            #[cfg(test)]
            less: Default::default(),
        }
    }

    /// A certificate that promises a byte less than each job keeps, to see it broken.
    #[cfg(test)]
    pub(super) fn promise_less(&self) {
        self.less.store(true, Ordering::Relaxed);
    }

    fn promised(&self, limit: u64, kept: u64, claim: u64) -> u64 {
        #[cfg(test)]
        if self.less.load(Ordering::Relaxed) {
            return kept.saturating_sub(1);
        }
        limit.saturating_sub(claim).saturating_add(kept)
    }

    /// A stage has ended and the next one was not entered yet. Says what is wrong, if anything is.
    pub(super) fn check(&self, ledger: &Ledger, stage: usize) -> Result<(), String> {
        if mutant!("certificate-unchecked") {
            return Ok(());
        }
        for &(space, kept, claim) in self.bounds.get(stage).into_iter().flatten() {
            let (held, Some(limit)) = ledger.backlog(&self.profile, stage + 1, space) else { continue };
            let promised = self.promised(limit, kept, claim);
            if held > promised {
                self.violations.fetch_add(1, Ordering::Relaxed);
                let stage = self.profile.stages()[stage].name;
                let (held, promised) = (crate::Bytes(held), crate::Bytes(promised));
                return Err(format!(
                    "{held} of {space} have piled up behind stage {stage}; the certificate says {promised}"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }
}
