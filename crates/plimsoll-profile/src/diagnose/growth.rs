//! What grows: leaks of host and device memory, backlogs, charges that nobody returns.

use plimsoll::Bytes;

use super::books::{Moment, Rest, RestKind, Series};
use super::causes::last_part;
use super::statistics::{Trend, median, quantile};
use super::{Finding, Verdict, View, live, signed, truth, unaccounted};

/// A growth that is certain, goes on, and comes to something.
fn growing(view: &View<'_>, y: impl Fn(&Moment) -> Option<f64>) -> Option<Trend> {
    worth_a_word(view, view.trend(y))
}

fn worth_a_word(view: &View<'_>, trend: Option<Trend>) -> Option<Trend> {
    trend.filter(|trend| trend.goes_on && trend.growth >= view.growth_floor())
}

/// Something that the ledger counts grows, and its growth makes a good part of it.
fn piling_up(view: &View<'_>, y: impl Fn(&Moment) -> Option<f64>) -> Option<Trend> {
    // What is left when nothing new is made any more only shrinks.
    let begun = view.series.last_begun.unwrap_or(u64::MAX);
    let made = view.series.moments.partition_point(|m| m.time <= begun);
    let end = median(last_part(&view.series.moments[..made]).iter().filter_map(&y));
    worth_a_word(view, view.trend_exact(|m| y(m).filter(|_| m.time <= begun)))
        .filter(|trend| trend.growth >= PILE * end)
}

/// The part of what is there in the end that must have come after the warm-up.
const PILE: f64 = 0.3;

/// Memory that the ledger does not count grows.
pub(super) fn leak(view: &View<'_>) -> Option<Finding> {
    let grows =
        |trend: Option<Trend>| worth_a_word(view, trend).filter(|trend| trend.growth >= SWING * swing(view, trend));
    // What doubles when it is full is taken in steps, and touched job by job.
    let heap = grows(view.trend_of_unaccounted()).or_else(|| grows(view.trend_of_untouched_aside()));
    let files = growing(view, |m| Some(m.sample.process?.file_bytes as f64));
    let (trend, what) = match (heap, files) {
        (Some(heap), _) => (heap, "memory that the ledger does not count"),
        (None, Some(files)) => (files, "memory of mapped files"),
        (None, None) => return None,
    };
    let rate = view.rate(trend.slope);
    let last = view.series.moments.last()?;
    let mut evidence = vec![
        format!("{what} grows by {rate}"),
        format!("that came to {} after the warm-up, and does not slow down", signed(trend.growth)),
    ];
    if let (Some(unaccounted), Some(live)) = (unaccounted(last), live(last)) {
        evidence.push(format!(
            "of {} that are live, the ledger counts {}; {} are unaccounted for",
            signed(live),
            Bytes(last.held),
            signed(unaccounted)
        ));
    }
    // Where it is: inside the allocator, or in mappings of its own.
    if heap.is_some()
        && let Some(outside) = view.trend(outside_allocator)
    {
        let part = outside.slope.value / trend.slope.value;
        evidence.push(match part {
            part if part > 0.6 => "it is not in the allocator: mapped by the program itself, or by a driver".to_owned(),
            part if part < 0.4 => "it is in the allocator: allocated and never freed".to_owned(),
            _ => "a part of it is in the allocator, a part mapped directly".to_owned(),
        });
    }
    Some(Finding {
        verdict: Verdict::Leak,
        bytes: trend.growth as u64,
        rate: Some(rate),
        headline: format!("every {} leaves {} behind that nothing accounts for", view.per, signed(trend.slope.value)),
        evidence,
        next_step:
            "compare two heap profiles, a hundred jobs apart (jemalloc built with `profiling`, or heaptrack): what is \
                    in the second and not in the first is the leak"
                .to_owned(),
    })
}

/// A growth of less than this part of what swings anyway is not told from it.
const SWING: f64 = 0.25;

/// How far what is unaccounted for swings about its trend.
fn swing(view: &View<'_>, trend: &Trend) -> f64 {
    let moments = view.x.iter().zip(&view.series.moments);
    let steady = moments.skip(view.series.moments.len() - view.steady().len());
    let left_over = view.left_over();
    let about: Vec<f64> = steady.filter_map(|(x, m)| Some(left_over(m)? - trend.slope.value * x)).collect();
    quantile(about.iter().copied(), 0.95) - quantile(about.iter().copied(), 0.05)
}

/// What lies outside of the allocator.
fn outside_allocator(moment: &Moment) -> Option<f64> {
    Some(truth(moment)? - moment.sample.allocator.as_ref()?.resident_bytes? as f64)
}

/// What a job holds between stages.
fn queued(moment: &Moment) -> f64 {
    moment.queued.iter().map(|group| group.bytes as f64).sum()
}

/// What rests in the ledger grows: a backlog if it comes back in the end, stuck charges if not.
pub(super) fn resting(view: &View<'_>) -> Option<Finding> {
    let resting = |m: &Moment| Some((m.ended + m.reserved) as f64);
    let after = piling_up(view, resting);
    let stuck = stuck(view);
    let bytes: f64 = stuck.iter().map(|rest| rest.bytes as f64).sum();
    // Three that stay, of which one is new, are no accident; fewer must show as growth.
    let certain = stuck.len() >= 3 && bytes >= view.growth_floor() && goes_on(view, &stuck);
    if certain || after.is_some_and(|after| bytes >= 0.4 * after.growth) {
        let trend = after.or_else(|| view.trend(resting));
        return Some(stuck_charge(view, trend, &stuck));
    }
    let between = piling_up(view, |m| Some(queued(m)));
    match (between, after) {
        (Some(between), after) if after.is_none_or(|after| between.growth >= after.growth) => {
            Some(backlog(view, between))
        }
        (_, after) => after.map(|after| backlog_of_charges(view, after)),
    }
}

/// Whether some of them are of before the middle of the run and some of its last third: not a cache that has come to its limit.
fn goes_on(view: &View<'_>, stuck: &[&Rest]) -> bool {
    let moments = &view.series.moments;
    let (first, last) = (moments.first().map_or(0, |m| m.time), moments.last().map_or(0, |m| m.time));
    let at = |part: f64| first + ((last - first) as f64 * part) as u64;
    stuck.iter().any(|rest| rest.since < at(0.5)) && stuck.iter().any(|rest| rest.grown > at(0.66))
}

/// A backlog between two stages.
fn backlog(view: &View<'_>, trend: Trend) -> Finding {
    let last = view.series.moments.last();
    let worst = last.and_then(|m| m.queued.iter().max_by_key(|group| group.bytes));
    let classes = largest_class(&view.series.rests, |rest| matches!(rest.kind, RestKind::Queued(_)));
    let rate = view.rate(trend.slope);
    let stage = worst.map_or("a stage", |group| &group.stage).to_owned();
    let mut evidence = vec![format!("what waits between stages grows by {rate}")];
    if let Some(group) = worst {
        evidence.push(format!("{} jobs wait behind {stage:?} with {}", group.jobs, Bytes(group.bytes)));
    }
    if let Some((class, bytes)) = classes {
        evidence.push(format!("most of it is {class:?}: {}", Bytes(bytes)));
    }
    evidence.push("memory and ledger agree: it is counted, and somebody will need it".to_owned());
    Finding {
        verdict: Verdict::Backlog,
        bytes: trend.growth as u64,
        rate: Some(rate),
        headline: format!("{stage:?} produces faster than the next stage consumes; what is in between grows"),
        evidence,
        next_step: format!(
            "bound what may be in flight: `Pacing::Auto`, or a limit on jobs in {stage:?}; or give the stage behind it more \
             threads or devices"
        ),
    }
}

/// A backlog of charges outside of stages: they come back, but ever later.
fn backlog_of_charges(view: &View<'_>, trend: Trend) -> Finding {
    let rate = view.rate(trend.slope);
    let rests = &view.series.rests;
    let kind = |rest: &Rest| matches!(rest.kind, RestKind::Ended | RestKind::Reserved);
    let count = rests.iter().filter(|rest| kind(rest)).count();
    let mut evidence = vec![format!("what is held outside of stages grows by {rate}")];
    if let Some((class, bytes)) = largest_class(rests, kind) {
        evidence.push(format!("{count} charges are out; most is {class:?}: {}", Bytes(bytes)));
    }
    evidence.push("the oldest charges do come back, so somebody consumes them, too slowly".to_owned());
    Finding {
        verdict: Verdict::Backlog,
        bytes: trend.growth as u64,
        rate: Some(rate),
        headline: "results are made faster than they are taken; what is in between grows".to_owned(),
        evidence,
        next_step: "bound the queue: wait for memory before producing, not after, or give the consumer more threads"
            .to_owned(),
    }
}

/// The charges that will not come back: far older than those that did.
fn stuck<'s>(view: &View<'s>) -> Vec<&'s Rest> {
    let series: &Series = view.series;
    let (Some(first), Some(last)) = (series.moments.first(), series.moments.last()) else { return Vec::new() };
    let run = last.time.saturating_sub(first.time);
    let warm = first.time + run / 8;
    let old = |times: &[u64]| quantile(times.iter().map(|time| *time as f64), 0.9);
    let (reserved, ended) = (old(&series.reserved_times), old(&series.ended_times));
    let is_stuck = |rest: &&Rest| {
        let usual = match rest.kind {
            RestKind::Reserved => reserved,
            RestKind::Ended => ended,
            RestKind::Queued(_) | RestKind::Running(_) => return false,
        };
        let age = rest.until.unwrap_or(last.time).saturating_sub(rest.since) as f64;
        // One owner that grows and grows is stuck too, unless it gives back in between as well.
        let turns_over = rest.returned >= rest.bytes;
        rest.grown >= warm && !turns_over && age > 3.0 * usual && age > 0.02 * run as f64
    };
    series.rests.iter().filter(is_stuck).collect()
}

fn stuck_charge(view: &View<'_>, trend: Option<Trend>, stuck: &[&Rest]) -> Finding {
    let rate = trend.map(|trend| view.rate(trend.slope));
    let bytes: u64 = stuck.iter().map(|rest| rest.bytes).sum();
    let (memory, next_step) = memory_of_stuck(view, trend.map_or(0.0, |trend| trend.slope.value));
    let mut evidence: Vec<String> = rate.iter().map(|rate| format!("charges that stay grow by {rate}")).collect();
    evidence
        .extend([format!("{} holders have held {} far longer than the others did", stuck.len(), Bytes(bytes)), memory]);
    evidence.extend(oldest(stuck.iter().copied(), view.series));
    Finding {
        verdict: Verdict::StuckCharge,
        bytes,
        rate,
        headline: format!("{} are charged to holders that do not return them", Bytes(bytes)),
        evidence,
        next_step,
    }
}

/// Whether the memory stays with the charge, and what to do then.
fn memory_of_stuck(view: &View<'_>, charge: f64) -> (String, String) {
    let part = view.trend(live).filter(|_| charge > 0.0).map(|memory| memory.slope.value / charge);
    match part {
        Some(part) if part < 0.4 => (
            "the counter never goes down but the memory does: the buffer is freed and its charge is not returned".to_owned(),
            "look at where the buffer is freed: its reservation must be dropped there; keep both in one `Charged`, across FFI \
             as a handle that is redeemed once"
                .to_owned(),
        ),
        Some(_) => (
            "both stay: the counter and the memory grow together".to_owned(),
            "look at the oldest holders: somebody still owns their buffers, in a map, a channel or a cycle; a cache should be \
             a residency, which can be evicted"
                .to_owned(),
        ),
        None => (
            "whether the memory stays as well is not known without samples".to_owned(),
            "look at the oldest holders, and sample the process (`--trace` with samples) to see whether the memory stays too"
                .to_owned(),
        ),
    }
}

/// So many jobs must have ended while one was behind its stage: what waits in a queue that is served in order is not forgotten.
const OVERTAKEN: u64 = 8;

/// Jobs that are in a stage and do not end, or behind one and do not go on while others pass them.
pub(super) fn hung(view: &View<'_>) -> Option<Finding> {
    let series = view.series;
    let (last, jobs_done) = (series.moments.last()?.time, series.moments.last()?.jobs_done);
    let usual = quantile(series.job_times.iter().map(|time| *time as f64), 0.95);
    // The time is told in moments: when the whole process, or the machine, stood still, nobody hung.
    let index = |time: u64| series.moments.partition_point(|m| m.time <= time);
    let is_hung = |rest: &&Rest| {
        let until = rest.until.unwrap_or(last);
        let part = (index(until) - index(rest.since)) as f64 / series.moments.len() as f64;
        matches!(rest.kind, RestKind::Running(_) | RestKind::Queued(_))
            && until.saturating_sub(rest.since) as f64 > 8.0 * usual
            && part > 0.15
            && (matches!(rest.kind, RestKind::Running(_)) || rest.jobs_before + OVERTAKEN < jobs_done)
    };
    let hung: Vec<&Rest> = series.rests.iter().filter(is_hung).collect();
    let bytes: u64 = hung.iter().map(|rest| rest.bytes).sum();
    // Without others that did end there is no saying what is long.
    if series.job_times.len() < 8 || hung.is_empty() || (bytes as f64) < view.growth_floor() {
        return None;
    }
    let mut evidence = vec![format!(
        "{} jobs have been in their stage, or behind it, for more than 8 times what jobs need",
        hung.len()
    )];
    evidence.extend(oldest(hung.iter().copied(), series));
    Some(Finding {
        verdict: Verdict::StuckCharge,
        bytes,
        rate: None,
        headline: format!("{} are held by jobs that do not end", Bytes(bytes)),
        evidence,
        next_step:
            "look at what these jobs wait for: a thread that is blocked, a device that does not answer; give their \
                    stage a time-out, or cancel them"
                .to_owned(),
    })
}

/// Memory of a device that the ledger does not count grows.
pub(super) fn cards(view: &View<'_>) -> Vec<Finding> {
    let mut numbers: Vec<u16> =
        view.series.moments.iter().flat_map(|m| m.sample.devices.iter().map(|device| device.device)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().filter_map(|number| card(view, number)).collect()
}

fn card(view: &View<'_>, number: u16) -> Option<Finding> {
    let device = |m: &Moment| m.sample.devices.iter().find(|device| device.device == number).cloned();
    let used = |m: &Moment| device(m).map(|device| device.own_bytes.unwrap_or(device.used_bytes()) as f64);
    let held =
        |m: &Moment| m.devices.iter().find(|(device, _)| *device == number).map_or(0.0, |(_, held)| *held as f64);
    let floor = view.series.moments.iter().filter_map(used).fold(0.0, f64::max) * 0.01;
    let trend = view.trend(|m| Some(used(m)? - held(m)))?;
    if !trend.goes_on || trend.growth < floor.max(1e6) {
        return None;
    }
    let rate = view.rate(trend.slope);
    let last = view.series.moments.last()?;
    let now = device(last)?;
    let whose = match now.own_bytes {
        Some(_) => "what the driver says is this process's",
        None => "what the driver says is used, by whomever",
    };
    Some(Finding {
        verdict: Verdict::CardLeak,
        bytes: trend.growth as u64,
        rate: Some(rate),
        headline: format!("every {} leaves {} behind on device {number}", view.per, signed(trend.slope.value)),
        evidence: vec![
            format!("{whose} grows by {rate} beyond what the ledger counts"),
            format!("device {number}: {} of {} free, the ledger counts {}", Bytes(now.free_bytes), Bytes(now.total_bytes), signed(held(last))),
        ],
        next_step: "look for device memory that is not a `DeviceBuffer`: a library's own pools, contexts made again and again, \
                    an asynchronous free that is never synchronised"
            .to_owned(),
    })
}

/// The oldest holders, in words.
fn oldest<'r>(rests: impl Iterator<Item = &'r Rest>, series: &Series) -> Vec<String> {
    let now = series.moments.last().map_or(0, |m| m.time);
    let mut rests: Vec<&Rest> = rests.collect();
    rests.sort_by_key(|rest| rest.since);
    let line = |rest: &Rest| {
        let seconds = rest.until.unwrap_or(now).saturating_sub(rest.since) as f64 / 1e9;
        let place = rest.place.as_ref().map_or(String::new(), |place| format!(", asked for at {place}"));
        let back = if rest.until.is_some() { ", and returned it only as the program ended" } else { "" };
        format!("{:?} held {} of {:?} for {seconds:.1} s{place}{back}", rest.who, Bytes(rest.bytes), rest.class)
    };
    rests.into_iter().take(3).map(line).collect()
}

/// The class of most bytes.
fn largest_class(rests: &[Rest], which: impl Fn(&Rest) -> bool) -> Option<(std::sync::Arc<str>, u64)> {
    let mut classes = std::collections::BTreeMap::<_, u64>::new();
    for rest in rests.iter().filter(|rest| which(rest)) {
        *classes.entry(rest.class.clone()).or_default() += rest.bytes;
    }
    classes.into_iter().max_by_key(|(_, bytes)| *bytes)
}
