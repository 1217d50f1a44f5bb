//! What becomes of calls that nobody admits: four threads on one device, each as if it were alone.

use std::sync::{Arc, Barrier};
use std::thread;

use plimsoll::{Bytes, Space};
use plimsoll_groth16::backend::CurveGroup;
use plimsoll_icicle::device::{MsmCall, Owner, Sum};
use plimsoll_icicle::error::{CallError, Fault};
use plimsoll_icicle::memory::{MsmPlan, Scratch};

use crate::points;
use crate::{Args, Opened};

const THREADS: usize = 4;
/// Multiplications of each.
const EACH: usize = 8;

/// Prints how many were made, and what the others said. Each thread has ICICLE's device for itself, as programs have that call
/// ICICLE from threads of their own; allocates; and multiplies by the plan that is the fastest for which there is room.
pub(crate) fn print(args: &Args) -> Result<(), String> {
    let Opened { icicle, .. } = args.open(args.memory)?;
    let (library, name) = (icicle.owner().library(), icicle.owner().name().clone());
    let terms = 1_u64 << args.proofs;
    let key = points::key(terms as usize, 1)?;
    let scalars = points::scalars(terms as usize);
    let limit = icicle.ledger().snapshot().space(Space::device(icicle.number())).map_or(0, |usage| usage.limit.0);
    let scratch = Scratch::of(&name, icicle.owner().memory().is_some());
    let ways = MsmPlan::ways(CurveGroup::G1, terms, false, scratch, 1000, limit);
    let plan = *ways.first().ok_or("the budget is too small for a multiplication of that size")?;
    let piece = plan.piece as usize;
    // Nothing of it is left on the device.
    drop(icicle);
    let barrier = Barrier::new(THREADS);
    let one = |owner: &Arc<Owner>| -> Result<(), CallError> {
        let points = owner.allocate(plan.piece * 96)?;
        let room = owner.allocate(plan.piece * 32)?;
        owner.call("copy", |scope| {
            scope.copy_in(&scalars[..piece], room.all())?;
            scope.copy_in(&key.l[..piece], points.all())?;
            scope.points_to_standard(CurveGroup::G1, points.all())
        })?;
        let mut sum = Sum::new();
        let (scalars, points, group) = (room.all(), points.all(), CurveGroup::G1);
        let (window, threads, scratch_bytes, sum) = (plan.window, plan.threads, plan.scratch_bytes(), &mut sum);
        owner.call("msm", move |scope| {
            scope.msm(MsmCall { group, scalars, points, window, threads, scratch_bytes, sum })
        })
    };
    let run = || -> Result<Vec<CallError>, String> {
        let owner = Owner::start_beside_others(library, &name, 1).map_err(|error| error.to_string());
        barrier.wait();
        let owner = owner?;
        Ok((0..EACH).filter_map(|_| one(&owner).err()).collect())
    };
    let outcomes: Vec<Result<Vec<CallError>, String>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned()))).collect()
    });
    println!(
        "{THREADS} threads that call freely, {EACH} multiplications in G1 of 2^{} each, each planned as if all of {} were \
         its own ({} of scratch):",
        args.proofs,
        Bytes(limit),
        Bytes(plan.scratch_bytes())
    );
    for outcome in outcomes {
        let failed = outcome?;
        let doubted = failed.iter().filter(|error| error.fault == Fault::Doubted).count();
        let (made, failures) = (EACH - failed.len(), failed.len() - doubted);
        println!("- {made} made, {failures} failed, {doubted} not begun after that{}", first(&failed));
    }
    println!();
    Ok(())
}

fn first(failed: &[CallError]) -> String {
    failed.first().map_or_else(String::new, |error| format!("; the first: {error}"))
}
