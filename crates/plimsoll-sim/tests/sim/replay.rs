//! A recorded run, done again in virtual time. The recorded times are all that is compared with, so how fast the machine is does not
//! matter; but time in which it ran something else between two stages is in the record of no stage. So a real run is recorded again, up to
//! [`RECORDINGS`] times, if its replay does not fit.

use std::sync::Arc;

use plimsoll::observe::{JsonLines, SCHEMA};
use plimsoll::pipeline::{Pacing, Pipeline};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Reservation, Space};
use plimsoll_sim::from_trace::{Replay, from_trace};
use plimsoll_sim::policies::Return;
use plimsoll_sim::workload::{Arrivals, Policy, PolicyKind};
use plimsoll_sim::{End, Nanos, Options, Outcome, Workload, simulate};

use super::support::{example, porep};

const RECORDINGS: usize = 5;

/// Time and peak of a replay, as parts of the recorded ones.
fn replayed(replay: &Replay) -> (f64, f64) {
    let outcome = simulate(&replay.workload, Options { events_max: 5_000_000, ..Options::default() });
    assert_eq!((&outcome.end, outcome.jobs), (&End::Done, replay.jobs), "{outcome:?}");
    replay.compare(&outcome)
}

fn fits((time, peak): (f64, f64)) -> bool {
    (0.9..=1.1).contains(&time) && (0.9..=1.1).contains(&peak)
}

const AUX: Class = Class::new("aux", Space::HOST);
const ABC: Class = Class::new("abc", Space::HOST);

/// Work whose time is the machine's to choose.
fn churn(rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum: u64, n| std::hint::black_box(sum.rotate_left(7) ^ n))
}

#[test]
fn a_real_run_of_a_pipeline_is_replayed() {
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|seen| fits(*seen)) {
        assert!(seen.len() < RECORDINGS, "time and peak, as parts of the recorded ones: {seen:?}");
        seen.push(replayed(&record()));
    }
}

fn record() -> Replay {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(100)));
    let trace = Arc::new(JsonLines::new(Vec::new()));
    ledger.observe(trace.clone());
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("threads");
    let aux = Demand::new().bytes(AUX, Bytes(10));
    let both = aux.clone().bytes(ABC, Bytes(30));
    let profile = Profile::new()
        .stage("make", aux.clone(), aux.clone())
        .stage("widen", both.clone(), both.clone())
        .stage("end", both, Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, move |_: &u64| profile.clone())
        .stage("make", |cx, n: u64| {
            churn(400_000 + 40_000 * (n % 5));
            Ok::<Reservation, String>(cx.grant().take(AUX, Bytes(10)).expect("granted"))
        })
        .stage("widen", |cx, aux: Reservation| {
            churn(800_000);
            Ok((aux, cx.grant().take(ABC, Bytes(30)).expect("granted")))
        })
        .stage("end", |_, held: (Reservation, Reservation)| {
            churn(400_000);
            drop(held);
            Ok(())
        })
        .pacing(Pacing::Unpaced)
        .build()
        .expect("the stages are those of the profile");
    assert_eq!(
        pipeline.run_all((0..60u64).map(|n| (format!("job {n}"), n))).filter(|entry| entry.1.is_ok()).count(),
        60
    );
    drop((pipeline, pool, ledger));
    let trace = Arc::into_inner(trace).expect("nobody else has it").finish().expect("a vector takes it");
    let replay = from_trace(&*trace).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((replay.jobs, replay.left_out), (60, 0));
    replay
}

fn recorded(workload: &Workload) -> (Vec<u8>, Outcome) {
    let mut lines = Vec::new();
    let outcome = plimsoll_sim::record(workload, Options::default(), &mut lines).expect("a vector takes it");
    (lines, outcome)
}

/// A simulated timeline is a trace like any other: whatever the policy, however proofs arrive, on however many devices.
#[test]
fn a_simulated_run_is_replayed() {
    let gib = 1u64 << 30;
    let permits = |back| PolicyKind::Permits { permits: 10, back, channel: 2 };
    let mut several = porep(12);
    (several.machine.devices, several.machine.lanes, several.machine.workers) = (3, 2, 48);
    let mut poisson = porep(12);
    poisson.streams[0].arrivals = Arrivals::Poisson(Nanos(50_000_000_000));
    let mut dense = poisson.clone();
    dense.streams[0].arrivals = Arrivals::Poisson(Nanos(38_000_000_000));
    let mut winning = example("winningpost.toml");
    winning.streams[0].proofs = 100;
    let mut wrong = Vec::new();
    for (name, workload) in [
        ("closed loop", &porep(12)),
        ("three devices", &several),
        ("poisson", &poisson),
        ("dense poisson", &dense),
        ("winningpost", &winning),
        ("mix", &example("mix.toml")),
        ("windowpost", &example("windowpost.toml")),
        ("snapdeals", &example("snapdeals.toml")),
    ] {
        let ours = workload.policy.kind.clone();
        let budget = 300 * gib;
        for kind in [
            ours,
            permits(Return::Produced),
            permits(Return::Delivered),
            permits(Return::HandedOver),
            PolicyKind::StrictFifo { budget },
            PolicyKind::Greedy { budget },
            PolicyKind::OptimisticBudget { budget, gap: 0 },
            PolicyKind::ReserveOrFail { budget: 660 * gib },
            PolicyKind::Unlimited,
        ] {
            let mut workload = workload.clone();
            workload.policy = Policy::new(kind.clone());
            let (lines, outcome) = recorded(&workload);
            if outcome.end != End::Done {
                continue;
            }
            let replay = from_trace(&*lines).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(replay.jobs, outcome.jobs, "{name}");
            let seen = replayed(&replay);
            println!("{name}, {}: {seen:.3?}", kind.name());
            // When who failed tries again is as good as chance, and a little off is another run.
            let part = if kind.name() == "reserve-or-fail" { 0.25 } else { 0.1 };
            if (seen.0 - 1.0).abs().max((seen.1 - 1.0).abs()) > part {
                wrong.push(format!("{name}, {}: {seen:.3?}", kind.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "time and peak, as parts of the recorded ones: {wrong:#?}");
}

/// However a trace is damaged, it is refused with its line, or gives a workload that ends.
#[test]
fn a_damaged_trace_does_no_harm() {
    let mut workload = porep(1);
    (workload.machine.devices, workload.circuits[0].parts) = (2, 2);
    let text = String::from_utf8(recorded(&workload).0).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let (mut refused, mut ran) = (0, 0);
    let mut check = |lines: &[&str]| match from_trace(lines.join("\n").as_bytes()) {
        Ok(replay) => {
            ran += 1;
            simulate(&replay.workload, Options { events_max: 3000, ..Options::default() });
        }
        Err(error) => {
            refused += 1;
            assert!(error.to_string().contains("line ") || error.to_string().contains("record a run"), "{error}");
        }
    };
    for at in 1..lines.len() {
        let mut gone = lines.clone();
        gone.remove(at);
        check(&gone);
        let mut swapped = lines.clone();
        swapped.swap(at, at - 1);
        check(&swapped);
        let line = lines[at];
        for number in ["-1", "0", "70000", "18446744073709551615", "9223372036854775807"] {
            let mut starts: Vec<usize> = line.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
            starts.dedup_by(|next, before| line[*before..*next].bytes().all(|byte| byte.is_ascii_digit()));
            for start in starts {
                let rest = line[start..].trim_start_matches(|c: char| c.is_ascii_digit());
                let spoilt = format!("{}{number}{rest}", &line[..start]);
                let mut lines = lines.clone();
                lines[at] = &spoilt;
                check(&lines);
            }
        }
    }
    assert!(refused > 100 && ran > 100, "{refused} refused, {ran} ran");
}

#[test]
fn what_cannot_be_is_told_with_its_line() {
    let line = |fields: &str| {
        format!("{{\"schema\":\"{SCHEMA}\"}}\n{{\"seq\":0,\"time_ns\":9,\"event\":\"closed\"}}\n{fields}\n")
    };
    for (fields, fault) in [
        (r#"{"seq":1,"time_ns":8,"event":"closed"}"#, "line 3: time goes back by 1 ns"),
        (
            r#"{"seq":1,"time_ns":9,"event":"changed","job":"j","id":0,"class":"a","space":"device65535","delta":1,"held":1}"#,
            "line 3: the space \"device65535\"",
        ),
        (
            r#"{"seq":1,"time_ns":9,"event":"changed","job":"j","id":0,"slots":"lane60000","delta":1,"held":1}"#,
            "line 3: slots \"lane60000\"",
        ),
        (
            r#"{"seq":1,"time_ns":9,"event":"changed","job":"j","id":0,"class":"a","space":"host","delta":1,"held":18446744073709551615}"#,
            "line 3: 18446744073709551615 bytes",
        ),
    ] {
        let error = from_trace(line(fields).as_bytes()).expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}");
    }
}

#[test]
fn what_is_no_run_is_refused() {
    assert!(from_trace(&b"not a trace\n"[..]).is_err());
    let empty = format!("{{\"schema\":\"{SCHEMA}\"}}\n");
    assert!(from_trace(empty.as_bytes()).unwrap_err().to_string().contains("record a run"));
}
