//! What stands: free pages that the allocator keeps, pages in partial use, jobs that hold more than they declare.

use super::causes::last_part;
use super::statistics::{median, quantile};
use super::{Finding, Moment, UNTOUCHED_ASIDE, Verdict, View, live, signed, truth, unaccounted, uncounted_bytes};

/// The part of what is resident that an allocator may keep without a word.
const KEPT: f64 = 0.4;
/// The quantile of what is kept that stands for the least of it; the few moments below may be torn readings.
const LEAST: f64 = 0.05;
/// The part of what is in use that may be lost in pages of partial use.
const LOST: f64 = 0.25;

/// The quantile that shows what jobs hold when they have touched all that they were promised, be it seldom.
const NEARLY_ALL: f64 = 0.98;

/// The allocator keeps pages that are free.
///
/// Any allocator has free pages at any moment: those that one job has just freed and the next one will have. What nobody needs is
/// what was free at every moment, and had not been wanted again and again before.
pub(super) fn retention(view: &View<'_>) -> Option<Finding> {
    let last = last_part(&view.series.moments);
    let told: Vec<f64> = last.iter().filter_map(kept).collect();
    let resident = median(last.iter().filter_map(truth));
    let (kept, how) = if told.is_empty() {
        (unseen_retention(view)?, "stay resident when the ledger's bytes go, and are used again when they come back")
    } else {
        (quantile(told, LEAST), "were free and resident at every moment, as the allocator itself says")
    };
    if kept < KEPT * resident || kept < view.level_floor() || comes_again(view, kept) {
        return None;
    }
    let name = last.iter().find_map(|m| Some(m.sample.allocator.as_ref()?.name.clone())).unwrap_or_default();
    let live = median(last.iter().filter_map(live));
    let mut evidence = vec![
        format!("{} {how}", signed(kept)),
        format!("the process has {} resident, of which {} are live", signed(resident), signed(live)),
        "it does not grow from job to job".to_owned(),
    ];
    if !name.is_empty() {
        evidence.push(format!("the allocator is {name}"));
    }
    Some(Finding {
        verdict: Verdict::AllocatorRetention,
        bytes: kept as u64,
        rate: None,
        headline: format!("the allocator keeps {} that the program has freed", signed(kept)),
        evidence,
        next_step: match name.as_str() {
            "jemalloc" => "give pages back sooner: `dirty_decay_ms:0,muzzy_decay_ms:0`, background threads on, fewer arenas; a \
                           `SlackKeeper` purges them under pressure"
                .to_owned(),
            "glibc" => "use jemalloc with `dirty_decay_ms:0`; with glibc set MALLOC_TRIM_THRESHOLD_ and MALLOC_ARENA_MAX, or let \
                        a `SlackKeeper` trim the heap"
                .to_owned(),
            _ => "use jemalloc with `dirty_decay_ms:0`, so that what is freed leaves the process".to_owned(),
        },
    })
}

/// Where the allocator tells nothing: what stays when the ledger's bytes go. Resident memory does not follow what is held down,
/// and what is beyond is there when little is held, not when much is.
fn unseen_retention(view: &View<'_>) -> Option<f64> {
    let of = |moments: &[Moment]| -> Vec<(f64, f64)> {
        moments.iter().filter_map(|m| Some((m.held as f64, unaccounted(m)?))).collect()
    };
    let points = of(&view.series.moments);
    let low = quantile(of(view.steady()).iter().map(|p| p.0), 0.1);
    let high = points.iter().map(|p| p.0).fold(0.0, f64::max);
    if high - low < 0.2 * view.scale {
        return None;
    }
    let at = |near: f64, q| quantile(points.iter().filter(|p| (p.0 - near).abs() < 0.2 * (high - low)).map(|p| p.1), q);
    // What was there before anything was held is no retention.
    let base = view.series.moments.first().and_then(unaccounted).unwrap_or(0.0).max(0.0);
    let (when_low, when_high) = (at(low, 0.5) - base, at(high, UNTOUCHED_ASIDE) - base);
    // Where nothing is in flight it is there as well; what comes and goes with jobs is not kept by an allocator.
    let idle = idle(view).fold(f64::INFINITY, f64::min) - base;
    (idle > 0.5 * when_low && when_low > 0.5 * (high - low) && when_high < 0.5 * when_low).then_some(when_low)
}

/// What an allocator has free in memory: by jemalloc's or glibc's own word, and not more than is resident beyond what is in use.
/// (Pages that were freed untouched are free by their word, and take no memory.)
fn kept(moment: &Moment) -> Option<f64> {
    let allocator = moment.sample.allocator.as_ref()?;
    let Some(kept) = allocator.kept_bytes() else { return super::slack(moment) };
    let used = allocator.active_bytes? + allocator.metadata_bytes.unwrap_or(0);
    Some((kept as f64).min(truth(moment)? - used as f64).max(0.0))
}

/// Whether a good part of the memory that is kept has been wanted again and again, so that it will be again: then it is the room of a load that
/// comes and goes. It has not come for less than twice the longest time for which it had stayed away before.
fn comes_again(view: &View<'_>, kept: f64) -> bool {
    let usual = median(last_part(&view.series.moments).iter().filter_map(live));
    let wanted = |m: &&Moment| live(m).is_some_and(|live| live > usual + kept * 0.75);
    let times: Vec<u64> = view.series.moments.iter().filter(wanted).map(|m| m.time).collect();
    let away = times.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
    let (Some(last), Some(end)) = (times.last(), view.series.moments.last()) else { return false };
    end.time.saturating_sub(*last) < 2 * away
}

/// Pages stay because a little of each is in use.
pub(super) fn fragmentation(view: &View<'_>) -> Option<Finding> {
    let last = last_part(&view.series.moments);
    let of = |what: fn(&Moment) -> Option<u64>| median(last.iter().filter_map(what).map(|bytes| bytes as f64));
    let lost = of(|m| m.sample.allocator.as_ref()?.fragmented_bytes());
    let active = of(|m| m.sample.allocator.as_ref()?.active_bytes);
    if lost < LOST * active || lost < view.level_floor() {
        return None;
    }
    Some(Finding {
        verdict: Verdict::Fragmentation,
        bytes: lost as u64,
        rate: None,
        headline: format!("{} are lost in pages of which the program uses only a part", signed(lost)),
        evidence: vec![
            format!("{} are in use in pages of {} together", signed(active - lost), signed(active)),
            "to purge does not help: every one of these pages is in use".to_owned(),
        ],
        next_step:
            "allocate what lives long and what lives shortly from different arenas, or in blocks; free whole buffers \
                    rather than many small pieces among others"
                .to_owned(),
    })
}

/// What is unaccounted for at moments after the warm-up when nothing is in flight.
fn idle<'v>(view: &'v View<'_>) -> impl Iterator<Item = f64> + 'v {
    view.steady().iter().filter(|m| is_idle(m)).filter_map(unaccounted)
}

fn is_idle(moment: &Moment) -> bool {
    moment.in_flight == 0 && moment.ended + moment.reserved < moment.held / 8 + 1
}

/// Jobs hold more than they declare: what is unaccounted for comes with them and goes with them.
///
/// What jobs have been promised and have not touched yet hides it. So of all moments with work those count in which most is
/// unaccounted for, and they are compared with those without work.
pub(super) fn uncounted(view: &View<'_>) -> Option<Finding> {
    let steady = view.steady();
    let held = quantile(steady.iter().map(|m| m.held as f64), 0.9);
    let fewest = quantile(steady.iter().map(|m| m.held as f64), 0.1);
    // Without moments of rest, those with least in flight.
    let rests = steady.iter().filter(|m| is_idle(m)).count() >= RESTS_MIN;
    let with_least = if rests { 0.0 } else { fewest };
    let is_low = |m: &Moment| if rests { is_idle(m) } else { m.held as f64 <= fewest };
    let is_busy = |m: &Moment| !is_idle(m) && m.held as f64 > with_least;
    // What is promised and not touched yet hides it, where the allocator does not tell; only moments of rest are free of that.
    let more_than = |is_busy: &dyn Fn(&Moment) -> bool| match rests {
        true => more_than(steady, &is_low, is_busy),
        false => more_at_most(steady, &is_low, is_busy),
    };
    let mut found = more_than(&is_busy)?;
    // A stage that runs seldom shows only while it runs.
    for stage in stages(steady) {
        let more = more_than(&|m| is_busy(m) && in_stage(m, &stage).is_some());
        found = more.filter(|more| more.0 > found.0).unwrap_or(found);
    }
    let (amount, base) = found;
    let busy = base + amount;
    if amount < view.level_floor() || amount < 0.03 * (held - with_least) {
        return None;
    }
    let place = stage_of(view, base);
    let mut evidence = vec![
        format!("with work in flight {} are unaccounted for, without {}", signed(busy), signed(base)),
        "it goes when the jobs go, so it is theirs".to_owned(),
    ];
    let (where_, headline) = match &place {
        Some((stage, each, declared)) => {
            evidence.push(format!("it is there when jobs are in stage {stage:?}: about {} each", signed(*each)));
            if *declared > 0.0 {
                let part = each / declared * 100.0;
                evidence.push(format!("they declare {}, {part:.0} % too little", signed(*declared)));
            }
            (
                format!("of stage {stage:?}"),
                format!("a job in stage {stage:?} holds about {} more than it declares", signed(*each)),
            )
        }
        None => {
            let part = amount / held.max(1.0) * 100.0;
            (
                "of the jobs".to_owned(),
                format!("jobs hold about {} more together than they declare, {part:.0} %", signed(amount)),
            )
        }
    };
    Some(Finding {
        verdict: Verdict::Uncounted,
        bytes: amount as u64,
        rate: None,
        headline,
        evidence,
        next_step: format!(
            "raise the declared peak {where_} by that much, or charge the buffers that are missing there; until then lower the \
             ledger's limit by {}",
            signed(amount)
        ),
    })
}

/// Fewer moments of rest than these are an accident.
const RESTS_MIN: usize = 4;
/// Busy moments that a quiet one is compared with, before and after it.
const AROUND: usize = 20;

/// By how much more is unaccounted for at busy moments than at the quiet ones between them, and how much at those. Each quiet moment is
/// compared with the busy ones around it, so that what grows slowly beside does not count; the median of them is taken.
fn more_than(
    moments: &[Moment],
    is_low: &dyn Fn(&Moment) -> bool,
    is_busy: &dyn Fn(&Moment) -> bool,
) -> Option<(f64, f64)> {
    let of = |which: &dyn Fn(&Moment) -> bool| -> Vec<(usize, f64)> {
        let moments = moments.iter().enumerate().filter(|(_, m)| which(m));
        moments.filter_map(|(at, m)| Some((at, uncounted_bytes(m)?))).collect()
    };
    let (low, busy) = (of(is_low), of(is_busy));
    if low.is_empty() || busy.len() < 8 {
        return None;
    }
    let more = low.iter().map(|(at, value)| {
        let next = busy.partition_point(|(busy, _)| busy < at);
        let around = &busy[next.saturating_sub(AROUND)..busy.len().min(next + AROUND)];
        quantile(around.iter().map(|(_, busy)| *busy), NEARLY_ALL) - value
    });
    Some((median(more), median(low.iter().map(|(_, value)| *value))))
}

/// The same with the most at both.
fn more_at_most(
    moments: &[Moment],
    is_low: &dyn Fn(&Moment) -> bool,
    is_busy: &dyn Fn(&Moment) -> bool,
) -> Option<(f64, f64)> {
    let at = |which: &dyn Fn(&Moment) -> bool, q| {
        let values: Vec<f64> = moments.iter().filter(|m| which(m)).filter_map(uncounted_bytes).collect();
        (values.len() >= 8).then(|| quantile(values, q))
    };
    let base = at(is_low, NEARLY_ALL)?;
    Some((at(is_busy, NEARLY_ALL)? - base, base))
}

/// The stages that ran.
fn stages(moments: &[Moment]) -> Vec<std::sync::Arc<str>> {
    let mut stages: Vec<_> = moments.iter().flat_map(|m| m.running.iter().map(|group| group.stage.clone())).collect();
    stages.sort_unstable();
    stages.dedup();
    stages
}

/// How many jobs are in a stage, and what they hold.
fn in_stage(moment: &Moment, stage: &str) -> Option<(f64, f64)> {
    moment.running.iter().find(|group| &*group.stage == stage).map(|group| (group.jobs as f64, group.bytes as f64))
}

/// The stage whose jobs it is, how much each, and what they declare; `None` where no stage explains most of it.
fn stage_of(view: &View<'_>, base: f64) -> Option<(std::sync::Arc<str>, f64, f64)> {
    let steady = view.steady();
    let high = |values: Vec<f64>| (values.len() >= 8).then(|| quantile(values, NEARLY_ALL));
    let candidates = stages(steady).into_iter().filter_map(|stage| {
        let with = |m: &&Moment| in_stage(m, &stage).is_some();
        let there = high(steady.iter().filter(with).filter_map(unaccounted).collect())? - base;
        // A stage that always runs cannot be told from all jobs, unless it is the only one.
        let away = high(steady.iter().filter(|m| !with(m)).filter_map(unaccounted).collect()).unwrap_or(base) - base;
        let each = high(
            steady
                .iter()
                .filter(with)
                .filter_map(|m| Some((unaccounted(m)? - base) / in_stage(m, &stage)?.0))
                .collect(),
        )?;
        let declared = median(steady.iter().filter_map(|m| in_stage(m, &stage)).map(|(jobs, bytes)| bytes / jobs));
        (each > 0.0 && away < 0.6 * there).then_some((there - away, stage, each, declared))
    });
    let best = candidates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((best.1, best.2, best.3))
}
