//! Which constraint a witness breaks, in the circuit's own words: the signals' names from the `.sym` file. No value is shown.

use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use blstrs::Scalar;
use plimsoll_circom::ReadError;
use plimsoll_circom::r1cs::R1csFile;
use plimsoll_circom::sym;

use crate::key_cache::open_regular;

/// Terms of a sum that are shown.
const TERMS_MAX: usize = 6;

/// The constraint, as far as it is shown: of each matrix the first terms, and whether there are more.
#[derive(Default)]
struct Shown {
    sums: [Vec<(u32, Scalar)>; 3],
    more: [bool; 3],
}

/// Says what constraint `constraint` demands: `(main.x2) * (main.x2) = main.x4`. Signals that the `.sym` file does not name are
/// `signal 7`.
pub fn constraint(r1cs: &R1csFile<'_>, constraint: usize, sym: Option<&Path>) -> String {
    if constraint >= r1cs.header().constraints as usize {
        return "a constraint that ties the public signals".to_owned();
    }
    match constraints(r1cs, constraint..constraint + 1, sym) {
        Ok(mut texts) => texts.swap_remove(0),
        Err(e) => format!("what it demands cannot be read from the r1cs file: {e}"),
    }
}

/// Says what each of these constraints demands, which the file has, going through it once.
///
/// # Errors
/// The file is damaged, or was changed meanwhile.
pub fn constraints(r1cs: &R1csFile<'_>, range: Range<usize>, sym: Option<&Path>) -> Result<Vec<String>, ReadError> {
    let mut shown: Vec<Shown> = range.clone().map(|_| Shown::default()).collect();
    // The end of the last of them is where the walk ends; the rest was read before.
    let walk = r1cs.for_each_term(|matrix, row, wire, value| {
        let row = row as usize;
        if range.contains(&row) {
            shown[row - range.start].add(matrix, wire, value);
        }
        if row < range.end { Ok(()) } else { Err(ReadError::Stopped) }
    });
    match walk {
        Ok(()) | Err(ReadError::Stopped) => {}
        Err(error) => return Err(error),
    }
    let wires: Vec<u32> = shown.iter().flat_map(|shown| shown.sums.iter().flatten()).map(|(wire, _)| *wire).collect();
    let names = sym.filter(|path| matches!(is_of(path, r1cs), Ok(true)));
    let names = names.and_then(|path| sym::names(BufReader::new(open_regular(path).ok()?), &wires).ok());
    let mut names = names.unwrap_or_else(|| vec![None; wires.len()]).into_iter();
    Ok(shown.iter().map(|shown| shown.text(&mut names)).collect())
}

/// Whether a `.sym` file speaks of as many signals as the constraints have, and of no wire that they do not have: another circuit's names
/// would be worse than none.
///
/// # Errors
/// It cannot be read.
pub fn is_of(sym: &Path, r1cs: &R1csFile<'_>) -> io::Result<bool> {
    let (signals, wires) = sym::counts(BufReader::new(open_regular(sym)?))?;
    Ok(signals == r1cs.header().labels && wires <= r1cs.header().wires.into())
}

/// The `.sym` file beside an r1cs file, if there is one.
pub fn sym_beside(r1cs: &Path) -> Option<PathBuf> {
    let path = r1cs.with_extension("sym");
    path.is_file().then_some(path)
}

impl Shown {
    fn add(&mut self, matrix: usize, wire: u32, value: &Scalar) {
        if self.sums[matrix].len() == TERMS_MAX {
            self.more[matrix] = true;
        } else {
            self.sums[matrix].push((wire, *value));
        }
    }

    fn text(&self, names: &mut impl Iterator<Item = Option<String>>) -> String {
        let mut sum = |matrix: usize| {
            let mut text = String::new();
            for (wire, value) in &self.sums[matrix] {
                let name = names.next().flatten();
                let signal = name.or((*wire == 0).then(|| "1".to_owned())).unwrap_or_else(|| format!("signal {wire}"));
                term(&mut text, &signal, value);
            }
            if self.more[matrix] {
                text.push_str(" + …");
            }
            if text.is_empty() { "0".to_owned() } else { text }
        };
        let (a, b, c) = (sum(0), sum(1), sum(2));
        format!("({a}) * ({b}) = {c}")
    }
}

/// Appends a term to a sum. Coefficients are the circuit's, not the witness's.
fn term(sum: &mut String, signal: &str, value: &Scalar) {
    let small = |value: &Scalar| {
        let bytes = value.to_bytes_le();
        bytes[4..].iter().all(|byte| *byte == 0).then(|| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let (minus, factor) = match (small(value), small(&-value)) {
        (Some(value), _) => (false, value.to_string()),
        (None, Some(value)) => (true, value.to_string()),
        (None, None) => (false, "k".to_owned()),
    };
    match (sum.is_empty(), minus) {
        (true, false) => {}
        (true, true) => sum.push('-'),
        (false, false) => sum.push_str(" + "),
        (false, true) => sum.push_str(" - "),
    }
    match (factor.as_str(), signal) {
        ("1", signal) => sum.push_str(signal),
        (factor, "1") => sum.push_str(factor),
        (factor, signal) => sum.push_str(&format!("{factor}*{signal}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R1CS: &[u8] = include_bytes!("../../../plimsoll-circom/tests/fixtures/small.r1cs");
    const SYM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plimsoll-circom/tests/fixtures/small.sym");

    #[test]
    fn constraints_are_told_by_the_signals_names() {
        let file = R1csFile::parse(R1CS).unwrap();
        let sym = Path::new(SYM);
        assert_eq!(constraint(&file, 1, Some(sym)), "(-main.x2) * (main.x2) = -main.x4");
        assert_eq!(constraint(&file, 1, None), "(-signal 4) * (signal 4) = -signal 5");
        assert_eq!(sym_beside(&sym.with_extension("r1cs")).as_deref(), Some(sym));
    }

    #[test]
    fn several_are_told_in_one_walk_and_one_that_is_not_there_is_another() {
        let file = R1csFile::parse(R1CS).unwrap();
        let sym = Path::new(SYM);
        let count = file.header().constraints as usize;
        let all = constraints(&file, 0..count, Some(sym)).unwrap();
        assert!(all.iter().enumerate().all(|(index, text)| *text == constraint(&file, index, Some(sym))), "{all:?}");
        assert!(constraint(&file, count, None).contains("ties the public signals"));
        // A coefficient that is none, in the first constraint.
        let mut bytes = R1CS.to_vec();
        let first = file.container().require(2, "constraints", "").unwrap().start + 8;
        bytes[first..first + 32].fill(0xff);
        let text = constraint(&R1csFile::parse(&bytes).unwrap(), 1, None);
        assert!(text.contains("cannot be read") && text.contains("value 0"), "{text}");
    }

    #[test]
    fn sums_are_written_as_one_would() {
        let text = |terms: &[(&str, Scalar)]| {
            let mut sum = String::new();
            terms.iter().for_each(|(signal, value)| term(&mut sum, signal, value));
            sum
        };
        let (one, two) = (Scalar::from(1), Scalar::from(2));
        assert_eq!(text(&[("a", one), ("b", -two), ("1", -one), ("c", Scalar::from(1 << 40))]), "a - 2*b - 1 + k*c");
        assert_eq!(text(&[("1", two), ("a", -one)]), "2 - a");
    }
}
