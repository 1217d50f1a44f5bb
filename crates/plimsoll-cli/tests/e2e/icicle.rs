//! `--backend icicle`: refused with every place where it was looked for, and never replaced.

use crate::support::Sandbox;

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
