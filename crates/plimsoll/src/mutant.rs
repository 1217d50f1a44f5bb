//! Deliberate faults in this crate and those around it, which the checks must catch (`docs/testing.md`, "Mutants").
//!
//! One build with `cfg(plimsoll_mutants)` has them all, and the environment variable `PLIMSOLL_MUTANT` switches one on.
//! In any other build `mutant!` is the constant `false`, and nothing of this is left.

/// Whether the fault of this name is switched on.
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        cfg!(plimsoll_mutants) && $crate::mutant::is_on($name)
    };
}

#[doc(hidden)]
pub fn is_on(name: &str) -> bool {
    use std::sync::LazyLock;
    static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("PLIMSOLL_MUTANT").ok());
    CHOSEN.as_deref() == Some(name)
}
