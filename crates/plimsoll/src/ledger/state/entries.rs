//! The entries: what each event writes into the accounts, the classes' totals and the owners.

use super::*;

impl LedgerState {
    pub(super) fn insert(&mut self, owner: Owner) -> OwnerId {
        self.born += 1;
        OwnerId(self.owners.insert(Owner { born: self.born, ..owner }))
    }

    /// Adds to what is held, at every component.
    pub(super) fn charge(&mut self, id: OwnerId, more: &Amounts) {
        let held = &mut self.owners[id.0].held;
        for (component, amount) in more.iter() {
            held.add(component, amount);
            let component = &mut self.accounts.components[component as usize];
            component.held += amount;
        }
    }

    pub(super) fn discharge(&mut self, id: OwnerId, less: &Amounts) {
        let held = &mut self.owners[id.0].held;
        for (component, amount) in less.iter() {
            held.sub(component, amount);
            let component = &mut self.accounts.components[component as usize];
            component.held = component.held.checked_sub(amount).expect("more was returned than was held");
        }
    }

    pub(super) fn give_back(&mut self, id: OwnerId, resource: Resource, amount: u64) {
        // What was on a lost device went off the books with it.
        if self.accounts.is_lost(resource.into()) || self.keeps_for_load(id, amount) {
            return;
        }
        let mut less = Amounts::default();
        let account = self.owners[id.0].account;
        self.accounts.add(account, resource, amount, &mut less).expect("what is held was charged");
        self.owners[id.0].unhold(resource, amount);
        self.discharge(id, &less);
        self.count_out(id, resource, amount);
        if matches!(self.owners[id.0].declared, Declared::Standing { .. }) && self.owners[id.0].in_flight() {
            self.reclaim(id);
            self.account_retained();
        }
    }

    /// Brings the claim in line with what is declared and held now. Whoever raises it by that checks safety.
    pub(super) fn reclaim(&mut self, id: OwnerId) {
        let claim = self.owners[id.0].claim_by_plan(&mut self.accounts);
        let owner = &mut self.owners[id.0];
        owner.claim = claim;
        if matches!(owner.declared, Declared::Standing { retained: true, .. }) {
            owner.leaves = owner.claim.clone();
        }
        self.cover_parts(id);
    }

    /// Brings the claim in line with what an owner holds after a move to another class: a job may need again what it has moved
    /// away, a free-standing reservation has nothing to do with where its bytes were before.
    pub(super) fn claim_after_move(&mut self, id: OwnerId) {
        let owner = &mut self.owners[id.0];
        if matches!(owner.declared, Declared::Standing { .. }) && !mutant!("move-leaves-its-claim") {
            return self.reclaim(id);
        }
        owner.claim.raise_to(&owner.held);
        if matches!(owner.declared, Declared::Standing { retained: true, .. }) {
            owner.leaves.raise_to(&owner.held);
        }
        self.cover_parts(id);
    }

    /// Lets the claim fall to that of the stages to come. It is never raised here, even where the job kept more than its
    /// profile says: nobody has checked that more would be safe.
    pub(super) fn lower_claim(&mut self, id: OwnerId) {
        let mut claim = self.owners[id.0].claim_by_plan(&mut self.accounts);
        if !self.owners[id.0].family.parts.is_empty() {
            claim.raise_to(&self.family_need(id));
        }
        let owner = &mut self.owners[id.0];
        claim.lower_to(&owner.claim);
        claim.raise_to(&owner.held);
        owner.claim = claim;
    }

    /// Ends an owner: nothing more is expected of it, and what it still holds is retained.
    pub(super) fn finish(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        let owner = &self.owners[id.0];
        // Slots that it holds to its end come back with it, below.
        let is_bytes = |at| matches!(self.accounts.component(at).kind, Kind::Space(_));
        let beyond = |(at, held): (ComponentId, u64)| held > owner.leaves.of(at) && is_bytes(at);
        if owner.held.iter().any(beyond) {
            self.outlived += 1;
            self.note(id, What::Outlived);
        }
        let owner = &mut self.owners[id.0];
        let was_in_flight = owner.in_flight();
        if was_in_flight {
            self.in_flight.remove(id.0);
        }
        owner.phase = Phase::Ended;
        self.forget_needs(id);
        // Slots are not kept by anybody's buffer: they come back with the end.
        self.give_back_slots(id, |_| 0);
        let parent = self.owners[id.0].family.parent;
        if mutant!("leavings-free-for-a-moment") {
            self.free_for_a_moment(id, out);
        }
        self.hand_over(id, was_in_flight);
        let owner = &mut self.owners[id.0];
        owner.claim.clear();
        owner.leaves.clear();
        self.note(id, What::Ended);
        self.forget_if_gone(id);
        if let Some(parent) = parent {
            self.end_if_done(parent, out);
        }
    }

    /// Removes an owner that has ended and returned everything.
    pub(super) fn forget_if_gone(&mut self, id: OwnerId) {
        let owner = &self.owners[id.0];
        let heir = owner.family.parent.filter(|_| owner.phase == Phase::HandedOver);
        let is_standing = matches!(owner.declared, Declared::Standing { .. });
        if owner.pieces > 0 || owner.waiting.is_some() {
            return;
        }
        if let Some(residency) = owner.residency {
            return self.last_piece_is_back(residency);
        }
        match owner.declared {
            Declared::Job { .. } if !matches!(owner.phase, Phase::Ended | Phase::HandedOver) => return,
            Declared::Job { .. } => {}
            Declared::Standing { retained, .. } => {
                self.in_flight.remove(id.0);
                if retained {
                    self.owners[id.0].leaves.clear();
                    self.account_retained();
                    self.retained_owners -= 1;
                }
            }
        }
        if is_standing {
            self.note(id, What::Ended);
        }
        let owner = self.owners.remove(id.0);
        debug_assert!(owner.held.is_zero() && owner.holdings.is_empty(), "an owner left with bytes in its hands");
        if let Some(heir) = heir {
            self.forget_if_gone(heir);
        }
    }

    pub(super) fn totals(&mut self, resource: Resource) -> &mut ClassTotals {
        let at = self.classes.iter().position(|entry| entry.resource == resource).unwrap_or_else(|| {
            self.classes.push(Counted { totals: ClassTotals::default(), resource });
            self.classes.len() - 1
        });
        &mut self.classes[at].totals
    }

    pub(super) fn count_in(&mut self, id: OwnerId, resource: Resource, amount: u64) {
        self.totals(resource).add(amount);
        self.note_delta(id, resource, i128::from(amount));
        // Peaks are taken when a grant is final, not while it is tried.
        for (component, _) in self.owners[id.0].held.iter() {
            let component = &mut self.accounts.components[component as usize];
            component.peak = component.peak.max(component.held);
        }
    }

    pub(super) fn count_out(&mut self, id: OwnerId, resource: Resource, amount: u64) {
        self.totals(resource).sub(amount);
        self.note_delta(id, resource, -i128::from(amount));
    }

    /// Recomputes what retained reservations take away from everybody else.
    pub(super) fn account_retained(&mut self) {
        if self.retained_owners == 0 {
            return;
        }
        let is_retained = |owner: &Owner| matches!(owner.declared, Declared::Standing { retained: true, .. });
        let mut before: SmallVec<[u64; 8]> = SmallVec::new();
        for component in &mut self.accounts.components {
            before.push(std::mem::take(&mut component.retained));
        }
        for &index in self.in_flight.iter() {
            if is_retained(&self.owners[index]) {
                for (component, leaves) in self.owners[index].leaves.iter() {
                    let component = self.accounts.component_mut(component);
                    component.retained = component.retained.saturating_add(leaves);
                }
            }
        }
        self.recheck |= self.accounts.components.iter().zip(before).any(|(after, before)| after.retained > before);
    }

    /// The first component whose limit, less what is retained, is below the claim.
    pub(super) fn unattainable(&self, claim: &Amounts) -> Option<(ComponentId, u64)> {
        claim.iter().find(|&(component, amount)| amount > self.accounts.component(component).attainable())
    }

    pub(super) fn never_fits(&self, owner: &Owner) -> Option<NeverFits> {
        if owner.may_run_alone() && owner.claim.iter().all(|(_, amount)| amount <= LARGEST) {
            return None;
        }
        let (component, claim) = self.unattainable(&self.with_needs(&owner.needs, &owner.claim))?;
        if let Declared::Job { plans, .. } = &owner.declared
            && plans.iter().any(|plan| self.is_attainable(plan))
        {
            return None;
        }
        let stage = match &owner.declared {
            Declared::Job { plans, .. } => {
                // Claims fall from stage to stage; the last one with this claim is where it is needed.
                let (own, claims) = (owner.claim.of(component), &plans.current().claims);
                let last = claims.iter().rposition(|of_stage| of_stage.of(component) == own).unwrap_or(0);
                Some(plans.profile().stages()[last].name)
            }
            Declared::Standing { .. } => None,
        };
        let Component { target: limit, retained, .. } = *self.accounts.component(component);
        let limit = limit.min(LARGEST);
        Some(NeverFits { who: owner.name.clone(), stage, place: self.place(component), claim, limit, retained })
    }
}
