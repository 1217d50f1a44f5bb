//! Running programs: echo the command, inherit the terminal, turn a failure into an error that names it.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// Makes the workspace root the current directory, wherever the task was called from.
pub(crate) fn enter_workspace_root() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    env::set_current_dir(root).with_context(|| format!("cannot enter {}", root.display()))
}

/// The target directory of this workspace (`CARGO_TARGET_DIR` or `target`).
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// A cargo command with `args`, split at spaces.
pub(crate) fn cargo(args: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args.split_whitespace());
    // Set by the `cargo run` that started this task; a build started from here must not inherit it.
    command.env_remove("CARGO_MANIFEST_DIR");
    command
}

/// Appends `flags` to RUSTFLAGS, separated as rustc wants them.
pub(crate) fn add_rustflags(command: &mut Command, flags: &str) {
    let mut all = env::var("RUSTFLAGS").unwrap_or_default();
    if !all.is_empty() {
        all.push(' ');
    }
    all.push_str(flags);
    command.env("RUSTFLAGS", all);
}

/// Runs `command` to its end; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = describe(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Whether `program --version` can be run at all.
pub(crate) fn is_installed(program: impl AsRef<OsStr>, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|out| out.status.success())
}

fn describe(command: &Command) -> String {
    let mut line = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            line.push_str(&format!("{}={:?} ", key.to_string_lossy(), value.to_string_lossy()));
        }
    }
    line.push_str(&Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy());
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// The triple of this machine.
pub(crate) fn host() -> Result<String> {
    let out = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("`rustc -vV` names no host")?;
    Ok(host.to_owned())
}
