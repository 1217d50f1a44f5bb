//! A running process, from outside: a Unix socket on which it answers.
//!
//! [`serve`] opens one for a ledger; [`Client`] talks to it, and so do `plimsoll top` and `plimsoll ctl`.
//!
//! # Protocol
//!
//! Lines of JSON: one request a line, one answer a line, in order. Every line names the version, `"plimsoll":1`; another one is
//! refused with an answer that says so.
//!
//! ```json
//! {"plimsoll":1,"do":"resize","space":"host","bytes":1073741824}
//! {"plimsoll":1,"ok":true}
//! {"plimsoll":1,"ok":false,"error":"no command \"dance\"; there are: cancel, resize, snapshot"}
//! ```
//!
//! | command | fields | answer |
//! |---|---|---|
//! | `snapshot` | | `snapshot`: limits, classes, holders, waiters with reasons, residencies, as they are now; `process`: what the kernel says, reconciled; `verdict` |
//! | `resize` | `space`, `bytes` | |
//! | `pause`, `resume` | | `paused` |
//! | `evict` | `residency` | `bytes`: what comes back when its memory is gone |
//! | `cancel` | `job` | `cancelled`: how many jobs of this name the pipelines on the ledger had under way |
//! | `ledger-profile` | `path` | `path`: a pprof profile of who holds what was written there |
//! | `heap-profile` | `path` | `path`: a pprof profile of the heap was written there (needs jemalloc, built and started for it) |
//! | what the program adds ([`Server::on`]) | any | any |
//!
//! # Who may
//!
//! Whoever may open the socket: its owner (and root). It is made in a directory that nobody else can enter, given its permissions
//! there, and only then moved to its place, so that there is no moment at which others could connect. A request is at most
//! [`REQUEST_BYTES_MAX`] long, comes within [`PATIENCE`], and at most [`CLIENTS_MAX`] are served at once.

mod client;
mod commands;
mod picture;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

use plimsoll::Ledger;
use serde_json::{Value, json};

pub use self::client::{CallError, Client};
pub use self::picture::picture;
use crate::accept::Accepting;
use crate::watch::{Seen, Watch, Watching};

/// The version of the protocol.
pub const VERSION: u64 = 1;
/// A longer request is refused, and ends the connection.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// A client that says nothing for so long, or does not take its answer, is let go.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How many clients are served at once. Others are told to come again.
pub const CLIENTS_MAX: usize = 8;

/// Answers a command: with fields for the answer, or with what is wrong with the request.
type Command = Box<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;

/// A socket that is about to be opened: which commands there are.
pub struct Server {
    commands: BTreeMap<&'static str, Command>,
    ledger: Ledger,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("commands", &self.commands.keys()).finish_non_exhaustive()
    }
}

/// An open socket. Dropping it closes it, and removes its file.
#[derive(Debug)]
pub struct Serving {
    path: PathBuf,
    /// Device and number of the socket's file: what is at `path` later may be somebody else's.
    file: (u64, u64),
    accepting: Accepting,
    /// Looks at the process for as long as the socket is open.
    watching: Option<Watching>,
}

/// Opens a socket at `path` on which the ledger is seen and steered, by its owner alone. The process is looked at four times a
/// second for as long as it is open, and the ledger is observed, so that there is a verdict.
///
/// ```no_run
/// # let ledger = plimsoll::Ledger::unlimited();
/// let serving = plimsoll_profile::live::serve(&ledger, "/run/user/1000/prover.sock")?;
/// // … `plimsoll top /run/user/1000/prover.sock` …
/// # drop(serving);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// When the socket cannot be made, or something else is there: another process's socket, or a file.
pub fn serve(ledger: &Ledger, path: impl AsRef<Path>) -> io::Result<Serving> {
    let path = path.as_ref().to_owned();
    // First what can fail: nobody observes a ledger for a socket that is not there.
    let bound = bind(&path)?;
    let watching = Watch::new(ledger).with_verdict().start()?;
    let mut serving = Server::new(ledger).watched(&watching.seen()).serve_at(path, bound)?;
    serving.watching = Some(watching);
    Ok(serving)
}

impl Server {
    /// With the commands that every ledger has.
    pub fn new(ledger: &Ledger) -> Server {
        let server = Server { commands: BTreeMap::new(), ledger: ledger.clone() };
        commands::all(ledger).into_iter().fold(server, |mut server, (name, command)| {
            server.commands.insert(name, command);
            server
        })
    }

    /// Answers `snapshot` with what is seen of the process as well, and the verdict.
    #[must_use]
    pub fn watched(self, seen: &Seen) -> Server {
        let (ledger, seen) = (self.ledger.clone(), seen.clone());
        self.on("snapshot", move |_| {
            let verdict = seen.diagnosis();
            Ok(json!({"snapshot": picture(&ledger.snapshot()), "process": seen.process(), "verdict": verdict}))
        })
    }

    /// Adds a command, such as `cancel`, for what only the program can do. It is called on a thread of the socket's.
    #[must_use]
    pub fn on(
        mut self,
        name: &'static str,
        command: impl Fn(&Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Server {
        self.commands.insert(name, Box::new(command));
        self
    }

    /// Opens the socket. See [`serve`].
    ///
    /// # Errors
    ///
    /// As [`serve`].
    pub fn serve(self, path: impl AsRef<Path>) -> io::Result<Serving> {
        let path = path.as_ref().to_owned();
        let bound = bind(&path)?;
        self.serve_at(path, bound)
    }

    fn serve_at(self, path: PathBuf, (listener, file): Bound) -> io::Result<Serving> {
        let server = Arc::new(self);
        let clients = Arc::new(AtomicUsize::new(0));
        let accepting = Accepting::start("plimsoll socket", listener, move |stream| {
            if stream.set_nonblocking(false).is_ok() {
                server.clone().welcome(stream, &clients);
            }
        })?;
        Ok(Serving { path, file, accepting, watching: None })
    }

    fn welcome(self: Arc<Server>, mut stream: UnixStream, clients: &Arc<AtomicUsize>) {
        let timeouts = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
        if timeouts.is_err() {
            return;
        }
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            // It may be gone already.
            let _ = answer(&mut stream, Err(format!("{CLIENTS_MAX} clients are served at once; come again")));
            return;
        }
        // Gives the place back however the client's thread ends, and where there can be none.
        let place = Place(clients.clone());
        let serve = move || {
            let _place = place;
            // A client that goes away in the middle is nobody's error.
            let _ = self.converse(stream);
        };
        let _ = Builder::new().name("plimsoll client".into()).spawn(serve);
    }

    fn converse(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut requests = BufReader::new(stream.try_clone()?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut requests).take(REQUEST_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(());
            }
            if line.len() > REQUEST_BYTES_MAX {
                return answer(&mut stream, Err(format!("a request is at most {REQUEST_BYTES_MAX} bytes long")));
            }
            answer(&mut stream, self.respond(&line))?;
        }
    }

    fn respond(&self, line: &[u8]) -> Result<Value, String> {
        let request: Value = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
        match request["plimsoll"].as_u64() {
            Some(VERSION) => {}
            Some(other) => return Err(format!("this process speaks version {VERSION}, not {other}")),
            None => return Err(format!("a request names its version: \"plimsoll\":{VERSION}")),
        }
        let name = request["do"].as_str().ok_or("a request says what to \"do\"")?;
        match self.commands.get(name) {
            Some(command) => command(&request),
            None => {
                let there: Vec<&str> = self.commands.keys().copied().collect();
                Err(format!("no command {name:?}; there are: {}", there.join(", ")))
            }
        }
    }
}

fn answer(stream: &mut UnixStream, result: Result<Value, String>) -> io::Result<()> {
    let mut value = match result {
        Ok(Value::Object(fields)) => Value::Object(fields),
        Ok(_) => json!({}),
        Err(error) => json!({"error": error}),
    };
    let ok = value.get("error").is_none();
    value["plimsoll"] = VERSION.into();
    value["ok"] = ok.into();
    let mut text = value.to_string();
    text.push('\n');
    stream.write_all(text.as_bytes())
}

/// A socket, with device and number of its file.
type Bound = (UnixListener, (u64, u64));

/// Makes the socket where nobody else can reach it, and moves it to its place.
fn bind(path: &Path) -> io::Result<Bound> {
    // Of two that come at once one is first: what it made answers when the other looks.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::File::open(folder)?;
    // A file system without locks: as it was before.
    let _ = rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive);
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            let message = format!("{}: there is something else, no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            let message = format!("{}: another process answers there", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        _ => {}
    }
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a name"))?;
    let private = private_directory(path, &name.to_string_lossy())?;
    let made = private.join("s");
    let listener = UnixListener::bind(&made).and_then(|listener| {
        fs::set_permissions(&made, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let file = identity(&fs::symlink_metadata(&made)?);
        // What is there is a socket at which nobody answers.
        fs::rename(&made, path)?;
        Ok((listener, file))
    });
    let _ = fs::remove_file(&made);
    // Whatever becomes of it, the socket is where it should be.
    let _ = fs::remove_dir(&private);
    listener
}

/// One that nobody else can enter. A process of this number may have left one behind when it was killed; in a container every one has
/// the same number.
fn private_directory(path: &Path, name: &str) -> io::Result<PathBuf> {
    let mut tries = 0..64;
    loop {
        let number = tries.next();
        let private = path.with_file_name(format!(".{name}.{}.{}", std::process::id(), number.unwrap_or(64)));
        match DirBuilder::new().mode(0o700).create(&private) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number.is_some() => {}
            made => return made.map(|()| private),
        }
    }
}

/// Device and number.
fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.accepting.end();
        // Another process may have put its own socket there meanwhile.
        if fs::symlink_metadata(&self.path).is_ok_and(|there| identity(&there) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A client's place among those that are served.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
