//! loom models of the shipped code; the models are in `tests/`, and what they share is here.
#![cfg(plimsoll_loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use loom::model::Builder;

/// Runs a model of the shipped code over all interleavings with up to three preemptions, or as many as
/// `LOOM_MAX_PREEMPTIONS` says; over all without exception where `PLIMSOLL_LOOM_UNBOUNDED` is set.
pub fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(3);
    run(builder, model);
}

/// The same with at most as many preemptions, whatever `LOOM_MAX_PREEMPTIONS` says: for models that would take minutes. With
/// `PLIMSOLL_LOOM_EXACTLY` they may.
pub fn check_at_most(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    if std::env::var_os("PLIMSOLL_LOOM_EXACTLY").is_some() {
        return check(model);
    }
    let mut builder = Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.map_or(preemptions, |bound| bound.min(preemptions)));
    run(builder, model);
}

/// Says what was explored: `cargo xtask loom -- --show-output` shows it. `LOOM_MAX_DURATION` ends a model after so many seconds.
fn run(mut builder: Builder, model: impl Fn() + Sync + Send + 'static) {
    if std::env::var_os("PLIMSOLL_LOOM_UNBOUNDED").is_some() {
        builder.preemption_bound = None;
        builder.max_branches = builder.max_branches.max(20_000);
    }
    // loom looks at the time only so often.
    builder.checkpoint_interval = builder.checkpoint_interval.min(1000);
    let (bound, at_most, started) = (builder.preemption_bound, builder.max_duration, Instant::now());
    let explored = Arc::new(AtomicU64::new(0));
    let count = explored.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let (name, took) = (std::thread::current().name().unwrap_or_default().to_owned(), started.elapsed());
    let bound = bound.map_or("no bound".to_owned(), |bound| format!("{bound} preemptions"));
    let all = if at_most.is_some_and(|at_most| took >= at_most) { "among them" } else { "all" };
    println!("{name}: {bound}, {all} {} interleavings, {:.1} s", explored.load(Ordering::Relaxed), took.as_secs_f64());
}
