//! `--trace`: what it says, and that it can be read however the run ended.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Sandbox, finish, wait_until};

/// The events of a trace, of which every line must be whole.
fn events(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'), "the last line is whole");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    assert_eq!(lines.next().expect("a first line")["schema"], "plimsoll.trace/1");
    // Samples are not the ledger's, and have no number.
    let events: Vec<Value> = lines.filter(|line| !line["seq"].is_null()).collect();
    for (before, after) in events.iter().zip(events.iter().skip(1)) {
        assert_eq!(after["seq"].as_u64(), before["seq"].as_u64().map(|seq| seq + 1), "nothing is missing");
        assert!(after["time_ns"].as_u64() >= before["time_ns"].as_u64());
    }
    events
}

fn count(events: &[Value], event: &str) -> usize {
    events.iter().filter(|line| line["event"] == event).count()
}

#[test]
fn a_trace_tells_of_each_step_of_each_partition_and_ends_with_nothing_held_for_them() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("file", 300);
    let (outcome, json) = sandbox.prove(&["file", "--trace", "t.jsonl"]);
    assert!(!outcome.stderr.contains("trace"), "{}", outcome.stderr);
    let text = fs::read_to_string(sandbox.path("t.jsonl")).unwrap();
    let events = events(&text);
    let partitions = json["partitions"].as_u64().expect("a number") as usize;
    assert!(partitions > 1);
    let steps = json["stages"].as_array().expect("a list").len();
    let finished: Vec<_> = events.iter().filter(|line| line["event"] == "finished").collect();
    assert_eq!(finished.len(), partitions);
    assert!(finished.iter().all(|line| line["how"] == "result" && line["late"] == false));
    assert_eq!(count(&events, "began"), partitions * steps);
    assert_eq!(count(&events, "stage_ended"), partitions * steps);
    // What each job was given, it gave back.
    let mut held: HashMap<String, i64> = HashMap::new();
    for line in events.iter().filter(|line| line["event"] == "changed" && line["job"].is_string()) {
        *held.entry(line["class"].to_string()).or_default() += line["delta"].as_i64().expect("a number");
    }
    assert!(!held.is_empty() && held.values().all(|bytes| *bytes == 0), "{held:?}");
    // Nothing of the file is in it, neither as text nor in hexadecimal.
    let content = fs::read(file).unwrap();
    let run = &content[..8];
    assert!(!text.contains(&run.iter().map(|byte| format!("{byte:02x}")).collect::<String>()));
}

#[test]
fn a_killed_run_leaves_a_trace_of_whole_lines() {
    let sandbox = Sandbox::new();
    sandbox.prove(&[sandbox.file("small", 1).to_str().expect("text"), "--output", "small.json"]);
    sandbox.file("file", 1 << 20);
    let mut child = sandbox.command(&["prove", "file", "--trace", "t.jsonl"]).spawn().unwrap();
    let trace = || fs::read_to_string(sandbox.path("t.jsonl")).unwrap_or_default();
    wait_until("partitions are under way", || {
        let text = trace();
        text.matches("\"began\"").count() > 3 && text.contains("\"stage_ended\"")
    });
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    finish(child);
    let events = events(&trace());
    assert!(count(&events, "began") > 3 && count(&events, "stage_ended") > 0);
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_proof() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 10);
    let outcome = sandbox.run(&["prove", "file", "--trace", "/dev/full"]);
    outcome.expect(0, &["warning", "/dev/full: the trace ends early: No space left"]);
    assert_eq!(sandbox.names(), ["file", "file.proof.json"]);
}

#[test]
fn a_trace_never_takes_the_place_of_something_else() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 10);
    for (trace, code, words) in [
        ("./file", 2, "would overwrite the file that is to be proved"),
        ("file.proof.json", 2, "would overwrite the proof"),
        ("no/such/place", 6, "no/such/place: cannot write the trace"),
    ] {
        sandbox.run(&["prove", "file", "--trace", trace]).expect(code, &[words]);
        assert_eq!(sandbox.names(), ["file"], "{trace}");
    }
}
