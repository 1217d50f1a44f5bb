//! `cargo xtask mutants`: each deliberate fault in the shipped source (`cfg(plimsoll_mutant = "…")`) is switched on
//! in turn, and the test named for it in `xtask/mutants.txt` must fail; the control, without a mutant, must pass.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{sh, tidy};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these mutants.
    pub(crate) only: Vec<String>,
}

/// One row of the table: a fault, and the test that must catch it.
struct Mutant {
    name: String,
    package: String,
    /// A test binary (`--test`), or `lib`.
    target: String,
    filter: String,
    loom: bool,
}

const TABLE: &str = "xtask/mutants.txt";

/// Runs the table; an error names every mutant that survived.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut mutants = read_table()?;
    let in_source = tidy::mutants_in_source()?;
    let in_table: BTreeSet<String> = mutants.iter().map(|mutant| mutant.name.clone()).collect();
    ensure!(in_source == in_table, "{TABLE} and the source differ: only in one of them {:?}", &in_source ^ &in_table);
    mutants.retain(|mutant| args.only.is_empty() || args.only.contains(&mutant.name));

    let mut controls = BTreeSet::new();
    let mut survivors = Vec::new();
    for mutant in &mutants {
        let test = format!("{} {} {}", mutant.package, mutant.target, mutant.filter);
        if controls.insert((test.clone(), mutant.loom)) {
            ensure!(passes(mutant, false)?, "the control fails: `{test}` without a mutant");
        }
        if passes(mutant, true)? {
            println!("{:<40} SURVIVED {test}", mutant.name);
            survivors.push(mutant.name.as_str());
        } else {
            println!("{:<40} caught by {test}", mutant.name);
        }
    }
    ensure!(survivors.is_empty(), "mutants survived: {}", survivors.join(", "));
    ensure!(!mutants.is_empty(), "no such mutant in {TABLE}");
    println!("{} mutants, all caught", mutants.len());
    Ok(())
}

fn read_table() -> Result<Vec<Mutant>> {
    let text = fs::read_to_string(TABLE).with_context(|| format!("cannot read {TABLE}"))?;
    let rows = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [name, package, target, filter, kind] = cells[..] else {
            bail!("{TABLE}: a row has five cells, `name | package | test target | filter | plain or loom`: {row}");
        };
        ensure!(matches!(kind, "plain" | "loom"), "{TABLE}: the last cell is `plain` or `loom`: {row}");
        Ok(Mutant {
            name: name.into(),
            package: package.into(),
            target: target.into(),
            filter: filter.into(),
            loom: kind == "loom",
        })
    })
    .collect()
}

/// Whether the mutant's test passes, with the fault switched on or off. A build that fails is an error, not a catch.
fn passes(mutant: &Mutant, faulty: bool) -> Result<bool> {
    let build = command(mutant, faulty, true)?.stdout(Stdio::null()).output().context("cannot start cargo")?;
    ensure!(
        build.status.success(),
        "`{}` does not build with the fault {}: {}",
        mutant.package,
        if faulty { &mutant.name } else { "switched off" },
        String::from_utf8_lossy(&build.stderr)
    );
    let out = command(mutant, faulty, false)?.output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&out.stdout);
    // A filter that matches nothing passes for ever.
    ensure!(!text.contains("running 0 tests"), "no test matches `{}` in {}", mutant.filter, mutant.package);
    Ok(out.status.success())
}

fn command(mutant: &Mutant, faulty: bool, only_build: bool) -> Result<Command> {
    let mut command = sh::cargo("test --quiet");
    if mutant.loom {
        command.arg("--release");
        sh::add_rustflags(&mut command, "--cfg plimsoll_loom");
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        command.env("LOOM_MAX_PREEMPTIONS", "3");
    }
    // The folders of the ordinary tests and of the models: everything but the mutant itself has been compiled there.
    command.env("CARGO_TARGET_DIR", if mutant.loom { sh::target_dir().join("loom") } else { sh::target_dir() });
    if faulty {
        command.env("RUSTC_WORKSPACE_WRAPPER", wrapper::link(&mutant.name)?);
    }
    command.args(["--package", &mutant.package]);
    match mutant.target.as_str() {
        "lib" => command.arg("--lib"),
        target => command.args(["--test", target]),
    };
    if only_build {
        command.arg("--no-run");
    } else {
        command.args(["--", &mutant.filter]);
    }
    Ok(command)
}

/// RUSTFLAGS would rebuild every dependency for each mutant. A compiler wrapper for workspace members does not: cargo
/// keeps what it compiles apart by the wrapper's path, so this program, linked to under the mutant's name, is it.
pub(crate) mod wrapper {
    use std::{
        env,
        ffi::OsString,
        fs,
        os::unix::{fs::symlink, process::CommandExt},
        path::{Path, PathBuf},
        process::Command,
    };

    use anyhow::{Context, Result, bail};

    use crate::sh;

    const PREFIX: &str = "mutant=";

    /// The path under which this program compiles with the fault `name` switched on.
    pub(super) fn link(name: &str) -> Result<PathBuf> {
        let dir = env::current_dir()?.join(sh::target_dir()).join("mutant-wrappers");
        fs::create_dir_all(&dir)?;
        let link = dir.join(format!("{PREFIX}{name}"));
        let _ = fs::remove_file(&link);
        symlink(env::current_exe()?, &link).with_context(|| format!("cannot link {}", link.display()))?;
        Ok(link)
    }

    /// Compiles, if this program was started as a wrapper: then it does not return.
    pub(crate) fn compile_if_called_as_one() -> Result<()> {
        let mut args = env::args_os();
        let called_as = args.next().unwrap_or_default();
        let name = Path::new(&called_as).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(mutant) = name.strip_prefix(PREFIX) else { return Ok(()) };
        let rustc: OsString = args.next().context("a compiler wrapper is called with the compiler's path")?;
        let fault = format!("plimsoll_mutant=\"{mutant}\"");
        let error = Command::new(&rustc).args(args).args(["--cfg", &fault, "--cap-lints", "warn"]).exec();
        bail!("cannot start {}: {error}", rustc.display())
    }
}
