//! Who waits for whom, in words: what to print when nothing seems to move.

use std::fmt;
use std::time::Duration;

use super::error::{Place, Reason, Stuck, names};
use super::snapshot::{Holding, Snapshot, Waiter};
use super::state::Kind;
use crate::{Bytes, Ledger, Resource};

/// How many holders a line names.
const HOLDERS: usize = 4;

/// Requests that have waited for too long, and who is in their way.
///
/// Its text has a line for each:
///
/// ```text
/// "partition 4" (stage evaluate, for 12.1s) needs 3.00 GiB of provers: short of 1.00 GiB of host memory; held by
/// "partition 2" (8.00 GiB, stage commit, for 40.2s, waiting outside for "cuda" for 39.8s), "key" (2.00 GiB, for 91.4s)
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Who waits, for longest first.
    pub waiters: Vec<Waiter>,
    /// Everybody who holds something.
    pub holders: Vec<Holding>,
    /// How long ago anything was last granted. Where this is short, the ledger moves, and only these requests do not.
    pub idle: Duration,
    /// When this was seen, in nanoseconds since the ledger was made.
    pub time: u64,
}

impl Ledger {
    /// The requests that have waited for at least `threshold`, and who holds what they are short of; `None` if there are
    /// none. Call it from a timer, or when a user asks why nothing happens.
    pub fn stall(&self, threshold: Duration) -> Option<Stall> {
        Stall::seen_in(&self.snapshot(), threshold)
    }
}

impl Stall {
    /// The same, from a picture that was taken before.
    pub fn seen_in(snapshot: &Snapshot, threshold: Duration) -> Option<Stall> {
        let mut waiters: Vec<Waiter> =
            snapshot.waiters.iter().filter(|waiter| since(waiter.since, snapshot.time) >= threshold).cloned().collect();
        waiters.sort_by_key(|waiter| waiter.since);
        (!waiters.is_empty()).then(|| Stall {
            waiters,
            holders: snapshot.holders.clone(),
            idle: since(snapshot.granted_at, snapshot.time),
            time: snapshot.time,
        })
    }

    /// Who holds some of a place, most first, but for somebody.
    fn holders_of(&self, place: &Place, but: Option<&str>) -> Vec<(u64, &Holding)> {
        let counts = |resource: Resource| match (resource, place.kind) {
            (Resource::Class(class), Kind::Space(space)) => {
                class.space() == space || class.space().within() == Some(space)
            }
            (Resource::Slots(slots), Kind::Slots(short)) => slots == short,
            _ => false,
        };
        let held = |holding: &Holding| -> u64 {
            holding.held.iter().filter(|entry| counts(entry.0)).map(|entry| entry.1).sum()
        };
        let others = self.holders.iter().filter(|holding| but != Some(&*holding.who));
        let mut holders: Vec<_> = others.map(|holding| (held(holding), holding)).filter(|entry| entry.0 > 0).collect();
        // A stable sort: of two that hold the same the older comes first.
        holders.sort_by_key(|entry| std::cmp::Reverse(entry.0));
        holders
    }

    fn waiter(&self, waiter: &Waiter, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (", waiter.shortage.who)?;
        if let Some(stage) = waiter.stage {
            write!(f, "stage {stage}, ")?;
        }
        write!(f, "for {}) needs ", seconds(waiter.since, self.time))?;
        for (at, &(resource, amount)) in waiter.needs.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { " and " }, resource.amount(amount))?;
        }
        match &waiter.shortage.reason {
            Reason::Short { place, needed, free, .. } => {
                write!(f, ": short of {}", place.amount(needed.saturating_sub(*free)))?;
                self.held_by(place, None, f)
            }
            Reason::Unsafe { stuck: Some(Stuck { name, place, needed, left, .. }) } => {
                write!(f, ": there is room, but {name:?} may then still need {}, and ", place.amount(*needed))?;
                write!(f, "{} would be left for it to finish", place.number(*left))?;
                self.held_by(place, Some(name), f)
            }
            Reason::Unsafe { stuck: None } => write!(f, ": there is room, but jobs in flight could then not finish"),
            Reason::Order { behind } => {
                write!(f, ": there is room, but it may not pass {behind:?}, which has waited for longer")
            }
            Reason::ToRunAlone { behind } => {
                write!(f, ": it is larger than a limit, and runs alone when these have ended:")?;
                names(f, behind)
            }
            Reason::Alone { job } => write!(f, ": it waits for {job:?}, which runs alone"),
            Reason::Loading { residency, loader: Some(loader) } => {
                write!(f, ": it waits for {residency:?}, which {loader:?} loads")
            }
            Reason::Loading { residency, loader: None } => {
                write!(f, ": it waits for {residency:?}, of which the last one is not gone yet")
            }
            Reason::Paused => write!(f, ": admission is paused"),
            Reason::Queued | Reason::Unbudgeted { .. } | Reason::Resident | Reason::Lost { .. } => {
                write!(f, ": there is room, and it waits for its turn")
            }
        }
    }

    fn held_by(&self, place: &Place, but: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders = self.holders_of(place, but);
        for (at, &(amount, holding)) in holders.iter().take(HOLDERS).enumerate() {
            let amount = match place.kind {
                Kind::Space(_) => Bytes(amount).to_string(),
                Kind::Slots(_) => amount.to_string(),
            };
            write!(f, "{} {:?} ({amount}", if at == 0 { "; held by" } else { "," }, holding.who)?;
            if let Some(stage) = holding.stage {
                write!(f, ", stage {stage}")?;
            }
            write!(f, ", for {}", seconds(holding.since, self.time))?;
            if let Some((what, since)) = holding.external {
                write!(f, ", waiting outside for {what:?} for {}", seconds(since, self.time))?;
            }
            if let Some(place) = holding.reserved_at {
                write!(f, ", from {place}")?;
            }
            write!(f, ")")?;
        }
        if holders.len() > HOLDERS {
            write!(f, " and {} more", holders.len() - HOLDERS)?;
        }
        Ok(())
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, waiter) in self.waiters.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            self.waiter(waiter, f)?;
        }
        Ok(())
    }
}

fn since(then: u64, now: u64) -> Duration {
    Duration::from_nanos(now.saturating_sub(then))
}

fn seconds(then: u64, now: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "{:.1}s", since(then, now).as_secs_f64()))
}
