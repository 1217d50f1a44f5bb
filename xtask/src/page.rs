//! `cargo xtask page TRACE`: a report's page in headless Chromium, on a desktop's and on a phone's screen, in the light. It fails
//! if the browser has anything to say against the page or shows nothing. The screenshots stay, to be looked at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::sh;

/// What to show.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A trace, such as `plimsoll prove FILE --trace t.jsonl` writes.
    trace: PathBuf,
    /// Where the page and its screenshots go.
    #[arg(long, default_value = "target/page")]
    folder: PathBuf,
}

/// A blank screenshot of either size is smaller.
const SCREENSHOT_BYTES_MIN: u64 = 30_000;

/// Makes the page and looks at it.
pub(crate) fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.folder)?;
    let folder = fs::canonicalize(&args.folder)?;
    let page = folder.join("page.html");
    let example = ["run", "-q", "-p", "plimsoll-profile", "--features", "report", "--example", "page", "--"];
    sh::run(Command::new("cargo").args(example).arg(&args.trace).arg(&page))?;
    for (name, size) in [("desktop", "1100,3600"), ("phone", "500,4200")] {
        let picture = folder.join(format!("{name}.png"));
        shoot(&page, &picture, size)?;
        let bytes = fs::metadata(&picture).with_context(|| format!("{} was not made", picture.display()))?.len();
        ensure!(bytes >= SCREENSHOT_BYTES_MIN, "{}: {bytes} bytes, so there is nothing on it", picture.display());
        println!("{}", picture.display());
    }
    Ok(())
}

fn shoot(page: &Path, picture: &Path, size: &str) -> Result<()> {
    let out = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"])
        .args([format!("--window-size={size}"), format!("--screenshot={}", picture.display())])
        .arg(format!("file://{}", page.display()))
        .output()
        .context("cannot start chromium (in Debian: apt-get install chromium)")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "chromium failed:\n{said}");
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    if !complaints.is_empty() {
        bail!("the page has errors:\n{}", complaints.join("\n"));
    }
    Ok(())
}
