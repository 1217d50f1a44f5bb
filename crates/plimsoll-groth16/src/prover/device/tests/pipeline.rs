//! The pipeline that a caller gets ready-made.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A job's number travels beside its proof.
fn numbered(
    this: &DeviceProver<Simulated>,
    ledger: &Ledger,
    pool: &Pool,
) -> Pipeline<(u64, Squarings), (u64, Proof), ProveError> {
    let begin = |prover: &Prover, grant: &mut plimsoll::Grant, (number, circuit): (u64, Squarings)| {
        Ok((prover.synthesise(grant, circuit)?, number))
    };
    let end = |prover: &Prover, openings, number| Ok((number, prover.assemble(openings, blinding()).proof));
    this.pipeline(ledger, pool, |builder| builder, begin, end).expect("it fits")
}

fn squarings() -> Squarings {
    Squarings { start: Some(Scalar::from(2)), steps: 5 }
}

fn lost_at(call: u64) -> Simulated {
    let faults = Faults { lost_at: Some(call), ..Faults::default() };
    Simulated::new(CardSpec { memory: Bytes::GIB, faults, ..CardSpec::default() })
}

/// A card that is lost at each of its calls in turn, beside one that is not: all proofs are made.
#[test]
fn proofs_of_a_device_that_is_lost_on_the_way_are_made_on_the_other() {
    const PROOFS: u64 = 3;
    let prover = prover(squarings());
    let expected = prover.prove(&Ledger::unlimited(), squarings(), blinding()).expect("proof").proof;
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("pool");
    for residence in [Residence::Resident, Residence::Streamed] {
        let mut losses = 0;
        for call in (3..20).step_by(3) {
            let cards = [lost_at(call), card()];
            let (set, ledger) = devices(&cards, Bytes(64 << 20));
            let this = DeviceProver::with_residence(prover.clone(), set, &ledger, residence).expect("fits");
            let pipeline = numbered(&this, &ledger, &pool);
            let jobs = (0..PROOFS).map(|number| (format!("proof {number}"), (number, squarings())));
            for (at, made) in pipeline.run_all(jobs) {
                let made = made.unwrap_or_else(|error| panic!("{residence:?}, lost at {call}, job {at}: {error:?}"));
                assert_eq!(made, (at as u64, expected), "{residence:?}, lost at {call}");
            }
            pipeline.drain();
            losses += this.devices().losses().len();
            drop((pipeline, this));
            let held = ledger.snapshot().space(Space::HOST).map(|space| space.held);
            assert_eq!((held, cards[1].stats().freed_in_use), (Some(Bytes::ZERO), 0));
        }
        assert!(losses > 0, "{residence:?}: the first card was used");
    }
}

/// The device is lost while its job still computes in host memory: the next stage is refused, and the job begins again.
#[test]
fn a_job_that_was_bound_to_a_lost_device_begins_again_on_the_other() {
    let prover = prover(squarings());
    let expected = prover.prove(&Ledger::unlimited(), squarings(), blinding()).expect("proof").proof;
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let (set, ledger) = devices(&[card(), card()], Bytes(64 << 20));
    let this = DeviceProver::with_residence(prover, set.clone(), &ledger, Residence::Resident).expect("fits");
    let sites = this.sites.clone();
    let begin = move |prover: &Prover, grant: &mut plimsoll::Grant, circuit: Squarings| {
        let witness = prover.synthesise(grant, circuit)?;
        if set.losses().is_empty() {
            // The one whose key this job has.
            let bound = sites.iter().find(|site| site.key.as_ref().is_some_and(|key| grant.pinned(key).is_some()));
            bound.expect("it has a key").device.give_up("pulled out");
        }
        Ok((witness, ()))
    };
    let end = |prover: &Prover, openings, ()| Ok(prover.assemble(openings, blinding()).proof);
    let pipeline = this.pipeline(&ledger, &pool, |builder| builder, begin, end).expect("it fits");
    let proof = pipeline.submit("proof", squarings()).expect("submitted").wait();
    assert_eq!(proof.expect("the other device makes it"), expected);
    assert_eq!(this.devices().losses().len(), 1);
}

#[test]
fn no_stage_begins_once_it_is_to_stop() {
    let (set, ledger) = devices(&[card()], Bytes(64 << 20));
    let stop = Arc::new(AtomicBool::new(false));
    let prover = prover(squarings()).with_stop(stop.clone());
    let this = DeviceProver::new(prover, set, &ledger).expect("fits");
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let begin = {
        let stop = stop.clone();
        move |prover: &Prover, grant: &mut plimsoll::Grant, circuit: Squarings| {
            let witness = prover.synthesise(grant, circuit)?;
            stop.store(true, Ordering::Release);
            Ok((witness, ()))
        }
    };
    let assembled = Arc::new(AtomicBool::new(false));
    let end = {
        let assembled = assembled.clone();
        move |_: &Prover, _, ()| {
            assembled.store(true, Ordering::Release);
            Ok(())
        }
    };
    let pipeline = this.pipeline(&ledger, &pool, |builder| builder, begin, end).expect("it fits");
    let outcome = pipeline.submit("proof", squarings()).expect("submitted").wait();
    assert!(matches!(outcome, Err(JobError::Stage { source: ProveError::Stopped, .. })), "{outcome:?}");
    assert!(!assembled.load(Ordering::Acquire), "it went on to the end");
}

#[test]
fn what_no_device_has_room_for_is_refused_before_any_work() {
    let (set, ledger) = devices(&[card()], Bytes(64 << 20));
    let host = Ledger::new(Budget::new().space(Space::HOST, Bytes(1000)).device(0, Bytes(64 << 20), 2));
    let this = DeviceProver::new(prover(squarings()), set, &ledger).expect("fits");
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let begin =
        |prover: &Prover, grant: &mut plimsoll::Grant, circuit: Squarings| Ok((prover.synthesise(grant, circuit)?, ()));
    let refused = this.pipeline(&host, &pool, |builder| builder, begin, |_, _, ()| Ok(()));
    assert!(refused.is_err(), "{refused:?}");
}
