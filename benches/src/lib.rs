//! Benchmarks against peers, in the same run; each is a program in `src/bin`.
