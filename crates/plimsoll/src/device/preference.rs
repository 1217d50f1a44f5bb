//! Which of several devices a job should prefer, as a pure rule: production and the simulator both follow it.

/// One device that is well, as the rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub number: u16,
    /// What the job needs on it is resident there.
    pub is_resident: bool,
    /// How many stages it has begun.
    pub begun: usize,
}

/// Puts devices in the order in which the next job should prefer them: first those where what it needs is resident, then those
/// that have run the fewest stages; among equals they take turns.
pub fn order(turn: usize, candidates: &mut [Candidate]) {
    if candidates.is_empty() {
        return;
    }
    let count = candidates.len();
    candidates.rotate_left(turn % count);
    // A stable sort keeps the turn among equals.
    candidates.sort_by_key(|candidate| (!candidate.is_resident, candidate.begun));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(turn: usize, devices: &[(u16, bool, usize)]) -> Vec<u16> {
        let candidate = |&(number, is_resident, begun): &_| Candidate { number, is_resident, begun };
        let mut candidates: Vec<Candidate> = devices.iter().map(candidate).collect();
        order(turn, &mut candidates);
        candidates.iter().map(|candidate| candidate.number).collect()
    }

    #[test]
    fn what_is_resident_goes_before_what_is_idle_and_equals_take_turns() {
        assert_eq!(numbers(0, &[(0, false, 0), (1, true, 9), (2, false, 3)]), [1, 0, 2]);
        assert_eq!(numbers(4, &[(5, false, 1), (6, false, 1), (7, false, 1)]), [6, 7, 5]);
        assert_eq!(numbers(7, &[]), [0_u16; 0]);
    }
}
