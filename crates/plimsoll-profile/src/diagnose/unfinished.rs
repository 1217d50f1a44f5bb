//! A run that did not come to its end: its trace says so.

use std::collections::BTreeMap;

use plimsoll::Bytes;

use super::{Finding, RestKind, Series, Verdict};
use crate::plain::plain;

/// What the trace says of its end, where that is none that one would wish for.
pub(super) fn find(series: &Series) -> Option<Finding> {
    killed_in_group(series).or_else(|| ended(series))
}

/// The kernel has killed in this process's control group while it ran: that is said whatever the process itself came to.
fn killed_in_group(series: &Series) -> Option<Finding> {
    let kills = |moment: &super::Moment| moment.sample.group.as_ref().map(|group| (group.oom_kills, group.limit_bytes));
    let (first, _) = series.moments.iter().find_map(kills)?;
    let (last, limit) = series.moments.iter().rev().find_map(kills)?;
    let killed = last.checked_sub(first).filter(|killed| *killed > 0)?;
    Some(Finding {
        verdict: Verdict::Unfinished,
        bytes: 0,
        rate: None,
        headline: format!(
            "the kernel has killed {killed} processes of its control group for want of memory while it ran"
        ),
        evidence: vec![format!("the control group has {}", Bytes(limit))],
        next_step: "look at what else is in the group, and lower the line so that all of it fits".to_owned(),
    })
}

fn ended(series: &Series) -> Option<Finding> {
    let end = series.ended.as_ref().filter(|end| !end.is_done())?;
    let mut evidence = Vec::new();
    let mut queued: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for rest in &series.rests {
        if let RestKind::Queued(stage) = &rest.kind {
            let (jobs, bytes) = queued.entry(stage).or_default();
            (*jobs, *bytes) = (*jobs + 1, *bytes + rest.bytes);
        }
    }
    for (stage, (jobs, bytes)) in &queued {
        evidence.push(format!("{jobs} jobs were behind {stage:?} when it ended, with {}", Bytes(*bytes)));
    }
    if let Some(peak) = series.moments.iter().map(|moment| moment.held).max() {
        evidence.push(format!("{} were held at the most", Bytes(peak)));
    }
    let next_step = match &*end.how {
        "out-of-memory" => {
            "bound the bytes that are made and not yet consumed, not the tasks that run: a permit lives as long as its bytes, or a \
             ledger has a budget below what the machine has"
        }
        "stuck" => "look at who waits when the trace ends, and who should have woken them",
        "no-progress" => {
            "let jobs wait for all that they will need instead of failing half-way, or let fewer in at a time"
        }
        "refused" => "give it the memory that it says is missing",
        _ => "make the run shorter",
    };
    Some(Finding {
        verdict: Verdict::Unfinished,
        bytes: queued.values().map(|entry| entry.1).fold(0, u64::saturating_add),
        rate: None,
        headline: format!("the run did not come to its end: {}", plain(&end.text)),
        evidence,
        next_step: next_step.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::diagnose;
    use crate::trace::RunEnd;

    #[test]
    fn a_run_that_was_killed_is_not_healthy() {
        let ended = |how: &str| Some(RunEnd { how: how.into(), text: "out of memory after 3 proofs".into() });
        let killed = diagnose(&Series { ended: ended("out-of-memory"), ..Series::default() });
        assert_eq!(killed.verdict(), Verdict::Unfinished);
        assert!(killed.finding.headline.contains("out of memory after 3 proofs"), "{killed}");
        let odd = RunEnd { how: "stuck".into(), text: "\u{1b}[2Jgone".into() };
        let text = diagnose(&Series { ended: Some(odd), ..Series::default() }).to_string();
        assert!(!text.contains('\u{1b}') && text.contains("gone"), "{text}");
        for ended in [ended("done"), None] {
            assert_eq!(diagnose(&Series { ended, ..Series::default() }).verdict(), Verdict::Unknown);
        }
    }
}
