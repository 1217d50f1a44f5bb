//! Bad workloads: an error with the file, the line and what to write instead.

use plimsoll_sim::{End, Options, Workload, simulate};

const GOOD: &str = r#"[machine]
memory = "100 GiB"
workers = 4
devices = 1
device_memory = "8 GiB"

[[residency]]
name = "srs"
bytes = "10 GiB"
load = "5 s"

[[circuit]]
name = "proof"
needs = ["srs"]

[[circuit.stage]]
name = "make"
time = { law = "lognormal", mean = "4 s", cv = 0.1 }
takes = [{ class = "aux", bytes = "4 GiB", grows = "linear" }]

[[circuit.stage]]
name = "prove"
on = "device"
time = "1 s"
takes = [{ class = "card", bytes = "2 GiB", space = "device", scratch = true }]
frees = ["aux"]

[[arrivals]]
circuit = "proof"
poisson = "3 s"
proofs = 50

[policy]
kind = "plimsoll"
budget = "60 GiB"
"#;

fn check(from: &str, to: &str, line: usize, fault: &str) {
    assert!(GOOD.contains(from), "{from:?} is not in the file");
    let error = match Workload::parse("w.toml", &GOOD.replacen(from, to, 1)) {
        Ok(_) => panic!("{to:?} is accepted"),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(text.starts_with(&format!("w.toml:{line}: ")), "{text}");
    assert!(text.contains(fault), "{text}");
    assert!(text.contains("; ") || text.contains("expected"), "there is no fix: {text}");
}

#[test]
fn the_file_is_good() {
    let workload = Workload::parse("w.toml", GOOD).unwrap_or_else(|error| panic!("{error}"));
    let outcome = simulate(&workload, Options::default());
    assert_eq!((outcome.end, outcome.proofs), (End::Done, 50));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (from, to, line, fault) in [
        ("workers = 4", "workers = 4\ncores = 8", 4, "unknown field `cores`"),
        ("\"4 GiB\"", "\"-4 GiB\"", 19, "negative"),
        ("\"4 GiB\"", "-4", 19, "negative"),
        ("\"4 GiB\"", "\"4 GB\"", 19, "unit"),
        ("\"4 GiB\"", "\"9000 TiB\"", 19, "more than any machine has"),
        ("\"4 GiB\"", "\"95 GiB\"", 17, "needs 105.00 GiB"),
        ("\"2 GiB\"", "\"12 GiB\"", 22, "a device has 8.00 GiB"),
        ("\"4 s\"", "\"4\"", 18, "unit of time"),
        ("\"4 s\"", "\"99 h h\"", 18, "unit of time"),
        ("cv = 0.1", "cv = -0.1", 18, "not from 0"),
        ("\"lognormal\"", "\"pareto\"", 18, "unknown variant"),
        ("workers = 4", "workers = 0", 3, "workers is 0"),
        ("needs = [\"srs\"]", "needs = [\"crs\"]", 14, "no residency \"crs\""),
        ("frees = [\"aux\"]", "frees = [\"abc\"]", 26, "nothing called \"abc\""),
        ("circuit = \"proof\"", "circuit = \"prof\"", 29, "no circuit \"prof\""),
        ("poisson = \"3 s\"", "poisson = \"3 s\"\nbatch = true", 29, "in several ways"),
        ("poisson = \"3 s\"", "poisson = \"0 s\"", 30, "no time between"),
        ("kind = \"plimsoll\"", "kind = \"plimsol\"", 34, "no policy"),
        ("budget = \"60 GiB\"", "budget = \"60 GiB\"\npermits = 3", 34, "knows no permits"),
        ("budget = \"60 GiB\"", "budget = \"160 GiB\"", 35, "the budget is 160.00 GiB"),
        ("name = \"make\"", "name = \"make\"\nafter = \"prove\"", 18, "leads in a circle"),
        ("name = \"prove\"", "name = \"make\"", 22, "two stages called"),
        ("devices = 1", "devices = 0", 13, "the machine has none"),
        ("memory = \"100 GiB\"", "memory = \"0\"", 2, "no memory"),
        ("[machine]", "[machine", 1, ""),
    ] {
        check(from, to, line, fault);
    }
}

/// A stage may come before the one that the file tells first.
#[test]
fn stages_may_be_told_in_another_order() {
    let swapped = GOOD.replace("name = \"prove\"\n", "name = \"prove\"\nafter = \"make\"\n").replace(
        "frees = [\"aux\"]\n",
        "frees = [\"aux\"]\n\n[[circuit.stage]]\nname = \"last\"\nafter = \"prove\"\ntime = \"1 s\"\n",
    );
    let workload = Workload::parse("w.toml", &swapped).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<_> = workload.circuits[0].stages.iter().map(|stage| stage.name).collect();
    assert_eq!(names, ["make", "prove", "last"]);
}

/// The lost wake-up of the optimistic budget stops an engine for good, and the simulation says so.
#[test]
fn a_lost_wake_up_is_found_and_does_not_hang() {
    let text = GOOD
        .replace(
            "kind = \"plimsoll\"\nbudget = \"60 GiB\"",
            "kind = \"optimistic-budget\"\nbudget = \"15 GiB\"\ngap = \"4 s\"",
        )
        .replace("poisson = \"3 s\"\nproofs = 50", "batch = true\nproofs = 2");
    let workload = Workload::parse("w.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let outcome = simulate(&workload, Options::default());
    assert!(matches!(outcome.end, End::Stuck { waiting } if waiting > 0), "{outcome:?}");
}

#[test]
fn too_many_events_end_a_run() {
    let workload = Workload::parse("w.toml", GOOD).unwrap_or_else(|error| panic!("{error}"));
    let outcome = simulate(&workload, Options { events_max: 100, timeline: None });
    assert_eq!(outcome.end, End::TooManyEvents);
}
