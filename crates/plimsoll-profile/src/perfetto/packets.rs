//! The same events as packets of Perfetto's own format.
//!
//! | there | here |
//! |---|---|
//! | process, thread | a track of each, under the process's |
//! | slice | its beginning and its end |
//! | counter | a track of its own for each name, and its values |
//! | flow | an instant at either end, with the flow's number |

use std::collections::HashMap;

use serde_json::Value;

use crate::proto::Message;

/// The one sequence that all packets are of.
const SEQUENCE: u64 = 1;

/// The kinds of track events.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Which tracks are there.
#[derive(Debug, Default)]
pub(super) struct Packets {
    counters: HashMap<String, u64>,
}

impl Packets {
    /// The packets of an event in the form that the JSON file has.
    pub(super) fn of(&mut self, event: &Value) -> Message {
        let mut out = Message::default();
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let (process, thread) = (event["pid"].as_u64().unwrap_or(0), event["tid"].as_u64().unwrap_or(0));
        let time = |micros: f64| (micros * 1e3) as u64;
        let at = time(event["ts"].as_f64().unwrap_or(0.0));
        match (text("ph"), text("name")) {
            ("M", "process_name") => {
                let name = event["args"]["name"].as_str().unwrap_or_default();
                let process_of = Message::default().number(1, process).text(6, name);
                out.message(1, track(Message::default().number(1, of_process(process)).nested(3, process_of)));
            }
            ("M", _) => {
                let name = event["args"]["name"].as_str().unwrap_or_default();
                let descriptor = Message::default().number(1, of_thread(thread)).text(2, name);
                out.message(1, track(descriptor.number(5, of_process(process))));
            }
            ("X", name) => {
                let slice = track_event(SLICE_BEGIN, of_thread(thread)).text(22, text("cat")).text(23, name);
                out.message(1, packet(at, slice));
                let length = time(event["dur"].as_f64().unwrap_or(0.0));
                out.message(1, packet(at.saturating_add(length), track_event(SLICE_END, of_thread(thread))));
            }
            ("C", name) => {
                let next = (1 << 48) + self.counters.len() as u64;
                let number = *self.counters.entry(name.to_owned()).or_insert_with(|| {
                    let descriptor = Message::default().number(1, next).text(2, name);
                    let descriptor = descriptor.number(5, of_process(process)).nested(8, Message::default());
                    out.message(1, track(descriptor));
                    next
                });
                let value = event["args"].as_object().and_then(|args| args.values().next()?.as_u64()).unwrap_or(0);
                out.message(1, packet(at, track_event(COUNTER, number).number(30, value)));
            }
            (end @ ("s" | "f"), name) => {
                let flow = event["id"].as_u64().unwrap_or(0);
                let instant = track_event(INSTANT, of_thread(thread)).text(22, "flow").text(23, name);
                out.message(1, packet(at, instant.fixed(if end == "s" { 47 } else { 48 }, flow)));
            }
            _ => {}
        }
        out
    }
}

fn of_process(process: u64) -> u64 {
    (1 << 32) + process
}

fn of_thread(thread: u64) -> u64 {
    (1 << 40) + thread
}

fn track_event(kind: u64, track: u64) -> Message {
    Message::default().number(9, kind).number(11, track)
}

fn packet(time: u64, event: Message) -> Message {
    Message::default().number(8, time).number(10, SEQUENCE).nested(11, event)
}

fn track(descriptor: Message) -> Message {
    Message::default().number(10, SEQUENCE).nested(60, descriptor)
}
