//! RUSTFLAGS would rebuild every dependency for the faults. A compiler wrapper for workspace members does not: cargo keeps
//! what it compiles apart by the wrapper's path, so this program, linked to under the faults' name, is it.

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

const ALL: &str = "mutants";
const ONE: &str = "mutant=";

/// Which faults are built in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Faults<'a> {
    /// All that are switched on when the program runs.
    Switched,
    /// One that only the compiler can make.
    Compiled(&'a str),
}

/// The path under which this program compiles with `faults`.
pub(super) fn link(faults: Faults<'_>) -> Result<PathBuf> {
    let dir = env::current_dir()?.join(sh::target_dir()).join("mutant-wrappers");
    fs::create_dir_all(&dir)?;
    let link = dir.join(match faults {
        Faults::Switched => ALL.to_owned(),
        Faults::Compiled(name) => format!("{ONE}{name}"),
    });
    let _ = fs::remove_file(&link);
    symlink(env::current_exe()?, &link).with_context(|| format!("cannot link {}", link.display()))?;
    Ok(link)
}

/// Compiles, if this program was started as a wrapper: then it does not return.
pub(crate) fn compile_if_called_as_one() -> Result<()> {
    let mut args = env::args_os();
    let called_as = args.next().unwrap_or_default();
    let name = Path::new(&called_as).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let faults = match name.strip_prefix(ONE) {
        Some(mutant) => format!("plimsoll_mutant=\"{mutant}\""),
        None if name == ALL => "plimsoll_mutants".to_owned(),
        None => return Ok(()),
    };
    let rustc: OsString = args.next().context("a compiler wrapper is called with the compiler's path")?;
    let error = Command::new(&rustc).args(args).args(["--cfg", &faults, "--cap-lints", "warn"]).exec();
    bail!("cannot start {}: {error}", rustc.display())
}
