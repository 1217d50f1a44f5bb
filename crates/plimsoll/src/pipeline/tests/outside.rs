//! Stages that wait for something outside.

use super::*;

#[test]
fn a_stall_says_what_a_stage_waits_for_outside_and_its_core_runs_others() {
    // Room for one job that holds a buffer, and as many as like without.
    let (ledger, pool) = (ledger(BUFFER_BYTES), pool(1));
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let may_go_on = crate::sync::Mutex::new(may_go_on);
    let profile = |bytes: &Bytes| Profile::new().stage("ask", Demand::new().bytes(BUFFER, *bytes), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .stage("ask", move |cx, bytes: Bytes| {
            if cx.job_name() == "first" {
                cx.block_on_external("an oracle", || {
                    begun.send(()).expect("the test listens");
                    let _ = crate::sync::lock(&may_go_on).recv();
                });
            }
            Ok::<_, Failed>(bytes)
        })
        .pacing(Pacing::Unpaced)
        .build()
        .expect("a pipeline");
    let submit = |name: &str, bytes| pipeline.submit(name, bytes).expect("taken on");
    let first = submit("first", BUFFER_BYTES);
    has_begun.recv().expect("it begins");
    // The pool's only thread is in the first job's stage, and yet a job that needs nothing gets through.
    submit("free", Bytes::ZERO).wait().expect("a spare runs it");
    let second = submit("second", BUFFER_BYTES);
    let says = loop {
        // The second job asks on a worker.
        match ledger.stall(Duration::ZERO) {
            Some(stall) => break stall.to_string(),
            None => crate::sync::thread::yield_now(),
        }
    };
    assert!(says.contains("\"second\"") && says.contains("waiting outside for \"an oracle\""), "{says}");
    go_on.send(()).expect("it waits");
    for ticket in [first, second] {
        ticket.wait().expect("a result");
    }
    ledger.quiesce(Duration::from_secs(10)).expect("quiet");
    assert_eq!(ledger.stall(Duration::ZERO), None);
}

#[test]
fn waits_outside_that_overlap_are_over_when_each_of_them_is() {
    let ledger = ledger(BUFFER_BYTES);
    let mut job = ledger
        .submit(crate::JobSpec::new(
            "job",
            Profile::new().stage("s", Demand::new().bytes(BUFFER, BUFFER_BYTES), Demand::new()),
        ))
        .expect("fits");
    let grant = job.enter(0).wait().expect("room");
    let waits_for = || ledger.snapshot().holders[0].external.map(|(what, _)| what);
    // As two forks of a stage do: neither is within the other.
    for first_ends_first in [true, false] {
        let (one, other) = (grant.external_wait("one"), grant.external_wait("other"));
        assert_eq!(waits_for(), Some("other"));
        let (first, second, left) = if first_ends_first { (one, other, "other") } else { (other, one, "one") };
        drop(first);
        assert_eq!(waits_for(), Some(left));
        drop(second);
        assert_eq!(waits_for(), None, "it waits for nothing any more");
    }
}
