//! `cargo xtask cost`: what it costs a proof to be watched with everything on, against everything off, in turn on the same machine; and
//! `cargo xtask cost budgets`: the process's peak under ten budgets, with two and with eight partitions in flight.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::sh;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum, default_value_t)]
    what: What,
    /// How often each way.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// The file's length: 128 bytes are a partition.
    #[arg(long, default_value_t = 8000)]
    bytes: usize,
    /// An unoptimised build of the command (the arithmetic is optimised all the same).
    #[arg(long)]
    dev: bool,
    /// Where files go.
    #[arg(long, default_value = "target/cost")]
    folder: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Everything on against everything off.
    #[default]
    Watching,
    /// The peak under ten budgets.
    Budgets,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.folder)?;
    let folder = fs::canonicalize(&args.folder)?;
    let mut build = sh::cargo("build -q -p plimsoll-cli --features prometheus");
    if !args.dev {
        build.arg("--release");
    }
    sh::run(&mut build)?;
    let plimsoll =
        fs::canonicalize(sh::target_dir().join(if args.dev { "debug/plimsoll" } else { "release/plimsoll" }))?;
    let text: Vec<u8> = (0..args.bytes).map(|i| (i * 131 + args.bytes) as u8).collect();
    fs::write(folder.join("file"), text)?;
    let proving = Proving { plimsoll, folder };
    // Makes the key.
    proving.seconds(&["--sample-ms", "0"])?;
    match args.what {
        What::Watching => watching(args, &proving),
        What::Budgets => budgets(&proving),
    }
}

struct Proving {
    plimsoll: PathBuf,
    folder: PathBuf,
}

impl Proving {
    fn json(&self, more: &[&str]) -> Result<String> {
        let out = self.command().args(more).output()?;
        ensure!(out.status.success(), "prove has failed: {}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8(out.stdout)?)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.plimsoll);
        command.current_dir(&self.folder).env("XDG_CACHE_HOME", &self.folder).args(["prove", "file", "--json"]);
        command
    }

    fn seconds(&self, more: &[&str]) -> Result<f64> {
        number(&self.json(more)?, "proving_seconds")
    }
}

/// A number of a flat name, wherever in the object it is.
fn number(json: &str, name: &str) -> Result<f64> {
    let at = json.find(&format!("\"{name}\":")).with_context(|| format!("no {name} in {json}"))?;
    let rest = &json[at + name.len() + 3..];
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == 'e' || c == '-')).unwrap_or(rest.len());
    rest[..end].parse().with_context(|| format!("{name} is no number"))
}

fn watching(args: &Args, proving: &Proving) -> Result<()> {
    let on = ["--trace", "t.jsonl", "--record", "ring", "--socket", "s", "--metrics", "127.0.0.1:0"];
    let off = ["--sample-ms", "0"];
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for run in 0..args.runs {
        // In turn, and not always the same one first.
        if run % 2 == 0 {
            with.push(proving.seconds(&on)?);
            without.push(proving.seconds(&off)?);
        } else {
            without.push(proving.seconds(&off)?);
            with.push(proving.seconds(&on)?);
        }
        println!("run {run}: on {:.3} s, off {:.3} s", with[run], without[run]);
    }
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(on, off)| on / off).collect();
    println!(
        "medians: on {:.3} s, off {:.3} s; each pair {:+.2} % (median)",
        median(with),
        median(without),
        100.0 * (median(ratios) - 1.0)
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

/// The smallest budget that the command accepts with so many threads, in MiB.
fn smallest(proving: &Proving, threads: &str) -> Result<u64> {
    let out = proving.command().args(["--threads", threads, "--memory", "1MiB"]).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    let (_, remedy) = said.trim().rsplit_once("--memory ").with_context(|| format!("no remedy in {said}"))?;
    remedy.strip_suffix("MiB").context("in MiB")?.parse().context("a number")
}

fn budgets(proving: &Proving) -> Result<()> {
    let mut above = Vec::new();
    println!("threads  budget MiB  in flight  ledger peak MiB  process peak MiB  of the budget");
    for threads in ["2", "8"] {
        let smallest = smallest(proving, threads)?;
        let jobs: u64 = threads.parse()?;
        for step in 0..10_u64 {
            // From the smallest to room for as many partitions as there are threads.
            let budget = smallest + step * step * jobs * 14 / 81;
            let memory = format!("{budget}MiB");
            let json = proving.json(&["--threads", threads, "--memory", &memory])?;
            let peak = number(&json, "resident_peak_bytes")? / f64::from(1 << 20);
            println!(
                "{threads:>7}  {budget:>10}  {:>9}  {:>15.1}  {peak:>16.1}  {:>12.1} %",
                number(&json, "in_flight_peak")?,
                number(&json, "ledger_peak_bytes")? / f64::from(1 << 20),
                100.0 * peak / budget as f64,
            );
            if peak > budget as f64 {
                above.push(format!("{threads} threads, {memory}: {peak:.1} MiB"));
            }
        }
    }
    if above.is_empty() { Ok(()) } else { bail!("the process went above its line:\n{}", above.join("\n")) }
}
