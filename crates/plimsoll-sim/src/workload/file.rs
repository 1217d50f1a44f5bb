//! The TOML format: what may be written where. What it means is worked out in `check`.

use plimsoll::Bytes;
use serde::Deserialize;
use toml::Spanned;

use super::error::line_of;
use super::values::{Ratio, Size, Spread, Time};
use super::{Workload, WorkloadError, check};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) seed: u64,
    pub(super) machine: MachineTable,
    #[serde(default)]
    pub(super) residency: Vec<ResidencyTable>,
    pub(super) circuit: Spanned<Vec<CircuitTable>>,
    #[serde(default)]
    pub(super) arrivals: Vec<ArrivalsTable>,
    pub(super) policy: Option<Spanned<PolicyTable>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineTable {
    pub(super) memory: Spanned<Size>,
    #[serde(default)]
    pub(super) others: Option<Spanned<Size>>,
    pub(super) runtime: Option<Spanned<Size>>,
    pub(super) pinned: Option<Spanned<Size>>,
    pub(super) workers: Spanned<u64>,
    #[serde(default)]
    pub(super) slowdown: Ratio,
    pub(super) pcie: Option<Spanned<Size>>,
    pub(super) devices: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) device_memory: Size,
    pub(super) lanes: Option<Spanned<u64>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResidencyTable {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) space: Place,
    pub(super) bytes: Spanned<Size>,
    pub(super) load: Spanned<Time>,
    #[serde(default)]
    pub(super) preloaded: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Place {
    #[default]
    Host,
    Pinned,
    Device,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CircuitTable {
    pub(super) name: Spanned<String>,
    pub(super) parts: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) priority: i32,
    #[serde(default)]
    pub(super) urgent: bool,
    pub(super) deadline: Option<Spanned<Time>>,
    #[serde(default)]
    pub(super) needs: Vec<Spanned<String>>,
    pub(super) stage: Vec<StageTable>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum On {
    #[default]
    Worker,
    Lane,
    Device,
    Outside,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageTable {
    pub(super) name: Spanned<String>,
    pub(super) after: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) on: On,
    pub(super) at_most: Option<Spanned<u64>>,
    pub(super) time: Spanned<Spread>,
    pub(super) pcie: Option<Spanned<Size>>,
    #[serde(default)]
    pub(super) bandwidth: Ratio,
    #[serde(default)]
    pub(super) takes: Vec<TakeTable>,
    #[serde(default)]
    pub(super) frees: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) failing: Option<Spanned<Ratio>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeTable {
    pub(super) class: Spanned<String>,
    pub(super) bytes: Spanned<Size>,
    #[serde(default)]
    pub(super) space: Place,
    #[serde(default)]
    pub(super) grows: Growth,
    #[serde(default)]
    pub(super) scratch: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Growth {
    #[default]
    Start,
    Linear,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrivalsTable {
    pub(super) circuit: Spanned<String>,
    pub(super) proofs: Option<Spanned<u64>>,
    pub(super) batch: Option<bool>,
    pub(super) closed_loop: Option<Spanned<u64>>,
    pub(super) poisson: Option<Spanned<Time>>,
    pub(super) every: Option<Spanned<Time>>,
    pub(super) at: Option<Spanned<Vec<Spanned<Time>>>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyTable {
    pub(super) kind: Spanned<String>,
    pub(super) budget: Option<Spanned<Size>>,
    pub(super) pacing: Option<Spanned<PacingValue>>,
    pub(super) bypass: Option<u32>,
    pub(super) urgent_reserve: Option<Spanned<Size>>,
    pub(super) permits: Option<Spanned<u64>>,
    pub(super) channel: Option<Spanned<u64>>,
    pub(super) gap: Option<Time>,
    pub(super) early_free: Option<bool>,
    pub(super) asking: Option<Spanned<u64>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum PacingValue {
    Word(String),
    Jobs(i64),
}

pub(super) fn parse(file: &str, text: &str) -> Result<Workload, WorkloadError> {
    let raw: File = toml::from_str(text).map_err(|error| {
        let fault = error.message().trim_end().replace('\n', " ");
        let fix = fix_for(&fault);
        WorkloadError { file: file.into(), line: error.span().map(|span| line_of(text, span.start)), fault, fix }
    })?;
    check::check(&raw, &check::Source { file, text })
}

/// What to do about what the TOML reader has found.
fn fix_for(fault: &str) -> String {
    if fault.starts_with("unknown field") {
        "correct or delete the key".into()
    } else if fault.starts_with("missing field") {
        "add the key".into()
    } else if fault.contains("write ") {
        String::new()
    } else {
        "the README of plimsoll-sim describes the format".into()
    }
}

impl Size {
    pub(super) fn text(self) -> String {
        Bytes(self.0).to_string()
    }
}
