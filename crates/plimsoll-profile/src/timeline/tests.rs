use std::sync::Arc;

use plimsoll::observe::JsonLines;
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};

use super::*;
use crate::trace::{Subject, What};

fn event(time: u64, who: Option<(u64, &str, Option<&str>)>, what: What) -> Event {
    let subject =
        who.map(|(id, name, stage)| Subject { id, name: name.into(), is_job: true, stage: stage.map(Into::into) });
    Event { sequence: None, time, subject, what }
}

fn change(time: u64, id: u64, class: &str, space: &str, delta: i64, held: u64) -> Event {
    event(
        time,
        Some((id, &format!("job {id}"), None)),
        What::Changed { class: class.into(), space: space.into(), delta, held },
    )
}

/// A small generator: no more is asked of it than to be the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Holdings that come and go at random over a long time.
fn random_changes(count: usize) -> Vec<Event> {
    let classes = [("aux", "host"), ("provers", "host"), ("staging", "pinned"), ("buckets", "device0")];
    let (mut dice, mut time, mut held) = (Dice(7), 5, [[0_u64; 4]; 8]);
    let mut events = Vec::new();
    for _ in 0..count {
        time += dice.below(100_000) * dice.below(30);
        let (owner, class) = (dice.below(8) as usize, dice.below(4) as usize);
        let delta = match held[owner][class] {
            0 => 1 + dice.below(1 << 34) as i64,
            held => -(1 + dice.below(held) as i64),
        };
        held[owner][class] = held[owner][class].checked_add_signed(delta).unwrap();
        let total = held.iter().map(|owner| owner[class]).sum();
        events.push(change(time, owner as u64, classes[class].0, classes[class].1, delta, total));
    }
    events
}

#[test]
fn every_peak_is_kept_however_long_the_trace_is() {
    let events = random_changes(50_000);
    let timeline = Timeline::from_events(&events);
    assert!(timeline.bins() <= BINS_MAX && timeline.bins() > BINS_MAX / 2, "{}", timeline.bins());
    for (space, within) in [("host", &["host", "pinned"][..]), ("pinned", &["pinned"]), ("device0", &["device0"])] {
        let line = timeline.space(space).unwrap();
        // The same, added up in the plainest way.
        let (mut now, mut peak, mut at) = (0_i64, 0, 0);
        let mut bins = vec![0; timeline.bins()];
        let mut last = 0;
        for event in &events {
            let What::Changed { space, delta, .. } = &event.what else { unreachable!() };
            let bin = ((event.time - timeline.begin_ns) / timeline.bin_ns) as usize;
            bins[last..=bin].iter_mut().for_each(|high| *high = now.max(*high));
            last = bin;
            if within.contains(&&**space) {
                now += delta;
                bins[bin] = now.max(bins[bin]);
                if now > peak {
                    (peak, at) = (now, event.time);
                }
            }
        }
        assert_eq!((line.peak.bytes as i64, line.peak.time_ns), (peak, at), "{space}");
        assert_eq!(line.held, bins.iter().map(|&high| high as u64).collect::<Vec<_>>(), "{space}");
        assert_eq!(line.held_end as i64, now);
        // Of each piece of time the classes make up the total, and so do the holders at the peak.
        for bin in 0..timeline.bins() {
            assert_eq!(line.classes.iter().map(|class| class.held[bin]).sum::<u64>(), line.held[bin]);
        }
        let holders = &line.peak.holders;
        assert_eq!(holders.iter().map(|holder| holder.bytes).sum::<u64>(), line.peak.bytes, "{space}");
        assert_eq!(line.peak.classes.iter().map(|class| class.1).sum::<u64>(), line.peak.bytes, "{space}");
        assert!(holders.is_sorted_by(|a, b| a.bytes >= b.bytes));
    }
    assert!(timeline.conservation.holds());
}

#[test]
fn sums_that_are_wrong_are_found() {
    let good = random_changes(300);
    assert!(Timeline::from_events(&good).conservation.holds());
    let spoilt = |spoil: &dyn Fn(&mut Vec<Event>)| {
        let mut events = good.clone();
        spoil(&mut events);
        !Timeline::from_events(&events).conservation.holds()
    };
    assert!(spoilt(&|events| drop(events.remove(150))), "an event is missing");
    assert!(spoilt(&|events| events.insert(150, events[150].clone())), "an event is there twice");
    assert!(spoilt(&|events| {
        let What::Changed { held, .. } = &mut events[299].what else { unreachable!() };
        *held += 1;
    }));
    // Somebody else's bytes are returned: the class's sum is right, the owners' are not.
    let given = change(1, 1, "aux", "host", 10, 10);
    let stolen = change(2, 2, "aux", "host", -10, 0);
    assert!(!Timeline::from_events([given, stolen]).conservation.holds());
}

#[test]
fn a_trace_that_begins_late_is_balanced() {
    let events = [change(9, 1, "aux", "host", 5, 105), change(10, 2, "aux", "host", -100, 5)];
    let timeline = Timeline::from_events(events);
    assert!(timeline.conservation.holds(), "{:?}", timeline.conservation);
    assert_eq!(timeline.conservation.classes[0].before, 100);
    assert_eq!(timeline.spaces[0].peak.bytes, 105);
}

#[test]
fn stages_queues_and_waits_are_told_apart() {
    let at = |time, id, stage, what| event(time, Some((id, "job", Some(stage))), what);
    let began = || What::Began { place: "worker".into() };
    let events = [
        at(0, 1, "make", What::Asked),
        at(0, 1, "make", What::Granted),
        at(0, 1, "make", began()),
        at(0, 2, "make", What::Asked),
        at(40, 1, "make", What::StageEnded),
        at(40, 1, "use", What::Asked),
        at(50, 1, "use", What::Granted),
        at(60, 1, "use", began()),
        at(60, 2, "make", What::Granted),
        at(60, 2, "make", began()),
        at(100, 1, "use", What::StageEnded),
        event(100, Some((1, "job", None)), What::Finished { how: "result".into(), late: true }),
        event(100, Some((1, "job", None)), What::Ended),
        at(100, 3, "make", What::Asked),
    ];
    let timeline = Timeline::from_events(events);
    let [make, consume] = &timeline.stages[..] else { panic!("{:?}", timeline.stages) };
    assert_eq!((make.runs, consume.runs, make.queue_peak, consume.queue_peak), (2, 1, 1, 1));
    assert_eq!((make.wait.max_ns, consume.wait.max_ns, consume.place_wait.max_ns), (60, 10, 10));
    assert_eq!((make.run.count, make.run.max_ns, consume.run.total_ns), (1, 40, 40));
    assert!((make.running_all - 0.8).abs() < 1e-9 && (consume.running_all - 0.4).abs() < 1e-9, "{timeline:?}");
    let waits: Vec<_> = timeline.waits.iter().map(|wait| (wait.id, wait.wait_ns, wait.how)).collect();
    assert_eq!(waits, [(2, 60, "granted"), (1, 10, "granted")]);
    assert_eq!((timeline.done(), timeline.jobs.late, timeline.jobs.open_peak), (1, 1, 2));
    let spans: Vec<_> =
        timeline.spans.iter().map(|span| (span.id, &*span.stage, span.start_ns(), span.ended_ns, span.open)).collect();
    assert_eq!(spans, [(1, "make", 0, 40, false), (1, "use", 60, 100, false), (2, "make", 60, 100, true)]);
}

#[test]
fn means_are_integrals_however_often_pieces_are_joined() {
    let mut dice = Dice(3);
    let (mut time, mut held, mut integral) = (0_u64, 0_u64, 0_f64);
    let mut events = Vec::new();
    for _ in 0..20_000 {
        let step = dice.below(50_000);
        time += step;
        integral += held as f64 * step as f64;
        let next = dice.below(9);
        let what = What::ChangedSlots { slots: "lane0".into(), delta: next as i64 - held as i64, held: next };
        events.push(event(time, Some((1, "job", None)), what));
        held = next;
    }
    let timeline = Timeline::from_events(&events);
    let lane = &timeline.slots[0];
    let mean = integral / timeline.length_ns() as f64;
    assert!((lane.mean_all - mean).abs() < 1e-6 * mean, "{} {mean}", lane.mean_all);
    assert!(lane.mean.iter().all(|mean| (0.0..=8.0 + 1e-9).contains(mean)) && lane.peak == 8);
}

#[test]
fn spans_are_bounded_and_those_around_the_peak_are_kept() {
    let mut builder = Builder::new();
    for job in 0..40_000_u64 {
        let at = |what| event(job * 10, Some((job, "job", Some("only"))), what);
        let held = if job == 30_000 { 1 << 30 } else { 1 << 20 };
        let hold = |delta| What::Changed {
            class: "aux".into(),
            space: "host".into(),
            delta,
            held: if delta > 0 { held } else { 0 },
        };
        for what in [What::Asked, What::Granted, hold(held as i64), What::StageEnded, hold(-(held as i64)), What::Ended]
        {
            builder.push(&at(what));
        }
    }
    let timeline = builder.finish();
    assert_eq!((timeline.spans.len(), timeline.spans_left_out), (SPANS_MAX, 40_000 - SPANS_MAX as u64));
    assert!(timeline.spans.iter().any(|span| span.id == 30_000));
    assert!(timeline.left.is_empty() && timeline.conservation.holds());
}

#[test]
fn what_a_ledger_says_of_itself_is_what_its_trace_adds_up_to() {
    const AUX: Class = Class::new("aux", Space::HOST);
    const STAGING: Class = Class::new("staging", Space::PINNED);
    let budget = Budget::new().space(Space::HOST, Bytes::GIB).space(Space::PINNED, Bytes::MIB);
    let ledger = Ledger::new(budget);
    let lines = Arc::new(JsonLines::new(Vec::new()));
    ledger.observe(lines.clone());
    ledger.announce_limits();
    let profile = Profile::new().stage(
        "make",
        Demand::new().bytes(AUX, Bytes(5 << 20)),
        Demand::new().bytes(AUX, Bytes(2 << 20)),
    );
    let mut job = ledger.submit(JobSpec::new("a job", profile)).unwrap();
    let grant = job.enter(0).wait().unwrap();
    let staging = ledger.reserve(STAGING, Bytes(77)).name("<b>").try_now().unwrap();
    let snapshot = ledger.snapshot();
    drop((grant, staging, job, ledger));
    let text = String::from_utf8(Arc::into_inner(lines).unwrap().finish().unwrap()).unwrap();
    let timeline = Timeline::read(text.as_bytes()).unwrap();
    assert!(timeline.conservation.holds() && timeline.left.is_empty());
    for (space, name) in [(Space::HOST, "host"), (Space::PINNED, "pinned")] {
        let usage = snapshot.space(space).unwrap();
        let line = timeline.space(name).unwrap();
        assert_eq!((line.peak.bytes, line.held_end), (usage.peak.0, 0), "{name}");
        // The line is known from the beginning.
        assert_eq!(line.line[0], Some(usage.limit.0), "{name}");
    }
}
