//! shuttle tests of the shipped code; they are in `tests/`.
