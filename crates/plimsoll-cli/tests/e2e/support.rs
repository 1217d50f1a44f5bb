//! A directory for a test, and the command run in it.
//!
//! All tests that do not care share one cached key, made by whichever comes first: its lock makes the others wait.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep; // tidy: sleep, another process is watched
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Long enough for a loaded machine; a test that needs it has failed otherwise.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Sandbox {
    directory: TempDir,
    cache: PathBuf,
}

pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The most that `/proc` showed of it while it ran (VmHWM), in bytes.
    pub(crate) resident_peak: u64,
    pub(crate) time: Duration,
}

impl Sandbox {
    /// With the key that all tests share.
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            cache: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cache"),
        }
    }

    /// With an empty cache of its own.
    pub(crate) fn with_own_cache() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        fs::create_dir(&cache).unwrap();
        Self { directory, cache }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Another place for the cache, in the directory.
    pub(crate) fn set_cache(&mut self, name: &str) {
        self.cache = self.path(name);
    }

    /// Where the key is.
    pub(crate) fn key(&self) -> PathBuf {
        self.cache.join("plimsoll/keys/sha256-2-blocks-v1.insecure-dev.params")
    }

    /// A file of `length` bytes that no two lengths share.
    pub(crate) fn file(&self, name: &str, length: usize) -> PathBuf {
        let path = self.path(name);
        let bytes: Vec<u8> = (0..length).map(|i| (i * 131 + length) as u8).collect();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PLIMSOLL);
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("XDG_CACHE_HOME", &self.cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        finish(self.command(arguments).spawn().unwrap())
    }

    /// Runs `prove` with `--json`, which must succeed.
    pub(crate) fn prove(&self, arguments: &[&str]) -> (Outcome, Value) {
        let outcome = self.run(&[&["prove", "--json"], arguments].concat());
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
        let json = outcome.json();
        (outcome, json)
    }

    /// The names in the directory, the cache's aside.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "cache");
        names.sort();
        names
    }
}

impl Outcome {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {:?}\n{}", self.status, self.stderr))
    }

    /// Standard output is one JSON object in one line.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.matches('\n').count(), 1, "{}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Ended with this code, and says each of `words` on standard error.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code(), code, "{}\n{}", self.stdout, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

/// Waits for a process, watching what it holds.
pub(crate) fn finish(mut child: Child) -> Outcome {
    let started = Instant::now();
    let mut resident_peak = 0;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Read while it runs: what it prints may be more than a pipe holds.
    let (status, stdout, stderr) = std::thread::scope(|scope| {
        let (stdout, stderr) = (scope.spawn(|| everything(stdout)), scope.spawn(|| everything(stderr)));
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if let Some(bytes) = resident_peak_of(child.id()) {
                resident_peak = bytes;
            }
            if started.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("the command does not end");
            }
            sleep(Duration::from_millis(2));
        };
        (status, stdout.join().unwrap(), stderr.join().unwrap())
    });
    Outcome { status, stdout, stderr, resident_peak, time: started.elapsed() }
}

/// What comes out of a pipe until it is closed.
fn everything(pipe: Option<impl std::io::Read>) -> String {
    let mut text = String::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_string(&mut text).unwrap();
    }
    text
}

/// VmHWM of a process. It only grows, so the last value seen is the largest.
pub(crate) fn resident_peak_of(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(2));
    }
}
