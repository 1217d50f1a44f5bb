//! `plimsoll simulate` and `plimsoll plan`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::Sandbox;

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/workloads").join(name);
    path.display().to_string()
}

#[test]
fn the_incident_is_seen_and_ours_lives_in_a_quarter() {
    let sandbox = Sandbox::new();
    let porep = example("porep32.toml");
    let ours = sandbox.run(&["simulate", &porep, "--json"]);
    assert_eq!(ours.code(), 0, "{}", ours.stderr);
    let ours = ours.json();
    assert_eq!((&ours["end"], &ours["proofs"]), (&"done".into(), &20.into()));
    assert!(ours["charged_peak_bytes"].as_u64().expect("a number") <= 185 << 30);
    let early = sandbox.run(&["simulate", &porep, "--policy", "early-release", "--permits", "12", "--json"]);
    early.expect(7, &["out of memory after 13 proofs"]);
    let early = early.json();
    assert_eq!((&early["end"], &early["ok"]), (&"out-of-memory".into(), &false.into()));
    assert!(early["backlog_peak"].as_u64().expect("a number") > 28);
}

#[test]
fn a_plan_gives_formulas_and_simulation_beside_each_other() {
    let sandbox = Sandbox::new();
    let plan = sandbox.run(&["plan", &example("porep32.toml"), "--budget", "300GiB", "--json"]);
    assert_eq!(plan.code(), 0, "{}", plan.stderr);
    let plan = plan.json();
    assert!(plan["formulas"][0]["seconds_per_proof"].as_f64().expect("a number") > 30.0);
    assert!(plan["simulated"]["seconds_per_proof_steady"].as_f64().expect("a number") > 30.0);
    assert_eq!(plan["changes"][0]["what"], "one more GPU");
    sandbox.run(&["plan", &example("porep32.toml"), "--budget", "50GiB"]).expect(5, &["too small"]);
}

#[test]
fn a_timeline_is_replayed() {
    let sandbox = Sandbox::new();
    let written = sandbox.run(&["simulate", &example("porep32.toml"), "--proofs", "4", "--trace", "t.jsonl"]);
    assert_eq!(written.code(), 0, "{}", written.stderr);
    let replay = sandbox.run(&["simulate", "--from-trace", "t.jsonl", "--json"]).json();
    let ratio = replay["time_ratio"].as_f64().expect("a number");
    assert!((0.9..=1.1).contains(&ratio), "{replay}");
}

/// The times of stages are the run's own, so what the machine did meanwhile is in both. A thread that the machine had no core for
/// between two stages is not: the best of a few runs counts.
#[test]
fn a_real_run_is_replayed_within_a_tenth() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 1500);
    let mut seen = Vec::new();
    for _ in 0..5 {
        sandbox.prove(&["file", "--threads", "2", "--memory", "256MiB", "--trace", "t.jsonl"]);
        let replay = sandbox.run(&["simulate", "--from-trace", "t.jsonl", "--json"]).json();
        assert_eq!(replay["ok"], true, "{replay}");
        let (time, peak) = (replay["time_ratio"].as_f64().unwrap(), replay["peak_ratio"].as_f64().unwrap());
        println!("time {time:.3}, peak {peak:.3} of the recorded");
        if [time, peak].iter().all(|ratio| (0.9..=1.1).contains(ratio)) {
            return;
        }
        seen.push((time, peak));
    }
    panic!("no replay comes within a tenth of its run: {seen:?}");
}

#[test]
fn a_plan_can_be_made_for_this_machine() {
    let sandbox = Sandbox::new();
    fs::write(
        sandbox.path("small.toml"),
        "[machine]\nmemory = \"755 GiB\"\nworkers = 96\n[[circuit]]\nname = \"small\"\n[[circuit.stage]]\nname = \"make\"\n\
         time = \"1 s\"\ntakes = [{ class = \"aux\", bytes = \"1 MiB\" }]\n[[arrivals]]\ncircuit = \"small\"\nbatch = true\n\
         proofs = 200\n[policy]\nkind = \"plimsoll\"\nbudget = \"1 GiB\"\n",
    )
    .unwrap();
    let plan = |more: &[&str]| {
        let planned = sandbox.run(&[&["plan", "small.toml", "--json"], more].concat());
        assert_eq!(planned.code(), 0, "{}", planned.stderr);
        planned.json()
    };
    let (files, here) = (plan(&[]), plan(&["--this-machine"]));
    let total = sandbox.run(&["doctor", "--json"]).json()["memory"]["total_bytes"].as_u64().unwrap();
    let budget = here["budget_bytes"].as_u64().unwrap();
    assert!(0 < budget && budget <= total, "{budget} of {total}");
    let seconds = |plan: &Value| plan["formulas"][0]["seconds_per_proof"].as_f64().unwrap();
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    let ratio = seconds(&here) / seconds(&files) / (96.0 / cores);
    assert!((0.8..1.25).contains(&ratio), "as many cores as there are: {ratio}");
}

#[test]
fn a_bad_file_is_told_with_its_line() {
    let sandbox = Sandbox::new();
    let text = fs::read_to_string(example("porep32.toml")).expect("it is there").replace("workers", "wrokers");
    fs::write(sandbox.path("bad.toml"), text).expect("written");
    sandbox.run(&["simulate", "bad.toml"]).expect(4, &["bad.toml:9", "unknown field `wrokers`", "correct or delete"]);
    sandbox.run(&["simulate", "none.toml"]).expect(4, &["none.toml", "name a workload file"]);
    sandbox.run(&["simulate"]).expect(2, &[]);
}

#[test]
fn a_search_finds_nothing() {
    let found = Sandbox::new().run(&["simulate", "--search", "--worlds", "5", "--seed", "500", "--json"]);
    assert_eq!((found.code(), &found.json()["worlds"]), (0, &5.into()), "{}", found.stderr);
}

/// A script that looks at nothing but the code learns how a simulated run ended, and a person why.
#[test]
fn an_end_that_is_none_has_a_code() {
    let sandbox = Sandbox::new();
    let porep = example("porep32.toml");
    for (more, words) in [
        (&["--policy", "early-release", "--permits", "12"][..], "out of memory after"),
        (&["--policy", "reserve-or-fail"], "no job comes to its end any more"),
        (&["--proofs", "1000", "--events-max", "1000"], "--events-max N allows more"),
    ] {
        let run = sandbox.run(&[&["simulate", &porep], more].concat());
        run.expect(7, &["the simulated run did not come to its end", words]);
        assert!(run.stdout.contains("PoRep 32 GiB"), "what is known is printed all the same: {}", run.stdout);
    }
    let text = fs::read_to_string(example("porep32.observed.toml")).expect("it is there");
    fs::write(sandbox.path("o.toml"), text.replace("seconds_per_proof = 290.0", "seconds_per_proof = 190.0"))
        .expect("written");
    let against = sandbox.run(&["simulate", &porep, "--against", "o.toml", "--json"]);
    against.expect(7, &["o.toml", "outside of the tolerance in 1 rows"]);
    assert_eq!((&against.json()["ok"], &against.json()["counts"]["outside"]), (&false.into(), &1.into()));
    sandbox.run(&["simulate", &porep, "--against", &example("porep32.observed.toml")]).expect(0, &[]);
}

/// Options that would change nothing are refused, and what is read is not written over.
#[test]
fn nothing_is_ignored_without_a_word() {
    let sandbox = Sandbox::new();
    let porep = example("porep32.toml");
    let observed = example("porep32.observed.toml");
    for (arguments, words) in [
        (&["--permits", "3"][..], "the policy plimsoll knows none"),
        (&["--channel", "3"], "the policy plimsoll knows none"),
        (&["--policy", "unlimited", "--budget", "300GiB"], "the policy unlimited knows none"),
        (&["--policy", "channel", "--permits", "3", "--budget", "300GiB"], "the policy channel knows none"),
        (&["--against", &observed, "--policy", "greedy"], "cannot be used with"),
        (&["--against", &observed, "--proofs", "3"], "cannot be used with"),
        (&["--sweep", "--budget", "300GiB"], "cannot be used with"),
        (&["--steps", "3"], "--sweep"),
        (&["--worlds", "3"], "cannot be used with"),
        (&["--against", &observed, "--steps", "3"], "cannot be used with"),
    ] {
        sandbox.run(&[&["simulate", &porep], arguments].concat()).expect(2, &[words]);
    }
    sandbox.run(&["simulate", "--search", "--trace", "t.jsonl"]).expect(2, &["cannot be used with"]);
    for policy in ["strict-fifo", "greedy", "optimistic-budget", "reserve-or-fail", "plimsoll"] {
        let run = sandbox.run(&["simulate", &porep, "--policy", policy, "--budget", "10GiB"]);
        run.expect(5, &["a budget of 10.00 GiB is too small for the largest job: it takes 91.26 GiB"]);
    }
    fs::copy(&porep, sandbox.path("w.toml")).expect("copied");
    fs::hard_link(sandbox.path("w.toml"), sandbox.path("same.toml")).expect("linked");
    sandbox.run(&["simulate", "w.toml", "--trace", "same.toml"]).expect(2, &["would overwrite what is read"]);
    sandbox.run(&["simulate", "w.toml", "--proofs", "2", "--trace", "t.jsonl"]).expect(0, &[]);
    sandbox
        .run(&["simulate", "--from-trace", "t.jsonl", "--trace", "t.jsonl"])
        .expect(2, &["would overwrite what is read"]);
    sandbox.run(&["simulate", "--from-trace", "t.jsonl"]).expect(0, &[]);
}

/// What killed a simulated run is in its trace, and the report says it.
#[test]
fn a_report_of_a_killed_run_says_so() {
    let sandbox = Sandbox::new();
    let porep = example("porep32.toml");
    let early = ["--policy", "early-release", "--permits", "12", "--trace", "t.jsonl"];
    sandbox.run(&[&["simulate", &porep], &early[..]].concat()).expect(7, &["out of memory"]);
    let report = sandbox.run(&["report", "t.jsonl", "--json"]).json();
    assert_ne!(report["diagnosis"]["verdict"], "healthy", "{}", report["diagnosis"]);
    assert_eq!(report["timeline"]["ended"]["how"], "out-of-memory");
    sandbox.run(&["report", "t.jsonl"]).expect(0, &[]);
    let page = fs::read_to_string(sandbox.path("t.html")).expect("written");
    assert!(page.contains("did not come to its end: out of memory after 13 proofs"), "the page says it");
    sandbox.run(&["simulate", &porep, "--proofs", "8", "--trace", "t.jsonl"]).expect(0, &[]);
    let report = sandbox.run(&["report", "t.jsonl", "--json"]).json();
    assert_eq!(report["timeline"]["ended"]["how"], "done");
    assert!(
        ["healthy", "ceiling"].iter().any(|word| report["diagnosis"]["verdict"] == **word),
        "{}",
        report["diagnosis"]
    );
}
