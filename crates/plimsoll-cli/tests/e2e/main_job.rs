//! The main job: prove a file, verify the proof.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::support::Sandbox;

#[test]
fn the_letter_is_proved_and_verified() {
    let sandbox = Sandbox::new();
    let letter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/letter.txt");
    let bytes = fs::read(&letter).unwrap();
    fs::write(sandbox.path("letter.txt"), &bytes).unwrap();
    let digest = hex::encode(Sha256::digest(&bytes));

    let outcome = sandbox.run(&["prove", "letter.txt"]);
    outcome.expect(0, &[]);
    assert_eq!(sandbox.names(), ["letter.txt", "letter.txt.proof.json"]);
    for word in [&digest, "INSECURE", "letter.txt.proof.json", "commit", "provers", "srs", "VmHWM", "budget"] {
        assert!(outcome.stdout.contains(word), "{word:?} is not in: {}", outcome.stdout);
    }
    assert!(!outcome.stdout.contains('\x1b') && !outcome.stderr.contains('\x1b'), "colours only on a terminal");

    let outcome = sandbox.run(&["verify", "letter.txt.proof.json", "--file", "letter.txt", "--json"]);
    outcome.expect(0, &[]);
    let json = outcome.json();
    assert_eq!(json["digest"], digest);
    assert_eq!(json["bytes"], bytes.len());
    assert_eq!(json["insecure"], true);
    assert_eq!(json["key_in_cache"], true);

    fs::write(sandbox.path("other.txt"), &bytes[1..]).unwrap();
    sandbox.run(&["verify", "letter.txt.proof.json", "--file", "other.txt"]).expect(3, &["another file", "other.txt"]);
    sandbox.run(&["verify", "letter.txt.proof.json", "--file", "none.txt"]).expect(4, &["none.txt"]);
    let key = json["key"].as_str().unwrap();
    sandbox.run(&["verify", "letter.txt.proof.json", "--key", key]).expect(0, &[]);
    let other = "0".repeat(64);
    sandbox.run(&["verify", "letter.txt.proof.json", "--key", &other]).expect(3, &["not with 0000"]);
}

/// One byte; the last length without and the first with another block for the padding; a full block; a full partition.
#[test]
fn files_of_any_length_are_proved() {
    for length in [1, 55, 56, 64, 128] {
        let sandbox = Sandbox::new();
        let file = sandbox.file("file", length);
        let (_, json) = sandbox.prove(&["file", "--threads", "2"]);
        assert_eq!(json["digest"], hex::encode(Sha256::digest(fs::read(file).unwrap())), "{length} bytes");
        sandbox.run(&["verify", "file.proof.json", "--file", "file"]).expect(0, &[]);
    }
}

#[test]
fn the_report_says_what_was_held() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 300);
    let (_, json) = sandbox.prove(&["file", "--output", "elsewhere.json"]);
    assert_eq!(sandbox.names(), ["elsewhere.json", "file"]);
    let classes = json["memory"]["classes"].as_array().unwrap();
    for class in ["aux", "matrices", "provers", "scratch", "shells", "srs"] {
        let class = classes.iter().find(|c| c["class"] == class).unwrap_or_else(|| panic!("no class {class}"));
        assert!(class["peak_bytes"].as_u64().unwrap() > 0);
    }
    let stages: Vec<&str> = json["stages"].as_array().unwrap().iter().map(|s| s["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["synthesise", "evaluate", "quotient", "commit", "b in G2", "assemble"]);
    assert_eq!(json["partitions"], 3);
    assert!(json["stages"].as_array().unwrap().iter().all(|stage| stage["runs"] == 3));
}

#[test]
fn help_has_examples_and_exit_codes() {
    let sandbox = Sandbox::new();
    for arguments in [&["--help"][..], &["prove", "--help"], &["verify", "--help"]] {
        let outcome = sandbox.run(arguments);
        outcome.expect(0, &[]);
        assert!(outcome.stdout.contains("Examples:") && outcome.stdout.contains("Exit codes:"), "{}", outcome.stdout);
    }
    assert!(sandbox.run(&["prove", "--help"]).stdout.contains("INSECURE"));
    sandbox.run(&["prove"]).expect(2, &["FILE"]);
    sandbox.run(&["prove", "x", "--memory", "2GB"]).expect(2, &["--memory"]);
}

#[test]
fn the_readme_has_the_exit_codes() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for line in plimsoll_cli::exit::Exit::TABLE.lines() {
        assert!(readme.contains(line.trim()), "{line:?} is not in the README");
    }
}
