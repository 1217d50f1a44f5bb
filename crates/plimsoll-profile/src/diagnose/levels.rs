//! What stands: free pages that the allocator keeps, pages in partial use, jobs that hold more than they declare.

use super::causes::last_part;
use super::fit::{Excess, Fit};
use super::statistics::{median, quantile, slope};
use super::{Finding, Moment, UNTOUCHED_ASIDE, Verdict, View, live, signed, truth, unaccounted, uncounted_bytes};

/// The part of what is resident that an allocator may keep beyond all that is wanted, without a word.
const KEPT: f64 = 0.25;
/// So much of what is kept must have been in use at once before.
const WAS_USED: f64 = 0.5;
/// So many times what is wanted at the most, an allocator's waste is a fault of its own.
const WASTE: f64 = 3.0;
/// The quantile of what is kept that stands for the least of it; the few moments below may be torn readings.
const LEAST: f64 = 0.05;
/// The part of what is in use that may be lost in pages of partial use.
const LOST: f64 = 0.25;

/// The allocator keeps pages that are free.
///
/// Any allocator has free pages at any moment: those that one job has just freed and the next one will have, and some that lie in the
/// arena of another thread. What nobody needs is what is there beyond the most that was in use at any time in the last half of the run.
/// That it was kept, and not just laid out badly, is told by what it was before: in use.
pub(super) fn retention(view: &View<'_>) -> Option<Finding> {
    let moments = &view.series.moments;
    let last = last_part(moments);
    let told: Vec<f64> = last.iter().filter_map(kept).collect();
    let resident = median(last.iter().filter_map(truth));
    let most = |moments: &[Moment]| moments.iter().filter_map(wanted).fold(0.0, f64::max);
    let wanted = most(&moments[moments.len() / 2..]);
    let (kept, how) = if told.is_empty() {
        (unseen_retention(view)?, "stay resident when the ledger's bytes go, and are used again when they come back")
    } else {
        let before = most(moments);
        let beyond = quantile(told, LEAST).min(resident - wanted);
        // What had never been in use at once is an allocator's waste, in the arenas of several threads; it is said if it is much.
        if before - wanted < WAS_USED * beyond && beyond < WASTE * wanted {
            return None;
        }
        (beyond, "are free and resident, beyond the most that was in use in the last half of the run")
    };
    if kept < KEPT * resident || kept < view.level_floor() || comes_again(view, wanted + kept / 2.0) {
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

/// What the program needs at a moment: what it has, and what it was promised.
fn wanted(moment: &Moment) -> Option<f64> {
    Some(live(moment)?.max(moment.held_peak as f64))
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

/// Whether more than this has been wanted again and again, so that it will be again: then what is kept is the room of a load that comes and
/// goes. It has not come for less than twice the longest time for which it had stayed away before.
fn comes_again(view: &View<'_>, much: f64) -> bool {
    let much = |m: &&Moment| wanted(m).is_some_and(|wanted| wanted > much);
    let times: Vec<u64> = view.series.moments.iter().filter(much).map(|m| m.time).collect();
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

pub(super) fn is_idle(moment: &Moment) -> bool {
    moment.in_flight == 0 && moment.ended + moment.reserved < moment.held / 8 + 1
}

/// What a footprint may be off by: the part of what a job declares that it may hold beyond without a word. Sizes are rounded up to pages
/// and to an allocator's classes, and small things besides the buffers belong to a job as well.
const OFF: f64 = 0.05;
/// The same where only what is touched is known.
const OFF_TOUCHED: f64 = 0.1;
/// So many times worse must what was seen be explained without it: less is chance.
const WORSE: f64 = 1.1;
/// The same where there are fewer moments than this.
const FEW: usize = 60;
const WORSE_OF_FEW: f64 = 1.5;
/// The part of it that each half of the run must show by itself.
const EACH_HALF: f64 = 0.3;

/// What jobs hold beyond what they declare, by place, where it is certain and comes to something.
pub(super) fn excesses(fit: &Fit) -> Vec<Excess> {
    let worse = if fit.moments < FEW { WORSE_OF_FEW } else { WORSE };
    let certain = |excess: &&Excess| excess.worse_without >= worse && excess.least >= EACH_HALF * excess.each;
    fit.excesses.iter().filter(certain).cloned().collect()
}

/// Jobs hold more than they declare: what is unaccounted for comes with them and goes with them.
pub(super) fn uncounted(view: &View<'_>) -> Option<Finding> {
    // Addresses that are asked for by job after job and never touched come with the jobs, too.
    if super::growth::only_addresses_grow(view) {
        return None;
    }
    let tells = view.series.moments.iter().any(|m| m.sample.allocator.is_some());
    if tells && let Some(found) = uncounted_by(view.fit.as_ref()?, OFF, view.growth_floor()) {
        return Some(found);
    }
    // What is touched shows, not what is taken; and what an allocator keeps without a word is no job's.
    if !tells && retention(view).is_some() {
        return None;
    }
    let fit = view.fit_of(uncounted_bytes, false)?;
    uncounted_by(&fit, OFF_TOUCHED, view.level_floor())
}

/// The ledger counts less on a card than its driver says is there, by a part of what it counts: buffers are larger than their word.
pub(super) fn cards_uncounted(view: &View<'_>) -> Vec<Finding> {
    let devices = view.series.moments.iter().flat_map(|m| m.devices.iter().map(|(device, _)| *device));
    let devices: std::collections::BTreeSet<u16> = devices.collect();
    devices.into_iter().filter_map(|device| card_uncounted(view, device)).collect()
}

fn card_uncounted(view: &View<'_>, number: u16) -> Option<Finding> {
    let held = |m: &Moment| m.devices.iter().find(|(device, _)| *device == number).map(|(_, held)| *held as f64);
    let used = |m: &Moment| {
        let device = m.sample.devices.iter().find(|device| device.device == number)?;
        Some(device.own_bytes.unwrap_or(device.used_bytes()) as f64)
    };
    let steady = view.steady();
    let points: Vec<(f64, f64)> = steady.iter().filter_map(|m| Some((held(m)?, used(m)? - held(m)?))).collect();
    let (low, high) = (quantile(points.iter().map(|p| p.0), 0.1), quantile(points.iter().map(|p| p.0), 0.9));
    // Where as much is held at all times nothing tells what comes with it.
    if points.len() < CARD_POINTS_MIN || high - low < CARD_SWING * high || high <= 0.0 {
        return None;
    }
    // Thinned out, so that neighbours in time do not count as many.
    let points: Vec<(f64, f64)> = points.iter().step_by(points.len().div_ceil(CARD_POINTS)).copied().collect();
    // Each half of the run must say it by itself: what grows meanwhile is a leak.
    let halves = points.split_at(points.len() / 2);
    let slope = slope(&points, CARD_Z)?;
    let least = [halves.0, halves.1].map(|half| self::slope(half, CARD_Z).map_or(0.0, |slope| slope.value));
    let together = slope.value * high;
    let most = steady.iter().filter_map(used).fold(0.0, f64::max);
    if slope.low < OFF
        || least.iter().any(|part| *part < EACH_HALF * slope.value)
        || together < (most * 0.01).max(LEVEL_ON_CARD)
    {
        return None;
    }
    let percent = slope.value * 100.0;
    let headline = format!("buffers on device {number} take about {percent:.0} % more than they declare");
    let evidence = vec![
        format!(
            "with each byte that the ledger counts there come {:.2} more (99 %: {:.2} to {:.2})",
            slope.value, slope.low, slope.high
        ),
        format!("when {} are held there, that is {}", signed(high), signed(together)),
    ];
    Some(Finding {
        verdict: Verdict::Uncounted,
        bytes: together as u64,
        rate: None,
        headline,
        evidence,
        next_step: format!(
            "raise what the stages declare on device {number} by {percent:.0} %, or charge the buffers that are missing; until then \
             lower the limit of device {number} by {}",
            signed(together)
        ),
    })
}

/// Fewer samples of a card say nothing about it.
const CARD_POINTS_MIN: usize = 40;
/// The most that a slope is computed from.
const CARD_POINTS: usize = 120;
/// What is held must come and go by this part of it.
const CARD_SWING: f64 = 0.2;
/// 99 %, two-sided.
const CARD_Z: f64 = 2.576;
/// Less on a card is that of any driver.
const LEVEL_ON_CARD: f64 = 16e6;

fn uncounted_by(fit: &Fit, off: f64, floor: f64) -> Option<Finding> {
    let worth = |excess: &&Excess| excess.each >= off * excess.declared && excess.together >= floor;
    let excesses = excesses(fit);
    let worst = excesses.iter().find(worth)?;
    let base = fit.base;
    let Excess { stage, behind, each, declared, together, .. } = worst;
    let place = if *behind { format!("behind stage {stage:?}") } else { format!("in stage {stage:?}") };
    let mut evidence = vec![
        format!("each job {place} comes with {} that the ledger does not count, and they go with it", signed(*each)),
        format!(
            "with as many jobs as are often there together that is {}; {} are there without any",
            signed(*together),
            signed(base)
        ),
    ];
    if *declared > 0.0 {
        evidence.push(format!(
            "a job holds {} there by its word: {:.0} % too little",
            signed(*declared),
            each / declared * 100.0
        ));
    }
    for other in excesses.iter().filter(worth).filter(|other| *other != worst).take(2) {
        let behind = if other.behind { "behind" } else { "in" };
        evidence.push(format!("{behind} stage {:?} it is {} a job", other.stage, signed(other.each)));
    }
    let what = if *behind { "keep" } else { "peak" };
    Some(Finding {
        verdict: Verdict::Uncounted,
        bytes: *together as u64,
        rate: None,
        headline: format!("a job {place} holds about {} more than it declares", signed(*each)),
        evidence,
        next_step: format!(
            "raise the declared {what} of stage {stage:?} by {}, or charge the buffers that are missing there; until then lower \
             the ledger's limit by {}",
            signed(*each),
            signed(*together)
        ),
    })
}
