//! What every ledger can be told over its socket.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use plimsoll::{Bytes, Ledger, Space};
use serde_json::{Value, json};

use super::{Command, picture};
use crate::pprof;

/// The commands, by name.
pub(super) fn all(ledger: &Ledger) -> Vec<(&'static str, Command)> {
    fn command(
        ledger: &Ledger,
        run: impl Fn(&Ledger, &Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Command {
        let ledger = ledger.clone();
        Box::new(move |request| run(&ledger, request))
    }
    vec![
        ("snapshot", command(ledger, |ledger, _| Ok(json!({"snapshot": picture(&ledger.snapshot())})))),
        ("resize", command(ledger, resize)),
        ("pause", command(ledger, |ledger, _| Ok(paused(ledger, true)))),
        ("resume", command(ledger, |ledger, _| Ok(paused(ledger, false)))),
        ("evict", command(ledger, evict)),
        ("cancel", command(ledger, cancel)),
        ("ledger-profile", command(ledger, ledger_profile)),
        ("heap-profile", Box::new(heap_profile)),
    ]
}

fn resize(ledger: &Ledger, request: &Value) -> Result<Value, String> {
    let name = text(request, "space", "host, pinned, device0, …")?;
    let bytes = request["bytes"].as_u64().ok_or("`bytes` is missing: a whole number")?;
    let space = match (name, name.strip_prefix("device").map(str::parse)) {
        ("host", _) => Space::HOST,
        ("pinned", _) => Space::PINNED,
        (_, Some(Ok(number))) => Space::device(number),
        _ => return Err(format!("no space {name:?}; there are host, pinned, device0, …")),
    };
    ledger.resize(space, Bytes(bytes)).map_err(|error| error.to_string())?;
    Ok(json!({}))
}

fn paused(ledger: &Ledger, pause: bool) -> Value {
    if pause {
        ledger.pause()
    } else {
        ledger.resume()
    }
    json!({"paused": pause})
}

fn evict(ledger: &Ledger, request: &Value) -> Result<Value, String> {
    let name = text(request, "residency", "its name, as `snapshot` tells it")?;
    ledger.evict(name).map(|bytes| json!({"bytes": bytes.0})).map_err(|error| error.to_string())
}

fn cancel(ledger: &Ledger, request: &Value) -> Result<Value, String> {
    let name = text(request, "job", "its name, as `snapshot` tells it")?;
    match ledger.cancel(name) {
        0 => Err(format!("no pipeline has a job {name:?} under way")),
        cancelled => Ok(json!({"cancelled": cancelled})),
    }
}

fn ledger_profile(ledger: &Ledger, request: &Value) -> Result<Value, String> {
    write(request, &pprof::of_ledger(&ledger.snapshot()))
}

#[cfg(feature = "heap-profiles")]
fn heap_profile(request: &Value) -> Result<Value, String> {
    // The ending says which of the two is wanted.
    let is_picture = request["path"].as_str().is_some_and(|path| path.ends_with(".svg"));
    let profile = if is_picture { crate::heap::flame_graph()? } else { crate::heap::pprof()? };
    write(request, &profile)
}

#[cfg(not(feature = "heap-profiles"))]
fn heap_profile(_: &Value) -> Result<Value, String> {
    Err("this program was built without heap profiles; build it with --features heap-profiles".to_owned())
}

/// Writes a file that was not there before, for its owner alone.
fn write(request: &Value, bytes: &[u8]) -> Result<Value, String> {
    let path = text(request, "path", "where the file is to go")?;
    if !Path::new(path).is_absolute() {
        return Err(format!("`path` is {path:?}: write an absolute one, the process may be anywhere"));
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes)).map_err(|error| format!("{path}: {error}"))?;
    Ok(json!({"path": path, "bytes": bytes.len()}))
}

fn text<'r>(request: &'r Value, field: &str, what: &str) -> Result<&'r str, String> {
    request[field].as_str().ok_or_else(|| format!("`{field}` is missing: {what}"))
}
