//! `--memory` bounds the whole process.

use crate::support::Sandbox;

/// Asks for a budget that nothing fits into; the refusal names the smallest one that does.
fn smallest(sandbox: &Sandbox, threads: &str) -> u64 {
    let outcome = sandbox.run(&["prove", "file", "--threads", threads, "--memory", "1MiB"]);
    outcome.expect(5, &["1.00 MiB (--memory)", "too small"]);
    let text = outcome.stderr.trim().rsplit_once("--memory ").expect("a remedy").1;
    text.strip_suffix("MiB").expect("in MiB").parse().unwrap()
}

#[test]
fn the_process_stays_under_every_line() {
    let sandbox = Sandbox::new();
    // Enough partitions for several under way and some behind them.
    sandbox.file("file", 400);
    let smallest = smallest(&sandbox, "2");
    let mut in_flight = Vec::new();
    for extra in [0, 1, 2, 3, 5, 8, 13, 21, 34, 100, 1000] {
        let line = (smallest + extra) << 20;
        let memory = format!("{}MiB", smallest + extra);
        let (outcome, json) = sandbox.prove(&["file", "--threads", "2", "--memory", &memory]);
        let reported = json["memory"]["resident_peak_bytes"].as_u64().unwrap();
        println!(
            "line {memory:>8}: process {:.1} MiB, ledger {:.1} of {:.1} MiB, {} in flight",
            reported as f64 / 1048576.0,
            json["memory"]["ledger_peak_bytes"].as_u64().unwrap() as f64 / 1048576.0,
            json["memory"]["ledger_bytes"].as_u64().unwrap() as f64 / 1048576.0,
            json["memory"]["in_flight_peak"],
        );
        assert!(reported <= line, "{memory}: the process held {reported}");
        assert!(
            0 < outcome.resident_peak && outcome.resident_peak <= line,
            "{memory}: /proc says {}",
            outcome.resident_peak
        );
        // What it says of itself is what others saw, up to its last milliseconds.
        assert!(reported >= outcome.resident_peak);
        in_flight.push(json["memory"]["in_flight_peak"].as_u64().unwrap());
    }
    assert!(in_flight.iter().all(|jobs| *jobs > 0));
    assert!(in_flight.last() >= Some(&2), "with memory enough, both threads have a partition: {in_flight:?}");
}

/// The same for making the key, which holds other things: at the smallest line that is accepted.
#[test]
fn making_the_key_stays_under_the_line() {
    let sandbox = Sandbox::with_own_cache();
    sandbox.file("file", 10);
    let smallest = smallest(&sandbox, "2");
    let (outcome, json) = sandbox.prove(&["file", "--threads", "2", "--memory", &format!("{smallest}MiB")]);
    assert_eq!(json["key"]["origin"], "made");
    let reported = json["memory"]["resident_peak_bytes"].as_u64().unwrap();
    assert!(reported <= smallest << 20 && outcome.resident_peak <= smallest << 20, "{reported}");
}

#[test]
fn the_smallest_line_is_exact_for_every_number_of_threads() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 10);
    for threads in ["1", "3", "16"] {
        let smallest = smallest(&sandbox, threads);
        let less = format!("{}MiB", smallest - 1);
        sandbox.run(&["prove", "file", "--threads", threads, "--memory", &less]).expect(5, &["too small"]);
        assert_eq!(sandbox.names(), ["file"], "a refusal leaves nothing");
        let (_, json) = sandbox.prove(&["file", "--threads", threads, "--memory", &format!("{smallest}MiB")]);
        let reported = json["memory"]["resident_peak_bytes"].as_u64().unwrap();
        println!("{threads} threads: smallest {smallest} MiB, process {:.1} MiB", reported as f64 / 1048576.0);
        assert!(reported <= smallest << 20, "{threads} threads: the process held {reported}");
        std::fs::remove_file(sandbox.path("file.proof.json")).unwrap();
    }
}

#[test]
fn the_default_line_says_where_it_comes_from() {
    let sandbox = Sandbox::new();
    sandbox.file("file", 10);
    let (_, json) = sandbox.prove(&["file"]);
    let memory = &json["memory"];
    assert_ne!(memory["source"], "--memory");
    assert!(memory["budget_bytes"].as_u64() < memory["machine_bytes"].as_u64(), "less a margin");
}
