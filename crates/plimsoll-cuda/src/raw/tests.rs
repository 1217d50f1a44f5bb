//! Pinned memory, as far as it goes without a device.

use plimsoll::{Bytes, Class, Ledger, Space};

use super::*;

const STAGING: Class = Class::new("staging", Space::HOST);

fn memory(ledger: &Ledger) -> Charged<Vec<u8>> {
    let capacity = Registered::allocation_bytes(HUGE_PAGE);
    let reservation = ledger.reserve(STAGING, Bytes(capacity as u64)).wait().expect("unlimited");
    Charged::<Vec<u8>>::with_capacity(reservation, capacity).expect("memory")
}

fn held(ledger: &Ledger) -> u64 {
    ledger.snapshot().space(Space::HOST).map_or(0, |space| space.held.0)
}

#[test]
fn what_is_in_pinned_memory_is_not_shown_and_what_cuda_keeps_stays_booked() {
    let ledger = Ledger::unlimited();
    let mut pages = Pages::of(memory(&ledger));
    // As `new` does, but for the registration; and full, so that there is something to show.
    pages.memory.resize(HUGE_PAGE, 201);
    let first = pages.memory.as_mut_ptr();
    let range = Registered { device: 0, first, bytes: HUGE_PAGE, pages: ManuallyDrop::new(pages) };
    let shown = format!("{range:?} {range:#?}");
    assert!(!shown.contains("201") && shown.contains(&HUGE_PAGE.to_string()), "{shown}");
    assert!(shown.len() < 200, "{shown}");
    let booked = held(&ledger);
    // Never registered, so that CUDA does not let go of it; with or without a device.
    drop(range);
    assert_eq!((held(&ledger), booked), (booked, Registered::allocation_bytes(HUGE_PAGE) as u64));
}

#[test]
fn pages_that_are_not_registered_or_let_go_are_given_back() {
    let ledger = Ledger::unlimited();
    let range = Registered::new(0, memory(&ledger), HUGE_PAGE);
    assert_eq!(range.is_ok(), device_count().is_ok_and(|count| count > 0));
    drop(range);
    assert_eq!(held(&ledger), 0);
}
