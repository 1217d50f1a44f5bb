//! `plimsoll verify`.

use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use plimsoll::pool::{Pool, PoolConfig};
use serde::Serialize;

use crate::args::Verify;
use crate::console::{self, GOOD, Rows, WARNING};
use crate::exit::{Exit, Failure};
use crate::key_cache::{KeyCache, open_regular};
use crate::proof_file::{Header, SETUP};
use crate::verify::{Verdict, check, check_file};

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    ok: bool,
    proof: String,
    file: Option<String>,
    bytes: u64,
    digest: String,
    partitions: u64,
    key: String,
    setup: &'static str,
    insecure: bool,
    key_in_cache: bool,
    seconds: f64,
}

/// Runs it.
pub fn run(args: &Verify) -> Result<(), Failure> {
    if let Some(key) = &args.snarkjs.vkey {
        return super::verify_snarkjs::run(args, key);
    }
    // The command line demands one of the two.
    let proof = args.file_proof.as_deref().ok_or_else(|| Failure::new(Exit::Usage, "name a proof, or --vkey"))?;
    let started = Instant::now();
    let pool = Pool::new(PoolConfig::default()).map_err(|e| Failure::new(Exit::Internal, e))?;
    let verdict = pool
        .install(|| check(proof, args.key))
        .map_err(|e| Failure::new(e.exit(), format!("{}: {e}", proof.display())))?;
    if let Some(file) = &args.file {
        check_file(&verdict, file)
            .map_err(|e| Failure::new(Exit::BadInput, format!("{}: cannot be read: {e}", file.display())))?
            .map_err(|e| Failure::new(e.exit(), format!("{}: {e}", proof.display())))?;
    }
    report(args, proof, &verdict, started.elapsed().as_secs_f64())
}

fn report(args: &Verify, proof: &Path, verdict: &Verdict, seconds: f64) -> Result<(), Failure> {
    let header = &verdict.header;
    let key_in_cache = KeyCache::of_user().is_ok_and(|cache| is_cached(&cache.path(), header));
    if args.key.is_none() && !key_in_cache {
        let who = "the key came with the proof, and nothing here vouches for it; whoever made it can forge proofs";
        console::warn(format!("{who}: if you know the key's identity, give it with --key"));
    }
    let file = args.file.as_ref().map(|path| path.display().to_string());
    if args.json {
        let report = Report {
            command: "verify",
            ok: true,
            proof: proof.display().to_string(),
            file,
            bytes: header.file_bytes,
            digest: hex::encode(header.digest),
            partitions: verdict.partitions,
            key: hex::encode(header.key),
            setup: SETUP,
            insecure: true,
            key_in_cache,
            seconds,
        };
        return console::print(serde_json::to_string(&report).map_err(|e| Failure::new(Exit::Internal, e))?);
    }
    let whose = if args.key.is_some() {
        "the one asked for"
    } else if key_in_cache {
        "the one in this user's cache"
    } else {
        "not the one in this user's cache"
    };
    let mut rows = Rows::default();
    rows.add("proof", format!("{GOOD}valid{GOOD:#}, {} partitions in one check, {seconds:.2} s", verdict.partitions))
        .add("of", format!("knowing a file of {} bytes", header.file_bytes))
        .add("SHA-256", hex::encode(header.digest));
    if let Some(file) = file {
        rows.add("file", format!("{file}: the same"));
    }
    rows.add("key", format!("{} ({whose})", hex::encode(header.key)));
    rows.add("set-up", format!("{WARNING}{SETUP}: INSECURE{WARNING:#}, whoever made this key can forge proofs"));
    console::print(rows)
}

/// Whether the cached key begins with this verifying key.
fn is_cached(path: &Path, header: &Header) -> bool {
    let read = || -> io::Result<bool> {
        let mut start = Vec::new();
        open_regular(path)?.take(header.verifying_key.len() as u64).read_to_end(&mut start)?;
        Ok(start == header.verifying_key)
    };
    read().unwrap_or(false)
}
