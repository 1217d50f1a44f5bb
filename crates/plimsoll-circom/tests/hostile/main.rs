//! A short run of what `cargo xtask fuzz` does for long: the seeds of the fuzz targets, cut, stretched, overwritten and glued
//! together at random, go to each reader, and an allocator counts what that takes. The seed of a run that fails is printed:
//! `PLIMSOLL_SEED=… PLIMSOLL_FILES=1`.

mod counting;
mod readers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{env, fs};

use counting::peak_of;

/// Files that each reader is given.
const FILES: u64 = 4_000;

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// What a reader may hold at a time for a file of so many bytes: so many times the file, what is read from it included, and so many bytes
/// whatever the file, for windows, messages, and what a panic would say.
const COSTS: [(&str, u64, u64); 6] = [
    ("r1cs", 1, 8 << 10),
    ("wtns", 2, 8 << 10),
    ("zkey", 5, (3 << 20) + (8 << 10)),
    ("ptau", 1, 8 << 10),
    ("json", 12, 8 << 10),
    ("key", 1, (2 << 20) + (8 << 10)),
];

fn cost(name: &str, bytes: usize) -> u64 {
    let (_, times, beside) = COSTS.iter().find(|(known, ..)| *known == name).expect("each reader has a cost");
    times * bytes as u64 + beside
}

#[test]
fn no_file_makes_a_reader_panic_or_costs_more_than_its_size() {
    let (first, files) = (number("PLIMSOLL_SEED").unwrap_or(1), number("PLIMSOLL_FILES").unwrap_or(FILES));
    for (name, read) in readers::ALL {
        let seeds = corpus(name);
        seeds.iter().for_each(|seed| read(seed));
        let mut dearest = (0, String::new());
        for seed in first..first + files {
            let bytes = Hostile(seed).file(&seeds);
            let (outcome, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| read(&bytes))));
            assert!(outcome.is_ok(), "the reader of {name} panics: PLIMSOLL_SEED={seed} PLIMSOLL_FILES=1");
            let most = cost(name, bytes.len());
            let what = format!("{peak} bytes for a {name} file of {}", bytes.len());
            assert!(peak <= most, "{what}, at most {most}: PLIMSOLL_SEED={seed} PLIMSOLL_FILES=1");
            dearest = dearest.max((peak * 100 / (bytes.len() as u64 + 1), what));
        }
        println!("the dearest: {}", dearest.1);
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no seeds", folder.display());
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
}

/// Numbers from a seed (SplitMix64), and what they make of a file.
struct Hostile(u64);

impl Hostile {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn file(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let which = self.below(seeds.len());
        let mut bytes = seeds[which].clone();
        for _ in 0..=self.below(4) {
            self.damage(&mut bytes, seeds);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        // Headers are where sizes and counts are, so half of the damage is done there.
        let reach = if self.below(2) == 0 { bytes.len().min(128) } else { bytes.len() };
        let at = self.below(reach);
        match self.below(7) {
            0 => bytes.truncate(at),
            1 => {
                let more = self.below(300);
                bytes.extend((0..more).map(|_| self.next() as u8));
            }
            2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << self.below(8)),
            3 => {
                // A count: none, one off, the largest, or so large that a product with it wraps.
                let counts = [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 32, 1 << 59, 1 << 63, self.next()];
                let (count, width) = (counts[self.below(counts.len())], [1, 4, 8][self.below(3)]);
                bytes.iter_mut().skip(at).zip(count.to_le_bytes()).take(width).for_each(|(byte, new)| *byte = new);
            }
            4 => {
                let cut = at..(at + self.below(64)).min(bytes.len());
                bytes.drain(cut);
            }
            5 => {
                let until = (at + self.below(200)).min(bytes.len());
                let again = bytes[at..until].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let other = &seeds[self.below(seeds.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[self.below(other.len())..]);
            }
        }
    }
}
