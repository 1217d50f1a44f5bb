//! Ctrl-C.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Outcome, Sandbox, finish, resident_peak_of, wait_until};

/// Two seconds are promised where nothing else runs. Tests run beside each other on few cores, with code that is optimised in
/// parts; what is tested here is that it stops in the middle.
const STOP: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 2 });

fn interrupt(child: Child, signal: Signal) -> Outcome {
    let asked = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    let outcome = finish(child);
    assert!(asked.elapsed() < STOP, "it took {:?} to stop", outcome.time);
    outcome
}

fn expect_nothing_left(sandbox: &Sandbox, outcome: &Outcome, code: i32) {
    outcome.expect(code, &["interrupted"]);
    assert_eq!(sandbox.names(), ["file"], "no partial output");
    let error = &outcome.json()["error"];
    assert_eq!(error["kind"], "interrupted");
    assert_eq!(error["held_bytes"], 0, "all bytes are back");
}

#[test]
fn proving_stops_and_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sandbox = Sandbox::new();
        // The key is there, so that it is proving that is interrupted; far more partitions than can be done meanwhile.
        sandbox.file("small", 1);
        sandbox.prove(&["small", "--output", "small.json"]);
        std::fs::remove_file(sandbox.path("small")).unwrap();
        std::fs::remove_file(sandbox.path("small.json")).unwrap();
        sandbox.file("file", 1 << 20);
        let child = sandbox.command(&["prove", "file", "--json", "--threads", "2"]).spawn().unwrap();
        // Shape and key are some 30 MiB with the process itself; more means that partitions are under way.
        let process = child.id();
        wait_until("partitions are under way", || resident_peak_of(process).is_some_and(|bytes| bytes > 34 << 20));
        expect_nothing_left(&sandbox, &interrupt(child, signal), code);
    }
}

/// What no program can clean up after: the kernel does, where the file system knows files without a name.
#[test]
fn a_killed_process_leaves_nothing() {
    for signal in [Signal::KILL, Signal::HUP] {
        let sandbox = Sandbox::new();
        sandbox.file("file", 1 << 20);
        let nameless = OFlags::TMPFILE | OFlags::WRONLY;
        if let Err(errno) = rustix::fs::open(sandbox.path("."), nameless, Mode::RWXU) {
            assert_eq!(errno, Errno::OPNOTSUPP, "a file system without nameless files");
            return;
        }
        let mut child = sandbox.command(&["prove", "file", "--threads", "2"]).spawn().unwrap();
        let process = child.id();
        // The proof is begun before the key is read, some 20 MiB.
        wait_until("the proof file is begun", || resident_peak_of(process).is_some_and(|bytes| bytes > 24 << 20));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert_eq!(sandbox.names(), ["file"], "no partial output");
    }
}

#[test]
fn making_a_key_stops_and_leaves_nothing() {
    let sandbox = Sandbox::with_own_cache();
    sandbox.file("file", 1000);
    let child = sandbox.command(&["prove", "file", "--json", "--threads", "2"]).spawn().unwrap();
    let lock = sandbox.key().with_extension("lock");
    wait_until("the key is being made", || lock.exists());
    expect_nothing_left(&sandbox, &interrupt(child, Signal::INT), 130);
    let left: Vec<_> = std::fs::read_dir(lock.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [lock], "neither a key nor a half of one");
}
