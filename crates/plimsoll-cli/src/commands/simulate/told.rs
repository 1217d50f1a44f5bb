//! How far a simulation is: a bar on a terminal, and elsewhere a line now and then, so that nobody wonders whether it hangs.

use std::time::{Duration, Instant};

use indicatif::HumanCount;
use plimsoll_sim::Progress as Step;

use crate::console;
use crate::progress::Progress;

/// What ends sooner is not worth a word.
const FIRST: Duration = Duration::from_secs(2);

/// How often a line is written where there is no terminal.
const AGAIN: Duration = Duration::from_secs(10);

/// Tells how far one simulation after another is.
#[derive(Debug)]
pub struct Told {
    what: &'static str,
    since: Instant,
    told: Option<Instant>,
    bar: Option<Progress>,
}

impl Told {
    /// Nothing is told yet.
    pub fn new(what: &'static str) -> Told {
        Told { what, since: Instant::now(), told: None, bar: None }
    }

    /// It is so far now.
    pub fn tell(&mut self, step: &Step) {
        let all = step.proofs + step.proofs_left;
        let more = || format!("{} of virtual time, {} events", step.time, HumanCount(step.events));
        self.tell_count(step.proofs, all, "proofs", &more);
    }

    /// So many are done now, of all that there are.
    pub fn tell_count(&mut self, done: u64, all: u64, unit: &'static str, more: &dyn Fn() -> String) {
        if self.since.elapsed() < FIRST {
            return;
        }
        if console::is_terminal() {
            let bar = self.bar.get_or_insert_with(|| Progress::new(self.what, unit, all));
            bar.set_total(all);
            bar.set(done);
        } else if self.told.is_none_or(|told| told.elapsed() >= AGAIN) {
            self.told = Some(Instant::now());
            let (done, all) = (HumanCount(done), HumanCount(all));
            console::note(console::NAME, self.what, format!("{done} of {all} {unit}, {}", more()));
        }
    }
}
