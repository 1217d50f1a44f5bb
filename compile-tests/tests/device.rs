//! What the types of `plimsoll::device` forbid: programs that must not compile, beside one that does.

/// One forbidden line away from the others; it is compiled with this test.
#[path = "must_not_compile/ok.rs"]
mod ok;

#[test]
fn device_memory_cannot_outlive_the_lease() {
    let _: fn() = ok::main;
    let tests = trybuild::TestCases::new();
    for name in [
        "allocated_past_the_ledger",
        "captured_by_the_stage",
        "compute_without_the_lease",
        "into_a_static",
        "into_another_lease",
        "lane_to_another_thread",
        "memory_swapped_out",
        "returned_from_the_stage",
        "through_a_channel",
        "to_another_thread",
    ] {
        tests.compile_fail(format!("tests/must_not_compile/{name}.rs"));
    }
}
