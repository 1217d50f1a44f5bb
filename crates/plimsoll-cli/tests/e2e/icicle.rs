//! `--backend icicle`: proofs on what is there, here a mock of it; otherwise refused with every place where it was looked for, and
//! never replaced.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Outcome, Sandbox, finish};

/// A folder with the mock under the names of ICICLE's libraries.
fn mock(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.path("icicle");
    std::fs::create_dir(&folder).expect("a directory of our own");
    // As Cargo builds it for this test: beside it.
    let test = std::env::current_exe().expect("a path");
    for name in ["device", "field_bls12_381", "curve_bls12_381"] {
        let built = test.with_file_name("libplimsoll_icicle_mock.so");
        symlink(built, folder.join(format!("libicicle_{name}.so"))).expect("a link in a folder of our own");
    }
    folder
}

/// The command with that ICICLE, whose settings these are.
fn with_mock(sandbox: &Sandbox, settings: &str, arguments: &[&str]) -> Outcome {
    let mut command = sandbox.command(arguments);
    command.env("PLIMSOLL_ICICLE_LIB", sandbox.path("icicle")).env("ICICLE_MOCK", settings);
    finish(command.spawn().expect("it starts"))
}

fn doctors_icicle(doctor: &Value) -> &Value {
    doctor["backends"].as_array().expect("a list").iter().find(|one| one["name"] == "icicle").expect("in the list")
}

#[test]
fn proofs_are_made_on_all_devices_that_were_asked_for_and_verify() {
    let sandbox = Sandbox::new();
    sandbox.file("letter", 200);
    mock(&sandbox);
    for (backend, there, absent) in [
        ("icicle", &["MOCK:0", "MOCK:1"][..], "CPU:0"),
        ("icicle:MOCK", &["MOCK:0", "MOCK:1"], "CPU:0"),
        ("icicle:MOCK:1", &["MOCK:1"], "MOCK:0"),
        ("icicle:CPU", &["CPU:0"], "MOCK:0"),
    ] {
        let outcome = with_mock(&sandbox, "devices=2", &["prove", "letter", "--json", "--backend", backend]);
        assert_eq!(outcome.code(), 0, "{backend}: {}", outcome.stderr);
        let told = outcome.json().to_string();
        for part in [there, &["ICICLE v4.0"]].concat() {
            assert!(told.contains(part), "{backend}: {part}: {told}");
        }
        assert!(!told.contains(absent), "{backend}: {told}");
        sandbox.run(&["verify", "letter.proof.json"]).expect(0, &[]);
        std::fs::remove_file(sandbox.path("letter.proof.json")).expect("it was written");
    }
}

#[test]
fn a_device_that_is_lost_on_the_way_leaves_the_proof_to_the_other() {
    let sandbox = Sandbox::new();
    sandbox.file("letter", 200);
    mock(&sandbox);
    let arguments = ["prove", "letter", "--json", "--threads", "1", "--backend", "icicle"];
    // Two multiplications are made of each device when it is opened.
    let outcome = with_mock(&sandbox, "devices=2,breaks_at_msm=7", &arguments);
    outcome.expect(0, &["icicle: MOCK:0: was given up"]);
    sandbox.run(&["verify", "letter.proof.json"]).expect(0, &[]);
    // Alone it is an error, and no proof is written.
    std::fs::remove_file(sandbox.path("letter.proof.json")).expect("it was written");
    let outcome = with_mock(&sandbox, "breaks_at_msm=5", &arguments);
    assert_ne!(outcome.code(), 0, "{}", outcome.stdout);
    assert!(!sandbox.path("letter.proof.json").exists());
}

#[test]
fn doctor_tells_what_is_there_and_whether_it_computes() {
    let sandbox = Sandbox::new();
    mock(&sandbox);
    let doctor = |settings: &str, arguments: &[&str]| {
        let outcome = with_mock(&sandbox, settings, &[&["doctor", "--json"], arguments].concat());
        (outcome.json(), outcome)
    };
    let (page, _) = doctor("devices=2", &[]);
    let found = doctors_icicle(&page)["found"].as_str().expect("it is there").to_owned();
    for part in ["CPU,MOCK", "ICICLE v4.0", sandbox.path("icicle").to_str().expect("a path")] {
        assert!(found.contains(part), "{found}");
    }
    for (settings, backend, works) in [
        ("devices=2", "icicle", true),
        ("devices=2", "icicle:MOCK:1", true),
        ("", "icicle:CPU", true),
        ("", "icicle:MOCK:1", false),
        ("", "icicle:CUDA", false),
        ("licence=1", "icicle", false),
        ("wrong_msm=1", "icicle", false),
    ] {
        let (page, outcome) = doctor(settings, &["--backend", backend]);
        assert_eq!(page["proving"]["works"], works, "{settings}: {backend}: {page}");
        outcome.expect(if works { 0 } else { 2 }, &[]);
    }
}

/// Another library than those that are known may end the process that asks it for answers: that is a child of this one.
#[test]
fn an_icicle_that_crashes_is_an_error_with_the_signal() {
    let sandbox = Sandbox::new();
    sandbox.file("letter", 100);
    mock(&sandbox);
    let outcome = with_mock(&sandbox, "crash=1", &["prove", "letter", "--backend", "icicle:MOCK"]);
    outcome.expect(2, &["signal 6", "--backend cpu always works"]);
    let outcome = with_mock(&sandbox, "crash=1", &["doctor", "--json", "--backend", "icicle:MOCK"]);
    outcome.expect(2, &[]);
    assert!(outcome.json()["proving"].to_string().contains("signal 6"), "{}", outcome.stdout);
}

#[test]
fn an_icicle_that_is_not_there_is_refused_with_the_place() {
    let sandbox = Sandbox::new();
    sandbox.file("letter", 100);
    let run = |arguments: &[&str]| {
        let output = sandbox.command(arguments).env("PLIMSOLL_ICICLE_LIB", "/no/such/folder").output();
        let output = output.expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, text) = run(&["prove", "letter", "--backend", "icicle:CUDA"]);
    assert_eq!(code, Some(2), "{text}");
    for part in ["/no/such/folder", "PLIMSOLL_ICICLE_LIB", "--backend cpu always works"] {
        assert!(text.contains(part), "{text}");
    }
    let (code, _, text) = run(&["prove", "letter", "--backend", "icicle:CUDA:first"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("CUDA:1"), "{text}");
    let (_, text, _) = run(&["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_str(&text).expect("one object");
    let icicle = doctor["backends"].as_array().expect("a list").iter().find(|one| one["name"] == "icicle");
    let why = icicle.expect("it is in the list")["why"].as_str().expect("why not").to_owned();
    assert!(why.contains("/no/such/folder"), "{why}");
}

/// Nobody has named a folder: all places are told, in their order. (Where there is an ICICLE this says what it is.)
#[test]
fn where_none_is_installed_each_place_is_told() {
    let sandbox = Sandbox::new();
    sandbox.file("letter", 100);
    let run = |arguments: &[&str]| {
        let mut command = sandbox.command(arguments);
        command.env_remove("PLIMSOLL_ICICLE_LIB").env("ICICLE_BACKEND_INSTALL_DIR", "/no/such/lib/backend");
        let output = command.output().expect("it starts");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (_, text) = run(&["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_str(&text).expect("one object");
    let icicle = doctor["backends"].as_array().expect("a list").iter().find(|one| one["name"] == "icicle");
    let why = icicle.expect("it is in the list")["why"].as_str().unwrap_or_default().to_owned();
    if !why.contains("not installed") {
        return;
    }
    let (code, refused) = run(&["prove", "letter", "--backend", "icicle"]);
    assert_eq!(code, Some(2), "{refused}");
    for text in [&why, &refused] {
        let places = [
            "/no/such/lib (above ICICLE_BACKEND_INSTALL_DIR)",
            "/opt/icicle/lib (ICICLE's guide)",
            "the system's loader",
        ];
        let found: Vec<usize> =
            places.iter().map(|place| text.find(place).unwrap_or_else(|| panic!("{place}: {text}"))).collect();
        assert!(found.is_sorted(), "{text}");
        assert!(text.contains("name their folder in PLIMSOLL_ICICLE_LIB"), "{text}");
    }
}
