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

/// When it is woken, looks whether anything is held.
struct Looks(Ledger, crate::sync::Mutex<mpsc::Sender<bool>>);

impl std::task::Wake for Looks {
    fn wake(self: Arc<Self>) {
        let _ = crate::sync::lock(&self.1).send(self.0.snapshot().is_empty());
    }
}

#[test]
fn what_the_error_of_a_part_holds_is_gone_before_its_job_has_ended() {
    let (ledger, pool, (carrier, errand)) = (ledger(CLAIM), pool(1), super::word::hands());
    let part = || {
        let bytes = || Demand::new().bytes(BUFFER, Bytes(8));
        Profile::new().stage("begin", Demand::new(), Demand::new()).stage("end", bytes(), bytes())
    };
    let whole = move |_: &()| Profile::new().stage("fan", Demand::new(), Demand::new()).parts(2, &part());
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (begun, may_go_on) = (crate::sync::Mutex::new(begun), crate::sync::Mutex::new(may_go_on));
    let pipeline = Pipeline::builder(&ledger, &pool, whole)
        .fan_out(
            "fan",
            |_, ()| Ok(((), 0..2)),
            move |_| part(),
            |parts| {
                parts.stage("begin", |_, number: usize| Ok(number)).stage_on("end", &carrier, move |cx, number| {
                    if number == 0 {
                        return Err(Holding(cx.grant().take_all(BUFFER)));
                    }
                    crate::sync::lock(&begun).send(()).expect("the test waits for it");
                    crate::sync::lock(&may_go_on).recv().expect("the test tells");
                    Ok(number)
                })
            },
            FanIn::InOrder,
            |_, (), made| Ok(made.len()),
        )
        .pacing(Pacing::Unpaced)
        .build()
        .expect("a pipeline");
    let mut ticket = pipeline.submit("job", ()).expect("taken on");
    let (say, said) = mpsc::channel();
    let waker = Arc::new(Looks(ledger.clone(), crate::sync::Mutex::new(say))).into();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(std::pin::Pin::new(&mut ticket).poll(&mut cx).is_pending());
    // One part fails, while the other one runs and does not end.
    let [first, second] = [(); 2].map(|()| errand.recv().expect("a part"));
    let second = crate::sync::thread::Builder::new().spawn(move || second.run()).expect("a thread");
    has_begun.recv().expect("it has begun");
    first.run();
    until_idle(&pool);
    // Nobody else can drive the job any more: whoever brings the last word ends it, with the word in hand.
    pool.close_the_queue();
    ticket.cancel();
    assert!(!ticket.has_ended(), "it waits for its part");
    go_on.send(()).expect("the part waits");
    assert!(said.recv().expect("it ends"), "nothing is held when the ticket is answered");
    second.join().expect("no panic");
    assert!(matches!(ticket.wait(), Err(JobError::Cancelled { .. } | JobError::ShutDown { .. })));
    assert_eq!(ledger.snapshot().outlived, 0);
}
