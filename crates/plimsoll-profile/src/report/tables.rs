//! What a page says in words and tables.

use super::units::{bytes, time};
use crate::timeline::{Holder, Quantiles, Timeline};

/// A table of a page.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// What is said of a holder.
const HOLDERS: [&str; 7] = ["holder", "stage", "bytes", "share", "since", "of which", "asked for at"];

/// What happened, in sentences.
pub(super) fn story(timeline: &Timeline) -> Vec<String> {
    let mut story = Vec::new();
    let length = time(timeline.length_ns());
    story.push(format!("The trace covers {length} in {} events.", timeline.events));
    if let Some(end) = &timeline.ended {
        let how = if end.is_done() { "came to its end" } else { "did not come to its end" };
        story.push(format!("The run {how}: {}.", end.text));
    }
    if timeline.torn {
        story.push("Its last line has no end: the run was killed, or still goes on.".into());
    }
    if timeline.events_lost > 0 {
        story.push(format!(
            "{} events were lost because they could not be written fast enough: take the sums with care.",
            timeline.events_lost
        ));
    }
    for (name, count) in &timeline.unknown {
        story.push(format!("{count} events {name:?} are of a later version, and are left out."));
    }
    let jobs = &timeline.jobs;
    let done = timeline.done();
    if let Some(rate) = timeline.length_ns().checked_div(done) {
        story.push(format!(
            "{done} jobs were done, one every {} on average; at most {} were under way at once.",
            time(rate),
            jobs.open_peak
        ));
    }
    for (how, count) in jobs.finished.iter().filter(|finished| &**finished.0 != "result") {
        story.push(format!("{count} jobs ended as {how:?}."));
    }
    for (count, words) in [
        (jobs.late, "finished after their deadline"),
        (jobs.refused, "requests were refused for good"),
        (jobs.withdrawn, "requests were taken back before they were granted"),
        (jobs.forced, "were admitted alone, above a limit"),
        (jobs.restarted, "began again"),
    ] {
        if count > 0 {
            story.push(format!("{count} {words}."));
        }
    }
    for space in timeline.spaces.iter().filter(|space| space.peak.bytes > 0) {
        let most = space.peak.classes.first().map(|(class, held)| format!(", of which {} {class}", bytes(*held)));
        let line = space.line.iter().flatten().max().map(|line| format!(" under a line of {}", bytes(*line)));
        story.push(format!(
            "In {} memory at most {} were held{}{}.",
            space.space,
            bytes(space.peak.bytes),
            line.unwrap_or_default(),
            most.unwrap_or_default()
        ));
    }
    if let Some(resident) = timeline.sample("resident_bytes") {
        story.push(format!("The process had at most {} resident when it was looked at.", bytes(resident.peak)));
    }
    if let Some(wait) = timeline.waits.first() {
        let stage = wait.stage.as_ref().map(|stage| format!(" for {stage}")).unwrap_or_default();
        story.push(format!("The longest wait was {}: {}{stage}.", time(wait.wait_ns), wait.name));
    }
    if timeline.left.is_empty() {
        story.push("When the trace ends, everything has been given back.".into());
    } else {
        let held: u64 = timeline.left.iter().map(|holder| holder.bytes).sum();
        let count = timeline.left.len() as u64 + timeline.left_out;
        story.push(format!("When the trace ends, {count} still hold something; the largest, {}.", bytes(held)));
    }
    story.push(if timeline.conservation.holds() {
        "All sums are right: what came, less what went, is what is held, class by class and owner by owner.".into()
    } else {
        format!(
            "The sums are not right: {} events say something else of what is held than those before them, and {} times somebody \
             returned more than it had.",
            timeline.conservation.mismatches, timeline.conservation.overdrafts
        )
    });
    story
}

/// The tables of a timeline.
pub(super) fn tables(timeline: &Timeline) -> Vec<Table> {
    let mut tables = Vec::new();
    for space in timeline.spaces.iter().filter(|space| space.peak.bytes > 0) {
        let at = time(space.peak.time_ns - timeline.begin_ns);
        let more = match space.peak.holders_left_out {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        tables.push(Table {
            title: format!("Who held the peak of {} memory, at {at}{more}", space.space),
            columns: HOLDERS.to_vec(),
            rows: space.peak.holders.iter().map(|holder| of_holder(holder, space.peak.bytes, timeline)).collect(),
        });
    }
    tables.push(Table {
        title: "Who still holds something when the trace ends".into(),
        columns: HOLDERS.to_vec(),
        rows: {
            let all = timeline.left.iter().map(|holder| holder.bytes).sum();
            timeline.left.iter().map(|holder| of_holder(holder, all, timeline)).collect()
        },
    });
    let stages = timeline.stages.iter().map(|stage| {
        let Quantiles { p50_ns, p95_ns, max_ns, .. } = stage.run;
        vec![
            stage.stage.to_string(),
            stage.runs.to_string(),
            time(p50_ns),
            time(p95_ns),
            time(max_ns),
            time(stage.wait.p50_ns),
            time(stage.wait.p95_ns),
            time(stage.wait.max_ns),
            time(stage.place_wait.p95_ns),
            format!("{:.2}", stage.running_all),
            stage.queue_peak.to_string(),
            stage.retries.to_string(),
        ]
    });
    tables.push(Table {
        title: "Stages".into(),
        columns: vec![
            "stage",
            "runs",
            "run, half",
            "run, 19 of 20",
            "run, longest",
            "wait, half",
            "wait, 19 of 20",
            "wait, longest",
            "for a place, 19 of 20",
            "running, mean",
            "waiting, most",
            "again",
        ],
        rows: stages.collect(),
    });
    let waits = timeline.waits.iter().map(|wait| {
        let stage = wait.stage.as_ref().map_or("–".to_owned(), |stage| stage.to_string());
        vec![
            wait.name.to_string(),
            stage,
            time(wait.wait_ns),
            time(wait.asked_ns - timeline.begin_ns),
            wait.how.to_owned(),
        ]
    });
    tables.push(Table {
        title: "The longest waits".into(),
        columns: vec!["who", "for", "how long", "asked at", "and was"],
        rows: waits.collect(),
    });
    let residencies = timeline.residencies.iter().map(|line| {
        vec![line.name.to_string(), line.loads.to_string(), line.failed.to_string(), line.evictions.to_string()]
    });
    tables.push(Table {
        title: "Residencies".into(),
        columns: vec!["residency", "loaded", "failed", "evicted"],
        rows: residencies.collect(),
    });
    let books = timeline.conservation.classes.iter().map(|books| {
        vec![
            format!("{} in {}", books.class, books.space),
            bytes(books.before),
            bytes(books.came),
            bytes(books.went),
            bytes(books.held),
            if books.is_balanced() { "balanced".into() } else { "NOT balanced".into() },
        ]
    });
    tables.push(Table {
        title: "The books".into(),
        columns: vec!["class", "before", "came", "went", "held at the end", ""],
        rows: books.collect(),
    });
    tables
}

fn of_holder(holder: &Holder, all: u64, timeline: &Timeline) -> Vec<String> {
    let kind = match (holder.is_job, holder.ended) {
        (true, false) => "",
        (true, true) => " (job has ended)",
        (false, _) => " (reservation)",
    };
    let classes: Vec<String> =
        holder.classes.iter().take(4).map(|(class, _, held)| format!("{} {class}", bytes(*held))).collect();
    vec![
        format!("{}{kind}", holder.name),
        holder.stage.as_ref().map_or("–".to_owned(), |stage| stage.to_string()),
        bytes(holder.bytes),
        format!("{:.0} %", 100.0 * holder.bytes as f64 / all.max(1) as f64),
        time(holder.since_ns.saturating_sub(timeline.begin_ns)),
        classes.join(", "),
        holder.place.as_ref().map_or("–".to_owned(), |place| place.to_string()),
    ]
}
