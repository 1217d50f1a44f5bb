//! `--socket`: a running process is seen and steered from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{Sandbox, finish, wait_until};

#[test]
fn a_running_proof_answers_and_takes_its_socket_with_it() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 2000);
    let child = sandbox.command(&["prove", "file", "--memory", "512MiB", "--socket", "s"]).spawn().unwrap();
    wait_until("a partition is under way", || {
        let seen = sandbox.path("s").exists().then(|| sandbox.run(&["ctl", "s", "snapshot"]));
        seen.is_some_and(|seen| seen.code() == 0 && seen.stdout.contains("partition "))
    });
    assert_eq!(fs::metadata(sandbox.path("s")).unwrap().permissions().mode() & 0o777, 0o600);
    sandbox.run(&["ctl", "s", "resize", "host", "400MiB"]).expect(0, &[]);
    let seen = sandbox.run(&["ctl", "s", "snapshot"]).json();
    assert_eq!(seen["snapshot"]["spaces"][0]["limit_bytes"], 400 << 20, "{seen}");
    sandbox
        .run(&["ctl", "s", "do", "dance", "fast=1"])
        .expect(2, &["no command \"dance\"; there are: cancel, evict, heap-profile, ledger-profile, pause, resize"]);
    sandbox.run(&["ctl", "s", "evict", "srs"]).expect(2, &["no residency \"srs\""]);
    assert_eq!(finish(child).code(), 0);
    assert!(!sandbox.path("s").exists());
    sandbox.run(&["ctl", "s", "snapshot"]).expect(4, &["prove --socket"]);
    sandbox.run(&["top", "s"]).expect(4, &["prove --socket"]);
}

#[test]
fn an_operator_pauses_profiles_and_cancels() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 4000);
    let child = sandbox.command(&["prove", "file", "--memory", "512MiB", "--socket", "s"]).spawn().unwrap();
    let snapshot = || sandbox.run(&["ctl", "s", "snapshot"]);
    wait_until("a partition is under way", || sandbox.path("s").exists() && snapshot().stdout.contains("partition "));
    sandbox.run(&["ctl", "s", "pause"]).expect(0, &[]);
    // What is under way ends, and the next one waits.
    let mut seen = Value::Null;
    wait_until("only what is paused is left", || {
        seen = snapshot().json();
        let held = |class: &Value| class["class"] == "provers" && class["held_bytes"] != 0;
        let waits = seen["snapshot"]["waiters"][0]["why"].as_str().is_some_and(|why| why.contains("paused"));
        waits && !seen["snapshot"]["classes"].as_array().unwrap().iter().any(held)
    });
    assert_eq!(seen["snapshot"]["paused"], true);
    assert!(seen["verdict"]["headline"].is_string() && seen["process"]["tables"][0]["space"] == "host", "{seen}");
    sandbox.run(&["ctl", "s", "ledger-profile", "held.pb.gz"]).expect(0, &[]);
    assert!(fs::read(sandbox.path("held.pb.gz")).unwrap().starts_with(&[0x1f, 0x8b]));
    sandbox.run(&["ctl", "s", "ledger-profile", "held.pb.gz"]).expect(2, &["held.pb.gz"]);
    let waits = seen["snapshot"]["waiters"][0]["who"].as_str().unwrap();
    sandbox.run(&["ctl", "s", "cancel", "nobody"]).expect(2, &["no pipeline has a job \"nobody\""]);
    assert_eq!(sandbox.run(&["ctl", "s", "cancel", waits]).json()["cancelled"], 1);
    finish(child).expect(130, &[waits, "cancelled"]);
    assert_eq!(sandbox.names(), ["file", "held.pb.gz"], "neither a proof nor a socket is left");
}
