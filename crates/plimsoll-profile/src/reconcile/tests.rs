use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll::{Budget, Class, Ledger};

use super::*;
use crate::sample::allocator::Allocator;
use crate::sample::device::DeviceMemory;
use crate::sample::process::ProcessMemory;

const PROVERS: Class = Class::new("provers", Space::HOST);
const STAGING: Class = Class::new("staging", Space::PINNED);
const BUCKETS: Class = Class::new("buckets", Space::device(1));
const MIB: u64 = 1 << 20;

fn process(anonymous: u64, file: u64) -> ProcessMemory {
    ProcessMemory {
        resident_bytes: anonymous + file,
        anonymous_bytes: anonymous,
        file_bytes: file,
        ..ProcessMemory::default()
    }
}

fn jemalloc(allocated: u64, resident: u64) -> AllocatorMemory {
    AllocatorMemory { allocated_bytes: allocated, resident_bytes: Some(resident), ..AllocatorMemory::default() }
}

fn sample(anonymous: u64, file: u64, allocator: Option<AllocatorMemory>) -> Sample {
    Sample { process: Some(process(anonymous, file)), allocator, ..Sample::default() }
}

#[test]
fn the_rows_add_up_whatever_is_seen() {
    let ledger = Ledger::unlimited();
    let baseline = Baseline::of(&sample(20 * MIB, 5 * MIB, Some(jemalloc(4 * MIB, 9 * MIB))), &ledger.snapshot());
    let _provers = ledger.reserve(PROVERS, Bytes(100 * MIB)).try_now().unwrap();
    let _staging = ledger.reserve(STAGING, Bytes(50 * MIB)).try_now().unwrap();
    let _buckets = ledger.reserve(BUCKETS, Bytes(7 * MIB)).try_now().unwrap();
    let cases = [(190, 5, Some(jemalloc(160 * MIB, 170 * MIB))), (30, 50, None), (0, 0, Some(jemalloc(1 << 50, 3)))];
    for (anonymous, file, allocator) in cases {
        let mut sample = sample(anonymous * MIB, file * MIB, allocator);
        let device = DeviceMemory { device: 1, total_bytes: 900, free_bytes: 100, ..DeviceMemory::default() };
        sample.devices = vec![device];
        let tables = Table::all(&ledger.snapshot(), &sample, &baseline);
        assert_eq!(tables.iter().map(|table| table.space.as_str()).collect::<Vec<_>>(), ["host", "device1"]);
        for table in &tables {
            assert_eq!(table.rows.iter().map(|(_, bytes)| bytes).sum::<i64>(), table.total, "{table}");
        }
        assert_eq!(tables[0].total as u64, (anonymous + file) * MIB);
        assert_eq!(tables[0].held() as u64, 150 * MIB, "what is pinned is host memory");
        assert_eq!((tables[1].held() as u64, tables[1].total), (7 * MIB, 800));
    }
}

#[test]
fn each_part_is_what_it_says() {
    let ledger = Ledger::unlimited();
    // Before work: 15 MiB that are neither the allocator's slack nor files.
    let baseline = Baseline::of(&sample(20 * MIB, 5 * MIB, Some(jemalloc(4 * MIB, 9 * MIB))), &ledger.snapshot());
    let _provers = ledger.reserve(PROVERS, Bytes(100 * MIB)).try_now().unwrap();
    let tables =
        Table::all(&ledger.snapshot(), &sample(140 * MIB, 6 * MIB, Some(jemalloc(104 * MIB, 124 * MIB))), &baseline);
    let of = |part| tables[0].part(&part) as u64 / MIB;
    assert_eq!((of(Part::Held("provers".into())), of(Part::Baseline), of(Part::Slack)), (100, 21, 20));
    assert_eq!(tables[0].unaccounted() as u64 / MIB, 146 - 100 - 21 - 20);
    let text = tables[0].to_string();
    assert!(text.contains("provers") && text.contains("100.00 MiB") && text.contains("= kernel"), "{text}");
}

/// An allocator that holds so much in free pages until it is purged.
#[derive(Debug)]
struct Hoard(AtomicU64);

impl Allocator for Hoard {
    fn name(&self) -> &'static str {
        "hoard"
    }
    fn read(&self) -> Option<AllocatorMemory> {
        Some(jemalloc(0, self.0.load(Ordering::Relaxed)))
    }
    fn purge(&self) -> bool {
        self.0.store(0, Ordering::Relaxed);
        true
    }
    fn settings(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

struct Kept {
    ledger: Ledger,
    keeper: SlackKeeper,
    hoard: Hoard,
    seconds: u64,
}

impl Kept {
    fn new(line: u64, limit: u64, floor: u64) -> Self {
        let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(limit * MIB)));
        let keeper = SlackKeeper::new(&ledger, Bytes(line * MIB), Bytes(floor * MIB));
        Self { ledger, keeper, hoard: Hoard(AtomicU64::new(0)), seconds: 0 }
    }

    /// A second later the process holds `beside` besides its ledger, and the allocator `free` of free pages.
    fn look(&mut self, beside: u64, free: u64, waiting: u64) -> Change {
        self.seconds += 1;
        self.hoard.0.store(free * MIB, Ordering::Relaxed);
        let snapshot = self.ledger.snapshot();
        let held = snapshot.space(Space::HOST).unwrap().held.0;
        let sample = Sample {
            time: self.seconds * 1_000_000_000,
            waiting_for_memory: Some(waiting),
            ..sample(held + (beside + free) * MIB, 0, self.hoard.read())
        };
        self.keeper.follow(&sample, &snapshot, Some(&self.hoard), || Some(process(held + beside * MIB, 0)))
    }

    fn limit(&self) -> u64 {
        self.ledger.snapshot().space(Space::HOST).unwrap().target.0 / MIB
    }
}

#[test]
fn the_limit_follows_what_is_measured() {
    let mut kept = Kept::new(1024, 900, 100);
    assert_eq!(
        kept.look(80, 0, 0).limit,
        Some(Bytes((1024 - 80 - 10) * MIB)),
        "less than was kept for it: at once at the start"
    );
    kept.look(240, 0, 0);
    assert_eq!(kept.limit(), 1024 - 240 - 30, "more: lowered at once");
    // Less again: raised, but only when it has been less for a while.
    for _ in 0..29 {
        assert_eq!(kept.look(80, 0, 0).limit, None);
    }
    kept.look(80, 0, 0);
    kept.look(80, 0, 0);
    assert_eq!(kept.limit(), 934);
    // A little more or less is not worth it.
    assert_eq!(kept.look(84, 0, 0).limit, None);
}

#[test]
fn free_pages_go_before_a_job_has_to_wait() {
    let mut kept = Kept::new(1024, 900, 100);
    kept.look(100, 0, 0);
    let limit = kept.limit();
    // 300 MiB of free pages would lower the limit; they are given back instead.
    let change = kept.look(100, 300, 0);
    assert!(change.purged && change.limit.is_none(), "{change:?}");
    assert_eq!((kept.limit(), kept.keeper.purges(), change.overhead), (limit, 1, Bytes(100 * MIB)));
    // A few free pages are left alone, unless somebody waits.
    assert!(!kept.look(90, 17, 0).purged);
    assert!(kept.look(90, 17, 1).purged);
    assert!(!kept.look(90, 2, 1).purged, "not worth it");
}

#[test]
fn the_largest_job_can_always_run() {
    let mut kept = Kept::new(1024, 900, 600);
    let change = kept.look(800, 0, 0);
    assert_eq!((kept.limit(), change.too_little), (600, true));
}

#[test]
fn the_process_stays_under_the_line() {
    // Whatever is beside the ledger (within what a step may bring), limit + overhead never exceeds the line a look later.
    let mut kept = Kept::new(2048, 2000, 64);
    let mut beside = 50_u64;
    for step in 0..400_u64 {
        beside = (beside + (step * 7919) % 23).saturating_sub((step * 104_729) % 21).clamp(20, 900);
        kept.look(beside, 0, 0);
        assert!(kept.limit() + beside <= 2048, "step {step}: limit {} and {beside} beside it", kept.limit());
    }
}

/// A control group's limit that is lowered, or a neighbour that grows, is followed at the next look, and back.
#[test]
fn what_others_leave_is_the_line() {
    let mut kept = Kept::new(1024, 900, 100);
    kept.look(80, 0, 0);
    assert_eq!(kept.limit(), 934);
    let _held = kept.ledger.reserve(PROVERS, Bytes(200 * MIB)).try_now().unwrap();
    let mut with_left = |left: u64| {
        kept.seconds += 1;
        let group = crate::sample::groups::GroupMemory { limit_bytes: left * MIB, ..Default::default() };
        let sample = Sample {
            time: kept.seconds * 1_000_000_000,
            group: Some(group),
            ..sample(280 * MIB, 0, Some(jemalloc(0, 0)))
        };
        let change = kept.keeper.follow(&sample, &kept.ledger.snapshot(), None, || None);
        (change.line.0 / MIB, kept.ledger.snapshot().space(Space::HOST).unwrap().target.0 / MIB)
    };
    assert_eq!(with_left(2000), (1024, 934));
    assert_eq!(with_left(300), (580, 580 - 90));
    assert_eq!(with_left(2000), (1024, 934));
}

/// Memory that is promised and not touched hides what is beside it; the limit is not raised on the strength of that.
#[test]
fn untouched_promises_raise_no_limit() {
    let mut kept = Kept::new(1024, 900, 100);
    kept.look(240, 0, 0);
    assert_eq!(kept.limit(), 1024 - 240 - 30);
    let _held = kept.ledger.reserve(PROVERS, Bytes(500 * MIB)).try_now().unwrap();
    for _ in 0..100 {
        kept.seconds += 1;
        // Nothing of what is held is touched.
        let sample = Sample { time: kept.seconds * 1_000_000_000, ..sample(240 * MIB, 5 * MIB, None) };
        kept.keeper.follow(&sample, &kept.ledger.snapshot(), None, || None);
    }
    assert_eq!(kept.limit(), 1024 - 240 - 30);
}

/// An allocator that has nothing to give back is not asked at every look.
#[test]
fn what_cannot_be_given_back_is_seldom_asked_for() {
    let mut kept = Kept::new(1024, 900, 100);
    let mut purges = 0;
    for second in 1..=120 {
        kept.hoard.0.store(300 * MIB, Ordering::Relaxed);
        let sample = Sample {
            time: second * 1_000_000_000,
            waiting_for_memory: Some(1),
            ..sample(400 * MIB, 0, kept.hoard.read())
        };
        let stubborn = Stubborn(300);
        let change =
            kept.keeper.follow(&sample, &kept.ledger.snapshot(), Some(&stubborn), || Some(process(400 * MIB, 0)));
        purges += u32::from(change.purged);
    }
    assert!((5..12).contains(&purges), "{purges}");
}

/// An allocator whose free pages nobody gets.
#[derive(Debug)]
struct Stubborn(u64);

impl Allocator for Stubborn {
    fn name(&self) -> &'static str {
        "stubborn"
    }
    fn read(&self) -> Option<AllocatorMemory> {
        Some(jemalloc(0, self.0 * MIB))
    }
    fn purge(&self) -> bool {
        true
    }
    fn settings(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
