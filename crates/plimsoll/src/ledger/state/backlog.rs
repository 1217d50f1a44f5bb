//! What has piled up between two stages, for whoever has certified a bound on it.

use super::accounts::{AccountId, Kind};
use super::owner::Declared;
use super::{LedgerState, Resource};
use crate::Profile;

impl LedgerState {
    /// The bytes of a space that jobs of this account hold which have exactly this profile and are before this stage: they
    /// have left the one before, and were not let in yet.
    pub fn backlog(&self, account: AccountId, profile: &Profile, stage: usize, space: crate::Space) -> u64 {
        let bytes = |&index: &usize| {
            let owner = &self.owners[index];
            let Declared::Job { plans, running: None, next, .. } = &owner.declared else { return 0 };
            if owner.account != account || *next != stage || plans.profile() != profile {
                return 0;
            }
            let of_space = |entry: &&(Resource, u64)| match entry.0 {
                Resource::Class(class) => class.space() == space || class.space().within() == Some(space),
                Resource::Slots(_) => false,
            };
            owner.holdings.iter().filter(of_space).map(|entry| entry.1).sum()
        };
        self.in_flight.iter().map(bytes).sum()
    }

    /// The least limit in force on the way from an account to the root; `None` where there is none.
    pub fn in_force(&self, account: AccountId, kind: Kind) -> Option<u64> {
        self.accounts.in_force(account, kind)
    }
}
