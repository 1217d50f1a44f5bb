//! `plimsoll inspect`.

use plimsoll::Bytes;
use serde_json::{Value, json};

use crate::args::Inspect;
use crate::console::{self, Align, Grid, Rows};
use crate::exit::Failure;
use crate::inspect::{Inspection, inspect};

/// Runs it.
pub fn run(args: &Inspect) -> Result<(), Failure> {
    let found = inspect(&args.file, args.contents)?;
    if args.json {
        let mut report = json!({"command": "inspect", "ok": true, "file": args.file.display().to_string()});
        if let (Value::Object(report), Value::Object(found)) = (&mut report, found.json()) {
            report.extend(found);
        }
        return console::print(report);
    }
    console::print(table(&args.file.display().to_string(), &found))
}

fn table(path: &str, found: &Inspection) -> String {
    let mut rows = Rows::default();
    rows.add("file", path).add("format", found.format);
    for (name, value) in &found.facts {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) if name.starts_with("memory") => {
                number.as_u64().map(Bytes).unwrap_or_default().to_string()
            }
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            other => other.to_string(),
        };
        rows.add(*name, text);
    }
    let mut parts = vec![rows.to_string()];
    if !found.sections.is_empty() {
        let mut grid = Grid::new(&[
            ("type", Align::Right),
            ("section", Align::Left),
            ("offset", Align::Right),
            ("bytes", Align::Right),
        ]);
        for section in &found.sections {
            let (offset, bytes) = (section.offset.to_string(), section.bytes.to_string());
            grid.add([section.id.to_string(), section.name.to_owned(), offset, bytes]);
        }
        parts.push(grid.to_string());
    }
    if !found.contents.is_empty() {
        let mut rows = Rows::default();
        for (name, text) in &found.contents {
            rows.add(name.clone(), text.clone());
        }
        parts.push(rows.to_string());
    }
    parts.join("\n\n")
}
