//! The safety check: can everything in flight still be finished, one after another? (Habermann 1969, "Prevention of
//! system deadlocks"; the banker's algorithm, over a vector.)
//!
//! An owner in flight that gets its whole claim ends, and then returns what it holds less what it leaves behind. What
//! owners leave behind is set aside from the start: an owner that is to leave 2 and holds 0 counts as if it held the 2
//! already. That keeps each return non-negative, so that finishing an owner never hurts another one, and any order that
//! finishes everybody, found greedily, is a proof; without it, the order would matter and greed could miss it.
//!
//! Residencies that owners in flight pin are held by nobody in the order: they come back with the last owner that pins them.
//! Those that nobody pins count as free. The claim of an owner in flight has no part in them: all that it needs was paid
//! for when it was admitted (`residency`).
//!
//! What a part leaves is its parent's when it ends ([`family`]), and counts as the parent's from the start:
//! it is set aside at the part, and the parent *has* it. A parent is finished after its parts, as it will be. Returns
//! are still never negative, so an owner that can finish now, its own parts finished, can finish at any later moment too:
//! moving it to the front of an order that works leaves an order that works, and greed still misses none.
//!
//! Two facts that the rest of the state machine relies on:
//! - *Grants only get harder.* If a grant is unsafe now, it is unsafe after any other grant: a safe order for both is a
//!   safe order for the one. One pass over the waiting requests in their order is therefore enough.
//! - *Returns never hurt.* Returning bytes or lowering a claim keeps a safe state safe, in the same order.

use super::accounts::Component;
use super::amounts::ComponentId;
use super::family;
use super::owner::Owner;
use super::residency::Pins;

/// Why not all can be finished.
#[derive(Debug)]
pub(super) enum Unsafe<'a> {
    /// More is held, or set aside for what owners leave behind, than a limit allows.
    Limit,
    /// When all that can be finished have been, this owner (one of perhaps several) still may need of a component, beyond
    /// what it has, more than there is.
    Stuck { owner: &'a Owner, component: ComponentId, needed: u64, left: u64 },
}

/// Whether all of `in_flight` can be finished one after another within the limits that `limit` gives.
pub(super) fn is_safe<'a>(
    components: &[Component],
    limit: impl Fn(&Component) -> u64,
    in_flight: impl Iterator<Item = &'a Owner> + Clone,
    pins: Pins<'_>,
) -> bool {
    check(components, limit, in_flight, pins).is_ok()
}

/// The same, and if not, why.
pub(super) fn check<'a>(
    components: &[Component],
    limit: impl Fn(&Component) -> u64,
    in_flight: impl Iterator<Item = &'a Owner> + Clone,
    mut pins: Pins<'_>,
) -> Result<(), Unsafe<'a>> {
    let mut free = Vec::with_capacity(components.len());
    for component in components {
        // What nobody pins can go without anybody's progress.
        match limit(component).checked_sub(component.held.saturating_sub(component.reclaimable)) {
            Some(left) => free.push(left),
            None => return Err(Unsafe::Limit),
        }
    }
    let mut parents = family::Unfinished::of(in_flight.clone());
    for owner in in_flight.clone() {
        for (component, leaves) in owner.leaves.iter() {
            let aside = leaves.saturating_sub(owner.held_with_parts(component));
            match free[component as usize].checked_sub(aside) {
                Some(left) => free[component as usize] = left,
                None => return Err(Unsafe::Limit),
            }
        }
    }
    let mut unfinished: Vec<&Owner> = in_flight.collect();
    loop {
        let before = unfinished.len();
        unfinished.retain(|owner| {
            let can_finish =
                !parents.has_parts(owner) && owner.outstanding().all(|(at, needed)| needed <= free[at as usize]);
            if can_finish {
                for (component, leaves) in owner.family.inherits.iter() {
                    // What its parts left to it goes back as well: the rest of it is looked at below.
                    let held = owner.held.of(component);
                    let all = (held + leaves).saturating_sub(owner.leaves.of(component));
                    free[component as usize] += all - held.saturating_sub(owner.leaves.of(component));
                }
                for (component, held) in owner.held.iter() {
                    free[component as usize] += held.saturating_sub(owner.leaves.of(component));
                }
                parents.finish(owner);
                pins.finish(owner, &mut free);
            }
            !can_finish
        });
        if unfinished.is_empty() {
            return Ok(());
        }
        if unfinished.len() == before {
            // A parent waits for its parts, and one of these is short of something.
            let short = |owner: &&'a Owner| {
                let (component, needed) = owner.outstanding().find(|&(at, needed)| needed > free[at as usize])?;
                Some((owner.born, Unsafe::Stuck { owner, component, needed, left: free[component as usize] }))
            };
            let oldest = unfinished.iter().filter_map(short).min_by_key(|stuck| stuck.0);
            return Err(oldest.map_or(Unsafe::Limit, |stuck| stuck.1));
        }
    }
}

impl Owner {
    /// What it may still need of each component to finish, beyond what it has.
    fn outstanding(&self) -> impl Iterator<Item = (ComponentId, u64)> {
        self.claim.iter().map(|(component, claim)| {
            let has = self.held_with_parts(component).max(self.leaves.of(component));
            (component, claim.saturating_sub(has))
        })
    }
}
