//! loom models of the shipped code; the models are in `tests/`, and what they share is here.
#![cfg(plimsoll_loom)]

use loom::model::Builder;

/// Runs a model of the shipped code over all interleavings with up to three preemptions, or as many as
/// `LOOM_MAX_PREEMPTIONS` says; over all without exception where `PLIMSOLL_LOOM_UNBOUNDED` is set.
pub fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(3);
    unbound(&mut builder);
    builder.check(model);
}

/// The same with at most as many preemptions, whatever `LOOM_MAX_PREEMPTIONS` says: for models that would take minutes.
pub fn check_at_most(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.map_or(preemptions, |bound| bound.min(preemptions)));
    unbound(&mut builder);
    builder.check(model);
}

fn unbound(builder: &mut Builder) {
    if std::env::var_os("PLIMSOLL_LOOM_UNBOUNDED").is_some() {
        builder.preemption_bound = None;
        builder.max_branches = builder.max_branches.max(20_000);
    }
}
