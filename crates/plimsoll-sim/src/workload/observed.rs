//! What was observed on a real machine, to hold a model against: settings, and what they came to.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::check::{self, Source};
use super::error::line_of;
use super::file::PolicyTable;
use super::values::Size;
use super::{Arrivals, Policy, Workload, WorkloadError};

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
    killed_after: Option<u64>,
    queued: Option<u64>,
    unfit: Option<String>,
}

impl Observed {
    /// Reads a file of observations for a workload.
    ///
    /// # Errors
    ///
    /// As [`Workload::read`].
    pub fn read(path: &Path, workload: &Workload) -> Result<Observed, WorkloadError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| WorkloadError {
            file: file.clone(),
            line: None,
            fault: error.to_string(),
            fix: "name a file of observations, such as docs/examples/workloads/porep32.observed.toml".into(),
        })?;
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
        let row = |row: RowTable| {
            Ok(Row {
                policy: check::policy(Some(&row.policy), &workload.machine, &source)?,
                name: row.name,
                lanes: row.lanes.as_ref().map_or(Ok(1), |at| check::in_range(at, "lanes", 1, 64, &source))?,
                proofs: check::in_range(&row.proofs, "proofs", 1, check::PROOFS_MAX, &source)?,
                seconds_per_proof: row.seconds_per_proof.as_ref().map(positive).transpose()?,
                host_peak: row.host_peak.map(|size| size.0),
                killed: row.killed,
                killed_after: row.killed_after,
                queued: row.queued,
                unfit: row.unfit,
            })
        };
        let rows = raw.row.into_iter().map(row).collect::<Result<_, _>>()?;
        Ok(Observed { tolerance, rows })
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
