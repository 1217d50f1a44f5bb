//! What the process really holds: in the trace, in the flight recording, and on the doctor's page.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use plimsoll_profile::diagnose::{Books, Verdict, diagnose};
use plimsoll_profile::recorder::Recording;
use plimsoll_profile::trace;

use crate::support::{Sandbox, wait_until};

fn events(path: &Path) -> Vec<trace::Event> {
    let file = BufReader::new(File::open(path).unwrap());
    trace::Reader::new(file).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_watched_run_is_sampled_recorded_and_healthy() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 300);
    let arguments = ["file", "--threads", "2", "--trace", "t.jsonl", "--record", "ring", "--sample-ms", "20"];
    let (_, json) = sandbox.prove(&arguments);
    let line = json["memory"]["budget_bytes"].as_u64().unwrap();
    let mut books = Books::new();
    for event in events(&sandbox.path("t.jsonl")) {
        books.event(&event);
    }
    let series = books.series();
    assert!(series.moments.len() >= 2, "one at the beginning and one at the end at least");
    let peak = series.moments.iter().filter_map(|m| m.sample.process).map(|process| process.peak_bytes).max();
    assert!(peak > Some(0) && peak <= Some(line));
    assert!(series.moments.iter().all(|m| m.sample.line == Some(line)));
    let last = series.moments.last().unwrap();
    assert_eq!(last.held, 0);
    assert!(last.jobs_done >= json["partitions"].as_u64().unwrap(), "{}", last.jobs_done);
    // What was freed has left the process, too: nothing is kept by the allocator.
    let most_held = series.moments.iter().map(|moment| moment.held).max().unwrap();
    let resident = last.sample.process.unwrap().resident_bytes;
    assert!(
        resident + most_held * 7 / 10 <= peak.unwrap(),
        "{resident} bytes are still resident of {peak:?}, of which {most_held} were held"
    );
    let diagnosis = diagnose(&series);
    assert!(matches!(diagnosis.verdict(), Verdict::Healthy | Verdict::Ceiling), "{diagnosis}");

    let recording = Recording::read(&sandbox.path("ring")).unwrap();
    assert_eq!((recording.damaged, recording.series().unwrap().moments.last().unwrap().held), (0, 0));
    assert!(recording.mark.unwrap().held_bytes > 0);
}

#[test]
fn nothing_is_sampled_unless_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 40);
    sandbox.prove(&["file", "--trace", "t.jsonl", "--sample-ms", "0"]);
    let sampled = |event: &trace::Event| matches!(event.what, trace::What::Sampled(_));
    assert!(!events(&sandbox.path("t.jsonl")).iter().any(sampled));
}

#[test]
fn a_killed_run_leaves_its_recording() {
    let sandbox = Sandbox::new();
    // So long that it is still under way whenever the recording is read.
    sandbox.file("file", 100_000);
    let arguments = ["prove", "file", "--threads", "2", "--record", "ring", "--sample-ms", "5"];
    let mut child = sandbox.command(&arguments).spawn().unwrap();
    let ring = sandbox.path("ring");
    wait_until("a partition is in flight", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        Recording::read(&ring).is_ok_and(|recording| {
            recording.series().is_ok_and(|series| series.moments.last().is_some_and(|moment| moment.in_flight > 0))
        })
    });
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let recording = Recording::read(&ring).unwrap();
    let series = recording.series().unwrap();
    assert!(series.rests.iter().any(|rest| rest.who.contains("partition")), "{:?}", series.rests);
    let words = recording.mark.unwrap().in_words();
    assert!(words.contains("under a line of"), "{words}");
    // The same for people: what was held, by whom, and why.
    let told = sandbox.run(&["report", "ring"]);
    told.expect(0, &[]);
    assert!(told.stdout.contains("when most was held") && told.stdout.contains("under a line of"), "{}", told.stdout);
    let page = fs::read_to_string(sandbox.path("ring.html")).unwrap();
    for word in ["When most was held", "By class", "By whom", "asked for at", "still hold something"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(!page.contains("of a later version"));
    let json = sandbox.run(&["report", "ring", "--json"]);
    json.expect(0, &[]);
}

#[test]
fn a_recording_never_overwrites_what_matters() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 40);
    for other in ["file", "file.proof.json"] {
        sandbox.run(&["prove", "file", "--record", other]).expect(2, &["would overwrite", "the recording"]);
    }
    sandbox.run(&["prove", "file", "--record", "no/such/place"]).expect(6, &["no/such/place", "the recording"]);
}

#[test]
fn the_doctor_says_whether_proving_would_work() {
    let sandbox = Sandbox::new();
    let well = sandbox.run(&["doctor"]);
    assert_eq!(well.code(), 0, "{}", well.stderr);
    for word in ["memory", "this one binds", "allocator", "huge pages", "cpu", "cuda: not built into", "partitions"] {
        assert!(well.stdout.contains(word), "{word:?} is not in: {}", well.stdout);
    }
    let json = sandbox.run(&["doctor", "--json"]).json();
    assert_eq!((json["ok"].as_bool(), json["proving"]["works"].as_bool()), (Some(true), Some(true)));
    // With what it calls the smallest line it works, with less it does not.
    let smallest = json["proving"]["smallest_line_bytes"].as_u64().unwrap() >> 20;
    assert_eq!(sandbox.run(&["doctor", "--memory", &format!("{smallest}MiB")]).code(), 0);
    let ill = sandbox.run(&["doctor", "--json", "--memory", &format!("{}MiB", smallest - 1)]);
    ill.expect(5, &["too small"]);
    assert_eq!(ill.json()["proving"]["works"], false);
    if cfg!(not(feature = "cuda")) {
        sandbox.run(&["doctor", "--backend", "cuda"]).expect(2, &["--backend cuda", "without CUDA"]);
    }
}
