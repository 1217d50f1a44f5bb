//! The order in which permits come back: a loom model of a producer, a hand-over and a consumer, with the ledger's jobs,
//! grants and reservations as they ship. What is produced and not consumed never exceeds what the permits allow, whatever
//! the interleaving, because a permit lives as long as what it stands for. With the permit returned at the end of production
//! the same model exceeds it: that order bounds what runs, not what piles up.
#![cfg(plimsoll_loom)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use loom_tests::check;
use plimsoll::{Budget, Bytes, Class, Demand, Job, JobSpec, Ledger, Profile, Reservation, Slots, Space};

const OUTPUT: Class = Class::new("output", Space::HOST);
const PERMIT: Slots = Slots::new("permits");

/// What stands for a product that is not consumed yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Permit {
    /// Its bytes, in a reservation that travels with it.
    Bytes,
    /// A slot, which the job keeps from stage to stage.
    Slot,
    /// A slot that is returned at the end of production.
    ReturnedAfterProduction,
}

const JOBS: usize = 2;
const BOUND: usize = 1;

/// From the producer to the consumer; as long as need be.
#[derive(Default)]
struct HandOver {
    products: Mutex<VecDeque<(Job, Option<Reservation>)>>,
    arrived: Condvar,
}

/// How many products there are that nobody has consumed.
#[derive(Default)]
struct Backlog(Mutex<usize>);

impl Backlog {
    fn produced(&self) -> usize {
        let mut backlog = self.0.lock().unwrap();
        *backlog += 1;
        *backlog
    }

    fn consumed(&self) {
        *self.0.lock().unwrap() -= 1;
    }
}

/// Runs the model in all interleavings, and `look`s at the backlog after each production.
fn produce_and_consume(permit: Permit, look: impl Fn(usize) + Send + Sync + Copy + 'static) {
    check(move || {
        let budget = Budget::new().space(Space::HOST, Bytes(BOUND as u64)).slots(PERMIT, BOUND as u64);
        let (ledger, hand_over) = (Ledger::new(budget), Arc::new(HandOver::default()));
        let backlog = Arc::new(Backlog::default());
        let held = match permit {
            Permit::Bytes => Demand::new().bytes(OUTPUT, Bytes(1)),
            Permit::Slot | Permit::ReturnedAfterProduction => Demand::new().slots(PERMIT, 1),
        };
        let (kept, used) = match permit {
            Permit::ReturnedAfterProduction => (Demand::new(), Demand::new()),
            Permit::Bytes | Permit::Slot => (held.clone(), held.clone()),
        };
        let profile = Profile::new().stage("produce", held, kept).stage("consume", used, Demand::new());
        let producer = thread::spawn({
            let (ledger, hand_over, backlog) = (ledger.clone(), hand_over.clone(), backlog.clone());
            move || {
                for _ in 0..JOBS {
                    let mut job = ledger.submit(JobSpec::new("job", profile.clone())).unwrap();
                    let mut grant = job.enter(0).wait().unwrap();
                    let output = (permit == Permit::Bytes).then(|| grant.take_all(OUTPUT));
                    look(backlog.produced());
                    drop(grant);
                    hand_over.products.lock().unwrap().push_back((job, output));
                    hand_over.arrived.notify_one();
                }
            }
        });
        for _ in 0..JOBS {
            let mut products = hand_over.products.lock().unwrap();
            let (mut job, output) = loop {
                match products.pop_front() {
                    Some(product) => break product,
                    None => products = hand_over.arrived.wait(products).unwrap(),
                }
            };
            drop(products);
            let grant = job.enter(1).wait().unwrap();
            backlog.consumed();
            drop(output);
            drop(grant);
            drop(job);
        }
        producer.join().unwrap();
        assert!(ledger.snapshot().is_empty());
    });
}

fn never_exceeds(permit: Permit) {
    produce_and_consume(permit, |backlog| assert!(backlog <= BOUND, "{backlog} products are not consumed"));
}

#[test]
fn bytes_that_travel_with_the_product_bound_the_backlog() {
    never_exceeds(Permit::Bytes);
}

#[test]
fn a_slot_that_is_kept_until_the_product_is_consumed_bounds_the_backlog() {
    never_exceeds(Permit::Slot);
}

#[test]
fn a_permit_that_is_returned_after_production_does_not() {
    // Not one of loom's: it is to outlive the executions.
    static EXCEEDED: AtomicBool = AtomicBool::new(false);
    produce_and_consume(Permit::ReturnedAfterProduction, |backlog| {
        // Relaxed: only read after all executions, which run one after another.
        EXCEEDED.fetch_or(backlog > BOUND, Ordering::Relaxed);
    });
    assert!(
        EXCEEDED.load(Ordering::Relaxed),
        "no interleaving lets the backlog grow: the model does not see the fault"
    );
}
