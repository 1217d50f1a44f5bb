//! The causes one by one: those that grow are in `growth`, those that stand in `levels`; here
//! is what comes from outside, the ceiling, and what is said when nothing is the matter.

use plimsoll::Bytes;

use super::statistics::{median, quantile};
use super::{Finding, Moment, Verdict, View, growth, levels, signed, truth};

/// Everything that is found.
pub(super) fn all(view: &View<'_>) -> Vec<Finding> {
    if view.series.moments.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    findings.extend(growth::leak(view));
    findings.extend(growth::resting(view));
    findings.extend(growth::hung(view));
    findings.extend(growth::stalled(view));
    findings.extend(growth::cards(view));
    findings.extend(levels::retention(view));
    findings.extend(levels::fragmentation(view));
    findings.extend(levels::uncounted(view));
    findings.extend(levels::cards_uncounted(view));
    findings.extend(neighbour(view));
    findings.extend(ceiling(view));
    findings
}

/// The part of the machine, or of the control group, that is left when memory is said to be short.
const SHORT: f64 = 0.12;
/// What others must have taken since the beginning, as a part of all there is.
const TAKEN: f64 = 0.03;

/// Another process takes the memory: little is left, or too little for this process's own line, and it is the others that grew.
fn neighbour(view: &View<'_>) -> Option<Finding> {
    let moments = &view.series.moments;
    let last = last_part(moments);
    let place = last.last()?.sample.group.as_ref().filter(|group| {
        // The control group binds where it has less left than the machine.
        let machine = last.last().and_then(|m| m.sample.machine?.available_bytes);
        machine.is_none_or(|available| group.left_bytes() < available)
    });
    let in_group = place.is_some();
    let capacity = |m: &Moment| match in_group {
        true => m.sample.group.as_ref().map(|group| group.limit_bytes as f64),
        false => m.sample.machine.map(|machine| machine.total_bytes as f64),
    };
    let left = |m: &Moment| match in_group {
        true => m.sample.group.as_ref().map(|group| group.left_bytes() as f64),
        false => m.sample.machine.and_then(|machine| machine.available_bytes).map(|bytes| bytes as f64),
    };
    // A process's children are its own: what they take is no neighbour's.
    let children = |m: &Moment| m.sample.others.as_ref().map_or(0.0, |others| others.children_bytes as f64);
    let others = |m: &Moment| {
        let used = match in_group {
            // What counts in a group is what cannot be had without ending somebody: not the pages of files, which are read and
            // written by this process as well. Where that is not told, its own mapped files at least are set aside.
            true => m.sample.group.as_ref()?.anonymous_bytes.map(|bytes| bytes as f64).or_else(|| {
                let files = m.sample.process.map_or(0, |process| process.file_bytes);
                Some(capacity(m)? - left(m)? - files as f64)
            })?,
            false => capacity(m)? - left(m)?,
        };
        Some(used - truth(m)? - children(m))
    };
    let total = capacity(last.last()?)?;
    let short = |m: &&Moment| {
        let (Some(left), Some(own)) = (left(m), truth(m)) else { return false };
        left < SHORT * total || m.sample.line.is_some_and(|line| own + left < 0.98 * line as f64)
    };
    if last.iter().filter(short).count() * 2 < last.len() {
        return None;
    }
    let first = moments.len().div_ceil(10);
    let start = |y: &dyn Fn(&Moment) -> Option<f64>| quantile(moments[..first].iter().filter_map(y), 0.25);
    let now = |y: &dyn Fn(&Moment) -> Option<f64>| median(last.iter().filter_map(y));
    let taken = now(&others) - start(&others);
    let own = now(&truth) - start(&truth);
    if taken < TAKEN * total || taken < own {
        return None;
    }
    let where_ = if in_group { "its control group" } else { "the machine" };
    let mut evidence = vec![
        format!("the others hold {} more than at the beginning, this process {} more", signed(taken), signed(own)),
        format!("{} of {} are left in {where_}", signed(now(&left)), signed(total)),
    ];
    if let Some(line) = last.last()?.sample.line {
        evidence.push(format!("this process was to have {}", Bytes(line)));
    }
    if let Some(others) = last.iter().rev().find_map(|m| m.sample.others.as_ref()).filter(|o| o.largest_bytes > 0) {
        let name = if others.largest.is_empty() { String::new() } else { format!("{:?}, ", others.largest) };
        evidence.push(format!(
            "the largest other process is {name}process {}, with {}",
            others.largest_id,
            Bytes(others.largest_bytes)
        ));
    }
    Some(Finding {
        verdict: Verdict::Neighbour,
        bytes: taken as u64,
        rate: None,
        headline: format!("other processes have taken {} of {where_}'s memory since the run began", signed(taken)),
        evidence,
        next_step:
            "end or move the other process, or lower this one's line below what is left; a control group of its \
                    own (memory.min) keeps a share for it"
                .to_owned(),
    })
}

/// Below this part of the moments a limit that was reached is a burst.
const CEILING_SHARE: f64 = 0.25;

/// The peak follows the concurrency up to a limit, and nothing grows: what is short is the limit.
fn ceiling(view: &View<'_>) -> Option<Finding> {
    let steady = view.steady();
    let share =
        |what: &dyn Fn(&Moment) -> bool| steady.iter().filter(|m| what(m)).count() as f64 / steady.len().max(1) as f64;
    let waits = share(&growth::waits_for_memory);
    let at_line = share(&|m| {
        m.sample.line.is_some_and(|line| {
            m.sample.process.is_some_and(|process| process.resident_bytes as f64 >= 0.93 * line as f64)
        })
    });
    let at_end = share(&|m| {
        let own = m.sample.process.map_or(0, |process| process.resident_bytes) as f64;
        let left = m.sample.left_bytes().map(|left| left as f64);
        left.is_some_and(|left| left < 0.05 * (own + left) && own > 0.5 * view.scale)
    });
    // What is held must turn over: jobs end, or run. Where nothing does, more memory helps nobody for long.
    let last = last_part(&view.series.moments);
    let turns_over = last.iter().any(|m| !m.running.is_empty())
        || last
            .first()
            .zip(last.last())
            .is_some_and(|(from, to)| to.jobs_done > from.jobs_done || to.reservations_done > from.reservations_done);
    if waits.max(at_line).max(at_end) < CEILING_SHARE || !turns_over || growth::stands_still(view) {
        return None;
    }
    let peak = steady.iter().map(|m| m.held).max().unwrap_or(0);
    let jobs = steady.iter().map(|m| m.in_flight).max().unwrap_or(0);
    let mut evidence = vec![format!("at most {jobs} jobs were in flight at once, and held up to {}", Bytes(peak))];
    if let Some(each) = peak.checked_div(jobs) {
        evidence.push(format!("that is {} a job, and it comes back when a job ends", Bytes(each)));
    }
    if waits > 0.0 {
        evidence.push(format!("in {:.0} % of the time somebody waited for memory", waits * 100.0));
    }
    if at_line > 0.0 {
        evidence.push(format!("in {:.0} % of the time the process was within 7 % of its line", at_line * 100.0));
    }
    if at_end > 0.0 {
        evidence.push(format!("in {:.0} % of the time less than 5 % of the memory was left", at_end * 100.0));
    }
    Some(Finding {
        verdict: Verdict::Ceiling,
        bytes: peak,
        rate: None,
        headline: "memory bounds how many jobs run at once, and nothing grows: this is capacity, not a fault"
            .to_owned(),
        evidence,
        next_step:
            "give it more memory (`plimsoll plan` says how much is worth it), or let fewer jobs be in flight at once; \
                    it is safe to leave it as it is"
                .to_owned(),
    })
}

/// In fewer samples than this next to nothing is seen.
const FEW: usize = 40;

/// The last third of the moments, where what has become of it shows.
pub(super) fn last_part(moments: &[Moment]) -> &[Moment] {
    &moments[moments.len() * 2 / 3..]
}

/// Nothing is the matter.
pub(super) fn healthy(view: &View<'_>) -> Finding {
    let seen = view.series.moments.iter().any(|m| m.sample.process.is_some());
    let mut evidence = Vec::new();
    if !seen {
        return Finding {
            verdict: Verdict::Unknown,
            bytes: 0,
            rate: None,
            headline: "not enough was seen: what the process really holds was never sampled, only what its ledger counts".to_owned(),
            evidence: match view.series.moments.iter().map(|m| m.held).max() {
                Some(peak) => vec![format!(
                    "by the ledger's own word, of which {} were held at the most, nothing is stuck and nothing piles up",
                    Bytes(peak)
                )],
                None => vec!["there is no event and no sample".to_owned()],
            },
            next_step: "sample the process: `plimsoll prove --trace` and `--record` do unless `--sample-ms` is 0; in a library, \
                        `watch::Watch` with `tell`"
                .to_owned(),
        };
    }
    let (n, x) =
        (view.series.moments.len(), view.x.last().copied().unwrap_or(0.0) - view.x.first().copied().unwrap_or(0.0));
    evidence.push(format!("{n} samples over {x:.0} {}s", view.per));
    match view.trend_of_unaccounted() {
        Some(trend) => {
            evidence.push(format!("what the ledger does not count does not go on growing: {}", view.rate(trend.slope)))
        }
        None if n > 0 => evidence.push("too few samples to see slow growth; let it run longer to be sure".to_owned()),
        None => {}
    }
    if let Some(peak) = view.series.moments.iter().map(|m| m.held).max() {
        evidence.push(format!("the ledger held {} at the most", Bytes(peak)));
    }
    Finding {
        verdict: Verdict::Healthy,
        bytes: 0,
        rate: None,
        headline: match n {
            FEW.. => "nothing grows, nothing is kept, and the memory suffices".to_owned(),
            _ => format!("nothing is the matter as far as {n} samples tell, which is not far"),
        },
        evidence,
        next_step: "nothing".to_owned(),
    }
}
