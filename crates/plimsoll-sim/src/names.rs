//! Names that last: classes and stages are named by `&'static str`, and files come at run time.

use std::collections::BTreeSet;

/// The same text, for as long as the process lives. Each text is kept once.
pub(crate) fn lasting(name: &str) -> &'static str {
    #[expect(
        clippy::disallowed_types,
        reason = "part of no protocol of the scheduler's, and never held while anything waits"
    )]
    static NAMES: std::sync::Mutex<BTreeSet<&'static str>> = std::sync::Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name = String::leak(name.to_owned());
    names.insert(name);
    name
}
