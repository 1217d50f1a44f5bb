//! What a whole proof is put together from and the harness does not see: gathering, resident points at an offset, two streams at
//! once, results that outlast their workspace, and the quotient's coefficients.

use blstrs::{G1Affine, G2Affine, Scalar};
use plimsoll::device::DeviceError;
use plimsoll::{Bytes, Demand, JobSpec, Profile};
use plimsoll_cuda::plan::msm::{Choice, MsmPlan, Points, jacobian_bytes, windows};
use plimsoll_cuda::plan::ntt::workspace_bytes;
use plimsoll_cuda::plan::{self, ALIGNMENT, SCALAR_BYTES, aligned};
use plimsoll_cuda::{DevicePoint, MsmMemory, Part, Passing, PointSource, Scalars};
use plimsoll_groth16::backend::{Backend, Cpu, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;

use crate::conform::{random_scalars, scratch};
use crate::memory::start;
use crate::speed::points;
use crate::{Outcome, arena_bytes, number, say};

fn bytes(scalars: &[Scalar]) -> Vec<u8> {
    scalars.iter().flat_map(plimsoll_cuda::scalar_bytes).collect()
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let log = number(args, 0, 10)?;
    let (device, ledger) = start(arena_bytes(4 << 10))?;
    let shape = device.driver().shape();
    let n = 1_u64 << log;
    let domain = Domain::with_log_size(log).ok_or("no such domain")?;
    let choice = Choice { window_bits: 8, windows_per_pass: windows(8), chunk: n, points: Points::Resident };
    let plans = [CurveGroup::G1, CurveGroup::G2, CurveGroup::G1].map(|group| MsmPlan::new(group, n, choice, shape));
    let [Some(one), Some(two), Some(three)] = plans else { return Err("no plan".into()) };
    let passing = Choice { chunk: n.div_ceil(3).next_multiple_of(32).min(n), points: Points::Streamed, ..choice };
    let passing = MsmPlan::new(CurveGroup::G1, n, passing, shape).ok_or("no plan")?;
    const ROOM: u64 = 256 << 20;
    let demand = Demand::new()
        .on_lease(0)
        .bytes(plan::abc(0), Bytes(ROOM))
        .bytes(plan::points(0), Bytes(ROOM))
        .bytes(plan::buckets(0), Bytes(ROOM))
        .bytes(plan::workspace(0), Bytes(ROOM));
    let mut job = ledger.submit(JobSpec::new("pieces", Profile::new().stage("pieces", demand, Demand::new())))?;
    let scalars = random_scalars(3 * n as usize);
    let (g1, g2) = (points::<G1Affine>(n as usize), points::<G2Affine>(n as usize));
    let backwards: Vec<G1Affine> = g1.iter().rev().copied().collect();
    let reversed = backwards.clone();
    let index: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(7919) % n as u32).collect();
    let (given, bases, bases_g2, order) = (scalars.clone(), g1.clone(), g2.clone(), index.clone());
    let size = n as usize;
    let (gathered, sums, products, quotient) = device
        .compute(job.enter(0).wait()?, move |cx| {
            let mut abc = cx.allocate(plan::abc(0), Bytes(ROOM))?;
            let mut key = cx.allocate(plan::points(0), Bytes(ROOM))?;
            let buckets = cx.allocate(plan::buckets(0), Bytes(ROOM))?;
            let workspace = cx.allocate(plan::workspace(0), Bytes(ROOM))?;
            let vector = aligned(n * SCALAR_BYTES);
            for part in 0..3 {
                cx.copy_in(&bytes(&given[part as usize * size..][..size]), &mut abc, part * vector)?;
            }
            let g2_at = aligned(ALIGNMENT + n * 96);
            let index_at = aligned(g2_at + n * 192);
            cx.copy_in(G1Affine::as_bytes(&bases), &mut key, ALIGNMENT)?;
            cx.copy_in(G2Affine::as_bytes(&bases_g2), &mut key, g2_at)?;
            let order: Vec<u8> = order.iter().flat_map(|index| index.to_le_bytes()).collect();
            cx.copy_in(&order, &mut key, index_at)?;
            let at = |part: u64| Scalars { piece: abc.memory(), at: part * vector, len: n };
            cx.call(|lane| lane.gather(at(3), at(0), key.memory(), index_at))?;
            let mut gathered = vec![0; 32 * size];
            cx.copy_out(&abc, 3 * vector, &mut gathered)?;
            let memory = |slot: u64| {
                let part = |piece, at| Part { piece, at };
                let results = 128 << 20;
                MsmMemory {
                    buckets: part(buckets.memory(), (slot % 2) * (64 << 20)),
                    workspace: part(workspace.memory(), (slot % 2) * (64 << 20)),
                    result: Some(part(
                        workspace.memory(),
                        results + slot * aligned(64 * jacobian_bytes(CurveGroup::G2)),
                    )),
                }
            };
            let sums = cx.call(|lane| {
                let resident = |at| PointSource::<G1Affine>::Resident(key.memory(), at);
                let begun = lane.msm_start(&one, resident(ALIGNMENT), at(0), memory(0), 0)?;
                let other = PointSource::<G2Affine>::Resident(key.memory(), g2_at);
                let beside = lane.msm_start(&two, other, at(1), memory(1), 1)?;
                let third = lane.msm_start(&three, resident(ALIGNMENT), at(3), memory(2), 0)?;
                // Points of one after the other pass through the same buffers in turn, and nobody waits in between.
                let (first, each) = (Part { piece: key.memory(), at: 192 << 20 }, aligned(passing.choice.chunk * 96));
                let streamed = |points, turn| PointSource::Streamed(points, Passing { first, each, count: 2, turn });
                let turns = (passing.chunks() % 2) as usize;
                let fourth = lane.msm_start(&passing, streamed(&bases[..], 0), at(1), memory(4), 0)?;
                let fifth = lane.msm_start(&passing, streamed(&backwards[..], turns), at(1), memory(6), 0)?;
                Ok((
                    lane.msm_finish::<G1Affine>(begun)?,
                    lane.msm_finish::<G2Affine>(beside)?,
                    lane.msm_finish::<G1Affine>(third)?,
                    lane.msm_finish::<G1Affine>(fourth)?,
                    lane.msm_finish::<G1Affine>(fifth)?,
                ))
            })?;
            cx.call(|lane| lane.mul(at(3), at(0), at(1)))?;
            let mut products = vec![0; 32 * size];
            cx.copy_out(&abc, 3 * vector, &mut products)?;
            let factor = domain.vanishing_on_coset_inverse();
            let vectors = [at(0), at(1), at(2)];
            cx.call(|lane| lane.quotient(&domain, vectors, &factor, true, workspace.memory()))?;
            let mut quotient = vec![0; 32 * size];
            cx.copy_out(&abc, 0, &mut quotient)?;
            debug_assert!(workspace_bytes(true) < ROOM);
            Ok::<_, DeviceError>((gathered, sums, products, quotient))
        })
        .wait()?;
    let cpu = Cpu::new();
    let [mut a, mut b, mut c] = [0, 1, 2].map(|part| scalars[part * size..][..size].to_vec());
    let ordered: Vec<Scalar> = index.iter().map(|&index| a[index as usize]).collect();
    let domain = Domain::with_log_size(log).ok_or("no such domain")?;
    let room = &mut scratch(8 << 30);
    let mut wrong = Vec::new();
    let mut check = |what: &'static str, right: bool| {
        if !right {
            wrong.push(what);
        }
    };
    check("gathered", gathered == bytes(&ordered));
    check("G1 on stream 0", sums.0 == cpu.msm_g1(&g1, &a, room)?);
    check("G2 on stream 1", sums.1 == cpu.msm_g2(&g2, &b, room)?);
    check("G1 of what was gathered", sums.2 == cpu.msm_g1(&g1, &ordered, room)?);
    check("points that pass through", sums.3 == cpu.msm_g1(&g1, &b, room)?);
    check("points that pass through next", sums.4 == cpu.msm_g1(&reversed, &b, room)?);
    let product: Vec<Scalar> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
    check("products", products == bytes(&product));
    let factor = domain.vanishing_on_coset_inverse();
    cpu.quotient_on_coset(&domain, &mut a, &mut b, &mut c, &factor, room)?;
    cpu.ntt(&domain, &mut a, Transform::CosetInverse, room)?;
    check("the quotient's coefficients", quotient == bytes(&a));
    if !wrong.is_empty() {
        return Err(format!("2^{log}: wrong are {wrong:?}").into());
    }
    say(&format!("2^{log}: every piece of a proof is right"));
    Ok(())
}
