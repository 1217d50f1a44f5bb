//! loom models of the shipped code; the models are in `tests/`.
