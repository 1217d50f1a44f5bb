//! Stages that run on a device or on a worker of the pool, as they were granted.
#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::sync::{Mutex, mpsc};

use plimsoll::device::DeviceError;
use plimsoll::device::simulate::Faults;
use plimsoll::pipeline::{Pacing, Pipeline};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Bytes, Demand, Profile};

use crate::several::Cards;
use crate::support::{MS, scratch};

/// Where a job was done: on this device, or on a worker that was not told of any.
type Where = Option<u16>;

/// The other end of what a job on the card tells and waits for.
struct Door {
    it_is_there: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

/// Doubles a number on the card, or on the processor where the card has no room. An odd one stays on the card until it may go on.
fn doubles(cards: &Cards, pool: &Pool) -> (Pipeline<u8, (Where, u8), DeviceError>, Door) {
    let ((there, it_is_there), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    let may_go_on = Mutex::new(may_go_on);
    let on_card = || Demand::new().on_lease(0).bytes(scratch(0), Bytes(10));
    let one = |peak| Profile::new().stage("double", peak, Demand::new());
    let pipeline = Pipeline::builder(&cards.ledger, pool, move |_: &u8| one(on_card()))
        .alternatives(move |_| vec![one(Demand::new())])
        .pacing(Pacing::Unpaced)
        .compute_stage_or(
            "double",
            &cards.set,
            move |cx, number: u8| {
                let memory = cx.allocate(scratch(0), Bytes(10))?;
                if number % 2 == 1 {
                    there.send(()).unwrap();
                    may_go_on.lock().unwrap().recv().unwrap();
                }
                cx.call(|lane| {
                    lane.kernel(MS, &[memory.memory()], || memory.memory().write(|out| *out = vec![number * 2]))
                })?;
                let mut host = [0];
                cx.copy_out(&memory, 0, &mut host)?;
                Ok((Some(cx.device()), host[0]))
            },
            |cx, number| {
                assert_eq!((cx.grant().choice(), cx.grant().lane()), (1, None));
                assert!(std::thread::current().name().is_some_and(|name| name.starts_with("plimsoll")));
                Ok((None, number * 2))
            },
        )
        .build()
        .expect("a pipeline");
    (pipeline, Door { it_is_there, go_on })
}

fn pool() -> Pool {
    Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("threads")
}

#[test]
fn a_worker_does_what_a_busy_device_cannot() {
    let (cards, pool) = (Cards::new(10, &[Faults::default()]), pool());
    let (pipeline, door) = doubles(&cards, &pool);
    let on_card = pipeline.submit("on the card", 1).unwrap();
    door.it_is_there.recv().unwrap();
    // The card's memory is in use, and stays so.
    for number in [2, 4] {
        assert_eq!(pipeline.submit("beside it", number).unwrap().wait().unwrap(), (None, number * 2));
    }
    door.go_on.send(()).unwrap();
    assert_eq!(on_card.wait().unwrap(), (Some(0), 2));
    assert_eq!(pipeline.submit("after it", 6).unwrap().wait().unwrap(), (Some(0), 12));
    drop(pipeline);
    cards.assert_clean();
}

#[test]
fn a_worker_takes_over_when_the_last_device_is_lost() {
    let (cards, pool) = (Cards::new(10, &[Faults::default()]), pool());
    let (pipeline, door) = doubles(&cards, &pool);
    assert_eq!(pipeline.submit("on the card", 2).unwrap().wait().unwrap(), (Some(0), 4));
    let first = pipeline.submit("when it is lost", 3).unwrap();
    door.it_is_there.recv().unwrap();
    cards.set.device(0).unwrap().give_up("pulled out");
    door.go_on.send(()).unwrap();
    first.wait().expect_err("it was there");
    for number in [4, 5] {
        assert_eq!(pipeline.submit("after that", number).unwrap().wait().unwrap(), (None, number * 2));
    }
    drop(pipeline);
    cards.assert_clean();
}
