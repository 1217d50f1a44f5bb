//! `cargo xtask gpu`: builds what checks and measures on a CUDA device, here, where there may be none.
//!
//! The result is a folder with two programs (the checks, and the command itself) and one script, to be copied to the machine with
//! the device; and the keys of circom's that `cargo xtask interop` has made, if it was run. The programs need nothing there but
//! NVIDIA's driver. docs/gpu.md has the results.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::sh;

/// Enough for an nvcc, where no toolkit is installed.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what needs no device: compiles everything, lints it, and runs the tests that launch no kernel
    #[arg(long)]
    pub(crate) compile: bool,
}

/// Builds the program and lays the script beside it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let toolkit = toolkit()?;
    let cargo = |args: &str| {
        let mut command = sh::cargo(args);
        command.envs(toolkit.iter().map(|toolkit| ("CUDA_PATH", toolkit)));
        command
    };
    if args.compile {
        sh::run(&mut cargo("clippy --quiet -p plimsoll-cuda --features gpu-check --all-targets -- -D warnings"))?;
        sh::run(&mut cargo("test --quiet -p plimsoll-cuda --features gpu-check --lib"))?;
        // With what the checks above were built with, so that the kernels are not compiled again.
        let both =
            "check --quiet -p plimsoll-cli -p plimsoll-cuda --features plimsoll-cli/cuda,plimsoll-cuda/gpu-check";
        return sh::run(&mut cargo(both));
    }
    sh::run(&mut cargo("build --release --quiet -p plimsoll-cuda --features gpu-check --bin gpu-check"))?;
    let folder = sh::target_dir().join("gpu");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let program = folder.join("gpu-check");
    fs::copy(sh::target_dir().join("release/gpu-check"), &program).context("cannot copy the program")?;
    sh::run(Command::new("strip").arg(&program))?;
    sh::run(&mut cargo("build --release --quiet -p plimsoll-cli --features cuda,nvml --bin plimsoll"))?;
    let command = folder.join("plimsoll");
    fs::copy(sh::target_dir().join("release/plimsoll"), &command).context("cannot copy the command")?;
    sh::run(Command::new("strip").arg(&command))?;
    fs::copy("xtask/gpu.sh", folder.join("gpu.sh")).context("cannot copy the script")?;
    copy_circom(&folder.join("circom")).context("cannot copy keys of circom's")?;
    println!("copy {} to a machine with a CUDA device, and there: sh gpu.sh RESULTS", folder.display());
    Ok(())
}

/// The keys that `cargo xtask interop` has made, each with a witness, if it was run.
fn copy_circom(folder: &Path) -> Result<()> {
    let made = sh::target_dir().join("interop");
    let Ok(entries) = fs::read_dir(&made) else { return Ok(()) };
    fs::create_dir_all(folder)?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".zkey")) else { continue };
        let witness = format!("{name}-0.wtns");
        if made.join(&witness).exists() {
            fs::copy(made.join(&witness), folder.join(&witness))?;
            fs::copy(&path, folder.join(format!("{name}.zkey")))?;
        }
    }
    Ok(())
}

/// The folder of the toolkit that a build is to be told of; none where it finds one by itself.
pub(crate) fn toolkit() -> Result<Option<PathBuf>> {
    if toolkit_is_there() { Ok(None) } else { wheels().map(Some) }
}

/// Whether the build finds a compiler by itself.
fn toolkit_is_there() -> bool {
    ["NVCC", "CUDA_PATH", "CUDA_HOME"].iter().any(|name| env::var_os(name).is_some())
        || sh::is_installed("nvcc", &["--version"])
        || Path::new("/usr/local/cuda/bin/nvcc").exists()
}

/// The toolkit's folder out of the wheels, which are installed where they are not.
fn wheels() -> Result<PathBuf> {
    let venv = env::current_dir()?.join(sh::target_dir()).join("cuda-venv");
    let find = || {
        let lib = fs::read_dir(venv.join("lib")).ok()?;
        let root = lib.flatten().map(|entry| entry.path().join("site-packages/nvidia/cu13"));
        root.into_iter().find(|root| root.join("bin/nvcc").exists())
    };
    if let Some(root) = find() {
        return Ok(root);
    }
    sh::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    sh::run(Command::new(venv.join("bin/pip")).args(["install", "--quiet"]).args(WHEELS))?;
    match find() {
        Some(root) => Ok(root),
        None => bail!("the wheels brought no nvcc to {}; install a CUDA toolkit and set CUDA_PATH", venv.display()),
    }
}
