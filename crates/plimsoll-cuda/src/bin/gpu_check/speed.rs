//! Times against floors: what the arithmetic alone would take at the rates of docs/gpu.md.

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::Curve;
use group::prime::PrimeCurveAffine;
use plimsoll::device::{Device, DeviceError};
use plimsoll::{Bytes, Demand, JobSpec, Ledger, Profile};
use plimsoll_cuda::plan::msm::{Choice, MsmPlan, Points, point_bytes, windows};
use plimsoll_cuda::plan::ntt::workspace_bytes;
use plimsoll_cuda::plan::{self, SCALAR_BYTES};
use plimsoll_cuda::{CudaDriver, DevicePoint, MsmMemory, PointSource, Scalars};
use plimsoll_groth16::backend::{CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;

use crate::conform::random_scalars;
use crate::memory::start;
use crate::{Outcome, arena_bytes, number, say};

/// Multiplications a second, measured on one H200.
const FR_RATE: f64 = 5.96e10;
const FP_RATE: f64 = 2.75e10;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

pub(crate) fn transforms(args: &[String]) -> Outcome {
    let (low, high) = (number(args, 0, 16)?, number(args, 1, 26)?);
    let (device, ledger) = start(arena_bytes(16 << 10))?;
    say(
        "size   forward  inverse  (bit-reversed) forward inverse  coset f   quotient 7  [ms]  x floor (plain, raw forward)",
    );
    for log in (low..=high).step_by(2) {
        let domain = Domain::with_log_size(log).ok_or("no such domain")?;
        let len = domain.size() as u64;
        let demand = Demand::new()
            .on_lease(0)
            .bytes(plan::abc(0), Bytes(3 * len * SCALAR_BYTES))
            .bytes(plan::workspace(0), Bytes(workspace_bytes(true)));
        let mut job = ledger.submit(JobSpec::new("ntt", Profile::new().stage("ntt", demand, Demand::new())))?;
        let scalars = random_scalars(1 << log.min(20));
        let times = device
            .compute(job.enter(0).wait()?, move |cx| {
                let mut abc = cx.allocate(plan::abc(0), Bytes(3 * len * SCALAR_BYTES))?;
                let workspace = cx.allocate(plan::workspace(0), Bytes(workspace_bytes(true)))?;
                let bytes: Vec<u8> = scalars.iter().flat_map(plimsoll_cuda::scalar_bytes).collect();
                for at in (0..3 * len * SCALAR_BYTES).step_by(bytes.len()) {
                    cx.copy_in(&bytes, &mut abc, at)?;
                }
                let vectors =
                    [0, 1, 2].map(|vector| Scalars { piece: abc.memory(), at: vector * len * SCALAR_BYTES, len });
                let factor = Scalar::from(7);
                let mut all = Vec::new();
                for kind in 0..6 {
                    let mut times = Vec::new();
                    for _ in 0..7 {
                        let ((), ms) = cx.call(|lane| {
                            lane.timed(|lane| match kind {
                                0 => lane.transform(&domain, vectors[0], Transform::Forward, workspace.memory()),
                                1 => lane.transform(&domain, vectors[0], Transform::Inverse, workspace.memory()),
                                2 => lane.raw_forward(&domain, vectors[0]),
                                3 => lane.raw_inverse(&domain, vectors[0]),
                                4 => lane.transform(&domain, vectors[0], Transform::CosetForward, workspace.memory()),
                                _ => lane.quotient(&domain, vectors, &factor, true, workspace.memory()),
                            })
                        })?;
                        times.push(ms);
                    }
                    all.push(median(times));
                }
                Ok::<_, DeviceError>(all)
            })
            .wait()?;
        let floor = (1_u64 << (log - 1)) as f64 * f64::from(log) / FR_RATE * 1e3;
        let cells: Vec<String> = times.iter().map(|time| format!("{time:9.3}")).collect();
        say(&format!("2^{log:2}  {}   x{:.2} x{:.2}", cells.join(" "), times[0] / floor, times[2] / floor));
    }
    Ok(())
}

/// Scalars of a kind.
fn kinds(n: usize) -> Vec<(&'static str, Vec<Scalar>)> {
    let random = random_scalars(n);
    let with = |f: &dyn Fn(usize, Scalar) -> Scalar| random.iter().enumerate().map(|(i, &value)| f(i, value)).collect();
    let one_value = random[0];
    vec![
        ("half 2", with(&|i, value| if i % 2 == 0 { Scalar::from(2) } else { value })),
        ("half one value", with(&|i, value| if i % 2 == 0 { one_value } else { value })),
        ("all one value", with(&|_, _| one_value)),
        ("15/16 bits", with(&|i, value| if i % 16 == 0 { value } else { Scalar::from(i as u64 / 5 % 2) })),
        ("0, 1, -1", with(&|i, _| [Scalar::ZERO, Scalar::ONE, -Scalar::ONE][i % 3])),
        ("bytes", with(&|i, _| Scalar::from(i as u64 * 7919 % 256))),
        ("uniform", random.clone()),
    ]
}

pub(crate) fn multiplications(args: &[String]) -> Outcome {
    let (low, high) = (number(args, 0, 16)?, number(args, 1, 24)?);
    let only: Option<u32> = args.get(2).map(|text| text.parse()).transpose()?;
    let (device, ledger) = start(arena_bytes(48 << 10))?;
    say("group size  bits  windows a pass  bytes MiB  ms  x floor of its windows");
    for log in (low..=high).step_by(2) {
        group::<G1Affine>(&device, &ledger, CurveGroup::G1, log, only)?;
        if log <= 22 {
            group::<G2Affine>(&device, &ledger, CurveGroup::G2, log, only)?;
        }
    }
    Ok(())
}

fn group<P: DevicePoint + PrimeCurveAffine<Scalar = Scalar>>(
    device: &Device<CudaDriver>,
    ledger: &Ledger,
    group: CurveGroup,
    log: u32,
    only: Option<u32>,
) -> Outcome
where
    <P as PrimeCurveAffine>::Curve: Curve<AffineRepr = P>,
{
    let n = 1_usize << log;
    let terms = n as u64;
    let shape = device.driver().shape();
    let mut plans = Vec::new();
    for bits in 10..=18 {
        let all = windows(bits);
        for pass in [2, 4, 8, all] {
            let chosen = only.is_none_or(|only| only == bits);
            let near = bits.abs_diff(log.clamp(12, 26) * 3 / 4 + 1) <= 2;
            let enough = u64::from(pass) * terms >= 1 << 21 || pass == all;
            let not_too_much = u64::from(pass) * terms <= 1 << 28;
            if chosen && near && enough && not_too_much {
                let choice =
                    Choice { window_bits: bits, windows_per_pass: pass, chunk: terms, points: Points::Resident };
                plans.extend(MsmPlan::new(group, terms, choice, shape));
            }
        }
    }
    plans.sort_by(|a, b| a.seconds(shape).total_cmp(&b.seconds(shape)));
    plans.truncate(5);
    plans.extend(MsmPlan::fastest(group, terms, Points::Resident, shape, 40 << 30));
    let Some(fastest) = plans.last().cloned() else { return Ok(()) };
    let bytes = |f: fn(&MsmPlan) -> u64| plans.iter().map(f).max().unwrap_or(0);
    let (buckets, workspace) = (bytes(|plan| plan.bucket_bytes), bytes(|plan| plan.workspace_bytes));
    let demand = Demand::new()
        .on_lease(0)
        .bytes(plan::abc(0), Bytes(terms * SCALAR_BYTES))
        .bytes(plan::points(0), Bytes(terms * point_bytes(group)))
        .bytes(plan::buckets(0), Bytes(buckets))
        .bytes(plan::workspace(0), Bytes(workspace));
    let mut job = ledger.submit(JobSpec::new("msm", Profile::new().stage("msm", demand, Demand::new())))?;
    let kinds = if (18..=20).contains(&log) { kinds(n) } else { vec![("uniform", random_scalars(n))] };
    let points = points::<P>(n);
    let lines = device
        .compute(job.enter(0).wait()?, move |cx| {
            let points = cx.upload(plan::points(0), P::as_bytes(&points))?;
            let mut scalars = cx.allocate(plan::abc(0), Bytes(terms * SCALAR_BYTES))?;
            let buckets = cx.allocate(plan::buckets(0), Bytes(buckets))?;
            let workspace = cx.allocate(plan::workspace(0), Bytes(workspace))?;
            let memory = MsmMemory::of(buckets.memory(), workspace.memory());
            let mut lines = Vec::new();
            let mut uniform = 0.0;
            for (kind, values) in kinds.iter().rev() {
                let bytes: Vec<u8> = values.iter().flat_map(plimsoll_cuda::scalar_bytes).collect();
                cx.copy_in(&bytes, &mut scalars, 0)?;
                let tried = if *kind == "uniform" { &plans[..] } else { std::slice::from_ref(&fastest) };
                for plan in tried {
                    let mut times = Vec::new();
                    for _ in 0..5 {
                        let source = PointSource::<P>::Resident(points.memory(), 0);
                        let (_, ms) = cx.call(|lane| {
                            lane.timed(|lane| lane.msm::<P>(plan, source, Scalars::of(scalars.memory(), terms), memory))
                        })?;
                        times.push(ms);
                    }
                    let ms = median(times);
                    if *kind == "uniform" {
                        uniform = ms;
                    }
                    let floor = f64::from(plan.windows) * terms as f64 * 10.0 / FP_RATE * 1e3;
                    lines.push(format!(
                        "{group:?} 2^{log} {kind:14} {:2} bits {:2} a pass {:6} MiB {ms:9.3} ms  x{:.2}  model {:.3}  uniform x{:.2}",
                        plan.choice.window_bits,
                        plan.choice.windows_per_pass,
                        plan.bytes() >> 20,
                        ms / floor,
                        plan.seconds(shape) * 1e3,
                        ms / uniform,
                    ));
                }
            }
            Ok::<_, DeviceError>(lines)
        })
        .wait()?;
    lines.iter().for_each(|line| say(line));
    Ok(())
}

/// Different points, as many as that.
pub(crate) fn points<P: PrimeCurveAffine<Scalar = Scalar>>(n: usize) -> Vec<P>
where
    P::Curve: Curve<AffineRepr = P>,
{
    let mut points = vec![P::identity(); n];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let chunk = n.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (index, part) in points.chunks_mut(chunk).enumerate() {
            scope.spawn(move || {
                let mut point = P::generator() * (Scalar::from(index as u64 + 1).square() + Scalar::from(99)).square();
                for part in part.chunks_mut(1 << 12) {
                    let curve: Vec<P::Curve> = part
                        .iter()
                        .map(|_| {
                            point += P::generator();
                            point
                        })
                        .collect();
                    P::Curve::batch_normalize(&curve, part);
                }
            });
        }
    });
    points
}
