//! A model as a downstream crate would write it, with the helpers of `plimsoll-check`: a producer hands what it makes over
//! to a consumer, and the reservation travels along.
#![cfg(plimsoll_loom)]

use plimsoll::{Budget, Bytes, Class, Ledger, Reservation, Space};
use plimsoll_check::model::{self, sync::Arc, sync::Mutex, thread};

const MADE: Class = Class::new("made", Space::HOST);

/// Makes two things where there is room for one, and looks at how many are made and not consumed.
fn hand_over(reservation_travels_along: bool) {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(1)));
    let shelf: Arc<Mutex<Vec<Option<Reservation>>>> = Arc::default();
    let producer = {
        let (ledger, shelf) = (ledger.clone(), shelf.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                let room = ledger.reserve(MADE, Bytes(1)).wait().expect("it fits");
                let backlog = {
                    let mut shelf = shelf.lock().expect("nobody panics under the lock");
                    shelf.push(reservation_travels_along.then_some(room));
                    shelf.len()
                };
                assert!(backlog <= 1, "{backlog} are made and not consumed");
            }
        })
    };
    let mut consumed = 0;
    while consumed < 2 {
        let taken = shelf.lock().expect("nobody panics under the lock").pop();
        match taken {
            Some(_) => consumed += 1,
            None => thread::yield_now(),
        }
    }
    producer.join().expect("the backlog is bounded");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn what_is_made_and_not_consumed_is_bounded_while_the_reservation_travels_along() {
    model::check(|| hand_over(true));
}

#[test]
fn a_reservation_returned_after_production_bounds_nothing() {
    assert!(model::finds_a_fault(|| hand_over(false)));
}
