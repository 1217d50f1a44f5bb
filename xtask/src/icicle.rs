//! `cargo xtask icicle`: conformance and figures on the ICICLE that is installed.
//!
//! ```text
//! cargo xtask icicle --lib DIR --device CPU -- conform
//! cargo xtask icicle --lib DIR --bellperson -- stream --proofs 12
//! cargo xtask icicle --mock --mock-memory 4 -- stream free --proofs 10
//! ```
//!
//! Nothing of ICICLE's is built or fetched: its libraries are where `--lib` says, or where it is looked for anyway
//! (`crates/plimsoll-icicle/README.md`). Without `--lib` and without an ICICLE it fails, and says where it has looked.

use std::path::PathBuf;

use anyhow::Result;

use crate::{gpu, sh};

/// What to check, and where it is.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of ICICLE's libraries, with its backends below it
    #[arg(long, value_name = "DIR")]
    lib: Option<PathBuf>,
    /// The device, such as CPU or CUDA:1; the first that is not the processor otherwise
    #[arg(long)]
    device: Option<String>,
    /// Figures beside this project's own CUDA backend as well, which builds its kernels
    #[arg(long)]
    cuda: bool,
    /// The mock instead of ICICLE: that the program works, and no figure means anything
    #[arg(long, conflicts_with = "lib")]
    mock: bool,
    /// The mock's device has so many MiB of memory, and does not say so; that is the budget
    #[arg(long, value_name = "MIB", requires = "mock")]
    mock_memory: Option<u64>,
    /// Have bellperson's verifier look at the proofs of the stream as well, which builds bellperson
    #[arg(long)]
    bellperson: bool,
    /// Further arguments of `icicle-check` (after `--`)
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Builds the program and runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let features = if args.cuda { "beside-cuda" } else { "icicle-check" };
    let mut command =
        sh::cargo(&format!("run --release --quiet -p plimsoll-icicle --features {features} --bin icicle-check --"));
    if args.cuda {
        command.envs(gpu::toolkit()?.iter().map(|toolkit| ("CUDA_PATH", toolkit)));
    }
    let mocked = if args.mock { Some(mock()?) } else { None };
    if let Some(folder) = args.lib.as_ref().or(mocked.as_ref()) {
        command.arg("--lib").arg(std::path::absolute(folder)?);
    }
    if let Some(device) = &args.device {
        command.args(["--device", device]);
    }
    if let Some(mib) = args.mock_memory {
        command.env("ICICLE_MOCK", format!("silent=1,memory={}", mib << 20)).args(["--memory", &format!("{mib}MiB")]);
    }
    if !args.bellperson {
        return sh::run(command.args(&args.rest));
    }
    let proofs = std::path::absolute(sh::target_dir().join("icicle-proofs"))?;
    // Of an earlier run, which is not what bellperson is to see.
    let _ = std::fs::remove_file(&proofs);
    sh::run(command.arg("--write").arg(&proofs).args(&args.rest))?;
    let verify = "run --release --quiet -p plimsoll-peers --bin verify_proofs --";
    sh::run(sh::cargo(verify).arg(&proofs))
}

/// The mock under the names of ICICLE's libraries.
fn mock() -> Result<PathBuf> {
    sh::run(&mut sh::cargo("build --release --quiet -p plimsoll-icicle-mock"))?;
    let folder = sh::target_dir().join("icicle-mock");
    std::fs::create_dir_all(&folder)?;
    let built = std::path::absolute(sh::target_dir().join("release/libplimsoll_icicle_mock.so"))?;
    for name in ["device", "field_bls12_381", "curve_bls12_381"] {
        let link = folder.join(format!("libicicle_{name}.so"));
        // A link of an earlier run; where it cannot go, making the new one says why.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&built, &link)?;
    }
    Ok(folder)
}
