//! `plimsoll ctl`: steers a running process over its socket.

use std::path::{Path, PathBuf};

use plimsoll_profile::live::{CallError, Client};
use serde_json::{Value, json};

use crate::args::{Ctl, CtlCommand};
use crate::console;
use crate::exit::{Exit, Failure};

/// Runs it.
pub fn run(args: &Ctl) -> Result<(), Failure> {
    let (command, fields) = match &args.command {
        CtlCommand::Snapshot => ("snapshot", json!({})),
        CtlCommand::Resize { space, bytes } => ("resize", json!({"space": space, "bytes": bytes.0})),
        CtlCommand::Pause => ("pause", json!({})),
        CtlCommand::Resume => ("resume", json!({})),
        CtlCommand::Evict { residency } => ("evict", json!({"residency": residency})),
        CtlCommand::Cancel { job } => ("cancel", json!({"job": job})),
        CtlCommand::LedgerProfile { path } => ("ledger-profile", json!({"path": absolute(path)?})),
        CtlCommand::HeapProfile { path } => ("heap-profile", json!({"path": absolute(path)?})),
        CtlCommand::Do { command, fields } => (command.as_str(), parse(fields)?),
    };
    let socket = &args.socket;
    let failure = |exit, error: &dyn std::fmt::Display| Failure::new(exit, format!("{}: {error}", socket.display()));
    let mut client = Client::connect(socket).map_err(|e| {
        failure(Exit::BadInput, &format!("{e}; give the path that the process was started with (`prove --socket`)"))
    })?;
    let answer = client.call(command, &fields).map_err(|error| match error {
        CallError::Refused(_) => failure(Exit::Usage, &error),
        _ => failure(Exit::Internal, &error),
    })?;
    console::print(answer)
}

/// The process writes it, wherever that was started.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(Exit::Usage, format!("{}: {error}", path.display())))
}

fn parse(fields: &[String]) -> Result<Value, Failure> {
    let mut object = json!({});
    for field in fields {
        let (name, value) = field
            .split_once('=')
            .ok_or_else(|| Failure::new(Exit::Usage, format!("{field:?}: write fields as NAME=VALUE")))?;
        // A number is a number, and everything else is a text.
        object[name] = serde_json::from_str::<u64>(value).map_or_else(|_| value.into(), Value::from);
    }
    Ok(object)
}
