//! The rules of admission, written a second time as plainly as possible: dense vectors, every order tried, everything
//! looked at again after each grant. What it grants, and in which order, is what the state machine must grant.

use crate::world::{Event, Limits, Party, World, order_exists, vector};

#[derive(Clone, Debug, PartialEq)]
enum At {
    /// Not there, or gone; what is still held is a result.
    Away,
    /// Taken on, and asks for nothing.
    Fresh,
    /// Waits for a stage. `key` is what its place in the order is made of, beside priority and age.
    Waiting {
        stage: usize,
        age: u64,
        passed: u32,
        key: u64,
    },
    Running(usize),
    Between(usize),
}

/// The plain machine.
pub(crate) struct Oracle<'a> {
    world: &'a World,
    limit: Limits,
    target: Limits,
    at: Vec<At>,
    held: Vec<Limits>,
    /// What jobs carry from stage to stage.
    kept: Vec<Limits>,
    age: u64,
    granted: Vec<usize>,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(world: &'a World) -> Oracle<'a> {
        let jobs = world.jobs.len();
        let (limit, target) = (world.limits, world.limits);
        let nothing = vec![[0; 3]; jobs];
        Oracle {
            world,
            limit,
            target,
            at: vec![At::Away; jobs],
            held: nothing.clone(),
            kept: nothing,
            age: 0,
            granted: Vec::new(),
        }
    }

    /// Lets an event happen. Returns the jobs that are granted, in order, and those that are refused while they wait.
    pub(crate) fn step(&mut self, event: Event) -> (Vec<usize>, Vec<usize>) {
        let mut refused = Vec::new();
        match event {
            Event::Arrive(job) => {
                if self.can_ever_fit(job) {
                    self.ask(job, 0);
                }
            }
            Event::Enter(job) => match self.at[job] {
                At::Between(stage) => self.ask(job, stage),
                _ if self.can_ever_fit(job) => self.ask(job, 0),
                _ => self.at[job] = At::Away,
            },
            Event::Withdraw(job) => self.at[job] = At::Fresh,
            Event::Early(job) => self.held[job][0] = 0,
            Event::EndStage(job) => {
                let At::Running(stage) = self.at[job] else { panic!("it runs") };
                let stages = self.world.jobs[job].0.stages();
                let keep = vector(&stages[stage].keep);
                for (held, keep) in self.held[job].iter_mut().zip(keep) {
                    *held = keep.min(*held);
                }
                self.kept[job] = self.held[job];
                self.at[job] = At::Between(stage + 1);
                if stage + 1 == stages.len() {
                    self.settle();
                    self.at[job] = At::Away;
                }
            }
            Event::Fail(job) => self.fail(job),
            Event::DropResult(job) => self.held[job] = [0; 3],
            Event::Resize => {
                let (at, limit) = self.world.resize.expect("it can be resized");
                self.target[at] = limit;
                self.limit[at] = self.limit[at].max(limit);
                refused = self.admissions().into_iter().filter(|job| !self.can_ever_fit(*job)).collect();
                for &job in &refused {
                    self.at[job] = At::Away;
                }
            }
        }
        self.settle();
        (std::mem::take(&mut self.granted), refused)
    }

    fn settle(&mut self) {
        self.lower_the_limit();
        while let Some(job) = self.next_grant() {
            self.granted.push(job);
        }
    }

    /// A job gives up: first its request, then what it carries, class by class, then the stage, then itself.
    fn fail(&mut self, job: usize) {
        if let At::Waiting { stage, .. } = self.at[job] {
            self.at[job] = if stage == 0 { At::Fresh } else { At::Between(stage) };
            self.settle();
        }
        for at in 0..2 {
            if self.kept[job][at] > 0 {
                self.held[job][at] -= self.kept[job][at];
                self.settle();
            }
        }
        self.held[job] = [0; 3];
        if let At::Running(stage) = self.at[job] {
            self.at[job] = At::Between(stage + 1);
            self.settle();
        }
        self.at[job] = At::Away;
    }

    fn can_ever_fit(&self, job: usize) -> bool {
        self.world.claim(job, 0).iter().zip(self.target).all(|(claim, limit)| *claim <= limit)
    }

    fn ask(&mut self, job: usize, stage: usize) {
        let share = |(claim, limit): (u64, u64)| (u128::from(claim) << 32) / u128::from(limit.max(1));
        let shares = self.world.claim(job, stage).into_iter().zip(self.target).map(share);
        let key = u64::try_from(shares.max().unwrap_or(0)).unwrap_or(u64::MAX);
        self.at[job] = At::Waiting { stage, age: self.age, passed: 0, key };
        self.age += 1;
    }

    /// Everybody who waits to be admitted, in order.
    fn admissions(&self) -> Vec<usize> {
        let mut waiting = Vec::new();
        for (job, at) in self.at.iter().enumerate() {
            if let At::Waiting { stage: 0, age, .. } = *at {
                waiting.push((-self.world.jobs[job].1, age, job));
            }
        }
        waiting.sort();
        waiting.into_iter().map(|entry| entry.2).collect()
    }

    /// Everybody in flight who waits, in order.
    fn growths(&self) -> Vec<usize> {
        let mut waiting = Vec::new();
        for (job, at) in self.at.iter().enumerate() {
            if let At::Waiting { stage: 1.., age, key, .. } = *at {
                waiting.push((-self.world.jobs[job].1, key, age, job));
            }
        }
        waiting.sort();
        waiting.into_iter().map(|entry| entry.3).collect()
    }

    fn next_grant(&mut self) -> Option<usize> {
        if let Some(job) = self.growths().into_iter().find(|job| self.can_be_granted(*job)) {
            self.grant(job);
            return Some(job);
        }
        let age_of = |oracle: &Oracle<'_>, job: usize| match oracle.at[job] {
            At::Waiting { age, .. } => age,
            _ => unreachable!("it waits"),
        };
        for job in self.admissions() {
            let passed: Vec<usize> = self
                .growths()
                .into_iter()
                .chain(self.admissions().into_iter().filter(|other| age_of(self, *other) < age_of(self, job)))
                .collect();
            let full =
                |other: &usize| matches!(self.at[*other], At::Waiting { passed, .. } if passed >= self.world.bypass);
            if self.can_be_granted(job) && !passed.iter().any(full) {
                for other in passed {
                    if let At::Waiting { passed, .. } = &mut self.at[other] {
                        *passed += 1;
                    }
                }
                self.grant(job);
                return Some(job);
            }
        }
        None
    }

    fn grant(&mut self, job: usize) {
        let At::Waiting { stage, .. } = self.at[job] else { panic!("it waits") };
        self.held[job] = self.held_in(job, stage);
        self.at[job] = At::Running(stage);
    }

    fn held_in(&self, job: usize, stage: usize) -> Limits {
        let mut held = self.held[job];
        for (held, peak) in held.iter_mut().zip(vector(&self.world.jobs[job].0.stages()[stage].peak)) {
            *held = peak.max(*held);
        }
        held
    }

    fn can_be_granted(&self, job: usize) -> bool {
        let At::Waiting { stage, .. } = self.at[job] else { panic!("it waits") };
        let mut after = Oracle {
            limit: self.limit,
            target: self.target,
            at: self.at.clone(),
            held: self.held.clone(),
            ..Oracle::new(self.world)
        };
        after.held[job] = self.held_in(job, stage);
        after.at[job] = At::Running(stage);
        let below_target =
            || (0..3).all(|at| after.held[job][at] == self.held[job][at] || after.sum()[at] <= self.target[at]);
        after.is_safe() && (stage > 0 || below_target())
    }

    fn sum(&self) -> Limits {
        let mut sum = [0; 3];
        for held in &self.held {
            for (sum, held) in sum.iter_mut().zip(held) {
                *sum += held;
            }
        }
        sum
    }

    /// Safe, with what jobs leave behind set aside from the start.
    fn is_safe(&self) -> bool {
        let mut parties = Vec::new();
        let mut free = [0; 3];
        for (at, sum) in self.sum().into_iter().enumerate() {
            let Some(left) = self.limit[at].checked_sub(sum) else { return false };
            free[at] = left;
        }
        for job in 0..self.at.len() {
            let from = match self.at[job] {
                At::Running(stage) | At::Between(stage) | At::Waiting { stage: stage @ 1.., .. } => stage,
                At::Away | At::Fresh | At::Waiting { .. } => continue,
            };
            let leaves = vector(&self.world.jobs[job].0.stages().last().expect("it has stages").keep);
            let mut held = self.held[job];
            for at in 0..3 {
                let aside = leaves[at].saturating_sub(held[at]);
                let Some(left) = free[at].checked_sub(aside) else { return false };
                free[at] = left;
                held[at] += aside;
            }
            parties.push(Party { held, claim: self.world.claim(job, from), leaves });
        }
        order_exists(free, &parties)
    }

    /// The lowest limit that is safe, and not below what is held.
    fn lower_the_limit(&mut self) {
        for at in 0..3 {
            let before = self.limit[at];
            if before > self.target[at] {
                self.limit[at] = self.target[at].max(self.sum()[at]);
                while self.limit[at] < before && !self.is_safe() {
                    self.limit[at] += 1;
                }
            }
        }
    }
}
