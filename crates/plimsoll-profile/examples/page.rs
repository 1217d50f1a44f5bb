//! Makes a page of a trace: `cargo run -p plimsoll-profile --features report --example page -- t.jsonl page.html`.

use std::error::Error;
use std::fs::{self, File};
use std::io::BufReader;

use plimsoll_profile::{Timeline, report};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(trace), Some(page)) = (args.next(), args.next()) else { return Err("usage: page TRACE PAGE".into()) };
    let timeline = Timeline::read(BufReader::new(File::open(&trace)?))?;
    fs::write(page, report::html(&timeline, &trace, None))?;
    Ok(())
}
