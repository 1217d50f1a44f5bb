//! The other end of the socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};
use thiserror::Error;

use super::{PATIENCE, VERSION};

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
        let stream = UnixStream::connect(path)?;
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
