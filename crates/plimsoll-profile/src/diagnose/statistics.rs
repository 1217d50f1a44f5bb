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
/// Growth that has clearly slowed to less than this part of what it was is coming to its end: a cache that grows as a root or a logarithm.
const SLOWED: f64 = 0.8;
/// The same of what the ledger counts: there is no noise in it, and the least that it grows by is there.
const SLOWED_EXACTLY: f64 = 0.6;
/// Growth that has slowed from its first quarter on, by so much from each stretch to the next, is coming to its end as well.
const SLOWING: [f64; 2] = [1.3, 1.15];
/// Where the interval's lower end is below this part of the slope, any slowing will do after a beginning that was faster: what cannot be
/// told from a cache is not called a leak.
const UNCLEAR: f64 = 0.7;
/// Growth in the last part of a run is a beginning, or speeds up, if it is so many times what it was in a stretch of the same length before.
const FASTER: f64 = 1.25;
/// The parts of a run that are looked at by themselves, at its end.
const LAST_PARTS: [usize; 3] = [2, 3, 4];
/// Of a quantity that swings, the range moves up by at least this part of its width, from each quarter of the run to the next.
const MOVES: f64 = 0.25;
/// It slows if the last quarter's rise is less than this part of the one before, or both together than this part of two like the first.
const SLOWED_BY_QUARTERS: [f64; 2] = [0.7, 0.8];
/// A quarter of fewer points has no range.
const RANGE_MIN: usize = 12;

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
    /// In which part of the run, from its end, that was seen: all but the warm-up, or less.
    pub part: f64,
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
    let goes_on = whole.low > clear * whole.value.abs()
        && !slowed(&bins, &whole, exactly)
        && (exactly || !slowing_all_along(points, &bins, &whole, q));
    Some(Trend { slope: whole, growth, goes_on, part: 1.0 - WARM_UP })
}

/// A growth of the last half of a run, or of its last third, that was not there before, or was slower: it is judged against what was there
/// before, and must have come to more than ever was. `None`: there is none.
pub fn late(points: &[(f64, f64)], q: f64) -> Option<Trend> {
    LAST_PARTS.into_iter().find_map(|part| late_in(points, q, part))
}

fn late_in(points: &[(f64, f64)], q: f64, part: usize) -> Option<Trend> {
    let (before, window) = points.split_at(points.len() - points.len() / part);
    // What is torn is told by the noise about it: that of a growth is larger than that of rest.
    let (before, window) = (without_torn(before), without_torn(window));
    let bins = binned(&window, q);
    if bins.len() < POINTS_MIN || before.len() < POINTS_MIN {
        return None;
    }
    let whole = slope(&bins, Z_OVERALL)?;
    // In so few points the second half alone is certain of nothing: that it goes on at all must do.
    if whole.low <= CLEAR * whole.value.abs() || slowed(&bins, &whole, true) {
        return None;
    }
    let earlier = binned(&before[before.len().saturating_sub(window.len())..], q);
    // Where nothing moved at all, as where no job ended, there is no rate.
    let earlier = slope(&earlier, Z_LATE).map_or(0.0, |slope| slope.value);
    if whole.value < FASTER * earlier {
        return None;
    }
    // What swings has been as high before.
    let top = quantile(before.iter().map(|(_, y)| *y), 0.99);
    let end = median(bins[bins.len() * 5 / 6..].iter().map(|(_, y)| *y));
    let growth = (whole.value * (bins.last()?.0 - bins.first()?.0)).min(end - top);
    (growth > 0.0).then_some(Trend { slope: whole, growth, goes_on: true, part: 1.0 / part as f64 })
}

/// A growth beneath something that swings, or in a few large steps: the whole range, its lower end and its upper one, moves up from each
/// quarter of the run to the next. `None`: it does not.
pub fn moving_up(points: &[(f64, f64)]) -> Option<Trend> {
    let quarter = points.len() / 4;
    if quarter < RANGE_MIN {
        return None;
    }
    let range = |at: usize| {
        let ys = || points[at * quarter..(at + 1) * quarter].iter().map(|(_, y)| *y);
        (quantile(ys(), 0.1), quantile(ys(), 0.9))
    };
    let ranges = [range(0), range(1), range(2), range(3)];
    let width = ranges[1..].iter().map(|(low, high)| high - low).fold(0.0, f64::max);
    let rise = |at: usize| {
        let (before, after) = (ranges[at], ranges[at + 1]);
        ((after.0 - before.0).min(after.1 - before.1), (after.0 + after.1 - before.0 - before.1) / 2.0)
    };
    let (first, second, third) = (rise(0), rise(1), rise(2));
    let least = second.0.min(third.0);
    let slows =
        third.1 < SLOWED_BY_QUARTERS[0] * second.1 || second.1 + third.1 < 2.0 * SLOWED_BY_QUARTERS[1] * first.1;
    if least <= MOVES * width || least <= 0.0 || slows {
        return None;
    }
    let x = points.last()?.0 - points[quarter].0;
    let growth = (second.1 + third.1) * 1.5;
    let at = |rise: f64| rise * 3.0 / x.max(f64::MIN_POSITIVE);
    let slope = Slope { value: growth / x.max(f64::MIN_POSITIVE), low: at(least), high: at(second.1.max(third.1)) };
    (x > 0.0).then_some(Trend { slope, growth, goes_on: true, part: 1.0 - WARM_UP })
}

/// The slope of neighbours put together, with the interval at 95 %.
pub fn slope_of_bins(points: &[(f64, f64)], q: f64) -> Option<Slope> {
    let bins = binned(points, q);
    if bins.len() < POINTS_MIN {
        return None;
    }
    slope(&bins, Z_LATE)
}

/// Whether it grows, and has been slowing from the first quarter of the run on.
pub fn slows(points: &[(f64, f64)], q: f64) -> bool {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
    let steady_from = first.0 + (last.0 - first.0) * WARM_UP;
    let steady: Vec<(f64, f64)> = points.iter().copied().filter(|(x, _)| *x >= steady_from).collect();
    let bins = binned(&without_torn(&steady), q);
    slope(&bins, Z_OVERALL).is_some_and(|whole| whole.value > 0.0 && slowing_all_along(points, &bins, &whole, q))
}

/// Whether a growth slows from its first quarter on, as roots and logarithms do. After a warm-up of another kind, what leaks grows at one
/// rate.
fn slowing_all_along(points: &[(f64, f64)], steady: &[(f64, f64)], whole: &Slope, q: f64) -> bool {
    let from = steady.first().map_or(f64::INFINITY, |(x, _)| *x);
    let first: Vec<(f64, f64)> = points.iter().copied().filter(|(x, _)| *x < from).collect();
    let rate = |bins: &[(f64, f64)]| slope(bins, Z_LATE).map(|slope| slope.value);
    let (early, late) = steady.split_at(steady.len() / 2);
    let (Some(first), Some(early), Some(late)) = (rate(&binned(&first, q)), rate(early), rate(late)) else {
        return false;
    };
    let by = if whole.low < UNCLEAR * whole.value { 1.0 } else { SLOWING[1] };
    first > SLOWING[0] * early && early > by * late
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
        || clearly_below(late, if exactly { SLOWED_EXACTLY } else { SLOWED } * early.value)
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

    /// What begins late, speeds up, comes in three steps or lies beneath a swing is a growth; what has been as high before is none.
    #[test]
    fn what_begins_late_or_lies_beneath_a_swing_is_seen() {
        let count = |of: fn(&[(f64, f64)]) -> Option<Trend>, y: &dyn Fn(f64) -> f64| {
            let ys = |seed: u64| points(300, |x| y(x / 300.0) * 1000.0 + noise(seed * 999 + x as u64) * 30.0);
            (0..20).filter(|seed| of(&ys(*seed)).is_some()).count()
        };
        let late = |points: &[(f64, f64)]| late(points, 0.5);
        let wave = |x: f64| (x * 5.0 * std::f64::consts::TAU).sin() * 0.3;
        for from in [0.55, 0.6, 0.7] {
            assert!(count(late, &|x| (x - from).max(0.0)) >= 19, "from {from} on");
        }
        assert!(count(late, &|x| (x * 6.0).exp() / 6_f64.exp()) >= 19, "speeding up");
        assert_eq!(count(moving_up, &|x| x + wave(x)), 20, "beneath a wave");
        assert_eq!(
            count(moving_up, &|x| [0.4, 0.65, 0.9].iter().filter(|at| x > **at).count() as f64),
            20,
            "three steps"
        );
        for healthy in [
            &(|_| 0.0) as &dyn Fn(f64) -> f64,
            &wave,
            &|x: f64| x.min(0.4),
            &|x: f64| (x - 0.55).clamp(0.0, 0.2),
            &|x: f64| f64::from(u8::from(x > 0.6)),
            &|x: f64| f64::from(u8::from(x > 0.8)),
            &|x: f64| x.sqrt(),
            &|x: f64| (1.0 + 40.0 * x).ln(),
            &|x: f64| 1.0 - x,
        ] {
            assert!(
                count(late, healthy) <= 1 && count(moving_up, healthy) <= 1,
                "{:?}",
                (count(late, healthy), count(moving_up, healthy))
            );
        }
    }

    /// A cache that grows as a root or a logarithm slows all the time.
    #[test]
    fn what_slows_all_the_time_does_not_go_on() {
        for noisy in [2.0, 10.0, 30.0] {
            let goes_on = |y: &dyn Fn(f64) -> f64| {
                let ys = |seed: u64| points(300, |x| y(x / 300.0) * 1000.0 + noise(seed * 999 + x as u64) * noisy);
                (0..20).filter(|seed| trend(&ys(*seed), 0.5, false).unwrap().goes_on).count()
            };
            assert!(goes_on(&|x| x.sqrt()) <= 1, "a root, {noisy}: {}", goes_on(&|x| x.sqrt()));
            assert_eq!(goes_on(&|x| (1.0 + 40.0 * x).ln() / 4.0), 0, "a logarithm");
            assert!(goes_on(&|x| x) >= 19, "a line");
            assert!(goes_on(&|x| (x * 20.0).min(1.0) + x) >= 19, "a line after a warm-up");
        }
    }

    #[test]
    fn too_little_is_no_trend() {
        assert_eq!(trend(&points(9, |x| x), 0.5, false), None);
        assert_eq!(trend(&[], 0.5, false), None);
        assert_eq!(trend(&[(1.0, 2.0); 50], 0.5, false), None, "all at one place");
    }
}
