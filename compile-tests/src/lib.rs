//! Programs that must not compile, in `tests/`. A crate of its own, because the tests build all that their crate depends on
//! once more.
