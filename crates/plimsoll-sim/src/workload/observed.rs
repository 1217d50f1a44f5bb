//! What was observed on a real machine, to hold a model against: settings, and what they came to.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::check::{self, Source};
use super::error::{self, line_of};
use super::file::PolicyTable;
use super::values::Size;
use super::{Arrivals, Policy, Workload, WorkloadError};
use crate::{End, Outcome};

/// Rows of observations, of one workload.
#[derive(Clone, Debug)]
pub struct Observed {
    /// How far seconds a proof and the peak may be off, as parts of what was observed.
    pub tolerance: (f64, f64),
    /// The rows.
    pub rows: Vec<Row>,
}

/// One observation.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was set.
    pub name: String,
    /// The policy.
    pub policy: Policy,
    /// How many workers fed the device.
    pub lanes: u64,
    /// How many proofs were asked for, all at once.
    pub proofs: u64,
    /// Seconds a proof.
    pub seconds_per_proof: Option<f64>,
    /// The peak of host memory.
    pub host_peak: Option<u64>,
    /// It was killed; where that is known, after so many proofs.
    pub killed: bool,
    /// Proofs that were done by then.
    pub killed_after: Option<u64>,
    /// How many products were queued then.
    pub queued: Option<u64>,
    /// Why the model does not give this, where it does not.
    pub unfit: Option<String>,
}

/// Each row is a simulation.
const ROWS_MAX: usize = 256;

/// An observation beside what the model made of it. Each row is judged by the same rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// How far seconds a proof are off, as a part of what was observed.
    pub seconds_off: Option<f64>,
    /// The same of the peak.
    pub peak_off: Option<f64>,
    /// What is outside of the tolerance, in words.
    pub wrong: Vec<String>,
    /// The file says that the model does not give this row.
    pub is_said_unfit: bool,
}

impl Judged {
    /// The most rows that a model may be said not to give.
    pub const UNFIT_MAX: usize = 3;

    /// The model gives what was observed.
    pub fn fits(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Neither does it fit, nor is that said.
    pub fn is_outside(&self) -> bool {
        !self.fits() && !self.is_said_unfit
    }

    /// The rows by what they are: that fit, that are said not to, that are outside of the tolerance without a word.
    pub fn count(rows: &[Judged]) -> (usize, usize, usize) {
        let outside = rows.iter().filter(|row| row.is_outside()).count();
        let unfit = rows.iter().filter(|row| row.is_said_unfit).count();
        (rows.len() - unfit - outside, unfit, outside)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seconds_within: Spanned<f64>,
    peak_within: Spanned<f64>,
    row: Vec<RowTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowTable {
    name: String,
    policy: Spanned<PolicyTable>,
    lanes: Option<Spanned<u64>>,
    proofs: Spanned<u64>,
    seconds_per_proof: Option<Spanned<f64>>,
    host_peak: Option<Size>,
    #[serde(default)]
    killed: bool,
    killed_after: Option<Spanned<u64>>,
    queued: Option<Spanned<u64>>,
    unfit: Option<Spanned<String>>,
}

impl Observed {
    /// Reads a file of observations for a workload.
    ///
    /// # Errors
    ///
    /// As [`Workload::read`].
    pub fn read(path: &Path, workload: &Workload) -> Result<Observed, WorkloadError> {
        let file = path.display().to_string();
        let text =
            error::read(path, "name a file of observations, such as docs/examples/workloads/porep32.observed.toml")?;
        Observed::parse(&file, &text, workload)
    }

    /// The same from a text.
    ///
    /// # Errors
    ///
    /// As [`Workload::parse`].
    pub fn parse(file: &str, text: &str, workload: &Workload) -> Result<Observed, WorkloadError> {
        let raw: File = toml::from_str(text).map_err(|error| WorkloadError {
            file: file.into(),
            line: error.span().map(|span| line_of(text, span.start)),
            fault: error.message().trim_end().replace('\n', " "),
            fix: "correct the row".into(),
        })?;
        let source = Source { file, text };
        let part = |at: &Spanned<f64>| match *at.get_ref() {
            part if (0.0..=1.0).contains(&part) => Ok(part),
            part => Err(source.error(at, format!("{part} is no tolerance"), "write a part from 0 to 1")),
        };
        let tolerance = (part(&raw.seconds_within)?, part(&raw.peak_within)?);
        let positive = |at: &Spanned<f64>| match *at.get_ref() {
            seconds if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
            seconds => Err(source.error(at, format!("a proof took {seconds} s"), "write a number above 0")),
        };
        if let Some(row) = raw.row.get(ROWS_MAX) {
            let fault = format!("there are {} rows", raw.row.len());
            return Err(source.error(&row.proofs, fault, format!("write no more than {ROWS_MAX}")));
        }
        let row = |row: RowTable| {
            for (what, at) in [("killed_after", &row.killed_after), ("queued", &row.queued)] {
                if let Some(at) = at.as_ref().filter(|_| !row.killed) {
                    return Err(source.error(
                        at,
                        format!("{what} of a run that was not killed"),
                        "add killed = true, or delete it",
                    ));
                }
            }
            if let Some(at) = row.unfit.as_ref().filter(|at| at.get_ref().trim().is_empty()) {
                return Err(source.error(at, "the cause is not told", "say why the model does not give this row"));
            }
            Ok(Row {
                policy: check::policy(Some(&row.policy), &workload.machine, &source)?,
                name: row.name,
                lanes: row.lanes.as_ref().map_or(Ok(1), |at| check::in_range(at, "lanes", 1, 64, &source))?,
                proofs: check::in_range(&row.proofs, "proofs", 1, check::PROOFS_MAX, &source)?,
                seconds_per_proof: row.seconds_per_proof.as_ref().map(positive).transpose()?,
                host_peak: row.host_peak.map(|size| size.0),
                killed: row.killed,
                killed_after: row.killed_after.map(Spanned::into_inner),
                queued: row.queued.map(Spanned::into_inner),
                unfit: row.unfit.map(Spanned::into_inner),
            })
        };
        let rows = raw.row.into_iter().map(row).collect::<Result<_, _>>()?;
        Ok(Observed { tolerance, rows })
    }
}

impl Observed {
    /// Holds what the model made of a row against it. Seconds and peaks are compared as parts of what was observed; how many proofs
    /// were done and products queued when it was killed, as the peak is, or to one where that is more: these are whole numbers.
    pub fn judge(&self, row: &Row, outcome: &Outcome) -> Judged {
        let off = |seen: f64, got: f64| got / seen - 1.0;
        let mut wrong = Vec::new();
        let (killed, done) = (outcome.end == End::OutOfMemory, outcome.end == End::Done);
        if killed != row.killed || !killed && !done {
            wrong.push(format!("it ends so: {}", outcome.in_words()));
        }
        let seconds_off = row.seconds_per_proof.map(|seen| off(seen, outcome.seconds_per_proof));
        let peak_off = row.host_peak.map(|seen| off(seen as f64, outcome.host_peak as f64));
        for (what, off, most) in
            [("seconds a proof", seconds_off, self.tolerance.0), ("the peak", peak_off, self.tolerance.1)]
        {
            if let Some(off) = off.filter(|off| off.abs() > most) {
                wrong.push(format!("{what} off by {:+.1} %", 100.0 * off));
            }
        }
        for (what, seen, got) in
            [("killed after", row.killed_after, outcome.proofs), ("queued", row.queued, outcome.backlog)]
        {
            if let Some(seen) =
                seen.filter(|seen| got.abs_diff(*seen) as f64 > (self.tolerance.1 * *seen as f64).max(1.0))
            {
                let unit = if what == "queued" { "products" } else { "proofs" };
                wrong.push(format!("{what} {got} {unit}, not {seen}"));
            }
        }
        Judged { seconds_off, peak_off, wrong, is_said_unfit: row.unfit.is_some() }
    }
}

impl Row {
    /// The workload with this row's settings, and nothing else changed.
    pub fn apply(&self, workload: &Workload) -> Workload {
        let mut workload = workload.clone();
        workload.policy = self.policy.clone();
        workload.machine.lanes = self.lanes;
        for stream in &mut workload.streams {
            (stream.arrivals, stream.proofs) = (Arrivals::ClosedLoop(self.proofs), self.proofs);
        }
        workload
    }
}
