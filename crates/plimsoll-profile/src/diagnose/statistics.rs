//! Robust statistics: medians, the slope of Theil and Sen with its interval, and whether a growth goes on.

/// The most points that a slope is computed from; more are put together, neighbour with neighbour.
const BINS: usize = 36;
/// Neighbours that are put together where there are points enough.
const BIN_OF: usize = 6;
/// The part of a run that is warm-up, whatever it looks like.
const WARM_UP: f64 = 0.25;
/// Fewer points than this have no trend.
const POINTS_MIN: usize = 10;
/// 99 %, two-sided.
const Z_OVERALL: f64 = 2.576;
/// 95 %, two-sided.
const Z_LATE: f64 = 1.96;
/// 98 %, two-sided: that the second half grows as well.
const Z_STILL: f64 = 2.326;
/// The interval's lower end must be at least this part of the slope: a growth that may as well be a third of what it seems is no guide to
/// what to do.
const CLEAR: f64 = 0.3;
/// Growth that has slowed to less than this part of what it was has come to its end.
const SLOWED: f64 = 0.6;

/// A slope with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slope {
    /// The median of the slopes of all pairs of points (Sen 1968).
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// How a quantity grows after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// The slope, with its interval at 99 %.
    pub slope: Slope,
    /// What it has grown by, from the warm-up's end to the end.
    pub growth: f64,
    /// It grows for certain, and does not slow down.
    pub goes_on: bool,
}

/// The median; zero of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// A quantile between 0 and 1; zero of nothing.
pub fn quantile(values: impl IntoIterator<Item = f64>, q: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    if values.is_empty() {
        return 0.0;
    }
    let at = q * (values.len() - 1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(values.len() - 1);
    values[low] + (values[high] - values[low]) * part
}

/// The slope of `y` over `x`, with the interval that `z` standard deviations of Kendall's statistic give. Neighbours in time
/// resemble each other, which makes any such interval too narrow: it is widened by what is left of it in the residuals.
pub fn slope(points: &[(f64, f64)], z: f64) -> Option<Slope> {
    slope_of(points, z, inflation)
}

fn slope_of(points: &[(f64, f64)], z: f64, inflation: impl Fn(&[(f64, f64)], f64) -> f64) -> Option<Slope> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (i, (x0, y0)) in points.iter().enumerate() {
        slopes.extend(points[i + 1..].iter().filter(|(x, _)| x != x0).map(|(x, y)| (y - y0) / (x - x0)));
    }
    if slopes.len() < 3 {
        return None;
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let value = quantile(slopes.iter().copied(), 0.5);
    let n = points.len() as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * inflation(points, value)).sqrt();
    let count = slopes.len() as f64;
    let reach = z * deviation;
    let at = |rank: f64| slopes[(rank.max(0.0) as usize).min(slopes.len() - 1)];
    Some(Slope { value, low: at(((count - reach) / 2.0).floor() - 1.0), high: at(((count + reach) / 2.0).ceil()) })
}

/// (1 + r) / (1 − r), r the correlation of each residual with the next.
fn inflation(points: &[(f64, f64)], slope: f64) -> f64 {
    let level = median(points.iter().map(|(x, y)| y - slope * x));
    let residuals: Vec<f64> = points.iter().map(|(x, y)| y - slope * x - level).collect();
    let square: f64 = residuals.iter().map(|r| r * r).sum();
    let product: f64 = residuals.windows(2).map(|two| two[0] * two[1]).sum();
    if square <= 0.0 {
        return 1.0;
    }
    let r = (product / square).clamp(0.0, 0.6);
    (1.0 + r) / (1.0 - r)
}

/// Neighbours put together, so that there are at most [`BINS`] and each is of several: the middle of each group in `x`, a quantile
/// of it in `y`.
fn binned(points: &[(f64, f64)], q: f64) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(BINS).max((points.len() / 16).min(BIN_OF)).max(1);
    let of = |bin: &[(f64, f64)]| (median(bin.iter().map(|p| p.0)), quantile(bin.iter().map(|p| p.1), q));
    points.chunks(size).filter(|bin| bin.len() * 2 > size).map(of).collect()
}

/// Points that a neighbourhood is made of, before and after.
const NEIGHBOURS: usize = 4;
/// So many standard deviations from its neighbourhood a point is no measurement (Hampel 1974).
const OUTLYING: f64 = 6.0;

/// Without what lies far from its neighbours: a reading that was torn, as when the ledger was asked before a job ended and the allocator
/// after it, says nothing. What swings, swings for the neighbours too, and stays.
fn without_torn(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let around = |at: usize| &points[at.saturating_sub(NEIGHBOURS)..points.len().min(at + NEIGHBOURS + 1)];
    let off: Vec<f64> =
        points.iter().enumerate().map(|(at, (_, y))| (y - median(around(at).iter().map(|p| p.1))).abs()).collect();
    // How far neighbours usually are from each other; the steps of a line are part of it.
    let usual = 1.4826 * median(off.iter().copied());
    points.iter().zip(&off).filter(|(_, off)| **off <= OUTLYING * usual).map(|(point, _)| *point).collect()
}

/// How `y` grows over `x`, which never falls; `None` where there are too few points to say. Of neighbours the quantile `q`
/// counts: the middle, or a higher one where what disturbs is on one side only.
///
/// What is counted `exactly` needs less to be believed than what is measured beside something that swings.
pub fn trend(points: &[(f64, f64)], q: f64, exactly: bool) -> Option<Trend> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    let steady_from = first + (last - first) * WARM_UP;
    let steady: Vec<(f64, f64)> = points.iter().copied().filter(|(x, _)| *x >= steady_from).collect();
    let steady = if exactly { steady } else { without_torn(&steady) };
    let bins = binned(&steady, q);
    if bins.len() < POINTS_MIN {
        return None;
    }
    // What is counted has no noise that neighbours could share: what its residuals share is the growth's own shape.
    let whole = if exactly { slope_of(&bins, Z_OVERALL, |_, _| 1.0)? } else { slope(&bins, Z_OVERALL)? };
    let growth = whole.value * (bins.last()?.0 - bins.first()?.0);
    let clear = if exactly { 0.0 } else { CLEAR };
    let goes_on = whole.low > clear * whole.value.abs() && !slowed(&bins, &whole, exactly);
    Some(Trend { slope: whole, growth, goes_on })
}

/// Whether a growth has come to its end, or nearly: in its second half, or in its last third.
fn slowed(bins: &[(f64, f64)], whole: &Slope, exactly: bool) -> bool {
    let wander = wander(bins);
    let of = |bins: &[(f64, f64)]| Some((slope(bins, Z_LATE)?, bins.last()?.0 - bins.first()?.0, bins.len()));
    // What comes by chance and stays, such as one job in ten that leaves something behind, makes a wandering line, for which
    // the interval of a slope is too narrow.
    let clearly_below = |part: &[(f64, f64)], rate: f64| {
        of(part).is_some_and(|(slope, width, n)| {
            let by_chance = 2.0 * (wander * n as f64).sqrt() / width.max(f64::MIN_POSITIVE);
            slope.high < rate && slope.value + by_chance < rate
        })
    };
    let (early, late) = bins.split_at(bins.len() / 2);
    let (Some((early, ..)), Some(still)) = (of(early), slope(late, Z_STILL)) else { return true };
    (if exactly { still.value } else { still.low }) <= 0.0
        || clearly_below(late, SLOWED * early.value)
        || clearly_below(&bins[bins.len() * 2 / 3..], whole.value * 0.4)
}

/// The variance that each step adds for good: of what wanders, not of what swings about a line. (The variance of the steps and
/// twice their covariance with the next two: for independent steps the first, for independent noise nothing.)
fn wander(bins: &[(f64, f64)]) -> f64 {
    let steps: Vec<f64> = bins.windows(2).map(|two| two[1].1 - two[0].1).collect();
    let (early, late) = steps.split_at(steps.len() / 2);
    let centred = |half: &[f64]| {
        let mean = half.iter().sum::<f64>() / half.len().max(1) as f64;
        half.iter().map(|step| step - mean).collect::<Vec<f64>>()
    };
    let steps = [centred(early), centred(late)].concat();
    let with = |lag: usize| {
        steps.iter().zip(&steps[lag.min(steps.len())..]).map(|(a, b)| a * b).sum::<f64>() / steps.len().max(1) as f64
    };
    (with(0) + 2.0 * (with(1) * 2.0 / 3.0 + with(2) / 3.0)).max(0.02 * with(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number between −1 and 1, the same for the same seed.
    fn noise(seed: u64) -> f64 {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        for _ in 0..3 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        x as f64 / u64::MAX as f64 * 2.0 - 1.0
    }

    fn points(n: usize, y: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..n).map(|i| (i as f64, y(i as f64))).collect()
    }

    #[test]
    fn quantiles() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile([0.0, 10.0], 0.25), 2.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn a_slope_is_exact_on_a_line_and_ignores_a_quarter_of_nonsense() {
        let line = points(40, |x| 3.0 * x + 7.0);
        let exact = slope(&line, Z_OVERALL).unwrap();
        assert!((exact.value - 3.0).abs() < 1e-9 && exact.low <= 3.0 && exact.high >= 3.0);
        let mut wild = line;
        wild.iter_mut().step_by(4).for_each(|point| point.1 = 1e6);
        assert!((slope(&wild, Z_OVERALL).unwrap().value - 3.0).abs() < 0.5);
    }

    /// The interval at 99 % holds the true slope nearly always; at no slope, a trend is seen nearly never.
    #[test]
    fn intervals_keep_their_promise() {
        let (mut missed, mut invented) = (0, 0);
        for seed in 0..400_u64 {
            let noisy = |slope: f64| points(200, |x| slope * x + 40.0 * noise(seed * 1000 + x as u64));
            let trend_of = |slope| trend(&noisy(slope), 0.5, false).unwrap();
            let there = trend_of(0.5).slope;
            missed += u32::from(there.low > 0.5 || there.high < 0.5);
            invented += u32::from(trend_of(0.0).goes_on);
        }
        assert!(missed <= 12 && invented <= 8, "missed {missed}, invented {invented} of 400");
    }

    #[test]
    fn what_comes_to_an_end_does_not_go_on() {
        let goes_on = |y: &dyn Fn(f64) -> f64| {
            let ys = |seed: u64| points(300, |x| y(x / 300.0) * 1000.0 + noise(seed * 999 + x as u64) * 8.0);
            (0..20).filter(|seed| trend(&ys(*seed), 0.5, false).unwrap().goes_on).count()
        };
        assert_eq!(goes_on(&|x| x), 20, "a line");
        assert_eq!(goes_on(&|x| (x * 20.0).floor() / 20.0), 20, "steps");
        for limit in [0.05, 0.2, 0.4, 0.6, 0.75] {
            assert_eq!(goes_on(&|x| x.min(limit)), 0, "a line that ends at {limit}");
        }
        for rate in [3.0, 5.0, 10.0] {
            assert_eq!(goes_on(&|x| 1.0 - (-x * rate).exp()), 0, "saturating with {rate}");
        }
        assert_eq!(goes_on(&|_| 0.0), 0, "nothing");
        assert_eq!(goes_on(&|x| f64::from(u8::from(((x * 10.0) as u32).is_multiple_of(2)))), 0, "bursts");
        assert_eq!(goes_on(&|x| 1.0 - x), 0, "falling");
    }

    #[test]
    fn too_little_is_no_trend() {
        assert_eq!(trend(&points(9, |x| x), 0.5, false), None);
        assert_eq!(trend(&[], 0.5, false), None);
        assert_eq!(trend(&[(1.0, 2.0); 50], 0.5, false), None, "all at one place");
    }
}
