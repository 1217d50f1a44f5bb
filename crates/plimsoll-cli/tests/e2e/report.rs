//! `plimsoll report`: from the trace of a proof to a page, pictures and sums.

use std::fs;

use serde_json::Value;

use crate::support::{Sandbox, finish};

#[test]
fn a_proof_s_trace_becomes_a_page_whose_sums_are_right() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 300);
    let (_, proved) = sandbox.prove(&["file", "--trace", "t.jsonl"]);
    let report = ["report", "t.jsonl", "--json", "-o", "page.html", "--svg", "pictures", "--perfetto", "p.json"];
    // To a file: it is more than a pipe holds, and the harness reads pipes when the command has ended.
    let out = fs::File::create(sandbox.path("report.json")).unwrap();
    finish(sandbox.command(&report).stdout(out).spawn().unwrap()).expect(0, &[]);
    let json: Value = serde_json::from_slice(&fs::read(sandbox.path("report.json")).unwrap()).unwrap();
    let timeline = &json["timeline"];
    // What the report adds up is what the ledger said of itself.
    assert_eq!(timeline["jobs"]["finished"]["result"], proved["partitions"]);
    assert_eq!(
        (&timeline["conservation"]["mismatches"], &timeline["conservation"]["overdrafts"]),
        (&0.into(), &0.into())
    );
    assert_eq!(timeline["spaces"][0]["held_end"], 0);
    assert!(
        timeline["spaces"][0]["line"][0].as_u64() > timeline["spaces"][0]["peak"]["bytes"].as_u64(),
        "the line is known"
    );
    assert!(json["diagnosis"]["verdict"].is_string());
    let page = fs::read_to_string(sandbox.path("page.html")).unwrap();
    assert!(page.contains("All sums are right") && page.contains("<svg"));
    assert!(fs::read_to_string(sandbox.path("pictures/bytes-host.svg")).unwrap().contains("provers"));
    let perfetto: Value = serde_json::from_slice(&fs::read(sandbox.path("p.json")).unwrap()).unwrap();
    assert!(
        perfetto["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "commit" && event["ph"] == "X")
    );
    // Cut anywhere, as by a kill, it still tells what it has.
    let text = fs::read(sandbox.path("t.jsonl")).unwrap();
    fs::write(sandbox.path("torn.jsonl"), &text[..text.len() / 2]).unwrap();
    sandbox.run(&["report", "torn.jsonl"]).expect(0, &[]);
    assert!(fs::read_to_string(sandbox.path("torn.html")).unwrap().contains("What happened"));
}

#[test]
fn what_is_no_trace_is_refused_and_a_trace_is_never_overwritten() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 300);
    sandbox.run(&["report", "file"]).expect(4, &["file: line 1: not a trace"]);
    sandbox.run(&["report", "none"]).expect(4, &["none"]);
    fs::write(sandbox.path("t.jsonl"), "{\"schema\":\"plimsoll.trace/1\"}\n").unwrap();
    sandbox.run(&["report", "t.jsonl", "-o", "./t.jsonl"]).expect(2, &["would overwrite the trace"]);
    sandbox.run(&["report", "t.jsonl", "-o", "no/such/place"]).expect(6, &["no/such/place"]);
    assert_eq!(fs::read_to_string(sandbox.path("t.jsonl")).unwrap().lines().count(), 1);
}
