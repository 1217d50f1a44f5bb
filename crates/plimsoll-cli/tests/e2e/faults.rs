//! Inputs that cannot be proved, outputs that cannot be written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::support::{Outcome, PLIMSOLL, Sandbox, finish};

fn check(sandbox: &Sandbox, arguments: &[&str], code: i32, words: &[&str]) {
    let before = sandbox.names();
    let outcome = sandbox.run(&[&["prove", "--json"], arguments].concat());
    outcome.expect(code, words);
    assert_eq!(outcome.json()["error"]["exit_code"], code);
    assert_eq!(sandbox.names(), before, "nothing is left behind");
}

#[test]
fn inputs_that_cannot_be_proved_are_named() {
    let sandbox = Sandbox::new();
    sandbox.file("empty", 0);
    fs::create_dir(sandbox.path("directory")).unwrap();
    check(&sandbox, &["empty"], 4, &["empty: is empty: there is nothing to prove"]);
    check(&sandbox, &["directory"], 4, &["directory: is a directory"]);
    check(&sandbox, &["missing"], 4, &["missing: No such file"]);
    check(&sandbox, &["/dev/zero"], 4, &["/dev/zero: is not a regular file"]);
    // A regular file without a length, as the kernel has them.
    check(&sandbox, &["/proc/self/status"], 4, &["/proc/self/status: is empty"]);
}

#[test]
fn an_unreadable_file_is_named() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("secret", 10);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = sandbox.command(&["prove", "secret"]);
    if rustix::process::geteuid().is_root() {
        // Nothing is unreadable to root: run it as nobody, who must at least reach the file.
        fs::set_permissions(sandbox.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        let program = sandbox.path("plimsoll");
        fs::copy(PLIMSOLL, &program).unwrap();
        let mut as_nobody = Command::new(program);
        as_nobody.args(["prove", "secret"]).uid(65534).gid(65534).current_dir(sandbox.path("."));
        as_nobody.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command = as_nobody;
    }
    finish(command.spawn().unwrap()).expect(4, &["secret: Permission denied"]);
}

#[test]
fn outputs_that_cannot_be_written_are_named() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 10);
    fs::create_dir(sandbox.path("directory")).unwrap();
    check(&sandbox, &["file", "--output", "directory"], 6, &["directory: cannot write the proof"]);
    check(&sandbox, &["file", "--output", "no/such/place"], 6, &["no/such/place", "the directory must exist"]);
    // Renaming a finished proof over a device would take the device away.
    check(&sandbox, &["file", "--output", "/dev/null"], 6, &["/dev/null", "not a regular file"]);
    check(&sandbox, &["file", "--output", "file"], 2, &["would overwrite the file"]);
    assert!(fs::metadata("/dev/null").is_ok_and(|null| !null.is_file()));
}

/// Runs the command with `sandbox/full` being a file system of 4 KiB. `None` where this user may not mount one.
fn on_a_full_disk(sandbox: &Sandbox, arguments: &str) -> Option<Outcome> {
    fs::create_dir(sandbox.path("full")).unwrap();
    let mount = "mount -t tmpfs -o size=4k plimsoll-test full";
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        let user: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
        command.args(user).args(["--mount", "sh", "-c", script]).current_dir(sandbox.path("."));
        command
            .env("XDG_CACHE_HOME", sandbox.cache())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    if !namespace(mount).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return None;
    }
    // The listing shows what is left on the small file system.
    let script = format!("{mount} && {PLIMSOLL} {arguments}; code=$?; ls -A full >&2; exit $code");
    Some(finish(namespace(&script).spawn().unwrap()))
}

#[test]
fn no_space_for_the_proof_is_known_at_once_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 2000);
    let Some(outcome) = on_a_full_disk(&sandbox, "prove file --output full/file.proof.json") else { return };
    outcome.expect(6, &["full/file.proof.json: cannot write the proof", "No space left", "--output"]);
    assert_eq!(outcome.stderr.lines().count(), 1, "nothing is left: {}", outcome.stderr);
}

#[test]
fn no_space_for_the_key_is_told_and_the_proof_is_made() {
    let mut sandbox = Sandbox::with_own_cache();
    sandbox.file("file", 1);
    sandbox.set_cache("full");
    let Some(outcome) = on_a_full_disk(&sandbox, "prove file") else { return };
    outcome.expect(0, &["the key is not cached: No space left"]);
    sandbox.run(&["verify", "file.proof.json"]).expect(0, &[]);
}
