//! The line: all that wait while nothing waits but free-standing reservations of one priority.
//!
//! It says the same as the queues, in less: of each request its age and what it wants, in one row, oldest first. Places of
//! requests that have left stay in the row until they are its head.
//!
//! *How often a request was passed* is not written down. It is the number of later admissions since it asked, and each of
//! these left its place behind it: whoever is served out of turn leaves a mark there, and whoever asks and is served at
//! once beside others that wait leaves one at the end. So a request was passed by as many as there are marks behind it (and
//! as often as it was passed when it joined the line), and the oldest one most often of all: if any request must not be
//! passed any more, it is that one, and all others are held back.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::amounts::ComponentId;

/// Requests for bytes of one component each, oldest first.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Line {
    waiting: usize,
    /// Of all.
    priority: i32,
    /// How many marks there are.
    marks: u32,
    /// The first one waits.
    places: VecDeque<Place>,
    /// At least as little is wanted of each component that anybody wants something of.
    least: SmallVec<[(ComponentId, u64); 2]>,
}

/// The place of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) age: u64,
    pub(super) bytes: u64,
    pub(super) owner: usize,
    pub(super) component: ComponentId,
    /// Where the class stands among those that the short way knows.
    pub(super) known: u32,
    /// How often it had been passed when it joined the line.
    pub(super) passed_before: u32,
    pub(super) stand: Stand,
}

/// What has become of the request at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    Waits,
    /// It was served before the oldest one: a mark.
    Passed,
    /// It was taken back.
    Left,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The priority of all that wait.
    pub(super) fn priority(&self) -> i32 {
        self.priority
    }

    pub(super) fn get(&self, at: usize) -> Option<Place> {
        self.places.get(at).copied()
    }

    /// Whether a request of this age would pass one that must not be passed any more.
    pub(super) fn holds_back(&self, age: u64, bypass: u32) -> bool {
        self.places.front().is_some_and(|first| first.age < age && first.passed_before + self.marks >= bypass)
    }

    /// Whether somebody may want no more than there is room for.
    pub(super) fn may_fit(&self, room: impl Fn(ComponentId) -> u64) -> bool {
        self.least.iter().any(|&(component, least)| least <= room(component))
    }

    pub(super) fn push(&mut self, place: Place, priority: i32) {
        debug_assert!(self.is_empty() || self.priority == priority, "all have one priority");
        self.priority = priority;
        debug_assert!(self.places.back().is_none_or(|last| last.age < place.age), "the youngest is the last");
        self.waiting += 1;
        match self.least.iter_mut().find(|entry| entry.0 == place.component) {
            Some(entry) => entry.1 = entry.1.min(place.bytes),
            None => self.least.push((place.component, place.bytes)),
        }
        self.places.push_back(place);
    }

    /// Leaves a mark behind all that wait: somebody younger was served.
    pub(super) fn mark_end(&mut self, age: u64) {
        if self.is_empty() || mutant!("passing-leaves-no-mark") {
            return;
        }
        self.marks += 1;
        let place = Place { age, bytes: 0, owner: 0, component: 0, known: 0, passed_before: 0, stand: Stand::Passed };
        self.places.push_back(place);
    }

    /// The request at a place is served. Where it was the first the next one moves up.
    pub(super) fn serve(&mut self, at: usize) {
        self.waiting -= 1;
        if at == 0 {
            self.places.pop_front();
            return self.move_up();
        }
        self.places[at].stand = Stand::Passed;
        if mutant!("passing-leaves-no-mark") {
            self.places[at].stand = Stand::Left;
            return;
        }
        self.marks += 1;
    }

    /// The request of this age is taken back.
    pub(super) fn leave(&mut self, age: u64) {
        let at = self.places.binary_search_by_key(&age, |place| place.age).expect("it is in the line");
        debug_assert_eq!(self.places[at].stand, Stand::Waits);
        self.waiting -= 1;
        self.places[at].stand = Stand::Left;
        self.move_up();
        // What has left is kept from piling up behind one that waits for long.
        if self.places.len() > 2 * self.waiting + self.marks as usize + 64 {
            self.places.retain(|place| place.stand != Stand::Left);
        }
    }

    /// How often the request of this age was passed.
    pub(super) fn passed(&self, age: u64) -> u32 {
        let at = self.places.binary_search_by_key(&age, |place| place.age).expect("it is in the line");
        let marks = self.places.range(at..).filter(|place| place.stand == Stand::Passed).count();
        self.places[at].passed_before + marks as u32
    }

    /// All have been looked at: the least that those who still wait want.
    pub(super) fn learn_least(&mut self) {
        let Line { places, least, .. } = self;
        least.clear();
        for place in places.iter().filter(|place| place.stand == Stand::Waits) {
            match least.iter_mut().find(|entry| entry.0 == place.component) {
                Some(entry) => entry.1 = entry.1.min(place.bytes),
                None => least.push((place.component, place.bytes)),
            }
        }
    }

    /// Empties the line: each request with how often it was passed.
    pub(super) fn dissolve(&mut self) -> Vec<(usize, u32)> {
        let mut all = Vec::with_capacity(self.waiting);
        let mut marks = 0;
        for place in self.places.iter().rev() {
            match place.stand {
                Stand::Waits => all.push((place.owner, place.passed_before + marks)),
                Stand::Passed => marks += 1,
                Stand::Left => {}
            }
        }
        *self = Line::default();
        all.reverse();
        all
    }

    fn move_up(&mut self) {
        while let Some(first) = self.places.front()
            && first.stand != Stand::Waits
        {
            self.marks -= u32::from(first.stand == Stand::Passed);
            self.places.pop_front();
        }
        if self.places.is_empty() {
            self.least.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(age: u64, bytes: u64) -> Place {
        Place { age, bytes, owner: age as usize, component: 0, known: 0, passed_before: 0, stand: Stand::Waits }
    }

    #[test]
    fn whoever_is_served_out_of_turn_has_passed_all_that_are_older() {
        let mut line = Line::default();
        (1..=4).for_each(|age| line.push(place(age, age), 0));
        line.serve(2);
        line.mark_end(5);
        assert_eq!([1, 2, 4].map(|age| line.passed(age)), [2, 2, 1]);
        assert!(line.holds_back(2, 2) && !line.holds_back(1, 2) && !line.holds_back(2, 3));
        line.serve(0);
        assert_eq!([2, 4].map(|age| line.passed(age)), [2, 1]);
        // With the next one its mark is at the head, and passes nobody any more.
        line.serve(0);
        assert_eq!((line.get(0).map(|place| place.owner), line.passed(4)), (Some(4), 1));
        line.leave(4);
        assert!(line.is_empty() && line.marks == 0 && line.get(0).is_none());
    }

    #[test]
    fn those_who_left_do_not_pile_up() {
        let mut line = Line::default();
        line.push(place(0, 1), 0);
        for age in 1..10_000 {
            line.push(place(age, 1), 0);
            line.leave(age);
        }
        assert!(line.places.len() < 100, "{}", line.places.len());
        assert_eq!(line.dissolve(), [(0, 0)]);
    }
}
