//! One release with n jobs in flight and n waiting, through the handles: the job that has been in flight for longest
//! drops its grant, which frees room for one of those that wait. The job's end and its replacement are not timed.
//!
//! | row | what waits |
//! |---|---|
//! | one kind | jobs of one profile, whose later stage needs more than its first: not all could grow at once |
//! | mixed | jobs of 64 profiles of that shape: what is safe for one need not be for the next |
//! | too large | jobs that are all larger than what is returned: nobody is served |
//! | growth | half of the jobs in flight wait to grow, for what only the end of others can free |

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use plimsoll::ledger::{Grant, Job};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Reservation, Space};

use crate::table::{Table, median, percentile};

const AUX: Class = Class::new("aux", Space::HOST);
const PROVERS: Class = Class::new("provers", Space::HOST);
const EVENTS: usize = 301;
const MIB: u64 = 1 << 20;

pub(crate) fn run() -> Vec<Table> {
    let columns = ["median us", "p99 us", "served an event"];
    let mut table = Table::new("release: n in flight, n waiting, one grant dropped", &columns);
    type Kind = (&'static str, fn(usize) -> Crowd);
    let kinds: [Kind; 4] = [("one kind", one_kind), ("mixed", mixed), ("too large", too_large), ("growth", growth)];
    for (name, crowd) in kinds {
        for n in [100, 300, 1000, 3000] {
            let mut crowd = crowd(n);
            let (mut times, mut served) = (Vec::new(), 0);
            for _ in 0..EVENTS {
                let (time, granted) = crowd.release_one();
                times.push(time);
                served += granted;
            }
            times.sort_by(f64::total_cmp);
            let row = [median(times.clone()), percentile(&times, 0.99), served as f64 / EVENTS as f64];
            table.row(format!("{name}, n = {n}"), &row);
        }
    }
    vec![table]
}

/// Jobs in flight and waiting.
struct Crowd {
    ledger: Ledger,
    running: VecDeque<(Asked, Grant)>,
    waiting: Vec<Asked>,
    /// Profiles of the jobs that come in.
    profiles: Vec<Profile>,
    next: usize,
}

/// A job, the stage that it asked for last, and what it brought along.
struct Asked {
    job: Job,
    stage: usize,
    brought: Option<Reservation>,
}

/// `first` MiB in the first stage, `second` more in the second.
fn two_stages(first: u64, second: u64) -> Profile {
    let aux = Demand::new().bytes(AUX, Bytes(first * MIB));
    let both = aux.clone().bytes(PROVERS, Bytes(second * MIB));
    Profile::new().stage("make", aux.clone(), aux).stage("use", both, Demand::new())
}

/// Room for the first stages of n jobs of `first` MiB on average, and a little more, so that they can grow in turn.
fn crowd(n: usize, limit: u64, in_flight: &[Profile], waiting: Vec<Profile>) -> Crowd {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(limit * MIB)));
    let profiles = in_flight.to_vec();
    let mut crowd = Crowd { ledger, running: VecDeque::new(), waiting: Vec::new(), profiles, next: 0 };
    while crowd.running.len() < n {
        crowd.submit();
        assert!(crowd.waiting.is_empty(), "{} of {n} jobs were let in", crowd.running.len());
    }
    crowd.profiles = waiting;
    while crowd.waiting.len() < n {
        crowd.submit();
        assert!(crowd.running.len() < n + n / 4 + 8, "jobs wait");
    }
    crowd
}

fn one_kind(n: usize) -> Crowd {
    let profile = vec![two_stages(4, 12)];
    crowd(n, n as u64 * 4 + 12, &profile, profile.clone())
}

fn mixed(n: usize) -> Crowd {
    let profiles: Vec<Profile> = (0..64).map(|i| two_stages(1 + i % 8, 8 + i / 8 * 3)).collect();
    // 4.5 MiB on average, and 29 for the largest second stage.
    crowd(n, (n as u64 * 9).div_ceil(2) + 40, &profiles, profiles.clone())
}

fn too_large(n: usize) -> Crowd {
    let large: Vec<Profile> = (0..64).map(|i| two_stages(200 + i % 8, i / 8)).collect();
    crowd(n, n as u64 * 4 + 12, &[two_stages(4, 12)], large)
}

fn growth(n: usize) -> Crowd {
    let mut crowd = one_kind(n);
    // Those in the middle have ended their first stage and ask for the second, which only some can have at a time.
    let mut running = std::mem::take(&mut crowd.running);
    let growing: Vec<_> = running.drain(n / 4..n / 4 + n / 2).collect();
    crowd.running = running;
    for (asked, mut grant) in growing {
        let brought = Some(grant.take_all(AUX));
        drop(grant);
        crowd.ask(Asked { stage: 1, brought, ..asked });
    }
    crowd
}

impl Crowd {
    fn submit(&mut self) {
        let profile = self.profiles[self.next % self.profiles.len()].clone();
        self.next += 1;
        let job = self.ledger.submit(JobSpec::new("job", profile)).expect("it fits the limit");
        self.ask(Asked { job, stage: 0, brought: None });
    }

    /// Asks, or asks again; whether it was served.
    fn ask(&mut self, mut asked: Asked) -> bool {
        match asked.job.poll_enter(&mut Context::from_waker(Waker::noop()), asked.stage) {
            Poll::Ready(grant) => self.running.push_back((asked, grant.expect("it fits the limit"))),
            Poll::Pending => {
                self.waiting.push(asked);
                return false;
            }
        }
        true
    }

    /// Microseconds that the drop of one grant took, and how many were served by it. Afterwards as many wait as before.
    fn release_one(&mut self) -> (f64, usize) {
        let (Asked { job, brought, .. }, grant) = self.running.pop_front().expect("some run");
        let started = Instant::now();
        drop(brought);
        drop(grant);
        let micros = started.elapsed().as_nanos() as f64 / 1e3;
        drop(job);
        let waiting = std::mem::take(&mut self.waiting);
        let served = waiting.into_iter().map(|asked| usize::from(self.ask(asked))).sum();
        for _ in 0..served {
            self.submit();
        }
        (micros, served)
    }
}
