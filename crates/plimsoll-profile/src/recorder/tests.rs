use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use plimsoll::{Bytes, Class, Ledger, Space};

use super::*;
use crate::diagnose::Books;
use crate::sample::Reader;
use crate::trace;

const PROVERS: Class = Class::new("provers", Space::HOST);
/// Names the ring of the process that is to be killed.
const RING: &str = "PLIMSOLL_TEST_RING";

fn small() -> u64 {
    HEADER_BYTES + MARKS * MARK_BYTES as u64 + 4 * SLOT_BYTES as u64
}

fn events(recording: &Recording) -> Vec<trace::Event> {
    trace::Reader::new(recording.trace().as_bytes()).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Not a test by itself: it is started by the next one, and killed.
#[test]
fn a_process_that_will_be_killed() {
    let Ok(path) = std::env::var(RING) else { return };
    let recorder = Arc::new(Recorder::create(Path::new(&path), FILE_BYTES).unwrap());
    let ledger = Ledger::unlimited();
    ledger.observe(recorder.clone());
    let mut reader = Reader::new().without_others();
    let mut held = Vec::new();
    for number in 0.. {
        let name = format!("partition {number}");
        held.push(ledger.reserve(PROVERS, Bytes(1 << 20)).name(&name).try_now().unwrap());
        if held.len() > 40 {
            held.drain(..20);
        }
        let snapshot = ledger.snapshot();
        recorder.sample(&reader.sample(snapshot.time), &snapshot);
        if number == 200 {
            println!("ready");
        }
    }
}

#[test]
fn what_a_killed_process_recorded_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recorder::tests::a_process_that_will_be_killed", "--nocapture"])
        .env(RING, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let ready = BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap().contains("ready"));
    // SIGKILL: nothing of it runs any more.
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(ready && std::os::unix::process::ExitStatusExt::signal(&status) == Some(9), "{status:?}");

    let recording = Recording::read(&path).unwrap();
    assert_eq!(recording.damaged, 0);
    let series = recording.series().unwrap();
    assert!(series.moments.len() > 100, "{}", series.moments.len());
    let mark = recording.mark.as_ref().expect("a high-water mark");
    assert!(mark.resident_bytes > 0 && mark.held_bytes >= 40 << 20, "{mark:?}");
    assert!(mark.holders[0].who.starts_with("partition ") && mark.holders[0].at.as_ref().unwrap().contains("tests.rs"));
    assert!(mark.in_words().contains("\"partition "), "{}", mark.in_words());
    // Who held what at the end, and where it was asked for.
    let last = series.moments.last().unwrap();
    let there = series.rests.iter().filter(|rest| rest.until.is_none());
    assert!(last.held >= there.map(|rest| rest.bytes).sum::<u64>(), "{series:?}");
    assert!(last.held >= 20 << 20);
}

/// Whatever was overwritten, what is held at the end comes out right.
#[test]
fn sums_are_right_when_the_ring_went_round() {
    // Wherever the slots are cut.
    for pad in 0..8 {
        check_sums(pad);
    }
}

fn check_sums(pad: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    let recorder = Arc::new(Recorder::create(&path, small()).unwrap());
    let ledger = Ledger::unlimited();
    ledger.observe(recorder.clone());
    let kept: Vec<_> =
        (0..3).map(|i| ledger.reserve(PROVERS, Bytes(1000 + i)).name("kept \"long\"").try_now().unwrap()).collect();
    drop(ledger.reserve(PROVERS, Bytes(9)).name(&"p".repeat(1 + pad * 37)).try_now().unwrap());
    for size in 0..3000 {
        drop(ledger.reserve(PROVERS, Bytes(1 + size)).name("short").try_now().unwrap());
    }
    let last = ledger.reserve(PROVERS, Bytes(77)).name("last").try_now().unwrap();
    let snapshot = ledger.snapshot();
    recorder.sample(&Sample { time: snapshot.time, ..Sample::default() }, &snapshot);
    let recording = Recording::read(&path).unwrap();
    assert!(recording.overwritten > 2 && recording.damaged == 0, "{recording:?}");
    let expected = 1000 + 1001 + 1002 + 77;
    let (held, series) = added_up(&recording);
    assert_eq!((held, series.moments.last().unwrap().held), (expected, expected as u64));
    assert_eq!(series.rests.iter().filter(|rest| &*rest.who == "kept \"long\"").count(), 3);
    // A bit in any slot: what comes after it is still right, because slots say what is held.
    let bytes = std::fs::read(&path).unwrap();
    for slot in 0..4 {
        let mut hurt = bytes.clone();
        hurt[HEADER_BYTES as usize + MARKS as usize * MARK_BYTES + slot * SLOT_BYTES + 900] ^= 4;
        let recording = Recording::parse(&hurt).unwrap();
        assert!(recording.damaged <= 1);
        let (held, series) = added_up(&recording);
        // Where the newest slot itself is hurt, the end is missing, as if the process had been killed before.
        assert!(held == expected || recording.damaged == 0 && held.abs_diff(expected) <= 3077, "{held}");
        assert_eq!(series.moments.last().unwrap().held, held as u64, "slot {slot}");
    }
    drop((kept, last));
}

/// What is held at the end by the sum of all changes, and as the books say.
fn added_up(recording: &Recording) -> (i64, crate::diagnose::Series) {
    let (mut books, mut held) = (Books::new(), 0);
    for event in events(recording) {
        if let trace::What::Changed { delta, .. } = event.what {
            held += delta;
        }
        books.event(&event);
    }
    (held, books.series())
}

/// However many hold something: the largest by name, the others in one sum, which goes down as they return it.
#[test]
fn sums_are_right_however_many_hold_something() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    let recorder = Arc::new(Recorder::create(&path, small()).unwrap());
    let ledger = Ledger::unlimited();
    ledger.observe(recorder.clone());
    let name = "somebody with a name of some length";
    let mut kept: Vec<_> =
        (0..2000).map(|i| ledger.reserve(PROVERS, Bytes(1000 + i)).name(name).try_now().unwrap()).collect();
    for size in 0..3000 {
        drop(ledger.reserve(PROVERS, Bytes(1 + size)).name("short").try_now().unwrap());
    }
    // Some that only the sum knows go as well, and then the largest.
    kept.drain(..500);
    kept.truncate(1400);
    let sum: u64 = kept.iter().map(|held| held.bytes().0).sum();
    let snapshot = ledger.snapshot();
    recorder.sample(&Sample { time: snapshot.time, ..Sample::default() }, &snapshot);
    let recording = Recording::read(&path).unwrap();
    assert!(recording.overwritten > 0);
    let (held, series) = added_up(&recording);
    assert_eq!((held as u64, series.moments.last().unwrap().held), (sum, sum));
    let of_rests: u64 = series.rests.iter().map(|rest| rest.bytes).sum();
    assert_eq!(of_rests, sum, "nobody is said to hold what was returned");
}

/// Where a job is, and that it has ended, is known however long ago it was said.
#[test]
fn stages_and_ends_are_carried_on() {
    use plimsoll::{Demand, JobSpec, Profile};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    let recorder = Arc::new(Recorder::create(&path, small()).unwrap());
    let ledger = Ledger::unlimited();
    ledger.observe(recorder.clone());
    let demand = Demand::new().bytes(PROVERS, Bytes(5 << 20));
    let enter = |name: &str| {
        let profile = Profile::new().stage("prove", demand.clone(), demand.clone());
        let mut job = ledger.submit(JobSpec::new(name, profile)).unwrap();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(Ok(mut grant)) = job.poll_enter(&mut cx, 0) else { panic!("granted") };
        let held = grant.take(PROVERS, Bytes(5 << 20)).unwrap();
        (job, grant, held)
    };
    let (_job, _grant, _running) = enter("runs");
    let (job, grant, _stays) = enter("has ended");
    drop((grant, job));
    for size in 0..3000 {
        drop(ledger.reserve(PROVERS, Bytes(1 + size)).name("short").try_now().unwrap());
    }
    let snapshot = ledger.snapshot();
    recorder.sample(&Sample { time: snapshot.time, ..Sample::default() }, &snapshot);
    let recording = Recording::read(&path).unwrap();
    assert!(recording.overwritten > 0);
    let (_, series) = added_up(&recording);
    let kind = |who: &str| series.rests.iter().find(|rest| &*rest.who == who).map(|rest| rest.kind.clone());
    assert_eq!(kind("runs"), Some(crate::diagnose::RestKind::Running("prove".into())));
    assert_eq!(kind("has ended"), Some(crate::diagnose::RestKind::Ended));
}

/// A signal that kills can cut the last write short, anywhere: all that was written before is there.
#[test]
fn a_write_that_was_cut_short_takes_nothing_else_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    let recorder = Recorder::create(&path, small()).unwrap();
    let at = HEADER_BYTES as usize + MARKS as usize * MARK_BYTES;
    // In the first lap behind zeros, in later ones over what is left of an older one.
    for lap in [40, 4000] {
        for number in 0..lap {
            recorder.line(&format!(r#"{{"time_ns":{number},"event":"x","text":"{}"}}"#, "y".repeat(60)));
        }
        let before = std::fs::read(&path).unwrap();
        let whole = events(&Recording::parse(&before).unwrap());
        recorder.line(&format!(r#"{{"time_ns":9999,"event":"x","text":"{}"}}"#, "z".repeat(9000)));
        let after = std::fs::read(&path).unwrap();
        let changed: Vec<usize> = (at..after.len()).filter(|byte| before[*byte] != after[*byte]).collect();
        let (first, last) = (changed[0], changed[changed.len() - 1]);
        for cut in [first + 3, first + 16, first + 4096, last - 1] {
            let mut torn = before.clone();
            torn[first..cut].copy_from_slice(&after[first..cut]);
            let recording = Recording::parse(&torn).unwrap();
            assert_eq!((recording.damaged, events(&recording) == whole), (0, true), "lap {lap}, cut at {cut}");
        }
        assert_eq!(events(&Recording::parse(&after).unwrap()).len(), whole.len() + 1);
    }
}

#[test]
fn nothing_that_was_there_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    let previous = directory.path().join("ring.previous");
    // What is no file, or no recording, is left as it is, also behind a link.
    assert!(Recorder::create(Path::new("/dev/null"), small()).is_err());
    assert!(Path::new("/dev/null").exists());
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert!(Recorder::create(&path, small()).is_err() && path.is_symlink() && Path::new("/dev/null").exists());
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(Recorder::create(&path, small()).is_err());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(Recorder::create(&path, small()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    // An empty file is nobody's; a recording is kept, and stays where it was if there is no room for another.
    std::fs::write(&path, "").unwrap();
    Recorder::create(&path, small()).unwrap().line(r#"{"time_ns":1,"event":"x"}"#);
    assert!(!previous.exists());
    assert!(Recorder::create(&path, 1 << 60).is_err());
    assert_eq!(events(&Recording::read(&path).unwrap()).len(), 1);
    assert!(!previous.exists());
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    drop(Recorder::create(&path, small()).unwrap());
    assert_eq!(events(&Recording::read(&previous).unwrap()).len(), 1);
    assert_eq!(events(&Recording::read(&path).unwrap()).len(), 0);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "its owner alone, whatever was there before");
}

#[test]
fn a_damaged_slot_is_counted_and_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    let recorder = Recorder::create(&path, small()).unwrap();
    for number in 0..2500 {
        recorder.line(&format!(r#"{{"time_ns":{number},"event":"x","text":"{}"}}"#, "y".repeat(60)));
    }
    let whole = Recording::read(&path).unwrap();
    assert_eq!((whole.damaged, events(&whole).len() > 1500), (0, true));
    let mut bytes = std::fs::read(&path).unwrap();
    // One bit, in the middle of the second slot.
    let at = (HEADER_BYTES as usize) + MARKS as usize * MARK_BYTES + SLOT_BYTES + 1000;
    bytes[at] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let hurt = Recording::read(&path).unwrap();
    assert_eq!(hurt.damaged, 1);
    assert!(events(&hurt).len() > 800 && events(&hurt).len() < events(&whole).len());
    // Any bit of the header, and any length: an error or a recording, never a panic.
    for bit in (0..48 * 8).step_by(5) {
        let mut header = bytes.clone();
        header[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &header).unwrap();
        let _ = Recording::read(&path);
    }
    for length in [0, 1, 15, 16, 47, 48, 4096, 70_000, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let _ = Recording::read(&path);
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    assert!(matches!(Recording::read(&path), Err(ReadError::Io(_))));
    std::fs::write(&path, "{\"schema\":\"plimsoll.trace/1\"}\n").unwrap();
    assert!(matches!(Recording::read(&path), Err(ReadError::NotARecording)));
}

/// `/dev/full` has no room: the error is told, and everything else goes on.
#[test]
fn a_full_disk_ends_the_recording_not_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(&directory.path().join("ring"), small()).unwrap();
    recorder.ring().file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let recorder = Arc::new(recorder);
    let ledger = Ledger::unlimited();
    ledger.observe(recorder.clone());
    for _ in 0..500 {
        drop(ledger.reserve(PROVERS, Bytes(1)).try_now().unwrap());
    }
    let error = recorder.take_error().expect("told");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(recorder.take_error().is_none(), "once");
    assert!(Recorder::create(Path::new("/nowhere/ring"), small()).is_err());
}

#[test]
fn only_its_owner_may_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ring");
    drop(Recorder::create(&path, small()).unwrap());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}
