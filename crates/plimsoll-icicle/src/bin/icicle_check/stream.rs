//! A stream of proofs under a budget of device memory; and what becomes of calls without admission.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use blstrs::Scalar;
use plimsoll::{Bytes, Ledger, Space};
use plimsoll_groth16::backend::{Backend, CurveGroup};
use plimsoll_groth16::prover::{Blinding, Prover};
use plimsoll_icicle::Icicle;
use plimsoll_icicle::device::MsmCall;
use plimsoll_icicle::error::CallError;
use plimsoll_icicle::memory::{MsmPlan, Scratch};

use crate::points::{self, Squares};

const PROOFS: u32 = 32;
/// Threads that call without admission.
const FREE_THREADS: usize = 4;

/// Prints the figures.
pub(crate) fn print(icicle: &Icicle, log_size: u32) -> Result<(), String> {
    let constraints = (1 << log_size) - 2;
    let (r1cs, key) = points::generate(constraints)?;
    let backend: Arc<dyn Backend> = Arc::new(icicle.clone());
    let prover = Prover::new(r1cs, Arc::new(key), backend).map_err(|error| error.to_string())?;
    println!("{PROOFS} proofs of {constraints} constraints, each verified\n");
    println!(
        "| at once | seconds a proof | device memory held at the most, of the budget | out of memory |\n|---|---|---|---|"
    );
    for jobs in [1, 2, 4] {
        let before = icicle.learned().out_of_memory;
        let next = AtomicU32::new(0);
        let start = Instant::now();
        let outcomes: Vec<Result<(), String>> = thread::scope(|scope| {
            let run = || {
                // Relaxed: a count.
                while next.fetch_add(1, Ordering::Relaxed) < PROOFS {
                    let circuit = Squares { constraints, start: Some(Scalar::from(3)) };
                    let made = prover.prove(&Ledger::unlimited(), circuit, Blinding::from_os());
                    made.map_err(|error| error.to_string())?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned()))).collect()
        });
        let seconds = start.elapsed().as_secs_f64() / f64::from(PROOFS);
        outcomes.into_iter().collect::<Result<(), String>>()?;
        let snapshot = icicle.ledger().snapshot();
        let usage = snapshot.space(Space::device(icicle.number())).ok_or("the device has no budget")?;
        let failures = icicle.learned().out_of_memory - before;
        println!("| {jobs} | {seconds:.3} | {} of {} | {failures} |", usage.peak, usage.limit);
    }
    free(icicle, log_size)
}

/// Each thread allocates, and multiplies by a plan that it finds all the budget free for.
fn free(icicle: &Icicle, log_size: u32) -> Result<(), String> {
    let owner = icicle.owner();
    let terms = 1_u64 << log_size;
    let key = points::key(terms as usize, 1)?;
    let scalars = points::scalars(terms as usize);
    let limit = icicle.ledger().snapshot().space(Space::device(icicle.number())).map_or(0, |usage| usage.limit.0);
    let scratch = Scratch::of(owner.name(), owner.memory().is_some());
    let ways = MsmPlan::ways(CurveGroup::G1, terms, false, scratch, 1000, limit);
    let plan = ways.first().ok_or("the budget is too small for a multiplication of that size")?;
    let piece = plan.piece as usize;
    let run = || -> Result<(), CallError> {
        for _ in 0..8 {
            let points = owner.allocate(plan.piece * 96)?;
            let room = owner.allocate(plan.piece * 32)?;
            owner.call("copy", |scope| {
                scope.copy_in(&scalars[..piece], room.all())?;
                scope.copy_in(&key.l[..piece], points.all())?;
                scope.points_to_standard(CurveGroup::G1, points.all())
            })?;
            let mut sum = [0_u8; 144];
            let (scalars, points, group) = (room.all(), points.all(), CurveGroup::G1);
            let (window, threads, scratch_bytes, sum) = (plan.window, plan.threads, plan.scratch_bytes(), &mut sum[..]);
            owner.call("msm", move |scope| {
                scope.msm(MsmCall { group, scalars, points, window, threads, scratch_bytes, sum })
            })?;
        }
        Ok(())
    };
    let outcomes: Vec<Result<(), CallError>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..FREE_THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    println!("\n{FREE_THREADS} threads without admission, each planning with all of the budget ({}):", Bytes(limit));
    for outcome in outcomes {
        println!("- {}", outcome.map_or_else(|error| error.to_string(), |()| "all were made".to_owned()));
    }
    println!();
    Ok(())
}
