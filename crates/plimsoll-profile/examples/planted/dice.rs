//! Chance from a seed.

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    state: u64,
    ranges: Ranges,
}

/// From which ranges a seed chooses.
#[derive(Clone, Copy, Debug)]
enum Ranges {
    Ordinary,
    HeldOut,
    Wide,
}

impl Dice {
    /// Of this seed.
    pub(crate) fn new(seed: u64) -> Dice {
        let ranges = match seed {
            0..1000 => Ranges::Ordinary,
            1000..2000 => Ranges::HeldOut,
            _ => Ranges::Wide,
        };
        Dice { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d, ranges }
    }

    /// Another one, for a thread.
    pub(crate) fn split(&mut self, salt: u64) -> Dice {
        Dice { state: self.next() ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93), ranges: self.ranges }
    }

    fn next(&mut self) -> u64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `least` to `most`, both possible.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// A part of one.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One time in so many.
    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    /// `value`, give or take this part of it.
    pub(crate) fn about(&mut self, value: u64, noise: f64) -> u64 {
        (value as f64 * (1.0 + noise * (2.0 * self.part() - 1.0))) as u64
    }

    /// What the ordinary seeds choose from, or the others, or those from wide ranges.
    pub(crate) fn choose<T>(&self, ordinary: T, held_out: T, wide: T) -> T {
        match self.ranges {
            Ranges::Ordinary => ordinary,
            Ranges::HeldOut => held_out,
            Ranges::Wide => wide,
        }
    }
}
