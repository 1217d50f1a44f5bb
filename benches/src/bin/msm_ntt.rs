//! The CPU backend's kernels against blst's own Pippenger, on one thread and on all, same inputs, same run.
//!
//! `cargo run --release -p plimsoll-benches --bin msm_ntt -- [smallest log] [largest log] [threads]`
//!
//! Prints medians: nanoseconds per term for multi-scalar multiplications, per element for transforms.

use std::time::Instant;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use ff::Field;
use group::Group;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::backend::{Backend, Cpu, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;
use plimsoll_groth16::fixed_base::{FixedBase, FixedBasePlan};
use rand_core::{RngCore, SeedableRng};
use rand_xorshift::XorShiftRng;

const SCRATCH: Class = Class::new("scratch", Space::HOST);
const REPEATS: usize = 5;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u32>().expect("a binary logarithm"));
    let (smallest, largest) = (args.next().unwrap_or(12), args.next().unwrap_or(18));
    let threads = args.next();
    let all = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    for threads in threads.map_or(vec![1, all], |threads| vec![threads as usize]) {
        let pool = Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads");
        for log_size in (smallest..=largest).step_by(2) {
            pool.install(|| {
                let cpu = Cpu::new();
                transforms(&cpu, log_size, threads);
                msm::<G1Affine>(
                    &cpu,
                    CurveGroup::G1,
                    log_size,
                    threads,
                    |b, s, r| cpu.msm_g1_mut(b, &mut s.to_vec(), r).unwrap(),
                    pippenger_g1,
                );
                msm::<G2Affine>(
                    &cpu,
                    CurveGroup::G2,
                    log_size,
                    threads,
                    |b, s, r| cpu.msm_g2_mut(b, &mut s.to_vec(), r).unwrap(),
                    pippenger_g2,
                );
            });
        }
    }
}

/// Nanoseconds that this thread has spent on a core, where Linux tells; measures well on a machine that does other things.
fn thread_ns() -> Option<f64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

fn median_ns<R>(items: usize, mut f: impl FnMut() -> R) -> f64 {
    let alone = plimsoll::pool::current_threads() == 1;
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let (start, start_ns) = (Instant::now(), thread_ns());
            std::hint::black_box(f());
            let wall_ns = start.elapsed().as_secs_f64() * 1e9;
            let ns = match (start_ns, thread_ns()) {
                (Some(start), Some(end)) if alone => end - start,
                _ => wall_ns,
            };
            ns / items as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}

fn scratch(bytes: u64) -> Reservation {
    Ledger::unlimited().reserve(SCRATCH, Bytes(bytes)).wait().expect("an unlimited ledger")
}

fn transforms(cpu: &Cpu, log_size: u32, threads: usize) {
    let mut rng = XorShiftRng::seed_from_u64(1);
    let domain = Domain::with_log_size(log_size).expect("a supported size");
    let n = domain.size();
    let mut data: Vec<Scalar> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
    let mut reservation = scratch(cpu.ntt_scratch_bytes(n, threads).max(cpu.quotient_scratch_bytes(n, threads)));
    for transform in [Transform::Forward, Transform::CosetInverse] {
        let ns = median_ns(n, || cpu.ntt(&domain, &mut data, transform, &mut reservation).unwrap());
        println!("ntt {transform:?} 2^{log_size}, {threads} threads: {ns:.1} ns an element");
    }
    let (mut b, mut c) = (data.clone(), data.clone());
    let ns = median_ns(n, || {
        cpu.quotient_on_coset(&domain, &mut data, &mut b, &mut c, &Scalar::ONE, &mut reservation).unwrap();
    });
    println!("quotient 2^{log_size}, {threads} threads: {ns:.1} ns an element");
}

fn msm<C: plimsoll_groth16::backend::AffineCurve>(
    cpu: &Cpu,
    group: CurveGroup,
    log_size: u32,
    threads: usize,
    ours: impl Fn(&[C], &[Scalar], &mut Reservation) -> C::Curve,
    peer: impl Fn(&[C], &[Scalar]) -> C::Curve,
) {
    let n = 1 << log_size;
    let mut rng = XorShiftRng::seed_from_u64(2);
    let uniform: Vec<Scalar> = (0..n).map(|_| Scalar::random(&mut rng)).collect();
    let bits: Vec<Scalar> = (0..n)
        .map(|i| if i % 50 == 0 { Scalar::random(&mut rng) } else { Scalar::from(u64::from(rng.next_u32() & 1)) })
        .collect();
    let mut bases = vec![C::identity(); n];
    let start = Instant::now();
    let plan = FixedBasePlan::new::<C>(n, 1 << 30);
    FixedBase::new(&C::generator(), plan).multiply_each(&uniform, &mut bases);
    println!(
        "fixed base {group:?} 2^{log_size}, {threads} threads: {:.0} ns",
        start.elapsed().as_secs_f64() * 1e9 / n as f64
    );
    let footprint = cpu.msm_scratch_bytes(group, n, threads);
    let share = footprint as f64 / (n * (size_of::<C>() + 32)) as f64;
    let mut reservation = scratch(footprint);
    for (name, scalars) in [("uniform", &uniform), ("98 % bits", &bits)] {
        assert_eq!(ours(&bases, scalars, &mut reservation), peer(&bases, scalars));
        let our_ns = median_ns(n, || ours(&bases, scalars, &mut reservation));
        let peer_ns = median_ns(n, || peer(&bases, scalars));
        println!(
            "msm {group:?} 2^{log_size} {name}, {threads} threads: {our_ns:.0} ns a term, blst {peer_ns:.0} on one ({:.2} x), scratch {:.0} % of the input",
            peer_ns / our_ns,
            100.0 * share
        );
    }
}

macro_rules! pippenger {
    ($name:ident, $affine:ty, $projective:ty, $raw:ty, $mult:ident, $scratch:ident) => {
        /// blst's Pippenger on one thread, its working memory and the scalars' bytes made outside of what it calls.
        fn $name(bases: &[$affine], scalars: &[Scalar]) -> $projective {
            let bytes: Vec<[u8; 32]> = scalars.iter().map(|scalar| scalar.to_bytes_le()).collect();
            let mut sum = <$projective>::identity();
            // SAFETY: both lists are contiguous and end with a null pointer as blst wants them, the points are transparent
            // wrappers of blst's, and the working memory has the size that blst asks for.
            unsafe {
                let points = [bases.as_ptr().cast::<$raw>(), std::ptr::null()];
                let numbers = [bytes.as_ptr().cast::<u8>(), std::ptr::null()];
                let mut working = vec![0_u64; blst::$scratch(bases.len()) / 8];
                blst::$mult(sum.as_mut(), points.as_ptr(), bases.len(), numbers.as_ptr(), 255, working.as_mut_ptr());
            }
            sum
        }
    };
}

pippenger!(
    pippenger_g1,
    G1Affine,
    G1Projective,
    blst::blst_p1_affine,
    blst_p1s_mult_pippenger,
    blst_p1s_mult_pippenger_scratch_sizeof
);
pippenger!(
    pippenger_g2,
    G2Affine,
    G2Projective,
    blst::blst_p2_affine,
    blst_p2s_mult_pippenger,
    blst_p2s_mult_pippenger_scratch_sizeof
);
