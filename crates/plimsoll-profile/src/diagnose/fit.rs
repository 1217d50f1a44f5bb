//! What jobs hold beyond their word, told apart from what grows and from what is always there.
//!
//! What is in use and not counted, u, is the sum of three things of which each has a shape of its own:
//!
//! ```text
//! u = base + rate · x + Σ excess(s) · (jobs in s) − Σ untouched(s, t) · (jobs in s that are in the t-th third of their time; t: 1, 2)
//!
//! x: jobs done so far; s: a stage, or the place behind one
//! ```
//!
//! What was always there does not move, what leaks follows the jobs that have ended, and what a stage holds beyond its word comes and
//! goes with the jobs that are in it. Who has just begun has not taken all that it was promised, which hides what it holds beyond: so
//! those in the first and in the second third of a stage's usual time have shares of their own. All are found together, so that none is mistaken for another: by the regression of a quantile
//! (Koenker and Bassett 1978), as what is promised and not taken yet pulls u down and hardly anything pushes it up for a moment.
//! No excess is negative: what is promised and not used is no fault here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::Moment;
use super::statistics::{median, quantile};

/// The quantile: that many moments lie below what is found.
const TAU: f64 = 0.8;
/// The same where only the kernel tells what is there, so that memory is seen when it is touched and not when it is taken.
const TAU_TOUCHED: f64 = 0.95;
/// The part of what is read by which every reading may be off.
const BLUR: f64 = 1e-4;
/// Rounds of weighting; it has settled long before.
const ROUNDS: usize = 12;
/// The most moments that are looked at; of more every second, third… one.
const MOMENTS_MAX: usize = 360;
/// Places in which jobs are found at fewer moments than this are left out: a line through three points says nothing.
const SEEN_MIN: usize = 6;
/// Of fewer moments those who have just begun get no part of their own: there would be more parts than can be told apart.
const YOUNG_MIN: usize = 80;
/// The most places.
const PLACES_MAX: usize = 8;

/// Where jobs are: in a stage, or behind one.
pub(super) type Place = (Arc<str>, bool);

/// What a job holds beyond its word while it is in a place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Excess {
    /// The stage.
    pub(super) stage: Arc<str>,
    /// Whether the stage is over and the next one has not begun.
    pub(super) behind: bool,
    /// How much each job, in bytes.
    pub(super) each: f64,
    /// What each has been granted there.
    pub(super) declared: f64,
    /// How much all together, when many are there.
    pub(super) together: f64,
    /// The smallest of what the first and the second half of the run say by themselves, of each job.
    pub(super) least: f64,
    /// How many times worse what was seen is explained without it, in the whole run and in each half, where that is least. Where as many
    /// jobs are there at all times it is explained as well by what was always there: 1.
    pub(super) worse_without: f64,
}

/// The three parts of what is not counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fit {
    /// What was always there.
    pub(super) base: f64,
    /// By place, those without any left out; the largest first.
    pub(super) excesses: Vec<Excess>,
    /// How many moments tell it.
    pub(super) moments: usize,
}

impl Fit {
    /// Of moments, and what is not counted at each of them; `sharp` where an allocator tells what is taken. `None` where there are too
    /// few.
    pub(super) fn of(moments: &[(f64, &Moment, f64)], sharp: bool) -> Option<Fit> {
        let stride = moments.len().div_ceil(MOMENTS_MAX).max(1);
        let moments: Vec<_> = moments.iter().step_by(stride).copied().collect();
        let places = places(&moments);
        let tau = if sharp { TAU } else { TAU_TOUCHED };
        let (by_jobs, by_bytes) = (Design::of(&moments, &places, false), Design::of(&moments, &places, true));
        let of = |design: &Design| design.solve(0..moments.len(), tau, &(0..design.scales.len()).collect::<Vec<_>>());
        let design = match (of(&by_jobs), of(&by_bytes)) {
            (Some(jobs), Some(bytes)) if bytes.1 < jobs.1 => by_bytes,
            (None, Some(_)) => by_bytes,
            _ => by_jobs,
        };
        let all: Vec<usize> = (0..design.scales.len()).collect();
        let (whole, _) = design.solve(0..moments.len(), tau, &all)?;
        // Readings are not sharper than this, whatever they say.
        let blur = BLUR * moments.iter().map(|(.., value)| value.abs()).sum::<f64>();
        let middle = moments.len() / 2;
        let parts = [0..moments.len(), 0..middle, middle..moments.len()];
        let with = parts.clone().map(|part| design.solve(part, tau, &all).map(|(_, loss)| loss + blur));
        let halves: Vec<_> = parts[1..].iter().filter_map(|part| design.solve(part.clone(), tau, &all)).collect();
        let mut excesses: Vec<Excess> = places
            .iter()
            .enumerate()
            .filter_map(|(at, (stage, behind))| {
                let there = |m: &Moment| count(m, &(stage.clone(), *behind));
                let jobs = || moments.iter().map(|(_, m, _)| there(m)).filter(|(jobs, _)| *jobs > 0.0);
                let declared = median(jobs().map(|(jobs, bytes)| bytes / jobs));
                let unit = if design.by_bytes { declared } else { 1.0 };
                let each = whole[FIXED + at] * unit;
                // A half of too few moments says nothing.
                let least = halves.iter().map(|(half, _)| half[FIXED + at] * unit).fold(each, f64::min);
                let many = quantile(jobs().map(|(jobs, _)| jobs), 0.9);
                let others: Vec<usize> = all.iter().copied().filter(|column| *column != FIXED + at).collect();
                (each > 0.0).then(|| Excess {
                    stage: stage.clone(),
                    behind: *behind,
                    each,
                    declared,
                    together: each * many,
                    least,
                    worse_without: parts
                        .iter()
                        .zip(with)
                        .map(|(part, with)| {
                            let without = design.solve(part.clone(), tau, &others).map(|(_, loss)| loss + blur);
                            without.zip(with).map_or(1.0, |(without, with)| without / with)
                        })
                        .fold(f64::INFINITY, f64::min),
                })
            })
            .collect();
        excesses.sort_by(|a, b| b.together.total_cmp(&a.together));
        Some(Fit { base: whole[0], excesses, moments: moments.len() })
    }
}

/// How many jobs are in a place, and what they hold.
pub(super) fn count(moment: &Moment, place: &Place) -> (f64, f64) {
    let groups = if place.1 { &moment.queued } else { &moment.running };
    let group = groups.iter().find(|group| group.stage == place.0);
    group.map_or((0.0, 0.0), |group| (group.jobs as f64, group.bytes as f64))
}

/// How many jobs are in the first and in the second third of their time in a stage.
fn young(moment: &Moment, place: &Place) -> [f64; 2] {
    let group = moment.running.iter().find(|group| group.stage == place.0);
    group.map_or([0.0; 2], |group| group.young.map(|jobs| jobs as f64))
}

/// The places in which jobs are found often enough.
fn places(moments: &[(f64, &Moment, f64)]) -> Vec<Place> {
    let mut seen: BTreeMap<Place, usize> = BTreeMap::new();
    for (_, moment, _) in moments {
        let groups = |groups: &[super::books::Group], behind| {
            let of = |group: &super::books::Group| (group.stage.clone(), behind);
            groups.iter().filter(|group| group.bytes > 0).map(of).collect::<Vec<_>>()
        };
        for place in groups(&moment.running, false).into_iter().chain(groups(&moment.queued, true)) {
            *seen.entry(place).or_default() += 1;
        }
    }
    let mut places: Vec<_> = seen.into_iter().filter(|(_, count)| *count >= SEEN_MIN).collect();
    places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    places.truncate(PLACES_MAX);
    places.into_iter().map(|(place, _)| place).collect()
}

/// Columns that are always there: the base and the rate.
const FIXED: usize = 2;

/// A row for each moment: one, x, and how many are in each place.
struct Design {
    rows: Vec<(Vec<f64>, f64)>,
    /// What each column was divided by.
    scales: Vec<f64>,
    by_bytes: bool,
}

impl Design {
    fn of(moments: &[(f64, &Moment, f64)], places: &[Place], by_bytes: bool) -> Design {
        let row = |(x, moment, value): &(f64, &Moment, f64)| {
            let mut row = vec![1.0, *x];
            row.extend(places.iter().map(|place| {
                let (jobs, bytes) = count(moment, place);
                if by_bytes { bytes } else { jobs }
            }));
            let running = places.iter().filter(|(_, behind)| !behind && moments.len() >= YOUNG_MIN);
            row.extend(running.flat_map(|place| {
                let (jobs, bytes) = count(moment, place);
                let of = |young: f64| if by_bytes { -young * bytes / jobs.max(1.0) } else { -young };
                young(moment, place).map(of)
            }));
            (row, *value)
        };
        let mut rows: Vec<(Vec<f64>, f64)> = moments.iter().map(row).collect();
        let scale = |at: usize| rows.iter().map(|(row, _)| row[at].abs()).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let scales: Vec<f64> = (0..rows.first().map_or(0, |(row, _)| row.len())).map(scale).collect();
        rows.iter_mut().for_each(|(row, _)| row.iter_mut().zip(&scales).for_each(|(cell, scale)| *cell /= scale));
        Design { rows, scales, by_bytes }
    }

    /// The parts of these columns, and the loss. Parts of places that come out negative are none, and the rest is found anew.
    fn solve(&self, range: Range<usize>, tau: f64, of: &[usize]) -> Option<(Vec<f64>, f64)> {
        let rows = &self.rows[range];
        let columns = self.scales.len();
        if rows.len() < FIXED + 2 * columns {
            return None;
        }
        let mut free: Vec<usize> = of.to_vec();
        loop {
            let (parts, loss) = regress(rows, &free, tau)?;
            let worst = free.iter().zip(&parts).filter(|(column, part)| **column >= FIXED && **part < 0.0);
            match worst.min_by(|a, b| a.1.total_cmp(b.1)).map(|(column, _)| *column) {
                Some(column) => free.retain(|other| *other != column),
                None => {
                    let mut all = vec![0.0; columns];
                    free.iter().zip(parts).for_each(|(column, part)| all[*column] = part / self.scales[*column]);
                    return Some((all, loss));
                }
            }
        }
    }
}

/// The regression of a quantile on some of the columns, by least squares with weights that follow what is left.
fn regress(rows: &[(Vec<f64>, f64)], columns: &[usize], tau: f64) -> Option<(Vec<f64>, f64)> {
    let size = columns.len();
    let spread = rows.iter().map(|(_, value)| value.abs()).fold(1.0, f64::max);
    let mut weights = vec![1.0; rows.len()];
    let mut parts = vec![0.0; size];
    let left = |parts: &[f64], (row, value): &(Vec<f64>, f64)| {
        value - columns.iter().zip(parts).map(|(column, part)| row[*column] * part).sum::<f64>()
    };
    for _ in 0..ROUNDS {
        let mut normal = vec![vec![0.0; size + 1]; size];
        for ((row, value), weight) in rows.iter().zip(&weights) {
            for (i, a) in columns.iter().enumerate() {
                for (j, b) in columns.iter().enumerate() {
                    normal[i][j] += weight * row[*a] * row[*b];
                }
                normal[i][size] += weight * row[*a] * value;
            }
        }
        // What no moment tells apart goes to where least is said: nowhere.
        let ridge = 1e-7 * (0..size).map(|i| normal[i][i]).fold(0.0, f64::max);
        (0..size).for_each(|i| normal[i][i] += ridge.max(f64::MIN_POSITIVE));
        parts = eliminate(normal)?;
        for (row, weight) in rows.iter().zip(&mut weights) {
            let rest = left(&parts, row);
            let side = if rest > 0.0 { tau } else { 1.0 - tau };
            *weight = side / rest.abs().max(1e-6 * spread);
        }
    }
    let loss =
        rows.iter().map(|row| left(&parts, row)).map(|rest| if rest > 0.0 { tau * rest } else { (tau - 1.0) * rest });
    let loss = loss.sum();
    Some((parts, loss))
}

/// Solves a system of equations, the right side as the last column.
fn eliminate(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = rows.len();
    for at in 0..size {
        let pivot = (at..size).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()))?;
        rows.swap(at, pivot);
        if rows[at][at].abs() < f64::MIN_POSITIVE {
            return None;
        }
        let pivot = rows[at].clone();
        for row in &mut rows[at + 1..] {
            let factor = row[at] / pivot[at];
            row.iter_mut().zip(&pivot).skip(at).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    let mut solved = vec![0.0; size];
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|column| rows[at][column] * solved[column]).sum();
        solved[at] = (rows[at][size] - known) / rows[at][at];
    }
    Some(solved)
}

#[cfg(test)]
mod tests {
    use super::super::books::Group;
    use super::*;

    fn moment(stages: &[(&str, u64, u64)]) -> Moment {
        let group = |(stage, jobs, each): &(&str, u64, u64)| Group {
            stage: (*stage).into(),
            jobs: *jobs,
            bytes: jobs * each,
            young: [0, 0],
        };
        Moment { running: stages.iter().map(group).filter(|group| group.jobs > 0).collect(), ..Moment::default() }
    }

    /// A leak, a stage that is short of a fifth, another that is not, and torn readings: each gets its own.
    #[test]
    fn base_rate_and_excess_are_told_apart() {
        let moments: Vec<Moment> =
            (0..200_u64).map(|i| moment(&[("make", i % 4, 1_000_000), ("use", i / 3 % 3, 2_000_000)])).collect();
        let point = |(i, m): (usize, &Moment)| {
            let in_use = count(m, &("use".into(), false)).0;
            let torn = if i % 9 == 4 { -3e6 } else { 0.0 };
            5e6 + 1e4 * i as f64 + 4e5 * in_use + torn
        };
        let values: Vec<f64> = moments.iter().enumerate().map(point).collect();
        let points: Vec<_> = moments.iter().zip(&values).enumerate().map(|(i, (m, v))| (i as f64, m, *v)).collect();
        let fit = Fit::of(&points, true).unwrap();
        assert!((fit.base - 5e6).abs() < 1e5, "{fit:?}");
        assert_eq!(fit.excesses.first().map(|excess| &*excess.stage), Some("use"), "{fit:?}");
        assert!((fit.excesses[0].each - 4e5).abs() < 2e4 && fit.excesses[0].least > 3e5, "{fit:?}");
        assert!(fit.excesses.iter().all(|excess| &*excess.stage == "use" || excess.together < 1e5), "{fit:?}");
    }

    /// Where as many jobs run at all times nothing tells their part from what is always there.
    #[test]
    fn what_no_moment_tells_apart_is_nobodys() {
        let moments: Vec<Moment> = (0..100).map(|_| moment(&[("make", 3, 1_000_000)])).collect();
        let points: Vec<_> = moments.iter().enumerate().map(|(i, m)| (i as f64, m, 8e6)).collect();
        let fit = Fit::of(&points, true).unwrap();
        assert!(fit.excesses.iter().all(|excess| excess.worse_without < 1.01), "{fit:?}");
    }
}
