//! `cargo xtask tidy`: house rules that no other tool checks. Each finding names the file and the rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// Files that may use `unsafe`, each with the reason.
const UNSAFE_ALLOWED: [(&str, &str); 20] = [
    ("benches/src/bin/msm_ntt.rs", "the peer of a benchmark is blst's C interface"),
    ("crates/plimsoll/src/pool/job.rs", "borrowed closures on a persistent pool"),
    ("crates/plimsoll-groth16/src/backend/cpu/", "calls into blst"),
    ("crates/plimsoll-capi/", "texts and results in the memory of a C caller"),
    ("crates/plimsoll-profile/src/sample/glibc.rs", "asking glibc's allocator, a C interface"),
    (
        "crates/plimsoll-profile/src/sample/jemalloc.rs",
        "the commands to purge and to dump, for which no safe calls exist",
    ),
    ("crates/plimsoll-circom/src/map.rs", "mapping a file, and giving its pages back"),
    ("crates/plimsoll-cuda/src/ffi.rs", "the kernels' C interface"),
    ("crates/plimsoll-cuda/src/raw.rs", "calls of CUDA"),
    ("crates/plimsoll-cuda/src/kernels.rs", "calls of kernels"),
    ("crates/plimsoll-cuda/src/msm.rs", "calls of kernels"),
    ("crates/plimsoll-cuda/src/backend.rs", "a caller's slices on a lane's thread, while the caller waits"),
    ("crates/plimsoll-sim/tests/memory.rs", "an allocator that counts"),
    ("crates/plimsoll-icicle/src/library", "opening ICICLE, and the addresses of its functions"),
    (
        "crates/plimsoll-icicle/src/owner",
        "calls of ICICLE; what a call borrows on the owner's thread, while the caller waits",
    ),
    ("crates/plimsoll-icicle/src/shield.rs", "calls through C++, which catches exceptions"),
    ("crates/plimsoll-icicle/tests/mock/support.rs", "the mock's own functions"),
    ("icicle-mock/", "a mock of a C interface"),
    ("crates/plimsoll-circom/tests/hostile/counting.rs", "an allocator that counts"),
    ("crates/plimsoll-groth16/tests/memory.rs", "an allocator that counts and looks"),
];

/// A file that is longer does not fit in the head.
const MAX_LINES: usize = 700;

/// Runs every rule over the files that git knows.
pub(crate) fn run() -> Result<()> {
    let files = tracked_files()?;
    let mut findings = Vec::new();
    for path in &files {
        let name = path.to_string_lossy();
        if path.file_name().is_some_and(|file| file == "mod.rs") {
            findings.push(format!("{name}: `mod.rs` is not used; name the file after the module"));
        }
        if path.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        check_source(&name, &text, &mut findings);
    }
    check_crates(&files, &mut findings);
    let table = fs::read_to_string("xtask/mutants.txt").unwrap_or_default();
    for mutant in mutants_in_source()?.into_keys() {
        if !table.lines().any(|row| row.split('|').next().is_some_and(|cell| cell.trim() == mutant)) {
            findings.push(format!("xtask/mutants.txt: no row for the mutant `{mutant}`"));
        }
    }
    check_proofs(&files, &table, &mut findings)?;
    findings.extend(crate::metrics::undocumented()?);
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{} findings:\n{}", findings.len(), findings.join("\n"))
}

fn check_source(name: &str, text: &str, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        findings.push(format!("{name}: {lines} lines; split it (at most {MAX_LINES})"));
    }
    // A `tests.rs` is for testing the module that it is named in.
    if !name.ends_with("/tests.rs") && !text.starts_with("//!") && !text.contains("\n//!") {
        findings.push(format!("{name}: says nowhere what it is for (a `//!` comment at the top)"));
    }
    let may_be_unsafe = UNSAFE_ALLOWED.iter().any(|(prefix, _)| name.starts_with(prefix));
    // The words are put together here so that this file does not find itself.
    let unsafe_block = ["unsafe", " {"].concat();
    let unsafe_impl = ["unsafe", " impl"].concat();
    let sleep = ["thread", "::sleep"].concat();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if !may_be_unsafe && (code.contains(&unsafe_block) || code.contains(&unsafe_impl)) {
            findings.push(format!("{name}:{}: `unsafe` outside the files that may use it", index + 1));
        }
        if code.contains(&sleep) && !line.contains("tidy: sleep") {
            findings.push(format!("{name}:{}: sleeps; use a barrier, a condition or virtual time", index + 1));
        }
    }
}

/// Every crate has a README, and stands in the code map.
fn check_crates(files: &[PathBuf], findings: &mut Vec<String>) {
    let map = fs::read_to_string("docs/architecture.md").unwrap_or_default();
    for manifest in files.iter().filter(|path| path.ends_with("Cargo.toml") && path.starts_with("crates")) {
        let dir = manifest.parent().unwrap_or(Path::new(""));
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        if !dir.join("README.md").exists() {
            findings.push(format!("{}: no README.md", dir.display()));
        }
        if !map.contains(&format!("crates/{name}")) {
            findings.push(format!("docs/architecture.md: the code map does not mention crates/{name}"));
        }
    }
}

/// What the tables of `docs/testing.md` name as a proof is there: tests by their long names, and mutants.
fn check_proofs(files: &[PathBuf], mutants: &str, findings: &mut Vec<String>) -> Result<()> {
    const PAGE: &str = "docs/testing.md";
    let page = fs::read_to_string(PAGE).with_context(|| format!("cannot read {PAGE}"))?;
    let mut functions = BTreeSet::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")) {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let names = text.split("fn ").skip(1);
        functions.extend(names.filter_map(|rest| rest.split(['(', '<']).next()).map(str::to_owned));
    }
    let has_row = |word: &str| mutants.lines().any(|row| row.split('|').next().is_some_and(|cell| cell.trim() == word));
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let (tests, faults) = row.rsplit_once(" m: ").unwrap_or((row, ""));
        for word in words(tests).filter(|word| word.matches('_').count() >= 3 && !functions.contains(*word)) {
            findings.push(format!("{PAGE}: there is no test `{word}`"));
        }
        for word in words(faults).filter(|word| !has_row(word)) {
            findings.push(format!("{PAGE}: there is no mutant `{word}`"));
        }
    }
    Ok(())
}

/// What stands in backticks and is one plain word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    text.split('`').skip(1).step_by(2).filter(is_plain)
}

/// A deliberate fault in the source of a crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MutantKind {
    /// `mutant!("…")`: in the one build that has them all, switched on when it runs.
    Switched,
    /// `cfg(plimsoll_mutant = "…")`, for what only the compiler can change, such as the order of fields.
    Compiled,
}

/// The faults in the source of the crates, by name.
pub(crate) fn mutants_in_source() -> Result<BTreeMap<String, MutantKind>> {
    let markers = [
        (["mutant", "!(\""].concat(), MutantKind::Switched),
        (["plimsoll_mutant", " = \""].concat(), MutantKind::Compiled),
    ];
    let mut mutants = BTreeMap::new();
    for path in tracked_files()? {
        if !path.starts_with("crates") || path.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (marker, kind) in &markers {
                for rest in line.split(marker.as_str()).skip(1) {
                    mutants.extend(rest.split('"').next().map(|name| (name.to_owned(), *kind)));
                }
            }
        }
    }
    Ok(mutants)
}

fn tracked_files() -> Result<Vec<PathBuf>> {
    let out = Command::new("git").args(["ls-files", "-z"]).output().context("cannot start git")?;
    let list = String::from_utf8(out.stdout).context("a file name is not UTF-8")?;
    Ok(list.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).filter(|path| path.exists()).collect())
}
