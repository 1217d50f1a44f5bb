//! The features that are off by default and light enough to be tested with everything else.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::sh;

/// The packages whose features bring in nothing heavy.
const PACKAGES: [&str; 2] = ["plimsoll", "plimsoll-tower"];

/// All of their features, as `--features` takes them in the workspace: one build then has what would otherwise be two.
pub(crate) fn light() -> Result<String> {
    Ok(all()?.join(","))
}

/// Those of them that are this package's, where it is built by itself.
pub(crate) fn light_of(package: &str) -> Result<String> {
    let own = format!("{package}/");
    let all = all()?.into_iter().filter(|feature| feature.starts_with(&own));
    Ok(all.collect::<Vec<_>>().join(","))
}

fn all() -> Result<Vec<String>> {
    let out = sh::cargo("metadata --no-deps --offline --format-version 1").output().context("cannot start cargo")?;
    ensure!(out.status.success(), "`cargo metadata` failed: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).context("`cargo metadata` prints no JSON")?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let mut features = Vec::new();
    for name in PACKAGES {
        let package = packages.iter().find(|package| package["name"] == name);
        let package = package.with_context(|| format!("the workspace has no package `{name}`"))?;
        let all = package["features"].as_object().with_context(|| format!("`{name}` has no features"))?;
        features.extend(all.keys().filter(|feature| *feature != "default").map(|feature| format!("{name}/{feature}")));
    }
    Ok(features)
}
