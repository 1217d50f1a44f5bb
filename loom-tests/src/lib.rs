//! loom models of the shipped code; the models are in `tests/`, and what they share is here.
#![cfg(plimsoll_loom)]

/// Runs a model of the shipped code over all interleavings with up to three preemptions, or as many as
/// `LOOM_MAX_PREEMPTIONS` says.
pub fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

/// The same with at most as many preemptions, whatever the environment says: for models that would take minutes.
pub fn check_at_most(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.map_or(preemptions, |bound| bound.min(preemptions)));
    builder.check(model);
}
