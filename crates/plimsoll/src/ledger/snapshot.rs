//! A picture of the ledger at one moment.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Place, Shortage};
use super::state::{OwnerId, ResidencyStand};
use crate::{Bytes, Class, Resource, Space};

/// A picture of the ledger at one moment: taken whole, under its lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Each space with a limit: the root's first, then children's.
    pub spaces: Vec<SpaceUsage>,
    /// Each kind of slots with a limit.
    pub slots: Vec<SlotsUsage>,
    /// Each class that was ever used, by name.
    pub classes: Vec<ClassUsage>,
    /// Everything that waits.
    pub waiters: Vec<Waiter>,
    /// Everybody who holds something, who has held for longest first. What is held for a residency is under its name.
    pub holders: Vec<Holding>,
    /// Each residency, in the order of their numbers.
    pub residencies: Vec<ResidencyUsage>,
    /// When the picture was taken, in nanoseconds since the ledger was made.
    pub time: u64,
    /// When a request was last granted.
    pub granted_at: u64,
    /// How many jobs ended with more still held than their profile says that they leave behind.
    pub outlived: u64,
    /// How often a reservation was grown beyond what its owner had declared.
    pub overdrawn: u64,
    /// How many jobs were admitted alone although they were larger than a limit: see
    /// [`JobSpec::alone_if_oversize`](crate::JobSpec::alone_if_oversize).
    pub forced: u64,
    /// What was handed to the [`Reaper`](super::Reaper) and is not gone yet, space by space. It is still charged.
    pub reaping: Vec<Reaping>,
    /// How many values the reaper has freed.
    pub reaped: u64,
    /// How many of them panicked.
    pub reap_panics: u64,
    /// How often a stage was to be run again.
    pub retried: u64,
    /// How often a job began again.
    pub restarted: u64,
    /// Admission is paused: what is new waits.
    pub paused: bool,
}

impl Snapshot {
    /// The root's usage of a space: without what is set aside there for urgent jobs, which [`spaces`](Snapshot::spaces) tells
    /// apart.
    pub fn space(&self, space: Space) -> Option<&SpaceUsage> {
        let is =
            |usage: &&SpaceUsage| usage.place.kind == super::state::Kind::Space(space) && usage.place.child.is_none();
        self.spaces.iter().find(is)
    }

    /// The usage of a class.
    pub fn class(&self, class: Class) -> Option<&ClassUsage> {
        self.classes.iter().find(|usage| usage.class == class)
    }

    /// The books of a space: of all classes that live in it, pinned ones in host memory as well. Its peak is in
    /// [`spaces`](Snapshot::spaces). Bytes that moved from one of its classes to another went out and came in.
    pub fn space_totals(&self, space: Space) -> SpaceTotals {
        let lives_in = |class: Class| class.space() == space || class.space().within() == Some(space);
        let mut sum = SpaceTotals::default();
        for ClassUsage { totals, .. } in self.classes.iter().filter(|usage| lives_in(usage.class)) {
            sum.held += totals.held;
            sum.count += totals.count;
            sum.bytes_in = sum.bytes_in.wrapping_add(totals.bytes_in);
            sum.bytes_out = sum.bytes_out.wrapping_add(totals.bytes_out);
        }
        sum
    }

    /// Whether nothing is held: no byte and no slot.
    pub fn is_empty(&self) -> bool {
        self.spaces.iter().all(|usage| usage.held.is_zero()) && self.slots.iter().all(|usage| usage.held == 0)
    }
}

/// What is loaded once and shared, or may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidencyUsage {
    /// Its name.
    pub name: Arc<str>,
    /// The class of its bytes.
    pub class: Class,
    /// What it takes when it is loaded.
    pub bytes: Bytes,
    /// What is held for it now.
    pub held: Bytes,
    /// Where it stands.
    pub stand: ResidencyStand,
    /// How many jobs in flight pin it.
    pub pins: u32,
    /// When it was last used, in nanoseconds since the ledger was made.
    pub used_at: u64,
    /// What it costs to load it again, as declared.
    pub rebuild: Duration,
    /// How often it was loaded.
    pub loads: u64,
    /// How often it was evicted.
    pub evictions: u64,
}

/// The bytes of one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Which space, and whose limit.
    pub place: Place,
    /// The limit that holds now.
    pub limit: Bytes,
    /// The limit that was asked for; below `limit` while a lowered one waits for jobs to finish.
    pub target: Bytes,
    /// What is held now.
    pub held: Bytes,
    /// The most that was ever held.
    pub peak: Bytes,
    /// What was held when the space was lost with its device. From then on it has no limit, and nothing is held in it.
    pub retired: Option<Bytes>,
}

/// The slots of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsUsage {
    /// Which slots, and whose limit.
    pub place: Place,
    /// How many there are.
    pub limit: u64,
    /// How many there are to be; below `limit` while a lowered number waits for jobs to finish.
    pub target: u64,
    /// How many are held now.
    pub held: u64,
    /// The most that was ever held.
    pub peak: u64,
    /// How many were held when they were lost with their device. From then on there are none.
    pub retired: Option<u64>,
}

/// What waits to be freed in one space, or is just being freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaping {
    /// The space.
    pub space: Space,
    /// How many values.
    pub count: usize,
    /// Their bytes.
    pub bytes: Bytes,
}

/// The bytes of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassUsage {
    /// The class.
    pub class: Class,
    /// Its books.
    pub totals: ClassTotals,
}

/// The books of one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpaceTotals {
    /// Held now, in bytes.
    pub held: u64,
    /// How many reservations are out.
    pub count: u64,
    /// All bytes that ever came in.
    pub bytes_in: u64,
    /// All bytes that ever went out again.
    pub bytes_out: u64,
}

/// The books of one class. What is granted to a stage counts as held, whether or not the stage has taken it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassTotals {
    /// Held now, in bytes.
    pub held: u64,
    /// The most that was ever held at once, in bytes.
    pub peak: u64,
    /// How many reservations are out.
    pub count: u64,
    /// All bytes that ever came in.
    pub bytes_in: u64,
    /// All bytes that ever went out again.
    pub bytes_out: u64,
}

impl ClassTotals {
    pub(super) fn add(&mut self, amount: u64) {
        self.held += amount;
        self.peak = self.peak.max(self.held);
        self.bytes_in = self.bytes_in.wrapping_add(amount);
    }

    pub(super) fn sub(&mut self, amount: u64) {
        self.held = self.held.checked_sub(amount).expect("more of a class was returned than was held");
        self.bytes_out = self.bytes_out.wrapping_add(amount);
    }
}

/// A job or free-standing reservation that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its name.
    pub who: Arc<str>,
    /// Which owner it is.
    pub owner: OwnerId,
    /// Where in the source it was reserved, or the job was submitted.
    pub reserved_at: Option<&'static Location<'static>>,
    /// When it was last granted something, in nanoseconds since the ledger was made.
    pub since: u64,
    /// The stage that it is in, or waits to enter.
    pub stage: Option<&'static str>,
    /// What it waits for outside of the ledger, and since when, as it has declared.
    pub external: Option<(&'static str, u64)>,
    /// What it holds, in a fixed order.
    pub held: Vec<(Resource, u64)>,
}

/// A waiting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who waits, and what for.
    pub shortage: Shortage,
    /// The owner that waits.
    pub owner: OwnerId,
    /// The stage that it waits to enter.
    pub stage: Option<&'static str>,
    /// What it needs beyond what it holds.
    pub needs: Vec<(Resource, u64)>,
    /// When the request arrived, in nanoseconds since the ledger was made.
    pub since: u64,
    /// How many later admissions have passed it.
    pub passed: u32,
    /// It belongs to a job that is in flight already.
    pub in_flight: bool,
}
