//! The other end of the socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep; // tidy: sleep, another process's socket is tried again
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde_json::{Value, json};
use thiserror::Error;

use super::{PATIENCE, VERSION};

/// A process that does not take a connection in this time takes none.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// A longer answer is not read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A connection to a running process.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

/// A request was not answered as asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The process does not answer.
    #[error("the process does not answer: {0}")]
    Io(#[from] io::Error),
    /// What it answered is no answer.
    #[error("what answers there is no plimsoll process of this version")]
    NotAnAnswer,
    /// It answered that it does not.
    #[error("{0}")]
    Refused(String),
}

impl Client {
    /// Connects to the socket of a running process.
    ///
    /// # Errors
    ///
    /// When nobody answers there, or not to this user.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Client> {
        Self::connect_within(path, CONNECT_PATIENCE)
    }

    /// As [`connect`](Self::connect), in another time than the usual one.
    ///
    /// # Errors
    ///
    /// When nobody answers there, or not to this user, or the time is up: a process that is stopped takes no connections.
    pub fn connect_within(path: impl AsRef<Path>, patience: Duration) -> io::Result<Client> {
        let until = Instant::now() + patience;
        let address = SocketAddrUnix::new(path.as_ref())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = loop {
            // A socket whose connection failed is not used again.
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break UnixStream::from(socket),
                // The queue of connections is full.
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => sleep(CONNECT_PAUSE),
                Err(Errno::AGAIN | Errno::INTR) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the process takes no connections"));
                }
                Err(error) => return Err(error.into()),
            }
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { answers: BufReader::new(stream.try_clone()?), stream })
    }

    /// Sends a command with its fields (an object), and waits for the answer.
    ///
    /// # Errors
    ///
    /// When there is none, or it says no.
    pub fn call(&mut self, command: &str, fields: &Value) -> Result<Value, CallError> {
        let mut request = json!({"plimsoll": VERSION, "do": command});
        for (name, value) in fields.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        let mut line = Vec::new();
        (&mut self.answers).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let answer: Value = serde_json::from_slice(&line).map_err(|_| CallError::NotAnAnswer)?;
        match (answer["plimsoll"].as_u64(), answer["ok"].as_bool()) {
            (Some(VERSION), Some(true)) => Ok(answer),
            (Some(_), Some(false)) => Err(CallError::Refused(answer["error"].as_str().unwrap_or("refused").to_owned())),
            _ => Err(CallError::NotAnAnswer),
        }
    }
}
