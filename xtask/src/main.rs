//! Development tasks: `cargo xtask <task>`.

fn main() {}
