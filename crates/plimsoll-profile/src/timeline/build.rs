//! Builds a timeline, event by event, in memory that does not grow with the number of events.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::bins::{Axis, Count, High, Last, Mean, Sampled, Stack};
use super::quantiles::Times;
use super::stages::{Spans, Stage, Waits};
use super::{
    ClassBooks, ClassLine, Conservation, HOLDERS_KEPT, Holder, Jobs, Peak, ResidencyLine, SampleLine, SlotsLine,
    SpaceLine, Span, Timeline, Wait,
};
use crate::trace::{Event, RunEnd, Subject, What};

/// The most classes, and kinds of slots and stages, that are told apart: of a trace that has more, the further ones are one.
const NAMES_MAX: usize = 512;
/// What the further classes are called.
const OTHERS: &str = "(other classes)";

/// Takes the events of a run one after another. See [`Timeline`].
#[derive(Debug, Default)]
pub struct Builder {
    /// There since the first event.
    axis: Option<Axis>,
    begin: u64,
    time: u64,
    sequence: Option<u64>,
    events: u64,
    lost: u64,
    unknown: BTreeMap<Arc<str>, u64>,
    spaces: Vec<Space>,
    classes: Vec<Class>,
    class_index: HashMap<(Arc<str>, Arc<str>), usize>,
    slots: Vec<(Arc<str>, Mean, Option<u64>)>,
    stages: Vec<Stage>,
    samples: Vec<(Arc<str>, Sampled)>,
    residencies: Vec<ResidencyLine>,
    owners: HashMap<u64, Owner>,
    jobs: Jobs,
    job_times: Times,
    done: Count,
    open: High,
    spans: Spans,
    waits: Waits,
    mismatches: u64,
    overdrafts: u64,
    /// The trace says when stages begin to run. Before the first such event a grant counts as the beginning.
    says_began: bool,
    run_end: Option<RunEnd>,
}

#[derive(Debug, Default)]
struct Space {
    name: Arc<str>,
    stack: Stack,
    line: Last,
    /// Indices of its classes, in the order of the stack.
    classes: Vec<usize>,
    peak: Peak,
    /// The holders of the peak are still to be looked up: before anything goes.
    peak_is_now: bool,
}

#[derive(Debug)]
struct Class {
    books: ClassBooks,
    peak: u64,
    /// The spaces that it counts in, and its index in each.
    places: Vec<(usize, usize)>,
}

/// A job or reservation that exists or holds something.
#[derive(Debug)]
struct Owner {
    name: Arc<str>,
    is_job: bool,
    ended: bool,
    stage: Option<usize>,
    submitted: Option<u64>,
    entered: bool,
    asked: Option<u64>,
    /// When it asked for its stage, and when it was granted.
    granted: Option<(u64, u64)>,
    began: Option<u64>,
    running: bool,
    place: Option<Arc<str>>,
    device: Option<Arc<str>>,
    /// Where in the source it asked.
    asked_at: Option<Arc<str>>,
    since: u64,
    /// Bytes by class.
    held: Vec<(usize, i64)>,
}

impl Builder {
    /// Of nothing yet.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Takes the next event.
    pub fn push(&mut self, event: &Event) {
        if self.axis.is_none() {
            (self.begin, self.time) = (event.time, event.time);
        }
        let axis = self.axis.get_or_insert_with(|| Axis::new(event.time));
        // Samples are written by another thread, and may come a moment late.
        self.time = self.time.max(event.time);
        for _ in 0..axis.reach(self.time) {
            self.fold();
        }
        self.events += 1;
        if let Some(sequence) = event.sequence {
            let expected = self.sequence.map_or(sequence, |last| last.saturating_add(1));
            self.lost = self.lost.saturating_add(sequence.saturating_sub(expected));
            self.sequence = Some(sequence);
        }
        match &event.subject {
            // Of somebody whom the trace has not met, it says nothing.
            Some(subject) if matches!(event.what, What::Held { .. }) => {
                if let (What::Held { place: Some(place), .. }, Some(owner)) =
                    (&event.what, self.owners.get_mut(&subject.id))
                {
                    owner.asked_at = Some(place.clone());
                }
            }
            Some(subject) if !matches!(event.what, What::Unknown(_)) => self.of_owner(subject, &event.what),
            _ => self.of_all(&event.what),
        }
    }

    fn fold(&mut self) {
        self.spaces.iter_mut().for_each(|space| {
            space.stack.fold();
            space.line.fold();
        });
        self.slots.iter_mut().for_each(|slots| slots.1.fold());
        self.stages.iter_mut().for_each(Stage::fold);
        self.samples.iter_mut().for_each(|sample| sample.1.fold());
        self.done.fold();
        self.open.fold();
    }

    fn bin(&self) -> usize {
        self.axis.as_ref().map_or(0, |axis| axis.bin(self.time))
    }

    fn of_all(&mut self, what: &What) {
        let bin = self.bin();
        match what {
            What::Resized { space, limit } => {
                let space = self.space(space);
                self.spaces[space].line.set(bin, *limit);
            }
            What::Retired { space, .. } => {
                let space = self.space(space);
                self.spaces[space].line.set(bin, 0);
            }
            What::ResizedSlots { slots, limit } => {
                let slots = self.slots_index(slots);
                self.slots[slots].2 = Some(*limit);
            }
            What::Sampled(values) => {
                for (name, value) in values {
                    let index = self.samples.iter().position(|sample| sample.0 == *name).unwrap_or_else(|| {
                        self.samples.push((name.clone(), Sampled::default()));
                        self.samples.len() - 1
                    });
                    self.samples[index].1.add(bin, *value);
                }
            }
            What::RunEnded(end) => self.run_end = Some(end.clone()),
            What::Unknown(name) => *self.unknown.entry(name.clone()).or_default() += 1,
            _ => {}
        }
    }

    fn of_owner(&mut self, subject: &Subject, what: &What) {
        let (id, time) = (subject.id, self.time);
        let stage = subject.stage.as_ref().map(|stage| self.stage_index(stage));
        self.meet(subject, what);
        match what {
            What::Submitted => {
                self.jobs.submitted += 1;
                self.owner(id).submitted = Some(time);
            }
            What::Asked => {
                let owner = self.owner(id);
                (owner.asked, owner.stage) = (Some(time), stage);
                self.queue(stage, 1);
            }
            What::Granted => self.granted(id, stage),
            What::Forced => self.jobs.forced += 1,
            What::Withdrawn => {
                self.jobs.withdrawn += 1;
                self.answered(id, "withdrawn");
            }
            What::Refused => {
                self.jobs.refused += 1;
                self.answered(id, "refused");
            }
            What::Began { place } => {
                self.says_began = true;
                let owner = self.owner(id);
                (owner.began, owner.place) = (Some(time), Some(place.clone()));
                let waited = owner.granted.map(|(_, granted)| time - granted);
                let runs = std::mem::replace(&mut owner.running, true);
                if let Some(stage) = stage {
                    if let Some(waited) = waited {
                        self.stages[stage].place_wait.add(waited);
                    }
                    if !runs {
                        self.run(stage, 1);
                    }
                }
            }
            What::StageEnded | What::StageRetried => {
                if let (What::StageRetried, Some(stage)) = (what, stage) {
                    self.stages[stage].retries += 1;
                }
                self.left_stage(id, stage, false);
            }
            What::Restarted => {
                self.jobs.restarted += 1;
                self.left_stage(id, stage, false);
            }
            What::Finished { how, late } => {
                *self.jobs.finished.entry(how.clone()).or_default() += 1;
                self.jobs.late += u64::from(*late);
                if &**how == "result" {
                    let bin = self.bin();
                    self.done.add(bin);
                }
            }
            What::Ended => self.ended(id),
            What::Changed { class, space, delta, held } => self.changed(id, class, space, *delta, *held),
            What::ChangedSlots { slots, delta, held } => {
                let index = self.slots_index(slots);
                let axis = self.axis.as_ref().expect("there since the first event");
                self.slots[index].1.set(axis, time, *held);
                if *delta > 0 && (slots.starts_with("lane") || slots.starts_with("lease")) {
                    self.owner(id).device = Some(slots.clone());
                }
            }
            What::LoadStarted | What::Loaded | What::LoadFailed | What::EvictionStarted | What::Evicted => {
                let line =
                    self.residencies.iter_mut().position(|line| line.name == subject.name).unwrap_or_else(|| {
                        self.residencies.push(ResidencyLine { name: subject.name.clone(), ..Default::default() });
                        self.residencies.len() - 1
                    });
                let line = &mut self.residencies[line];
                match what {
                    What::Loaded => line.loads += 1,
                    What::LoadFailed => line.failed += 1,
                    What::Evicted => line.evictions += 1,
                    _ => {}
                }
            }
            _ => self.of_all(what),
        }
        self.forget(id);
    }

    /// Makes sure that an owner is known: its first event may have come before the trace.
    fn meet(&mut self, subject: &Subject, what: &What) {
        let time = self.time;
        let new = || Owner {
            name: subject.name.clone(),
            is_job: subject.is_job,
            ended: false,
            stage: None,
            submitted: None,
            entered: false,
            asked: None,
            granted: None,
            began: None,
            running: false,
            place: None,
            device: None,
            asked_at: None,
            since: time,
            held: Vec::new(),
        };
        let owner = self.owners.entry(subject.id).or_insert_with(new);
        if owner.ended && matches!(what, What::Submitted | What::Asked | What::LoadStarted) {
            // The number was given again; whatever the one before still holds is the new one's to return.
            let held = std::mem::take(&mut owner.held);
            *owner = Owner { held, ..new() };
        }
    }

    fn owner(&mut self, id: u64) -> &mut Owner {
        self.owners.get_mut(&id).expect("was met")
    }

    fn granted(&mut self, id: u64, stage: Option<usize>) {
        let (time, says_began) = (self.time, self.says_began);
        let asked = self.owner(id).asked;
        self.answered(id, "granted");
        let owner = self.owner(id);
        let Some(stage) = stage else { return };
        owner.granted = Some((asked.unwrap_or(time), time));
        (owner.stage, owner.began) = (Some(stage), None);
        owner.running |= !says_began;
        let runs = owner.running;
        let enters = !std::mem::replace(&mut owner.entered, true);
        self.stages[stage].runs += 1;
        if runs {
            self.run(stage, 1);
        }
        if enters {
            self.set_open(1);
        }
    }

    /// A request is not waiting any more.
    fn answered(&mut self, id: u64, how: &'static str) {
        let time = self.time;
        let owner = self.owner(id);
        let Some(asked) = owner.asked.take() else { return };
        let (name, stage) = (owner.name.clone(), owner.stage);
        self.queue(stage, -1);
        if let (Some(stage), "granted") = (stage, how) {
            self.stages[stage].wait.add(time - asked);
        }
        let stage = stage.map(|stage| self.stages[stage].name.clone());
        self.waits.add(time - asked, || Wait { name, id, stage, asked_ns: asked, wait_ns: time - asked, how });
    }

    /// A job has left a stage, or the trace ends while it is there.
    fn left_stage(&mut self, id: u64, stage: Option<usize>, open: bool) {
        let time = self.time;
        let owner = self.owner(id);
        let runs = std::mem::replace(&mut owner.running, false);
        let Some((asked, granted)) = owner.granted.take() else { return };
        let Some(stage) = stage.or(owner.stage) else { return };
        let (began, place, device) = (owner.began.take(), owner.place.take(), owner.device.take());
        let name = owner.name.clone();
        if runs {
            self.run(stage, -1);
        }
        if !open {
            self.stages[stage].run.add(time - began.unwrap_or(granted));
        }
        let stage = self.stages[stage].name.clone();
        self.spans.add(Span {
            name,
            id,
            stage,
            asked_ns: asked,
            granted_ns: granted,
            began_ns: began,
            ended_ns: time,
            place,
            device,
            open,
        });
    }

    fn ended(&mut self, id: u64) {
        let time = self.time;
        self.left_stage(id, None, false);
        self.answered(id, "withdrawn");
        let owner = self.owner(id);
        if std::mem::replace(&mut owner.ended, true) || !owner.is_job {
            return;
        }
        let (entered, submitted) = (owner.entered, owner.submitted);
        self.jobs.ended += 1;
        if entered {
            self.set_open(-1);
            if let Some(submitted) = submitted {
                self.job_times.add(time - submitted);
            }
        }
    }

    /// Forgets an owner that has ended and holds nothing.
    fn forget(&mut self, id: u64) {
        if self.owners.get(&id).is_some_and(|owner| owner.ended && owner.held.is_empty()) {
            self.owners.remove(&id);
        }
    }

    fn changed(&mut self, id: u64, class: &Arc<str>, space: &Arc<str>, delta: i64, held: u64) {
        let (bin, time) = (self.bin(), self.time);
        let (class, held) = self.bounded(class, space, delta, held);
        let index = self.class_index(&class, space, delta, held);
        if delta < 0 {
            for place in 0..self.classes[index].places.len() {
                let space = self.classes[index].places[place].0;
                self.look_at_peak(space);
            }
        }
        let Class { books, peak, places } = &mut self.classes[index];
        if i128::from(books.held) + i128::from(delta) != i128::from(held) {
            self.mismatches += 1;
        }
        books.held = held;
        *peak = (*peak).max(held);
        if delta > 0 {
            books.came = books.came.saturating_add(delta.unsigned_abs());
        } else {
            books.went = books.went.saturating_add(delta.unsigned_abs());
        }
        for &(space, class) in &*places {
            let Space { stack, peak, peak_is_now, .. } = &mut self.spaces[space];
            stack.set(bin, class, held);
            if stack.total() > peak.bytes {
                (peak.bytes, peak.time_ns, *peak_is_now) = (stack.total(), time, true);
            }
        }
        let owner = self.owners.get_mut(&id).expect("was met");
        if owner.held.is_empty() {
            owner.since = time;
        }
        let place = owner.held.iter().position(|held| held.0 == index).unwrap_or_else(|| {
            owner.held.push((index, 0));
            owner.held.len() - 1
        });
        owner.held[place].1 = owner.held[place].1.saturating_add(delta);
        if owner.held[place].1 <= 0 {
            // With events lost an owner may return what nobody saw it take; so it may if it took it before the trace began.
            let before = self.classes[index].books.before > 0;
            self.overdrafts += u64::from(owner.held[place].1 < 0 && !before);
            owner.held.swap_remove(place);
        }
    }

    /// Looks up who holds the most that was ever held, if that is what is held now.
    fn look_at_peak(&mut self, index: usize) {
        if !std::mem::replace(&mut self.spaces[index].peak_is_now, false) {
            return;
        }
        let (holders, holders_left_out) = self.holders(Some(index));
        let Space { classes, stack, peak, .. } = &mut self.spaces[index];
        let held = classes
            .iter()
            .enumerate()
            .map(|(place, &class)| (self.classes[class].books.class.clone(), stack.of(place)));
        peak.classes = held.filter(|class| class.1 > 0).collect();
        peak.classes.sort_by_key(|class| std::cmp::Reverse(class.1));
        (peak.holders, peak.holders_left_out) = (holders, holders_left_out);
        if index == 0 {
            self.spans.peak(peak.bytes);
        }
    }

    /// Who holds most, of a space or of all; and how many more hold something.
    fn holders(&self, space: Option<usize>) -> (Vec<Holder>, u64) {
        let counts =
            |class: usize| space.is_none_or(|space| self.classes[class].places.iter().any(|place| place.0 == space));
        let bytes = |owner: &Owner| -> i64 { owner.held.iter().filter(|held| counts(held.0)).map(|held| held.1).sum() };
        let mut all: Vec<(i64, u64)> = self.owners.iter().map(|(&id, owner)| (bytes(owner), id)).collect();
        all.retain(|holder| holder.0 > 0);
        all.sort_by_key(|&(bytes, id)| (std::cmp::Reverse(bytes), id));
        let left_out = all.len().saturating_sub(HOLDERS_KEPT) as u64;
        let holder = |&(bytes, id): &(i64, u64)| {
            let owner = &self.owners[&id];
            let held = owner.held.iter().filter(|held| counts(held.0));
            let mut classes: Vec<_> = held
                .map(|&(class, bytes)| {
                    let ClassBooks { class, space, .. } = &self.classes[class].books;
                    (class.clone(), space.clone(), bytes.unsigned_abs())
                })
                .collect();
            classes.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
            Holder {
                name: owner.name.clone(),
                id,
                is_job: owner.is_job,
                ended: owner.ended,
                stage: owner.stage.map(|stage| self.stages[stage].name.clone()),
                since_ns: owner.since,
                bytes: bytes.unsigned_abs(),
                place: owner.asked_at.clone(),
                classes,
            }
        };
        (all.iter().take(HOLDERS_KEPT).map(holder).collect(), left_out)
    }

    fn queue(&mut self, stage: Option<usize>, by: i64) {
        let axis = self.axis.as_ref().expect("there since the first event");
        if let Some(stage) = stage {
            let queue = &mut self.stages[stage].queue;
            queue.set(axis, self.time, queue.now().saturating_add_signed(by));
        }
    }

    fn set_open(&mut self, by: i64) {
        let axis = self.axis.as_ref().expect("there since the first event");
        self.open.set(axis, self.time, self.open.now().saturating_add_signed(by));
    }

    fn run(&mut self, stage: usize, by: i64) {
        let axis = self.axis.as_ref().expect("there since the first event");
        let running = &mut self.stages[stage].running;
        running.set(axis, self.time, running.now().saturating_add_signed(by));
    }

    fn space(&mut self, name: &Arc<str>) -> usize {
        // Host memory has the first place, whether or not it comes first: what is pinned counts there.
        if self.spaces.is_empty() {
            self.spaces.push(Space { name: "host".into(), ..Space::default() });
        }
        self.spaces.iter().position(|space| space.name == *name).unwrap_or_else(|| {
            self.spaces.push(Space { name: name.clone(), ..Space::default() });
            self.spaces.len() - 1
        })
    }

    /// The class, or that of all others where there are too many already: then what is held of it is added up here.
    fn bounded(&self, class: &Arc<str>, space: &Arc<str>, delta: i64, held: u64) -> (Arc<str>, u64) {
        if self.classes.len() < NAMES_MAX || self.class_index.contains_key(&(class.clone(), space.clone())) {
            return (class.clone(), held);
        }
        let others: Arc<str> = OTHERS.into();
        let now = self.class_index.get(&(others.clone(), space.clone()));
        let now = now.map_or(0, |index| self.classes[*index].books.held);
        (others, now.saturating_add_signed(delta))
    }

    fn class_index(&mut self, class: &Arc<str>, space: &Arc<str>, delta: i64, held: u64) -> usize {
        let key = (class.clone(), space.clone());
        if let Some(&index) = self.class_index.get(&key) {
            return index;
        }
        let own = self.space(space);
        let bin = self.bin();
        let index = self.classes.len();
        let mut places = vec![own];
        places.extend((&**space == "pinned").then_some(0));
        // What was held before the trace began.
        let before = held.saturating_add_signed(delta.saturating_neg());
        let places = places.into_iter().map(|space| {
            let Space { classes, stack, .. } = &mut self.spaces[space];
            classes.push(index);
            stack.set(bin, classes.len() - 1, before);
            (space, classes.len() - 1)
        });
        let places = places.collect();
        let books =
            ClassBooks { class: class.clone(), space: space.clone(), before, held: before, ..ClassBooks::default() };
        self.classes.push(Class { books, peak: before, places });
        self.class_index.insert(key, index);
        index
    }

    fn slots_index(&mut self, name: &Arc<str>) -> usize {
        let begin = self.begin;
        self.slots.iter().position(|slots| slots.0 == *name).unwrap_or_else(|| {
            if self.slots.len() >= NAMES_MAX {
                return NAMES_MAX - 1;
            }
            self.slots.push((name.clone(), Mean::new(begin), None));
            self.slots.len() - 1
        })
    }

    fn stage_index(&mut self, name: &Arc<str>) -> usize {
        let begin = self.begin;
        self.stages.iter().position(|stage| stage.name == *name).unwrap_or_else(|| {
            if self.stages.len() >= NAMES_MAX {
                return NAMES_MAX - 1;
            }
            self.stages.push(Stage::new(name.clone(), begin));
            self.stages.len() - 1
        })
    }

    /// What the events make together.
    pub fn finish(mut self) -> Timeline {
        let Some(axis) = self.axis.clone() else { return Timeline::default() };
        let (end, bin) = (self.time, axis.bin(self.time));
        for space in 0..self.spaces.len() {
            self.look_at_peak(space);
        }
        let (left, left_out) = self.holders(None);
        for &(class, bytes) in self.owners.values().flat_map(|owner| &owner.held) {
            self.classes[class].books.by_owners += bytes.unsigned_abs();
        }
        let mut ids: Vec<u64> = self.owners.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.answered(id, "waiting");
            self.left_stage(id, None, true);
        }
        let (spans, spans_left_out) = self.spans.finish();
        let classes = &self.classes;
        let spaces = self.spaces.into_iter().map(|space| {
            let Space { name, stack, line, classes: indices, peak, .. } = space;
            let held_end = stack.total();
            let (held, by_class) = stack.finish(bin, indices.len());
            let mut lines: Vec<ClassLine> = indices
                .iter()
                .zip(by_class)
                .map(|(&class, held)| ClassLine {
                    class: classes[class].books.class.clone(),
                    peak: classes[class].peak,
                    held,
                })
                .collect();
            lines.sort_by(|a, b| b.peak.cmp(&a.peak).then_with(|| a.class.cmp(&b.class)));
            SpaceLine { space: name, line: line.finish(bin), peak, held, held_end, classes: lines }
        });
        let slots = self.slots.into_iter().map(|(slots, mean, limit)| {
            let peak = mean.peak;
            let (mean, mean_all) = mean.finish(&axis, end);
            SlotsLine { slots, limit, peak, mean, mean_all }
        });
        let samples = self.samples.into_iter().map(|(name, sampled)| SampleLine {
            name,
            peak: sampled.peak,
            last: sampled.last,
            high: sampled.finish(bin),
        });
        Timeline {
            events: self.events,
            events_lost: self.lost,
            unknown: self.unknown,
            torn: false,
            ended: self.run_end,
            begin_ns: self.begin,
            end_ns: end,
            bin_ns: axis.width(),
            jobs: Jobs {
                time: self.job_times.quantiles(),
                done: self.done.finish(bin),
                open_peak: self.open.finish(&axis, end).1,
                ..self.jobs
            },
            spaces: spaces.collect(),
            slots: slots.collect(),
            stages: self.stages.into_iter().map(|stage| stage.finish(&axis, end)).collect(),
            samples: samples.collect(),
            residencies: self.residencies,
            waits: self.waits.finish(),
            spans,
            spans_left_out,
            left,
            left_out,
            conservation: Conservation {
                classes: self.classes.into_iter().map(|class| class.books).collect(),
                mismatches: self.mismatches,
                overdrafts: self.overdrafts,
            },
        }
    }
}
