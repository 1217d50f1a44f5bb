//! What the command prints: results on standard output, everything else on standard error, colours only on a terminal that
//! wants them.

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::exit::{Exit, Failure};

/// Style of what went wrong.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Style of what should make one wary.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of what went well.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style of names in tables.
pub const NAME: Style = Style::new().dimmed();

/// Prints a result. A reader that went away, as in `plimsoll … | head -1`, is no failure.
pub fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Output, format!("standard output: cannot write the result: {e}")))
        }
        _ => Ok(()),
    }
}

/// Whether standard error is a terminal, on which what was written can be written over.
pub fn is_terminal() -> bool {
    io::IsTerminal::is_terminal(&io::stderr())
}

/// Tells a person something on the way. Nobody to tell it to is no failure. Names in it may be anybody's: nothing in them steers the
/// terminal.
pub fn note(style: Style, word: &str, text: impl Display) {
    let text = printable(&text.to_string());
    let _ = writeln!(anstream::stderr().lock(), "{style}{word}{style:#}: {text}");
}

/// The text, with characters that steer a terminal told apart; lines and tables stay.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Tells of something that works, but not as it should.
pub fn warn(text: impl Display) {
    note(WARNING, "warning", text);
}

/// A table of names and values, aligned.
#[derive(Debug, Default)]
pub struct Rows(Vec<(String, String)>);

impl Rows {
    /// Adds a line.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.0.push((name.into(), value.into()));
        self
    }
}

impl Display for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (i, (name, value)) in self.0.iter().enumerate() {
            let end = if i + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "{NAME}{name:width$}{NAME:#}  {value}{end}")?;
        }
        Ok(())
    }
}

/// Which side of its column a cell stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a head, as wide as it needs to be.
#[derive(Debug)]
pub struct Grid {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table with these columns.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, a cell for each column.
    pub fn add<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The same with as many cells as the table happens to have columns.
    pub fn add_row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn line(&self, cells: &[&str], widths: &[usize]) -> String {
        let cells = self.columns.iter().zip(cells).zip(widths).map(|(((_, align), cell), width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

impl Display for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let rows: Vec<Vec<&str>> = self.rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).chain([&head[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        write!(f, "{NAME}{}{NAME:#}", self.line(&head, &widths))?;
        rows.iter().try_for_each(|row| write!(f, "\n{}", self.line(row, &widths)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2J.wtns: wrong\n\tb\r"), "a\u{fffd}[2J.wtns: wrong\n\tb\u{fffd}");
    }

    #[test]
    fn rows_are_aligned() {
        let text = Rows::default().add("file", "letter.txt").add("partitions", "9").to_string();
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain, "file        letter.txt\npartitions  9");
    }

    #[test]
    fn grids_are_aligned() {
        let mut grid = Grid::new(&[("stage", Align::Left), ("runs", Align::Right)]);
        grid.add(["synthesise".to_owned(), "9".to_owned()]);
        grid.add(["b in G2".to_owned(), "10000".to_owned()]);
        let text = grid.to_string();
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain, "stage        runs\nsynthesise      9\nb in G2     10000");
    }
}
