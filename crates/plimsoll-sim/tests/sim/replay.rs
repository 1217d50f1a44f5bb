//! A recorded run, done again in virtual time. The recorded times are all that is compared with, so how fast the machine is does not
//! matter; but time in which it ran something else between two stages is in the record of no stage. So a real run is recorded again, up to
//! [`RECORDINGS`] times, if its replay does not fit.

use std::io::Write;
use std::sync::Arc;

use plimsoll::observe::{Event, JsonLines, SCHEMA};
use plimsoll::pipeline::{Pacing, Pipeline};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Reservation, Space};
use plimsoll_sim::from_trace::{Replay, from_trace};
use plimsoll_sim::{End, Options, simulate};

use super::support::{budget, porep};

const RECORDINGS: usize = 5;

/// Time and peak of a replay, as parts of the recorded ones.
fn replayed(replay: &Replay) -> (f64, f64) {
    let outcome = simulate(&replay.workload, Options::default());
    assert_eq!((&outcome.end, outcome.jobs), (&End::Done, replay.jobs), "{outcome:?}");
    let time = outcome.time.0 as f64 / replay.time as f64;
    (time, outcome.charged_peak.expect("a ledger") as f64 / replay.host_peak as f64)
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

/// A simulated timeline is a trace like any other.
#[test]
fn a_simulated_run_is_replayed() {
    let mut lines = format!("{{\"schema\":\"{SCHEMA}\"}}\n").into_bytes();
    let mut sink = |event: &Event| writeln!(lines, "{}", event.json()).expect("a vector takes it");
    let workload = budget(&porep(20), 185);
    simulate(&workload, Options { timeline: Some(&mut sink), ..Options::default() });
    let replay = from_trace(&*lines).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(replay.jobs, 200);
    let seen = replayed(&replay);
    assert!(fits(seen), "time and peak, as parts of the recorded ones: {seen:?}");
}

#[test]
fn what_is_no_run_is_refused() {
    assert!(from_trace(&b"not a trace\n"[..]).is_err());
    let empty = format!("{{\"schema\":\"{SCHEMA}\"}}\n");
    assert!(from_trace(empty.as_bytes()).unwrap_err().to_string().contains("record a run"));
}
