//! `cargo xtask metrics`: the dashboard and the alert rules speak of metrics that are documented, and `promtool` (in Debian: the
//! package prometheus) finds the rules sound and their tests right.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::sh;

/// Where the names are documented.
const DOCUMENTED_IN: [&str; 2] = ["crates/plimsoll/src/observe/metrics.rs", "crates/plimsoll-profile/src/exporter.rs"];
const FOLDER: &str = "crates/plimsoll-profile/dashboards";
const FILES: [&str; 3] = ["alerts.yml", "alerts_test.yml", "dashboard.json"];

/// Runs it.
pub(crate) fn run() -> Result<()> {
    let unknown = undocumented()?;
    if !unknown.is_empty() {
        bail!("{}", unknown.join("\n"));
    }
    if !sh::is_installed("promtool", &["--version"]) {
        bail!("promtool is not installed (in Debian: apt-get install prometheus)");
    }
    for (action, file) in [("check", "alerts.yml"), ("test", "alerts_test.yml")] {
        sh::run(Command::new("promtool").args([action, "rules", file]).current_dir(FOLDER))?;
    }
    Ok(())
}

/// Metrics in the dashboard and the rules that no table documents, each as a finding.
pub(crate) fn undocumented() -> Result<Vec<String>> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let mut documented = BTreeSet::new();
    for path in DOCUMENTED_IN {
        let text = read(path)?;
        let rows =
            text.lines().filter_map(|line| line.trim_start().strip_prefix("/// |").or(line.strip_prefix("//! |")));
        documented.extend(rows.filter_map(|row| row.split('|').next()).flat_map(names));
    }
    let mut findings = Vec::new();
    for file in FILES {
        let path = format!("{FOLDER}/{file}");
        for name in names(&read(&path)?) {
            if !documented.contains(&name) {
                findings.push(format!("{path}: `{name}` is in no table of {}", DOCUMENTED_IN.join(" or ")));
            }
        }
    }
    Ok(findings)
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !word(c))
        .filter(|word| word.starts_with("plimsoll_") && *word != "plimsoll_profile")
        .map(str::to_owned)
        .collect()
}
