//! `--socket`: a running process is seen and steered from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;

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
        .expect(2, &["no command \"dance\"; there are: resize, snapshot"]);
    assert_eq!(finish(child).code(), 0);
    assert!(!sandbox.path("s").exists());
    sandbox.run(&["ctl", "s", "snapshot"]).expect(4, &["prove --socket"]);
    sandbox.run(&["top", "s"]).expect(4, &["prove --socket"]);
}
