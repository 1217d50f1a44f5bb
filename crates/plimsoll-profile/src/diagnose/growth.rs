//! What grows: leaks of host and device memory, backlogs, charges that nobody returns.

use plimsoll::Bytes;

use super::books::{Moment, Rest, RestKind, Series};
use super::causes::last_part;
use super::statistics::{self, Trend, median, quantile};
use super::{Finding, Rate, UNTOUCHED_ASIDE, Verdict, View, live, signed, truth, unaccounted};
use crate::plain::plain;

/// A growth that is certain, goes on, and comes to something.
fn worth_a_word(view: &View<'_>, trend: Option<Trend>) -> Option<Trend> {
    trend.filter(|trend| trend.goes_on && trend.growth >= view.growth_floor())
}

/// Something that the ledger counts grows, and its growth makes a good part of it.
fn piling_up(view: &View<'_>, y: impl Fn(&Moment) -> Option<f64>) -> Option<Trend> {
    // What is left when nothing new is made any more only shrinks.
    // Where everything stands still there is nothing to be made.
    let begun = view.series.last_begun.unwrap_or(u64::MAX).min(view.series.last_progress.unwrap_or(u64::MAX));
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
    let steadily = grows(view.trend_of_unaccounted()).or_else(|| {
        // What is seen sharply to slow is not to be found growing where it is seen less so.
        if view.slows(view.left_over()) { None } else { grows(view.trend_of_untouched_aside()) }
    });
    // What begins late is judged against what was there before, not against the whole run.
    let trend = steadily.or_else(|| worth_a_word(view, view.late_trend_of(view.left_over())));
    let by_jobs = trend.filter(|trend| is_touched(view, trend)).map(|trend| (trend, view.per));
    let (trend, per) = by_jobs.or_else(|| Some((worth_a_word(view, view.idle_trend_of(unaccounted))?, "second")))?;
    let what = "memory that the ledger does not count";
    let rate = Rate { per, ..view.rate(trend.slope) };
    let last = view.series.moments.last()?;
    let mut evidence = vec![
        format!("{what} grows by {rate}"),
        format!(
            "that came to {} in the last {:.0} % of the run, and does not slow down",
            signed(trend.growth),
            trend.part * 100.0
        ),
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
    if per == view.per
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
        headline: format!("every {per} leaves {} behind that nothing accounts for", signed(trend.slope.value)),
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

/// What is touched of a growth must be at least this part of it.
const TOUCHED: f64 = 0.25;

/// Whether the growth is there in memory, and not addresses that were asked for and never touched. Said to be not where what is resident
/// clearly does not grow with it.
fn is_touched(view: &View<'_>, trend: &Trend) -> bool {
    let part = (trend.part * view.series.moments.len() as f64) as usize;
    let from = view.series.moments.len() - part.min(view.series.moments.len());
    let points = view.x[from..].iter().zip(&view.series.moments[from..]);
    let points: Vec<(f64, f64)> = points.filter_map(|(x, m)| Some((*x, unaccounted(m)?))).collect();
    let touched = statistics::slope_of_bins(&points, UNTOUCHED_ASIDE);
    if touched.is_some_and(|touched| touched.high < TOUCHED * trend.slope.value) {
        return false;
    }
    // The upper edge of what is touched, from the first third of it to the last one: of a large growth it tells as well, however much
    // is promised and not touched in between.
    let third = points.len() / 3;
    let edge = |points: &[(f64, f64)]| quantile(points.iter().map(|(_, y)| *y), EDGE);
    let rise = edge(&points[points.len() - third..]) - edge(&points[..third]);
    third < LARGE_POINTS || trend.growth < LARGE * view.scale || rise >= TOUCHED * trend.growth * 2.0 / 3.0
}

/// Whether what the allocator has handed out grows, and what is touched does not.
pub(super) fn only_addresses_grow(view: &View<'_>) -> bool {
    worth_a_word(view, view.trend_of_unaccounted()).is_some_and(|trend| !is_touched(view, &trend))
}

/// The quantile that is the upper edge of what is touched.
const EDGE: f64 = 0.98;
/// A growth of this part of what is usually resident is large, and so many points have an edge.
const LARGE: f64 = 0.1;
const LARGE_POINTS: usize = 16;

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
    let certain = are_many(&stuck) && bytes >= view.growth_floor() && goes_on(view, &stuck);
    // Where none ever came back nobody knows what is usual: tables that are made when they are first needed, and kept. Then it must grow.
    let unheard_of = view.series.reserved_times.is_empty() && stuck.iter().all(|rest| rest.kind == RestKind::Reserved);
    let explained = after.is_some_and(|after| bytes >= 0.4 * after.growth) && grants(&stuck) > HANDFUL;
    if certain && (!unheard_of || after.is_some()) || explained {
        let trend = after.or_else(|| view.trend(resting));
        return Some(stuck_charge(view, trend, &stuck));
    }
    if let Some(full) = full(view, &stuck) {
        return Some(full);
    }
    let between = piling_up(view, |m| Some(queued(m)));
    match (between, after) {
        (Some(between), after) if after.is_none_or(|after| between.growth >= after.growth) => {
            Some(backlog(view, between))
        }
        (_, after) => {
            let rests = &view.series.rests;
            let out: Vec<&Rest> =
                rests.iter().filter(|rest| matches!(rest.kind, RestKind::Ended | RestKind::Reserved)).collect();
            // A handful that are kept are no queue.
            after.filter(|_| are_many(&out)).map(|after| backlog_of_charges(view, after))
        }
    }
}

/// So many grants are a handful: tables for each circuit, one for each thread. (Jobs that have ended should hold nothing: of these, fewer
/// are many.)
const HANDFUL: u64 = 7;
const ENDED_MIN: usize = 3;

fn grants(stuck: &[&Rest]) -> u64 {
    stuck.iter().map(|rest| rest.grants.max(1)).fold(0, u64::saturating_add)
}

fn are_many(stuck: &[&Rest]) -> bool {
    grants(stuck) > HANDFUL || stuck.iter().filter(|rest| rest.kind == RestKind::Ended).count() >= ENDED_MIN
}

/// Whether it went on while there was work: some of them are of the last third, and some of much earlier. Else it may be a cache that has
/// come to its limit.
fn goes_on(view: &View<'_>, stuck: &[&Rest]) -> bool {
    let moments = &view.series.moments;
    let (first, last) = (moments.first().map_or(0, |m| m.time), moments.last().map_or(0, |m| m.time));
    // Up to when anything went on at all.
    let last = last.min(view.series.last_progress.unwrap_or(last)).max(first);
    let sixths = |count: u64| (last - first) / 6 * count;
    let newest = stuck.iter().map(|rest| rest.grown).max().unwrap_or(0);
    let oldest = stuck.iter().map(|rest| rest.since).min().unwrap_or(u64::MAX);
    newest > first + sixths(4) && oldest.saturating_add(sixths(1)) < newest
}

/// The part of what is held that must rest where the ledger is full, so that it is what rests that fills it.
const FULL_OF_REST: f64 = 0.6;
/// Somebody must wait for memory at so many of the last moments.
const FULL: f64 = 0.5;
/// Fewer jobs between stages are what a pipeline needs.
const QUEUE_MIN: f64 = 4.0;

/// The ledger is full, of what rests: a backlog or stuck charges have come to the limit, and grow no more because nothing can.
fn full(view: &View<'_>, stuck: &[&Rest]) -> Option<Finding> {
    // When nothing new is begun any more, nobody waits, and what is left only shrinks.
    let begun = view.series.last_begun.unwrap_or(u64::MAX);
    let made = view.series.moments.partition_point(|m| m.time <= begun);
    // Where everything stands still nothing is begun either, and they wait.
    let last = last_part(if stands_still(view) { &view.series.moments } else { &view.series.moments[..made] });
    let waits = last.iter().filter(|m| waits_for_memory(m)).count() as f64;
    if waits < FULL * last.len() as f64 {
        return None;
    }
    let of = |y: &dyn Fn(&Moment) -> f64| median(last.iter().map(y));
    let held = of(&|m| m.held as f64);
    let counted = |groups: &[super::books::Group]| groups.iter().map(|group| group.jobs as f64).sum::<f64>();
    let stays: f64 = stuck.iter().map(|rest| rest.bytes as f64).sum();
    if stays >= FULL_OF_REST * held && are_many(stuck) {
        return Some(stuck_charge(view, None, stuck));
    }
    let (between, jobs) = (of(&queued), of(&|m| counted(&m.queued)));
    if between < FULL_OF_REST * held || jobs < QUEUE_MIN {
        return None;
    }
    let slope = statistics::Slope::default();
    let trend = Trend { slope, growth: between, goes_on: false, part: 1.0 };
    let mut finding = backlog(view, trend);
    finding.rate = None;
    finding.evidence[0] = format!(
        "{:.0} jobs that wait between stages hold {} of the {} that are held, and others wait for memory",
        jobs,
        signed(between),
        signed(held)
    );
    finding.headline = format!("{}: it has filled the budget", finding.headline);
    Some(finding)
}

/// Whether somebody waits because memory is short.
pub(super) fn waits_for_memory(m: &Moment) -> bool {
    match m.sample.waiting_for_memory {
        Some(waiting) => waiting > 0,
        // Known only from events: somebody waits, and the ledger is nearly full.
        None => m.waiting > 0 && m.limit.is_some_and(|limit| m.held as f64 >= 0.85 * limit as f64),
    }
}

/// For so much of the run, and so many times what jobs need, nothing must have happened.
const STANDS_STILL: f64 = 0.15;
const STANDS_STILL_TIMES: f64 = 8.0;

/// Whether requests wait, and nothing has been granted, returned or ended for long, and nothing runs that could.
pub(super) fn stands_still(view: &View<'_>) -> bool {
    let series = view.series;
    let (Some(last), Some(progress)) = (series.moments.last(), series.last_progress) else { return false };
    let waits = last.waiting > 0 || last.sample.waiting_for_memory.is_some_and(|waiting| waiting > 0);
    if !waits || !last.running.is_empty() || last.held == 0 {
        return false;
    }
    if series.unsampled {
        // Where there is nobody to see time go by, the trace ends with the last event. If that was its orderly end, nobody waits.
        return last.held as f64 >= 0.5 * last.limit.unwrap_or(last.held) as f64;
    }
    let still = series.moments.len() - series.moments.partition_point(|m| m.time <= progress);
    let usual = quantile(series.job_times.iter().map(|time| *time as f64), 0.95);
    still as f64 >= STANDS_STILL * series.moments.len() as f64
        && last.time.saturating_sub(progress) as f64 >= STANDS_STILL_TIMES * usual
}

/// Nothing goes on, though requests wait: those that hold something do not return it.
pub(super) fn stalled(view: &View<'_>) -> Option<Finding> {
    let last = view.series.moments.last()?;
    if !stands_still(view) {
        return None;
    }
    let there: Vec<&Rest> = view.series.rests.iter().filter(|rest| rest.until.is_none()).collect();
    let quiet = last.time.saturating_sub(view.series.last_progress?) as f64 / 1e9;
    let mut evidence = vec![format!(
        "{} requests wait, nothing runs, and nothing was granted or returned for {quiet:.1} s; {} are held",
        last.waiting,
        Bytes(last.held)
    )];
    if let Some(limit) = last.limit {
        evidence.push(format!("the limit is {}", Bytes(limit)));
    }
    evidence.extend(oldest(there.iter().copied(), view.series));
    Some(Finding {
        verdict: Verdict::StuckCharge,
        bytes: there.iter().map(|rest| rest.bytes).fold(0, u64::saturating_add),
        rate: None,
        headline: format!("everything stands still: {} are held by those who do nothing with it", Bytes(last.held)),
        evidence,
        next_step: "look at the oldest holders and at who should take their results; `Ledger::stall` says who waits for whom, and \
                    `plimsoll ctl SOCKET resize` lets work go on meanwhile"
            .to_owned(),
    })
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

/// Fewer jobs that run for long may be long ones: they must have run for longer, in times of what jobs need and in parts of the run.
const SEVERAL: usize = 3;
const LONG_ALONE: f64 = 16.0;
const PART_ALONE: f64 = 0.5;
/// So many jobs must have ended while one was behind its stage: what waits in a queue that is served in order is not forgotten.
const OVERTAKEN: u64 = 8;

/// Jobs that are in a stage and do not end, or behind one and do not go on while others pass them.
pub(super) fn hung(view: &View<'_>) -> Option<Finding> {
    let series = view.series;
    let (last, jobs_done) = (series.moments.last()?.time, series.moments.last()?.jobs_done);
    let usual = quantile(series.job_times.iter().map(|time| *time as f64), 0.95);
    let longest = series.job_times.iter().max().copied().unwrap_or(0) as f64;
    // The time is told in moments: when the whole process, or the machine, stood still, nobody hung.
    let index = |time: u64| series.moments.partition_point(|m| m.time <= time);
    let is_hung = |rest: &&Rest| {
        let until = rest.until.unwrap_or(last);
        let part = index(until).saturating_sub(index(rest.since)) as f64 / series.moments.len() as f64;
        let long = until.saturating_sub(rest.since) as f64;
        matches!(rest.kind, RestKind::Running(_) | RestKind::Queued(_))
            && long > 8.0 * usual
            && part > 0.15
            && (matches!(rest.kind, RestKind::Running(_)) || rest.jobs_before + OVERTAKEN < jobs_done)
            // One that runs may be a long one: some are several times as long as others.
            && (matches!(rest.kind, RestKind::Queued(_)) || long > 2.0 * longest)
    };
    let mut hung: Vec<&Rest> = series.rests.iter().filter(is_hung).collect();
    if hung.len() < SEVERAL {
        let part = |rest: &Rest| {
            index(rest.until.unwrap_or(last)).saturating_sub(index(rest.since)) as f64 / series.moments.len() as f64
        };
        let alone = |rest: &&Rest| match rest.kind {
            RestKind::Running(_) => {
                let long = rest.until.unwrap_or(last).saturating_sub(rest.since) as f64;
                long > LONG_ALONE * usual && part(rest) > PART_ALONE
            }
            _ => true,
        };
        hung.retain(alone);
    }
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
    let beyond = |m: &Moment| Some(used(m)? - held(m));
    let enough = |trend: &Trend| trend.goes_on && trend.growth >= floor.max(1e6);
    let trend = view.trend(beyond).filter(enough).or_else(|| view.late_trend_of(beyond).filter(enough))?;
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
        let place = rest.place.as_ref().map_or(String::new(), |place| format!(", asked for at {}", plain(place)));
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
