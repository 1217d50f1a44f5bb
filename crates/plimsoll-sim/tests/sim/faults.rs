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
        ("name = \"prove\"", "name = \"prove\"\nafter = \"prove\"", 23, "comes after itself"),
        ("budget = \"60 GiB\"", "budget = \"60 GiB\"\npacing = -1", 36, "no such pacing"),
        ("poisson = \"3 s\"", "poisson = \"-3 s\"", 30, "is negative"),
        ("devices = 1", "devices = 0", 13, "the machine has none"),
        ("memory = \"100 GiB\"", "memory = \"0\"", 2, "no memory"),
        ("[machine]", "[machine", 1, ""),
        // When proofs arrive.
        (
            "[[arrivals]]\ncircuit = \"proof\"\npoisson = \"3 s\"\nproofs = 50\n",
            "",
            13,
            "not said when proofs of \"proof\" arrive",
        ),
        ("poisson = \"3 s\"\nproofs = 50", "at = []", 30, "a list of no times"),
        ("poisson = \"3 s\"\nproofs = 50", "at = [\"0 s\",\n \"5 s\",\n \"4 s\"]", 32, "4 s comes after 5 s"),
        ("poisson = \"3 s\"", "at = [\"0 s\"]", 31, "50 proofs, and 1 times"),
        ("poisson = \"3 s\"", "batch = false", 29, "not said when these proofs arrive"),
        ("proofs = 50", "proofs = 0", 31, "proofs is 0"),
        // What is said twice.
        ("frees = [\"aux\"]", "frees = [\"aux\", \"aux\"]", 26, "\"aux\" is freed twice"),
        ("needs = [\"srs\"]", "needs = [\"srs\", \"srs\"]", 14, "\"srs\" is named twice"),
        (
            "grows = \"linear\" }]",
            "grows = \"linear\" },\n{ class = \"aux\", bytes = 1, grows = \"linear\" }]",
            20,
            "taken twice",
        ),
        ("class = \"card\"", "class = \"aux\"", 25, "in two spaces"),
        ("class = \"card\"", "class = \"srs\"", 25, "is a residency"),
        ("class = \"card\"", "class = \" \"", 25, "a class has no name"),
        // What takes nothing.
        ("\"1 s\"", "\"0 s\"", 24, "takes no time"),
        ("\"4 s\"", "\"0 s\"", 18, "takes no time"),
        ("load = \"5 s\"", "load = \"0 s\"", 10, "takes no time"),
        ("\"4 GiB\"", "0", 19, "takes no bytes"),
        ("\"10 GiB\"", "\"0 B\"", 9, "takes no bytes"),
        ("needs = [\"srs\"]", "deadline = \"0 s\"\nneeds = [\"srs\"]", 14, "takes no time"),
        // What is not there, or not all.
        ("needs = [\"srs\"]", "", 8, "no circuit needs residency \"srs\""),
        ("workers = 4", "workers = 4\nruntime = \"101 GiB\"", 4, "runtime is 101.00 GiB"),
        ("workers = 4", "workers = 4\npinned = \"200 GiB\"", 4, "pinned is 200.00 GiB"),
        ("bytes = \"10 GiB\"", "bytes = \"50 GiB\"\nspace = \"pinned\"\n[machine.x]", 11, "unknown field `x`"),
        ("time = \"1 s\"", "time = \"1 s\"\npcie = \"1 GiB\"", 25, "how fast the machine moves"),
        ("on = \"device\"", "on = \"worker\"", 25, "does not run there"),
        (
            ", scratch = true }]\nfrees = [\"aux\"]",
            " }]\nfrees = [\"aux\"]\n[[circuit.stage]]\nname = \"end\"\ntime = \"1 s\"",
            22,
            "stays in a device's memory",
        ),
        // What is no number.
        ("cv = 0.1", "cv = nan", 18, "not from 0"),
        ("cv = 0.1", "cv = inf", 18, "not from 0"),
        ("\"4 GiB\"", "nan", 19, ""),
        ("workers = 4", "workers = -4", 3, ""),
        ("workers = 4", "workers = 99999999999999999999", 3, ""),
        ("\"3 s\"", "3", 30, "a time with its unit"),
        ("\"3 s\"", "\"900000 h\"", 30, "more than ten years"),
    ] {
        check(from, to, line, fault);
    }
}

/// What no machine has and nobody means is refused at once, whatever it is that there is too much of, or nothing.
#[test]
fn too_much_is_told_at_once() {
    let many = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<String>();
    let takes = many(65, &|n| format!("{{ class = \"c{n}\", bytes = 1 }},"));
    let arrivals = many(1025, &|_| "[[arrivals]]\ncircuit = \"proof\"\nbatch = true\n".to_owned());
    let circuits =
        many(257, &|n| format!("[[circuit]]\nname = \"p{n}\"\n[[circuit.stage]]\nname = \"s\"\ntime = \"1 s\"\n"));
    for (text, fault) in [
        (
            GOOD.replace("takes = [{ class = \"aux\"", &format!("takes = [{takes}{{ class = \"aux\"")),
            "takes 66 classes",
        ),
        (GOOD.replace("[policy]", &format!("{arrivals}[policy]")), "there are 1026 [[arrivals]]"),
        (GOOD.replace("[[circuit]]", &format!("{circuits}[[circuit]]")), "there are 258 circuits"),
        ("circuit = []\n[machine]\nmemory = \"1 GiB\"\nworkers = 1\n".to_owned(), "there is no circuit"),
    ] {
        let error = Workload::parse("w.toml", &text).expect_err(fault).to_string();
        assert!(error.starts_with("w.toml:") && error.contains(fault), "{error}");
    }
    let endless = Workload::read(std::path::Path::new("/dev/zero")).expect_err("it has no end").to_string();
    assert!(endless.contains("larger than 16 MiB"), "{endless}");
}

/// A peer's budget is as little a wish as ours.
#[test]
fn a_peers_budget_below_one_job_is_told_with_its_line() {
    for kind in ["optimistic-budget", "strict-fifo", "reserve-or-fail", "greedy"] {
        let text =
            GOOD.replace("kind = \"plimsoll\"\nbudget = \"60 GiB\"", &format!("kind = {kind:?}\nbudget = \"13 GiB\""));
        let error = Workload::parse("w.toml", &text).expect_err(kind).to_string();
        assert!(error.starts_with("w.toml:17: ") && error.contains("the budget is 13.00 GiB"), "{error}");
    }
}

/// The limit of pinned memory, the urgent reserve and PCIe are the machine's too.
#[test]
fn what_does_not_fit_is_told_whatever_the_limit() {
    let pinned = GOOD
        .replace("workers = 4", "workers = 4\npinned = \"9 GiB\"")
        .replace("bytes = \"10 GiB\"", "bytes = \"10 GiB\"\nspace = \"pinned\"");
    let reserve = GOOD.replace("budget = \"60 GiB\"", "budget = \"60 GiB\"\nurgent_reserve = \"50 GiB\"");
    let urgent = reserve.replace("name = \"proof\"\n", "name = \"proof\"\nurgent = true\n");
    let slow = GOOD
        .replace("workers = 4", "workers = 4\npcie = 1")
        .replace("time = \"1 s\"", "time = \"1 s\"\npcie = \"1 GiB\"");
    for (text, fault) in [
        (&pinned, "needs 10.00 GiB of pinned memory"),
        (&reserve, "the budget less the urgent reserve is 10.00 GiB"),
        (
            &urgent.replace("\"4 GiB\"", "\"51 GiB\""),
            "needs 61.00 GiB with its residencies and the runtime, and the budget is 60.00 GiB",
        ),
        (&slow, "takes more than ten years"),
    ] {
        let error = Workload::parse("w.toml", text).expect_err(fault).to_string();
        assert!(error.contains(fault) && error.starts_with("w.toml:"), "{error}");
    }
    Workload::parse("w.toml", &urgent).unwrap_or_else(|error| panic!("an urgent job may use the reserve: {error}"));
}

/// Times that are allowed one by one and more than can be counted together end a run, not the arithmetic.
#[test]
fn a_run_of_more_than_a_century_ends() {
    let text = GOOD
        .replace("\"4 s\"", "\"87000 h\"")
        .replace("workers = 4", "workers = 4\nslowdown = 1000.0")
        .replace("name = \"make\"", "name = \"make\"\nbandwidth = 1000.0")
        .replace("poisson = \"3 s\"", "batch = true");
    let workload = Workload::parse("w.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(simulate(&workload, Options::default()).end, End::TooLong);
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
    let outcome = simulate(&workload, Options { events_max: 100, ..Options::default() });
    assert_eq!(outcome.end, End::TooManyEvents);
}
