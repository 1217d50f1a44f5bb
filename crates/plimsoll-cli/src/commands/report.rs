//! `plimsoll report`: what happened in a run, from its trace.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use plimsoll_profile::diagnose::{Books, Diagnosis, Verdict, diagnose};
use plimsoll_profile::report::{self, Findings, Size};
use plimsoll_profile::timeline::{Builder, Timeline};
use plimsoll_profile::{perfetto, trace};
use serde::Serialize;

use crate::args::Report;
use crate::console;
use crate::exit::{Exit, Failure};

/// Runs it.
pub fn run(args: &Report) -> Result<(), Failure> {
    let (timeline, diagnosis) = read(args)?;
    let mut written = Vec::new();
    let mut write = |path: PathBuf, text: &str| {
        not_the_trace(&path, &args.trace)?;
        fs::write(&path, text).map_err(|e| failure(Exit::Output, &path, &e))?;
        written.push(path.display().to_string());
        Ok(())
    };
    if args.output.is_some() || !args.json && args.svg.is_none() && args.perfetto.is_none() {
        let title = args.trace.file_name().unwrap_or_default().to_string_lossy();
        let page = report::html(&timeline, &title, Some(&findings(&diagnosis)));
        write(args.output.clone().unwrap_or_else(|| args.trace.with_extension("html")), &page)?;
    }
    if let Some(folder) = &args.svg {
        fs::create_dir_all(folder).map_err(|e| failure(Exit::Output, folder, &e))?;
        for picture in report::svg(&timeline) {
            write(folder.join(format!("{}.svg", picture.key)), &picture.svg(Size::Wide))?;
        }
    }
    if let Some(path) = &args.perfetto {
        written.push(path.display().to_string());
    }
    if args.json {
        let summary = Summary { command: "report", ok: true, diagnosis: &diagnosis, timeline: &timeline, written };
        let text = serde_json::to_string(&summary).map_err(|e| Failure::new(Exit::Internal, e))?;
        return console::print(text);
    }
    let text = format!("{diagnosis}\n\nwritten    {}", written.join("\n           "));
    console::print(text)
}

#[derive(Serialize)]
struct Summary<'a> {
    command: &'static str,
    ok: bool,
    diagnosis: &'a Diagnosis,
    timeline: &'a Timeline,
    written: Vec<String>,
}

/// Goes through the trace once, for everything that is asked for.
fn read(args: &Report) -> Result<(Timeline, Diagnosis), Failure> {
    let path = &args.trace;
    let file = File::open(path).map_err(|e| failure(Exit::BadInput, path, &e))?;
    let mut reader = trace::Reader::new(BufReader::new(file)).map_err(|e| failure(Exit::BadInput, path, &e))?;
    let mut export = match &args.perfetto {
        Some(out) => {
            not_the_trace(out, path)?;
            let file = File::create(out).map_err(|e| failure(Exit::Output, out, &e))?;
            let export = perfetto::Export::new(std::io::BufWriter::new(file));
            Some((out, export.map_err(|e| failure(Exit::Output, out, &e))?))
        }
        None => None,
    };
    let (mut builder, mut books) = (Builder::new(), Books::new());
    for event in reader.by_ref() {
        let event = event.map_err(|e| failure(Exit::BadInput, path, &e))?;
        builder.push(&event);
        books.event(&event);
        if let Some((out, export)) = &mut export {
            export.event(&event).map_err(|e| failure(Exit::Output, out, &e))?;
        }
    }
    if let Some((out, export)) = export {
        export.finish().map_err(|e| failure(Exit::Output, out, &e))?;
    }
    let mut timeline = builder.finish();
    timeline.torn = reader.is_torn();
    Ok((timeline, diagnose(&books.series())))
}

fn failure(exit: Exit, path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit, format!("{}: {error}", path.display()))
}

/// Refuses to write over what is read.
fn not_the_trace(path: &Path, trace: &Path) -> Result<(), Failure> {
    match (fs::canonicalize(path), fs::canonicalize(trace)) {
        (Ok(a), Ok(b)) if a == b => Err(failure(Exit::Usage, path, &"would overwrite the trace; name another file")),
        _ => Ok(()),
    }
}

fn findings(diagnosis: &Diagnosis) -> Findings {
    let finding = &diagnosis.finding;
    let also = diagnosis.also.iter().map(|other| format!("Also {}: {}", other.verdict.name(), other.headline));
    Findings {
        verdict: finding.verdict.name().to_owned(),
        headline: finding.headline.clone(),
        evidence: finding.evidence.iter().cloned().chain(also).collect(),
        next_step: vec![finding.next_step.clone()],
        alarm: finding.verdict != Verdict::Healthy,
    }
}
