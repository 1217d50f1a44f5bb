//! What errors and panics carry away from a stage does not outlive its job, where nobody is told of them.

use super::*;

/// An error with which a stage carries memory off.
#[derive(Debug)]
struct Holding(#[expect(dead_code, reason = "it is held")] Reservation);

/// A stage whose job is cancelled while it runs, and which then leaves in the way that it is told.
fn leave(with: impl Fn(Reservation) -> Result<(), Holding> + Send + Sync + 'static) -> (JobError<Holding>, u64) {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let (begun, has_begun) = mpsc::channel();
    let begun = crate::sync::Mutex::new(begun);
    let peak = || Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let pipeline = Pipeline::builder(&ledger, &pool, move |()| Profile::new().stage("only", peak(), Demand::new()))
        .stage("only", move |cx, ()| {
            let held = cx.grant().take_all(BUFFER);
            crate::sync::lock(&begun).send(()).expect("the test waits for it");
            while !cx.is_cancelled() {
                std::thread::yield_now();
            }
            with(held)
        })
        .build()
        .expect("a pipeline");
    let ticket = pipeline.submit("job", ()).expect("taken on");
    has_begun.recv().expect("it has begun");
    ticket.cancel();
    let error = ticket.wait().expect_err("it does not end well");
    drop(pipeline);
    let snapshot = ledger.snapshot();
    assert!(snapshot.is_empty(), "{snapshot:?}");
    (error, snapshot.outlived)
}

#[test]
fn what_an_error_holds_is_gone_before_its_job_has_ended() {
    let (error, outlived) = leave(|held| Err(Holding(held)));
    assert!(matches!(error, JobError::Cancelled { .. }), "{error:?}");
    assert_eq!(outlived, 0);
}

#[test]
fn what_a_panic_was_thrown_with_is_gone_before_its_job_has_ended() {
    let (error, outlived) = leave(|held| std::panic::panic_any(held));
    assert!(matches!(error, JobError::Panicked { .. }), "{error:?}");
    assert_eq!(outlived, 0);
}
