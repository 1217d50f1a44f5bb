//! Programs with a planted fault, and healthy ones that look suspicious, each a real process with real memory: what `cargo xtask
//! diagnose` runs, and how it reads the verdict.
//!
//! ```text
//! planted list                   each program: its name, the verdict it must get, the allocator it needs
//! planted run NAME SEED FILE     runs it for some seconds and writes its trace
//! planted judge FILE             the verdict on a trace, and all that it rests on
//! ```
//!
//! The seed chooses sizes, rates, noise, the number of workers and how regularly samples come; seeds from 1000 on choose from other
//! ranges than those below, and those from 2000 on from wide ones, with runs of up to half a minute.

#![expect(clippy::disallowed_types, reason = "programs under test use plain threads and locks")]

mod dice;
mod faults;
mod healthy;
mod later;
mod outside;
mod strangers;
mod world;

use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use plimsoll_profile::diagnose::{Books, Verdict, diagnose};
use plimsoll_profile::trace::Reader;

use dice::Dice;
use world::World;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: jemallocator::Jemalloc = jemallocator::Jemalloc;

/// A program: what it is called, what it suffers from, which allocator shows that, and what it does.
pub(crate) struct Program {
    name: &'static str,
    verdict: Verdict,
    allocator: Needs,
    run: fn(&World, &mut Dice),
}

/// Which allocator a program needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Whichever.
    Any,
    /// jemalloc, as it is set up by default.
    Jemalloc,
    /// jemalloc that never gives pages back by itself.
    Hoarding,
    /// glibc's, told to trim nothing.
    Glibc,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["list"] => {
            for Program { name, verdict, allocator, .. } in programs() {
                let allocator = match allocator {
                    Needs::Any => "any",
                    Needs::Jemalloc => "jemalloc",
                    Needs::Hoarding => "hoarding",
                    Needs::Glibc => "glibc",
                };
                println!("{name}\t{verdict}\t{allocator}");
            }
            Ok(())
        }
        ["run", name, seed, file] => {
            let program =
                programs().find(|program| program.name == name).ok_or("no such program; see `planted list`")?;
            let mut dice = Dice::new(seed.parse()?);
            let world = World::new(&mut dice, file)?;
            let watching = outside::watch(&world, program.verdict)?;
            (program.run)(&world, &mut dice);
            drop(watching);
            world.finish()
        }
        ["judge", file] => {
            let mut books = Books::new();
            for event in Reader::new(BufReader::new(File::open(file)?))? {
                books.event(&event?);
            }
            let diagnosis = diagnose(&books.series());
            println!("{}\n{diagnosis}", diagnosis.verdict());
            Ok(())
        }
        ["eat", bytes, seconds] => {
            outside::eat(bytes.parse()?, seconds.parse()?);
            Ok(())
        }
        _ => Err("usage: planted list | run NAME SEED FILE | judge FILE".into()),
    }
}

fn programs() -> impl Iterator<Item = &'static Program> {
    healthy::PROGRAMS
        .iter()
        .chain(faults::PROGRAMS)
        .chain(outside::PROGRAMS)
        .chain(strangers::PROGRAMS)
        .chain(later::PROGRAMS)
}
