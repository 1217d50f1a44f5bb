//! `.sym`: the names of signals, one a line: `label,wire,component,name`. The wire is −1 for one that was simplified away.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

/// The longest line that is looked at; a name of a deep hierarchy takes a few hundred bytes.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// The names of the signals that `wires` carry, in their order; a wire that is not in the file has no name. Of several signals on
/// one wire the first is taken. Reads line by line, so that a file of any size costs one line.
///
/// # Errors
/// What the reader reports, and a line that is too long.
pub fn names<R: BufRead>(mut reader: R, wires: &[u32]) -> io::Result<Vec<Option<String>>> {
    let mut found = vec![None; wires.len()];
    // The places that wait for each wire's name: of however many, a line is looked up once.
    let mut wanted: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, wire) in wires.iter().enumerate() {
        wanted.entry(*wire).or_default().push(place);
    }
    each_line(&mut reader, |_, wire, name| {
        for place in wire.and_then(|wire| wanted.remove(&wire)).into_iter().flatten() {
            found[place] = Some(printable(name));
        }
        if wanted.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// How many signals and how many wires a file speaks of, the constant one included: what the circuit's r1cs file has as labels and
/// wires, if no wire was left without a name. Of another circuit's file they hardly are the same.
///
/// # Errors
/// As [`names`].
pub fn counts<R: BufRead>(mut reader: R) -> io::Result<(u64, u64)> {
    let (mut signals, mut wires) = (1, 1);
    each_line(&mut reader, |signal, wire, _| {
        signals = signals.max(signal + 1);
        wires = wires.max(wire.map_or(0, u64::from) + 1);
        ControlFlow::Continue(())
    })?;
    Ok((signals, wires))
}

/// Goes through the lines: the signal's number, its wire unless it was simplified away, and its name.
fn each_line<R: BufRead>(
    reader: &mut R,
    mut each: impl FnMut(u64, Option<u32>, &str) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = io::Read::take(&mut *reader, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 == LINE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long for a .sym file"));
        }
        let text = String::from_utf8_lossy(&line);
        let mut fields = text.trim_end().splitn(4, ',');
        let fields = (fields.next(), fields.next(), fields.next(), fields.next());
        let (Some(signal), Some(wire), _, Some(name)) = fields else { continue };
        let Ok(signal) = signal.parse::<u32>() else { continue };
        if each(signal.into(), wire.parse().ok(), name).is_break() {
            return Ok(());
        }
    }
}

/// Names come from a file: nothing in them may steer a terminal.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYM: &str = "1,1,1,main.out\n2,2,1,main.in[0]\n3,-1,1,main.gone\n4,3,0,main.sub.x,y\n5,2,1,main.alias\n";

    #[test]
    fn wires_have_the_first_of_their_names() {
        let names = names(SYM.as_bytes(), &[2, 0, 3, 2]).expect("readable");
        let expected = [Some("main.in[0]"), None, Some("main.sub.x,y"), Some("main.in[0]")];
        assert_eq!(names, expected.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn signals_and_wires_are_counted_with_the_constant_one() {
        assert_eq!(counts(SYM.as_bytes()).expect("readable"), (6, 4));
        assert_eq!(counts(&b""[..]).expect("readable"), (1, 1));
        assert_eq!(counts(&b"no,lines,of\nsuch,a,file,x\n"[..]).expect("readable"), (1, 1));
    }

    #[test]
    fn a_name_does_not_steer_the_terminal() {
        let names = names(&b"1,7,0,main.\x1b[31m\xff\n"[..], &[7]).expect("readable");
        assert_eq!(names[0].as_deref(), Some("main.\u{fffd}[31m\u{fffd}"));
    }

    #[test]
    fn a_line_without_end_is_not_read_into_memory() {
        assert!(names(io::BufReader::new(io::repeat(b'x')), &[1]).is_err());
    }
}
