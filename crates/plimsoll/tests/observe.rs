//! The event stream: complete, in order, and out of the ledger's way.
#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll::observe::{Event, JsonLines, Observer, What};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Resource, Slots, Space};

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::HOST);
const THREADS: Slots = Slots::new("threads");

/// Keeps what it is told.
#[derive(Default)]
struct Tape(Mutex<Vec<Event>>);

impl Observer for Tape {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Tape {
    fn on(ledger: &Ledger) -> Arc<Tape> {
        let tape = Arc::new(Tape::default());
        ledger.observe(tape.clone());
        tape
    }

    fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// `name event [stage] [resource delta]`, one a line.
    fn text(&self) -> String {
        let line = |event: &Event| {
            let owner = event.subject.as_ref();
            let stage = owner.and_then(|owner| owner.stage).map(|stage| format!(" in {stage}"));
            let amount = match event.what {
                What::Changed { resource, delta, held } => format!(" {resource} {delta:+} = {held}"),
                _ => String::new(),
            };
            let name = owner.map_or("ledger", |owner| &owner.name);
            format!("{name} {}{}{amount}\n", event.what.name(), stage.unwrap_or_default())
        };
        self.0.lock().unwrap().iter().map(line).collect()
    }
}

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(10)).slots(THREADS, 2))
}

fn profile() -> Profile {
    let first = Demand::new().bytes(A, Bytes(4)).slots(THREADS, 1);
    Profile::new().stage("make", first, Demand::new().bytes(A, Bytes(3))).stage(
        "use",
        Demand::new().bytes(A, Bytes(3)).bytes(B, Bytes(5)),
        Demand::new(),
    )
}

#[test]
fn a_job_is_told_step_by_step() {
    let ledger = ledger();
    let tape = Tape::on(&ledger);
    let mut job = ledger.submit(JobSpec::new("job", profile())).unwrap();
    let mut grant = job.enter(0).try_now().unwrap();
    let kept = grant.take(A, Bytes(3)).unwrap();
    drop(grant);
    drop(job.enter(1).try_now().unwrap());
    drop(job);
    drop(kept);
    assert_eq!(
        tape.text(),
        "job submitted\n\
         job asked in make\n\
         job granted in make\n\
         job changed in make a +4 = 4\n\
         job changed in make threads +1 = 1\n\
         job changed in make a -1 = 3\n\
         job changed in make threads -1 = 0\n\
         job stage_ended in make\n\
         job asked in use\n\
         job granted in use\n\
         job changed in use b +5 = 5\n\
         job changed in use b -5 = 0\n\
         job stage_ended in use\n\
         job outlived\n\
         job ended\n\
         job changed a -3 = 0\n"
    );
}

#[test]
fn requests_that_come_to_nothing_are_told() {
    let ledger = ledger();
    let tape = Tape::on(&ledger);
    let held = ledger.reserve(A, Bytes(8)).name("held").try_now().unwrap();
    assert!(ledger.reserve(B, Bytes(4)).name("later").try_now().is_err());
    let held = held.into_class(B).unwrap();
    ledger.resize(Space::HOST, Bytes(9)).unwrap();
    ledger.close();
    drop(held);
    assert_eq!(
        tape.text(),
        "held asked\nheld granted\nheld changed a +8 = 8\n\
         later asked\nlater withdrawn\nlater ended\n\
         held changed a -8 = 0\nheld changed b +8 = 8\n\
         ledger resized\nledger closed\n\
         held changed b -8 = 0\nheld ended\n"
    );
}

#[test]
fn an_unobserved_ledger_records_nothing_for_later() {
    let ledger = ledger();
    drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    let tape = Tape::on(&ledger);
    assert_eq!(tape.events(), []);
    drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    assert_eq!(tape.events().first().map(|event| (event.sequence, event.what)), Some((1, What::Asked)));
}

/// Whoever looks for a while leaves nothing behind: neither itself nor the cost of recording.
#[test]
fn an_observer_that_goes_is_told_nothing_more() {
    let ledger = ledger();
    let tape = Arc::new(Tape::default());
    let observing = ledger.observe_while(tape.clone());
    drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    let seen = tape.events().len();
    assert!(seen > 0);
    drop(observing);
    assert_eq!(Arc::strong_count(&tape), 1, "the ledger has let go of it");
    drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    assert_eq!(tape.events().len(), seen);
    let later = Tape::on(&ledger);
    drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    let next = later.events()[0].sequence;
    assert_eq!(next, tape.events().last().unwrap().sequence + 1, "nothing was recorded for nobody");
}

/// With several threads at it: the sequence has no gaps, time does not run back, and the changes add up at every point.
#[test]
fn events_are_in_order_and_add_up() {
    let ledger = ledger();
    let tape = Tape::on(&ledger);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let ledger = &ledger;
            scope.spawn(move || {
                for round in 0..100 {
                    let mut held = ledger.reserve(if thread % 2 == 0 { A } else { B }, Bytes(6)).wait().unwrap();
                    drop(held.split(Bytes(round % 6)).unwrap());
                }
            });
        }
    });
    let events = tape.events();
    let mut sums = std::collections::BTreeMap::<Resource, i128>::new();
    for (before, event) in std::iter::once(None).chain(events.iter().map(Some)).zip(&events) {
        let (sequence, time) = before.map_or((0, 0), |before| (before.sequence, before.time));
        assert_eq!(event.sequence, sequence + 1);
        assert!(event.time >= time);
        if let What::Changed { resource, delta, held } = event.what {
            let sum = sums.entry(resource).or_default();
            *sum += delta;
            assert_eq!(*sum, i128::from(held), "{event:?}");
        }
    }
    assert!(events.len() >= 4 * 100 * 4 && sums.values().all(|sum| *sum == 0));
}

/// Uses the ledger from within, as a dashboard might.
struct Nosy {
    ledger: Ledger,
    seen: AtomicUsize,
    depth: AtomicUsize,
}

impl Observer for Nosy {
    fn event(&self, event: &Event) {
        assert_eq!(self.depth.fetch_add(1, Ordering::SeqCst), 0, "called within a call");
        let _ = self.ledger.snapshot();
        if event.what == What::Asked && self.seen.load(Ordering::SeqCst) < 10 {
            drop(self.ledger.reserve(B, Bytes(1)).name("nosy").try_now());
        }
        self.seen.fetch_add(1, Ordering::SeqCst);
        self.depth.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn an_observer_may_use_the_ledger() {
    let ledger = ledger();
    let nosy = Arc::new(Nosy { ledger: ledger.clone(), seen: AtomicUsize::new(0), depth: AtomicUsize::new(0) });
    ledger.observe(nosy.clone());
    drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    assert!(nosy.seen.load(Ordering::SeqCst) >= 10, "what the observer did itself was told as well");
}

/// Panics at its third event.
struct Frail(AtomicUsize);

impl Observer for Frail {
    fn event(&self, _: &Event) {
        if self.0.fetch_add(1, Ordering::SeqCst) == 2 {
            std::panic::resume_unwind(Box::new("oops"));
        }
    }
}

#[test]
fn an_observer_that_panics_is_not_called_again_and_harms_nobody() {
    let ledger = ledger();
    let frail = Arc::new(Frail(AtomicUsize::new(0)));
    ledger.observe(frail.clone());
    let tape = Tape::on(&ledger);
    for _ in 0..3 {
        drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    }
    assert_eq!(frail.0.load(Ordering::SeqCst), 3);
    assert_eq!(tape.events().len(), 3 * 5);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_slow_observer_loses_events_and_the_gap_says_so() {
    /// Floods the ledger from within its first call.
    struct Slow(Ledger, Mutex<Vec<u64>>);
    impl Observer for Slow {
        fn event(&self, event: &Event) {
            let mut seen = self.1.lock().unwrap();
            seen.push(event.sequence);
            if seen.len() == 1 {
                for _ in 0..plimsoll::observe::BACKLOG / 5 + 10 {
                    drop(self.0.reserve(A, Bytes(1)).try_now().unwrap());
                }
            }
        }
    }
    let ledger = ledger();
    let slow = Arc::new(Slow(ledger.clone(), Mutex::default()));
    ledger.observe(slow.clone());
    for _ in 0..2 {
        drop(ledger.reserve(A, Bytes(1)).try_now().unwrap());
    }
    let seen = slow.1.lock().unwrap();
    let gaps: Vec<u64> = seen.windows(2).map(|two| two[1] - two[0] - 1).filter(|gap| *gap > 0).collect();
    let made = (plimsoll::observe::BACKLOG / 5 + 10) as u64 * 5;
    assert_eq!(gaps, [made - plimsoll::observe::BACKLOG as u64]);
}

#[test]
fn json_lines_follow_the_schema() {
    let ledger = ledger();
    let trace = Arc::new(JsonLines::new(Vec::new()));
    ledger.observe(trace.clone());
    let mut job = ledger.submit(JobSpec::new("a \"b\"\\\n\u{1}ü", profile())).unwrap();
    drop(job.enter(0).try_now().unwrap());
    drop(job);
    drop(ledger.reserve(Class::new("d", Space::device(3)), Bytes(0)).try_now());
    ledger.resize(Space::HOST, Bytes(9)).unwrap();
    drop(ledger);
    let text = String::from_utf8(Arc::into_inner(trace).unwrap().finish().unwrap()).unwrap();
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.split_once(r#""time_ns":"#) {
            Some((before, after)) => format!("{before}{}", after.split_once(',').unwrap().1),
            None => line.to_owned(),
        })
        .collect();
    let job = r#""job":"a \"b\"\\\u000a\u0001ü","id":0"#;
    assert_eq!(lines[0], r#"{"schema":"plimsoll.trace/1"}"#);
    assert_eq!(lines[1], format!(r#"{{"seq":1,"event":"submitted",{job}}}"#));
    assert_eq!(lines[2], format!(r#"{{"seq":2,"event":"asked",{job},"stage":"make"}}"#));
    assert_eq!(
        lines[4],
        format!(r#"{{"seq":4,"event":"changed",{job},"stage":"make","class":"a","space":"host","delta":4,"held":4}}"#)
    );
    assert_eq!(
        lines[5],
        format!(r#"{{"seq":5,"event":"changed",{job},"stage":"make","slots":"threads","delta":1,"held":1}}"#)
    );
    assert!(lines.last().unwrap().ends_with(r#""event":"resized","space":"host","limit":9}"#), "{text}");
    // Every event of the schema's page, and no other.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trace.md")).unwrap();
    for line in &lines[1..] {
        let event = line.split(r#""event":""#).nth(1).unwrap().split('"').next().unwrap();
        assert!(page.contains(&format!("| `{event}` |")), "docs/trace.md does not know {event}");
    }
}

#[test]
fn the_first_error_of_a_trace_is_reported_at_its_end() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let ledger = ledger();
    let trace = Arc::new(JsonLines::new(Full(100)));
    ledger.observe(trace.clone());
    drop(ledger.reserve(A, Bytes(8)).try_now().unwrap());
    drop(ledger);
    let error = Arc::into_inner(trace).unwrap().finish().err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

/// Panics when it is told something, and when it is dropped.
struct Thorn;

impl Observer for Thorn {
    fn event(&self, _: &Event) {
        panic!("told to");
    }
}

impl Drop for Thorn {
    fn drop(&mut self) {
        panic!("again");
    }
}

#[test]
fn an_observer_that_panics_also_when_it_is_dropped_keeps_nothing_from_the_others() {
    let ledger = ledger();
    ledger.observe(Arc::new(Thorn));
    let tape = Tape::on(&ledger);
    let held = ledger.reserve(A, Bytes(1)).try_now().unwrap();
    let told = tape.events().len();
    assert!(told > 0);
    drop(held);
    assert!(tape.events().len() > told, "others hear what comes after");
}
