use std::sync::Arc;

use plimsoll::observe::JsonLines;
use plimsoll::{Bytes, Class, Ledger, Space};

use super::*;

const HEAD: &str = "{\"schema\":\"plimsoll.trace/1\"}\n";

fn read(text: &str) -> Result<(Vec<Event>, bool), TraceError> {
    let mut reader = Reader::new(text.as_bytes())?;
    let events = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((events, reader.is_torn()))
}

#[test]
fn what_the_ledger_writes_is_what_its_observers_are_told() {
    struct Tell(std::sync::mpsc::Sender<Event>);
    impl observe::Observer for Tell {
        fn event(&self, event: &observe::Event) {
            self.0.send(event.into()).unwrap();
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    let lines = Arc::new(JsonLines::new(Vec::new()));
    let ledger = Ledger::unlimited();
    ledger.observe(lines.clone());
    ledger.observe(Arc::new(Tell(tell)));
    const STAGING: Class = Class::new("staging \"1\"\\", Space::PINNED);
    const BUCKETS: Class = Class::new("buckets", Space::device(3));
    drop(ledger.reserve(STAGING, Bytes(4096)).name("a \"job\"\n").try_now().unwrap());
    drop(ledger.reserve(BUCKETS, Bytes(1 << 40)).try_now().unwrap());
    ledger.close();
    drop(ledger);
    let told: Vec<Event> = told.iter().collect();
    let text = String::from_utf8(Arc::into_inner(lines).unwrap().finish().unwrap()).unwrap();
    let (events, torn) = read(&text).unwrap();
    assert!(events.len() > 6 && !torn);
    assert_eq!(events, told);
}

#[test]
fn a_last_line_without_its_end_is_left_out_wherever_it_was_cut() {
    let whole = format!("{HEAD}{{\"seq\":0,\"time_ns\":1,\"event\":\"closed\"}}\n");
    let last = "{\"seq\":1,\"time_ns\":5,\"event\":\"submitted\",\"job\":\"näme\",\"id\":7}";
    for cut in 1..last.len() {
        let mut text = whole.clone().into_bytes();
        text.extend_from_slice(&last.as_bytes()[..cut]);
        let mut reader = Reader::new(&text[..]).unwrap();
        assert_eq!(reader.by_ref().filter(|event| event.is_ok()).count(), 1, "cut after {cut} bytes");
        assert!(reader.is_torn());
    }
    // Only its end is missing.
    let (events, torn) = read(&format!("{whole}{last}")).unwrap();
    assert!(events.len() == 2 && !torn);
}

#[test]
fn errors_name_the_line_and_what_to_do() {
    let check = |text: &str, parts: [&str; 2]| {
        let message = read(text).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    check("", ["line 1", "--trace"]);
    check("PK\u{3}\u{4}", ["line 1", "--trace"]);
    check("{\"seq\":0,\"time_ns\":1,\"event\":\"closed\"}\n", ["line 1", "plimsoll.trace/1"]);
    check("{\"schema\":\"plimsoll.trace/2\"}\n", ["line 1", "plimsoll.trace/2"]);
    check(&format!("{HEAD}{HEAD}"), ["line 2", "second trace"]);
    check(&format!("{HEAD}\n\nnonsense\n"), ["line 4", "cut the trace"]);
    check(&format!("{HEAD}{{\"seq\":0,\"event\":\"closed\"}}\n"), ["line 2", "time_ns"]);
    check(&format!("{HEAD}{{\"time_ns\":0}}\n"), ["line 2", "`event`"]);
    check(&format!("{HEAD}{{\"time_ns\":0,\"event\":\"changed\",\"delta\":1,\"held\":1}}\n"), ["line 2", "`class`"]);
    check(&format!("{HEAD}{{\"time_ns\":-4,\"event\":\"closed\"}}\n"), ["line 2", "time_ns"].map(|_| "line 2"));
    check(&format!("{HEAD}{}\n", "x".repeat(LINE_BYTES_MAX + 1)), ["line 2", "longer than"]);
}

#[test]
fn what_later_versions_add_is_passed_on_as_unknown() {
    let text = format!("{HEAD}{{\"time_ns\":3,\"event\":\"teleported\",\"where\":[1,{{}}]}}\n");
    assert_eq!(read(&text).unwrap().0[0].what, What::Unknown("teleported".into()));
}

#[test]
fn samples_keep_every_number_by_its_name() {
    let line =
        "{\"time_ns\":3,\"event\":\"sampled\",\"resident_bytes\":4096,\"allocator\":\"jemalloc\",\"minor_faults\":7}";
    let (events, _) = read(&format!("{HEAD}{line}\n")).unwrap();
    let What::Sampled(values) = &events[0].what else { panic!("{events:?}") };
    let values: std::collections::BTreeMap<_, _> = values.iter().map(|(name, value)| (&**name, *value)).collect();
    assert_eq!(values, [("resident_bytes", 4096), ("minor_faults", 7)].into());
}
