//! Chance, the same on every machine: a generator that is a function of seed and counter, and distributions as tables.
//!
//! A draw is named by what it is for (the stream, the job, the stage), not by how many came before it. So a job takes the
//! same time under every policy and in whatever order things happen, and two policies are compared on the same jobs.

use std::sync::Arc;

use crate::Nanos;

/// Random numbers by name.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    seed: u64,
}

/// What a number is for, so that different uses of one job do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The time of this stage.
    Stage(u32),
    /// The time to the next arrival.
    Arrival,
    /// Whether this stage fails.
    Failure(u32),
    /// Something else, by number.
    Other(u32),
}

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Random {
        Random { seed: mix(seed ^ 0x5851_f42d_4c95_7f2d) }
    }

    /// 64 random bits, by name.
    pub fn bits(self, stream: u64, counter: u64, of: Use) -> u64 {
        let of = match of {
            Use::Stage(stage) => u64::from(stage),
            Use::Arrival => 1 << 32,
            Use::Failure(stage) => 1 << 33 | u64::from(stage),
            Use::Other(number) => 1 << 34 | u64::from(number),
        };
        mix(mix(mix(self.seed ^ stream) ^ counter) ^ of)
    }
}

/// The finaliser of SplitMix64 on a Weyl step.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How a time is distributed.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// Always the same.
    Fixed(Nanos),
    /// Anything between the two, equally likely.
    Uniform(Nanos, Nanos),
    /// Normal with this mean and coefficient of variation, cut off at zero.
    Normal(Nanos, f64),
    /// Log-normal with this mean and coefficient of variation.
    LogNormal(Nanos, f64),
    /// Exponential with this mean.
    Exponential(Nanos),
    /// One of these, equally likely.
    Empirical(Vec<Nanos>),
    /// These, one job after another, and again from the first.
    Recorded(Vec<Nanos>),
}

/// 2^12 quantiles, between which a draw picks one.
const QUANTILES: usize = 1 << 12;

/// A distribution, ready to be drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Nanoseconds; one entry where nothing varies.
    table: Arc<[u64]>,
    mean: u64,
    cv2: f64,
    /// The table is in the order of jobs.
    recorded: bool,
}

impl Times {
    /// The table of a law. Its mean is the law's, whatever the ends of the law that no table has.
    pub fn new(law: &Law) -> Times {
        let at = |n: usize| (n as f64 + 0.5) / QUANTILES as f64;
        let quantiles = |of: &dyn Fn(f64) -> f64| (0..QUANTILES).map(|n| of(at(n)).max(0.0)).collect::<Vec<f64>>();
        let (mean, table): (u64, Vec<f64>) = match law {
            Law::Fixed(nanos) => return Times { table: [nanos.0].into(), mean: nanos.0, cv2: 0.0, recorded: false },
            Law::Empirical(values) | Law::Recorded(values) => {
                let recorded = matches!(law, Law::Recorded(_));
                let mut table: Vec<u64> = values.iter().map(|value| value.0).collect();
                if !recorded {
                    table.sort_unstable();
                }
                let sum: u128 = table.iter().map(|value| u128::from(*value)).sum();
                let mean = (sum / table.len().max(1) as u128) as u64;
                return Times { cv2: cv2(&table, mean), mean, table: table.into(), recorded };
            }
            Law::Uniform(low, high) => {
                let (low, high) = (low.0 as f64, high.0 as f64);
                (((low + high) / 2.0) as u64, quantiles(&|p| low + (high - low) * p))
            }
            Law::Normal(mean, cv) => (mean.0, quantiles(&|p| mean.0 as f64 * (1.0 + cv * normal_quantile(p)))),
            Law::LogNormal(mean, cv) => {
                let variance = libm::log1p(cv * cv);
                let deviation = libm::sqrt(variance);
                let of = |p| mean.0 as f64 * libm::exp(deviation * normal_quantile(p) - variance / 2.0);
                (mean.0, quantiles(&of))
            }
            Law::Exponential(mean) => (mean.0, quantiles(&|p| -(mean.0 as f64) * libm::log1p(-p))),
        };
        let sum: f64 = table.iter().sum();
        let scale = if sum > 0.0 { mean as f64 * QUANTILES as f64 / sum } else { 0.0 };
        let table: Vec<u64> = table.into_iter().map(|value| libm::round(value * scale) as u64).collect();
        Times { cv2: cv2(&table, mean), mean, table: table.into(), recorded: false }
    }

    /// The time that these random bits stand for.
    pub fn pick(&self, bits: u64) -> u64 {
        match &*self.table {
            [only] => *only,
            table => table[((u128::from(bits) * table.len() as u128) >> 64) as usize],
        }
    }

    /// The same for the job with this number, which matters where times were recorded.
    pub(crate) fn pick_nth(&self, bits: u64, job: u64) -> u64 {
        if self.recorded { self.table[(job % self.table.len() as u64) as usize] } else { self.pick(bits) }
    }

    /// The mean, in nanoseconds.
    pub fn mean(&self) -> u64 {
        self.mean
    }

    /// The squared coefficient of variation.
    pub fn cv2(&self) -> f64 {
        self.cv2
    }
}

fn cv2(table: &[u64], mean: u64) -> f64 {
    if mean == 0 || table.is_empty() {
        return 0.0;
    }
    let square = |value: &u64| {
        let off = *value as f64 / mean as f64 - 1.0;
        off * off
    };
    table.iter().map(square).sum::<f64>() / table.len() as f64
}

/// The inverse of the normal distribution: Acklam's rational approximation, whose relative error is below 1.2e-9.
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416];
    let horner = |of: &[f64], x: f64| of.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = libm::sqrt(-2.0 * libm::log(p));
        horner(&C, q) / (horner(&D, q) * q + 1.0)
    };
    if p < 0.02425 {
        tail(p)
    } else if p > 1.0 - 0.02425 {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        let r = q * q;
        horner(&A, r) * q / (horner(&B, r) * r + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(law: &Law, draws: u64) -> (f64, f64) {
        let times = Times::new(law);
        let random = Random::new(7);
        let values: Vec<f64> = (0..draws).map(|n| times.pick(random.bits(0, n, Use::Stage(0))) as f64).collect();
        let mean = values.iter().sum::<f64>() / draws as f64;
        let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / draws as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn laws_have_the_mean_and_the_spread_that_they_say() {
        let s = |n: u64| Nanos(n * 1_000_000_000);
        for (law, mean, cv) in [
            (Law::Fixed(s(3)), 3.0, 0.0),
            (Law::Uniform(s(2), s(4)), 3.0, 1.0 / 3.0 / 3f64.sqrt()),
            (Law::Normal(s(3), 0.1), 3.0, 0.1),
            (Law::LogNormal(s(3), 0.5), 3.0, 0.5),
            (Law::Exponential(s(3)), 3.0, 1.0),
            (Law::Empirical(vec![s(2), s(4)]), 3.0, 1.0 / 3.0),
        ] {
            let (got_mean, got_cv) = drawn(&law, 200_000);
            assert!((got_mean * 1e-9 - mean).abs() < 0.02 * mean, "{law:?}: {got_mean}");
            assert!((got_cv - cv).abs() < 0.02, "{law:?}: {got_cv}");
            assert!((Times::new(&law).cv2().sqrt() - cv).abs() < 0.02, "{law:?}");
        }
    }

    #[test]
    fn the_same_name_gives_the_same_number_everywhere() {
        let random = Random::new(42);
        let bits: Vec<u64> = (0..3).map(|n| random.bits(1, n, Use::Stage(2))).collect();
        assert_eq!(bits, [5_335_621_047_391_618_224, 353_281_220_889_739_060, 16_102_572_303_242_585_017], "golden");
        let lognormal = Times::new(&Law::LogNormal(Nanos::SECOND, 0.3));
        assert_eq!(
            [lognormal.pick(0), lognormal.pick(u64::MAX / 3), lognormal.pick(u64::MAX)],
            [326_296_620, 844_100_330, 2_811_740_921],
            "golden"
        );
    }
}
