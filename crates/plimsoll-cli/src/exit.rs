//! Exit codes: what a script can rely on. The table in `--help` and in the README is made from the same texts.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use plimsoll::Bytes;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Success,
    /// A fault of the program itself, or a failure that fits nothing below.
    Internal,
    /// The command line was not understood.
    Usage,
    /// The proof does not hold: pairing check, chain, digest, or not the file it was made for.
    ProofInvalid,
    /// An input cannot be used: missing, empty, unreadable, damaged.
    BadInput,
    /// The memory budget is too small.
    OutOfBudget,
    /// A result could not be written.
    Output,
    /// A simulated run did not come to its end, or a model does not give what was observed.
    Unfinished,
    /// Ended by a signal; the number is the signal's.
    Interrupted(i32),
}

impl Exit {
    /// Every code with its meaning, in order.
    pub const TABLE: &str = "\x20  0  success
   1  internal failure
   2  wrong usage
   3  proof invalid: pairing check, chain, digest, or another file
   4  bad input: missing, empty, unreadable, damaged
   5  out of budget: --memory is too small, or the machine's limit is
   6  output not written: no space, no permission
   7  simulated: did not come to its end (out of memory, stuck, given up), or the model is outside of its tolerance
 130  interrupted (SIGINT, or a job cancelled over the socket), 143 ended (SIGTERM)";

    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::ProofInvalid => 3,
            Self::BadInput => 4,
            Self::OutOfBudget => 5,
            Self::Output => 6,
            Self::Unfinished => 7,
            // The shell's convention for a process that a signal ended.
            Self::Interrupted(signal) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        }
    }

    /// The word for it in `--json`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::ProofInvalid => "proof-invalid",
            Self::BadInput => "bad-input",
            Self::OutOfBudget => "out-of-budget",
            Self::Output => "output",
            Self::Unfinished => "unfinished",
            Self::Interrupted(_) => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A failure as the command reports it: a code for scripts, a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the command ends.
    pub exit: Exit,
    /// What went wrong, with the file it is about and what to do next.
    pub message: String,
    /// What the ledger still held when all work had ended, where work had begun: zero, unless bytes were lost.
    pub held: Option<Bytes>,
    /// Whether the command has printed its `--json` object already.
    pub told: bool,
}

impl Failure {
    /// A failure with the message that `error` prints.
    pub fn new(exit: Exit, error: impl fmt::Display) -> Self {
        Self { exit, message: error.to_string(), held: None, told: false }
    }

    /// A file that is not written.
    pub(crate) fn unwritten(what: &str, path: &Path, error: io::Error) -> Self {
        Self::new(Exit::Output, format!("{}: cannot write the {what}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
        let all = [
            Exit::Success,
            Exit::Internal,
            Exit::Usage,
            Exit::ProofInvalid,
            Exit::BadInput,
            Exit::OutOfBudget,
            Exit::Output,
            Exit::Unfinished,
            Exit::Interrupted(2),
        ];
        let documented: Vec<u8> =
            Exit::TABLE.lines().map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
        assert_eq!(documented, all.map(Exit::code));
        assert!(Exit::TABLE.contains(&format!("{} ended", Exit::Interrupted(15).code())));
    }
}
