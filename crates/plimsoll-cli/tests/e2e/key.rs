//! The cached key.

use std::fs;

use crate::support::{Sandbox, finish};

/// Copies the shared key into a cache of its own, with `change` made to its bytes.
fn with_changed_key(change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Sandbox {
    let shared = Sandbox::new();
    shared.file("file", 1);
    shared.prove(&["file"]);
    let sandbox = Sandbox::with_own_cache();
    fs::create_dir_all(sandbox.key().parent().unwrap()).unwrap();
    fs::write(sandbox.key(), change(fs::read(shared.key()).unwrap())).unwrap();
    sandbox.file("file", 1);
    sandbox
}

fn check_made_again(fault: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let sandbox = with_changed_key(change);
    let (outcome, json) = sandbox.prove(&["file"]);
    outcome.expect(0, &["warning", &sandbox.key().display().to_string(), fault, "making a new key"]);
    assert_eq!(json["key"]["origin"], "made");
    let (outcome, json) = sandbox.prove(&["file"]);
    assert_eq!(json["key"]["origin"], "cache", "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
}

#[test]
fn a_half_written_key_is_made_again() {
    check_made_again("cut short", |bytes| bytes[..bytes.len() / 2].to_vec());
}

#[test]
fn a_damaged_key_is_made_again() {
    check_made_again("damaged", |mut bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    });
}

#[test]
fn a_key_for_another_circuit_is_made_again() {
    check_made_again("another circuit", |mut bytes| {
        // The circuit's digest stands before length, digest and magic: 32 bytes that end 56 before the end.
        let place = bytes.len() - 56 - 1;
        bytes[place] ^= 1;
        bytes
    });
}

#[test]
fn processes_that_start_together_make_one_key() {
    let sandbox = Sandbox::with_own_cache();
    let children: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            sandbox.file(name, 1);
            sandbox.command(&["prove", name, "--json", "--threads", "1"]).spawn().unwrap()
        })
        .into();
    let outcomes: Vec<_> = children.into_iter().map(finish).collect();
    let made = outcomes.iter().filter(|outcome| outcome.json()["key"]["origin"] == "made").count();
    assert_eq!(made, 1);
    let identities: Vec<String> =
        outcomes.iter().map(|outcome| outcome.json()["key"]["identity"].to_string()).collect();
    assert!(identities.iter().all(|identity| *identity == identities[0]), "{identities:?}");
}

#[test]
fn without_a_place_for_it_the_key_lives_in_memory() {
    let sandbox = Sandbox::with_own_cache();
    sandbox.file("file", 1);
    // A file where the directory should be.
    fs::write(sandbox.cache().join("plimsoll"), "").unwrap();
    let (outcome, json) = sandbox.prove(&["file"]);
    outcome.expect(0, &["warning", "cache/plimsoll", "not cached"]);
    assert_eq!(json["key"]["cached_in"], serde_json::Value::Null);
    sandbox.run(&["verify", "file.proof.json"]).expect(0, &[]);
}
