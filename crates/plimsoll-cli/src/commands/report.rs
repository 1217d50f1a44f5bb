//! `plimsoll report`: what happened in a run, from its trace or from what its flight recorder left.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};

use plimsoll::Bytes;
use plimsoll_profile::diagnose::{Books, Diagnosis, Verdict, diagnose};
use plimsoll_profile::recorder::{Mark, Recording};
use plimsoll_profile::report::{self, Findings, Page, Size};
use plimsoll_profile::timeline::{Builder, Timeline};
use plimsoll_profile::{perfetto, trace};
use serde::Serialize;

use crate::args::Report;
use crate::console;
use crate::exit::{Exit, Failure};

/// Runs it.
pub fn run(args: &Report) -> Result<(), Failure> {
    let (timeline, diagnosis, mark) = read(args)?;
    let mut written = Vec::new();
    let mut write = |path: PathBuf, text: &str| {
        not_the_trace(&path, &args.trace)?;
        fs::write(&path, text).map_err(|e| failure(Exit::Output, &path, &e))?;
        written.push(path.display().to_string());
        Ok(())
    };
    if args.output.is_some() || !args.json && args.svg.is_none() && args.perfetto.is_none() {
        let title = args.trace.file_name().unwrap_or_default().to_string_lossy();
        let page = Page::new(&title).findings(&findings(&diagnosis));
        let page = mark.iter().fold(page, |page, recorded| recorded.show(page)).timeline(&timeline).html();
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
        let (mark, damaged) = (mark.as_ref().and_then(|it| it.mark.as_ref()), mark.as_ref().map(|it| it.damaged));
        let (diagnosis, timeline) = (&diagnosis, &timeline);
        let summary = Summary { command: "report", ok: true, diagnosis, timeline, mark, damaged, written };
        let text = serde_json::to_string(&summary).map_err(|e| Failure::new(Exit::Internal, e))?;
        return console::print(text);
    }
    let mark = mark.map_or(String::new(), |recorded| format!("{}\n\n", recorded.in_words()));
    let text = format!("{diagnosis}\n\n{mark}written    {}", written.join("\n           "));
    console::print(text)
}

#[derive(Serialize)]
struct Summary<'a> {
    command: &'static str,
    ok: bool,
    diagnosis: &'a Diagnosis,
    timeline: &'a Timeline,
    /// What was held when most was, of a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<&'a Mark>,
    /// Parts of a recording that could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<u64>,
    written: Vec<String>,
}

/// What a flight recorder knows beside the events.
struct Recorded {
    mark: Option<Mark>,
    damaged: u64,
    overwritten: u64,
}

impl Recorded {
    fn in_words(&self) -> String {
        let mark = self.mark.as_ref().map_or("nothing was marked".to_owned(), Mark::in_words);
        let damaged = match self.damaged {
            0 => String::new(),
            damaged => format!("\n{damaged} parts of the recording are damaged, and left out"),
        };
        format!("when most was held: {mark}{damaged}")
    }

    fn show(&self, page: Page) -> Page {
        let mut page = page.heading("When most was held");
        if self.overwritten > 0 {
            page = page.paragraph("The recording has the last minutes; what came before is overwritten.");
        }
        if self.damaged > 0 {
            page = page.paragraph(&format!("{} parts of the recording are damaged, and left out.", self.damaged));
        }
        let Some(mark) = &self.mark else { return page.paragraph("Nothing was marked.") };
        page = page.paragraph(mark.in_words().lines().next().unwrap_or_default());
        let classes = mark
            .classes
            .iter()
            .map(|(class, space, bytes)| vec![class.clone(), space.clone(), Bytes(*bytes).to_string()]);
        page = page.table("By class", &["class", "space", "bytes"], &classes.collect::<Vec<_>>());
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
        let holders = mark.holders.iter().map(|holder| {
            vec![holder.who.clone(), or_none(&holder.stage), Bytes(holder.bytes).to_string(), or_none(&holder.at)]
        });
        page = page.table("By whom", &["holder", "stage", "bytes", "asked for at"], &holders.collect::<Vec<_>>());
        let waiters = mark.waiters.iter().map(|waiter| vec![waiter.clone()]);
        page.table("Who waited, and why", &["request"], &waiters.collect::<Vec<_>>())
    }
}

/// A trace: the file itself, or what a recording holds of one.
fn open(path: &Path) -> Result<(Box<dyn BufRead>, Option<Recorded>), Failure> {
    let bad = |e: &dyn std::fmt::Display| failure(Exit::BadInput, path, e);
    let mut file = BufReader::new(File::open(path).map_err(|e| bad(&e))?);
    if !Recording::is_one(file.fill_buf().map_err(|e| bad(&e))?) {
        return Ok((Box::new(file), None));
    }
    let recording = Recording::read(path).map_err(|e| bad(&e))?;
    let trace = Cursor::new(recording.trace().into_bytes());
    let Recording { mark, damaged, overwritten, .. } = recording;
    Ok((Box::new(trace), Some(Recorded { mark, damaged, overwritten })))
}

/// Goes through the trace once, for everything that is asked for.
fn read(args: &Report) -> Result<(Timeline, Diagnosis, Option<Recorded>), Failure> {
    let path = &args.trace;
    let (input, recorded) = open(path)?;
    let mut reader = trace::Reader::new(input).map_err(|e| failure(Exit::BadInput, path, &e))?;
    let mut export = match &args.perfetto {
        Some(out) => {
            not_the_trace(out, path)?;
            let file = File::create(out).map_err(|e| failure(Exit::Output, out, &e))?;
            let file = std::io::BufWriter::new(file);
            let is_packets = out.extension().is_some_and(|ending| ending == "pftrace");
            let export = if is_packets { perfetto::Export::in_packets(file) } else { perfetto::Export::new(file) };
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
    Ok((timeline, diagnose(&books.series()), recorded))
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
        alarm: !matches!(finding.verdict, Verdict::Healthy | Verdict::Unknown),
    }
}
