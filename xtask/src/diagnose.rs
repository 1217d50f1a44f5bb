//! `cargo xtask diagnose`: programs with planted faults, and healthy ones that look suspicious, as processes with real memory; each
//! verdict on their traces must be right.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::sh;

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only programs whose name contains this.
    filter: Option<String>,
    /// How often each, with another seed each time.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed. From 1000 on sizes, rates, noise and gaps between samples are of other ranges.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many run at a time.
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Where the traces go.
    #[arg(long, default_value = "target/diagnose")]
    folder: PathBuf,
}

/// One run.
struct Run {
    program: String,
    seed: u64,
    expected: String,
    trace: PathBuf,
    child: Child,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.folder)?;
    let glibc = build(&args.folder, "planted-glibc", &[])?;
    let jemalloc = build(&args.folder, "planted-jemalloc", &["--features", "jemalloc"])?;
    let listed = Command::new(&glibc).arg("list").output()?;
    ensure!(listed.status.success(), "the programs cannot be listed");
    let mut todo = Vec::new();
    for line in String::from_utf8(listed.stdout)?.lines() {
        let [program, verdict, allocator] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("what is {line:?}?")
        };
        if args.filter.as_ref().is_none_or(|filter| program.contains(filter.as_str())) {
            for seed in args.first..args.first + args.seeds {
                // What any allocator shows is shown with each in turn.
                let allocator = if allocator == "any" && seed % 2 == 0 { "jemalloc" } else { allocator };
                todo.push((program.to_owned(), verdict.to_owned(), allocator.to_owned(), seed));
            }
        }
    }
    ensure!(!todo.is_empty(), "no program has such a name");
    let (mut right, mut wrong) = (0, Vec::new());
    let mut table: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut under_way: Vec<Run> = Vec::new();
    let mut todo = todo.into_iter();
    loop {
        while under_way.len() < args.jobs {
            let Some((program, expected, allocator, seed)) = todo.next() else { break };
            let trace = args.folder.join(format!("{program}-{seed}.jsonl"));
            let binary = if matches!(&*allocator, "any" | "glibc") { &glibc } else { &jemalloc };
            let mut command = Command::new(binary);
            command.args(["run", &program, &seed.to_string()]).arg(&trace).stdout(Stdio::null());
            match &*allocator {
                "hoarding" => _ = command.env("_RJEM_MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1"),
                "glibc" => _ = command.env("MALLOC_TRIM_THRESHOLD_", "4000000000").env("MALLOC_ARENA_MAX", "1"),
                _ => {}
            }
            let child = command.spawn().with_context(|| format!("{program} does not start"))?;
            under_way.push(Run { program, seed, expected, trace, child });
        }
        if under_way.is_empty() {
            break;
        }
        let Run { program, seed, expected, trace, mut child } = under_way.remove(0);
        ensure!(child.wait()?.success(), "{program} {seed} has failed");
        let said = Command::new(&glibc).arg("judge").arg(&trace).output()?;
        let said = String::from_utf8(said.stdout)?;
        let (found, why) = said.split_once('\n').context("there is no verdict")?;
        *table.entry((expected.clone(), found.to_owned())).or_default() += 1;
        let is_right = found == expected;
        println!("{} {program:<22} seed {seed:<5} {expected:<20} → {found}", if is_right { "ok   " } else { "WRONG" });
        if is_right {
            right += 1;
            fs::remove_file(&trace)?;
        } else {
            wrong.push(format!("{program} {seed}: {expected} is called {found}; {}\n{why}", trace.display()));
        }
    }
    println!("\nplanted → found");
    for ((expected, found), count) in &table {
        println!("{count:>5}  {expected:<20} → {found}");
    }
    println!("{right} of {} verdicts are right", right + wrong.len());
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Builds the programs, and puts them aside under a name of their own.
fn build(folder: &Path, name: &str, features: &[&str]) -> Result<PathBuf> {
    let mut command = sh::cargo("build -q -p plimsoll-profile --example planted");
    sh::run(command.args(features))?;
    let aside = folder.join(name);
    let built = sh::target_dir().join("debug/examples/planted");
    fs::copy(&built, &aside).with_context(|| format!("{} is not there", built.display()))?;
    Ok(aside)
}
