use plimsoll::{Budget, Bytes, Class, Space};

use super::*;

const AUX: Class = Class::new("aux", Space::HOST);

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB))
}

#[test]
fn a_ledger_is_seen_and_resized_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let ledger = ledger();
    let held = ledger.reserve(AUX, Bytes(1000)).name("a \"job\"").try_now().unwrap();
    let serving = serve(&ledger, &path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "its owner alone");
    let mut client = Client::connect(&path).unwrap();
    let seen = client.call("snapshot", &json!({})).unwrap()["snapshot"].clone();
    assert_eq!(seen["spaces"][0]["held_bytes"], 1000);
    assert_eq!((&seen["holders"][0]["who"], &seen["classes"][0]["class"]), (&json!("a \"job\""), &json!("aux")));
    assert!(seen["residencies"].is_array());
    let answer = client.call("snapshot", &json!({})).unwrap();
    assert!(answer["verdict"]["headline"].is_string() && answer["process"].is_object(), "{answer}");
    client.call("pause", &json!({})).unwrap();
    assert!(ledger.snapshot().paused && ledger.reserve(AUX, Bytes(1)).try_now().is_err());
    client.call("resume", &json!({})).unwrap();
    assert!(!ledger.snapshot().paused);
    for (command, fields, word) in [
        ("evict", json!({"residency": "key"}), "no residency \"key\""),
        ("evict", json!({}), "`residency` is missing"),
        ("cancel", json!({"job": "x"}), "no pipeline has a job \"x\""),
        ("ledger-profile", json!({"path": "here"}), "absolute"),
        ("heap-profile", json!({"path": "here"}), "heap"),
    ] {
        let refused = client.call(command, &fields).unwrap_err().to_string();
        assert!(refused.contains(word), "{command}: {refused}");
    }
    let profile = folder.path().join("held.pb.gz");
    client.call("ledger-profile", &json!({"path": profile})).unwrap();
    assert_eq!(fs::metadata(&profile).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(client.call("ledger-profile", &json!({"path": profile})).is_err(), "nothing is overwritten");
    client.call("resize", &json!({"space": "host", "bytes": 2_000_000})).unwrap();
    assert_eq!(ledger.snapshot().space(Space::HOST).unwrap().limit, Bytes(2_000_000));
    let refused = client.call("resize", &json!({"space": "device7", "bytes": 1})).unwrap_err();
    assert!(matches!(refused, CallError::Refused(_)), "{refused}");
    drop(serving);
    assert!(!path.exists() && Client::connect(&path).is_err());
    drop(held);
}

#[test]
fn what_is_no_request_is_answered_and_what_is_too_long_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = Server::new(&ledger()).on("cancel", |request| match request["job"].as_str() {
        Some(job) => Ok(json!({"cancelled": job})),
        None => Err("which `job`?".into()),
    });
    let _serving = server.serve(&path).unwrap();
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.call("cancel", &json!({"job": "7"})).unwrap()["cancelled"], "7");
    let says = |client: &mut Client, command: &str| client.call(command, &json!({})).unwrap_err().to_string();
    assert_eq!(
        says(&mut client, "dance"),
        "no command \"dance\"; there are: cancel, evict, heap-profile, ledger-profile, pause, resize, resume, snapshot"
    );
    let raw = |text: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(text).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    for (request, word) in [
        (&b"\xff\xfe\n"[..], "not JSON"),
        (b"[]\n", "version"),
        (b"{\"plimsoll\":2,\"do\":\"snapshot\"}\n", "version 1, not 2"),
        (b"{\"plimsoll\":1}\n", "what to"),
    ] {
        let answer = raw(request);
        assert!(answer.contains(word) && answer.contains("\"ok\":false"), "{answer}");
    }
    assert!(raw(&vec![b'x'; REQUEST_BYTES_MAX + 1]).contains("at most"));
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let serving = serve(&ledger(), &path).unwrap();
    assert_eq!(serve(&ledger(), &path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(serving);
    fs::write(&path, "precious").unwrap();
    assert_eq!(serve(&ledger(), &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
}

/// Another process may have put its socket where ours was: ours ends all the same, and the other's stays.
#[test]
fn the_end_waits_for_nobody_and_takes_nothing_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let serving = serve(&ledger(), &path).unwrap();
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    // The other one never answers. (This hung once.)
    drop(serving);
    assert!(path.exists() && UnixStream::connect(&path).is_ok(), "the other one's");
    drop(other);
}

/// What was left by a process of the same number that was killed is in nobody's way; in a container every one has number 1.
#[test]
fn a_directory_that_was_left_behind_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    fs::create_dir(folder.path().join(format!(".s.{}.0", std::process::id()))).unwrap();
    let serving = serve(&ledger(), &path).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    drop(serving);
}

/// A command that panics ends its client's connection, and gives its place back.
#[test]
fn a_command_that_panics_takes_no_place_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = Server::new(&ledger()).on("break", |_| panic!("on purpose"));
    let _serving = server.serve(&path).unwrap();
    for _ in 0..2 * CLIENTS_MAX {
        let mut client = Client::connect(&path).unwrap();
        assert!(matches!(client.call("break", &json!({})), Err(CallError::Io(_))));
    }
    // The last one's place comes back when its thread has ended.
    let answers = || Client::connect(&path).unwrap().call("snapshot", &json!({})).is_ok();
    assert!((0..1000).any(|_| answers()));
}
