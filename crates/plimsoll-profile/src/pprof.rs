//! Who holds what, as a profile for pprof: `go tool pprof -http=: held.pb.gz`, pprof.me, speedscope.
//!
//! A stack goes from the space over class and stage to the job; every sample has the labels `class`, `stage`, `job` and `space`,
//! so that `pprof -tagfocus class=provers` and `-tagroot stage` work. The format is [profile.proto], packed as gzip.
//!
//! [profile.proto]: https://github.com/google/pprof/blob/main/proto/profile.proto

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::Resource;
use plimsoll::ledger::snapshot::Snapshot;

use crate::proto::Message;

/// One stack with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From the root to the leaf: what is called, and where that is in the source, if it is.
    pub frames: Vec<(String, Option<(String, u32)>)>,
    /// Name and value.
    pub labels: Vec<(&'static str, String)>,
    /// Bytes held.
    pub bytes: u64,
}

/// What a ledger holds now, as a gzipped profile.
pub fn of_ledger(snapshot: &Snapshot) -> Vec<u8> {
    // The ledger's own time begins with it; a profile's is that of the calendar.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    encode(&entries(snapshot), u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// What a ledger holds, one entry for each holder and class.
pub fn entries(snapshot: &Snapshot) -> Vec<Entry> {
    let mut entries = Vec::new();
    for holder in &snapshot.holders {
        for (resource, bytes) in &holder.held {
            let Resource::Class(class) = resource else { continue };
            let stage = holder.stage.unwrap_or("no stage");
            let (space, who) = (class.space().key().to_string(), holder.who.to_string());
            let place = holder.reserved_at.map(|place| (place.file().to_owned(), place.line()));
            entries.push(Entry {
                frames: vec![
                    (space.clone(), None),
                    (class.name().to_owned(), None),
                    (stage.to_owned(), None),
                    (who.clone(), place),
                ],
                labels: vec![
                    ("class", class.name().to_owned()),
                    ("stage", stage.to_owned()),
                    ("job", who),
                    ("space", space),
                ],
                bytes: *bytes,
            });
        }
    }
    entries
}

/// The entries as a gzipped profile of `held` bytes; `time` is when, in nanoseconds since 1970.
pub fn encode(entries: &[Entry], time: u64) -> Vec<u8> {
    let mut texts = Texts::default();
    // The first text of the table is empty.
    texts.index("");
    let mut out = Message::default();
    for (kind, unit) in [("holders", "count"), ("held", "bytes")] {
        let (kind, unit) = (texts.index(kind), texts.index(unit));
        out.message(1, Message::default().number(1, kind).number(2, unit));
    }
    let mut functions: HashMap<(u64, u64, u64), u64> = HashMap::new();
    let mut tables = Message::default();
    for entry in entries {
        // Leaf first.
        let locations: Vec<u64> = entry
            .frames
            .iter()
            .rev()
            .map(|(name, place)| {
                let (file, line) = place.as_ref().map_or(("", 0), |(file, line)| (file.as_str(), u64::from(*line)));
                let key = (texts.index(name), texts.index(file), line);
                let next = functions.len() as u64 + 1;
                *functions.entry(key).or_insert_with(|| {
                    let line = Message::default().number(1, next).number(2, line);
                    tables.message(4, Message::default().number(1, next).nested(4, line));
                    tables.message(5, Message::default().number(1, next).number(2, key.0).number(4, key.1));
                    next
                })
            })
            .collect();
        let mut sample = Message::default().packed(1, &locations).packed(2, &[1, entry.bytes]);
        for (name, value) in &entry.labels {
            let (name, value) = (texts.index(name), texts.index(value));
            sample.message(3, Message::default().number(1, name).number(2, value));
        }
        out.message(2, sample);
    }
    out.append(&tables);
    let held = texts.index("held");
    for text in &texts.all {
        out.bytes(6, text.as_bytes());
    }
    let out = out.number(9, time).number(14, held);
    gzip(out.as_bytes())
}

/// Texts, each once.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    places: HashMap<String, u64>,
}

impl Texts {
    fn index(&mut self, text: &str) -> u64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// A gzip file of stored blocks: readers of profiles expect the wrapping, and nobody minds the size.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = bytes.chunks(0xffff).peekable();
    if blocks.peek().is_none() {
        out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll::{Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};

    use super::*;

    /// The fields of a message: numbers, and pieces.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let (first, rest) = bytes.split_first().expect("a number ends");
                *bytes = rest;
                value |= u64::from(first & 0x7f) << shift;
                shift += 7;
                if first & 0x80 == 0 {
                    return value;
                }
            }
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            let piece = if key & 7 == 2 {
                let (piece, rest) = bytes.split_at(value as usize);
                bytes = rest;
                piece
            } else {
                &[]
            };
            found.push((key >> 3, value, piece));
        }
        found
    }

    fn unpacked(gzip: &[u8]) -> Vec<u8> {
        let (mut rest, mut out) = (&gzip[10..], Vec::new());
        loop {
            let (last, length) = (rest[0], u16::from_le_bytes([rest[1], rest[2]]) as usize);
            out.extend_from_slice(&rest[5..5 + length]);
            rest = &rest[5 + length..];
            if last == 1 {
                assert_eq!(rest.len(), 8);
                assert_eq!(rest[..4], crc32fast::hash(&out).to_le_bytes());
                return out;
            }
        }
    }

    #[test]
    fn every_holder_is_there_with_its_labels_and_the_bytes_add_up() {
        const AUX: Class = Class::new("aux", Space::HOST);
        const BUCKETS: Class = Class::new("buckets", Space::device(0));
        let ledger = Ledger::unlimited();
        let peak = Demand::new().bytes(AUX, Bytes(1 << 40)).bytes(BUCKETS, Bytes(77));
        let mut job =
            ledger.submit(JobSpec::new("job \"1\"", Profile::new().stage("make", peak, Demand::new()))).unwrap();
        let grant = job.enter(0).try_now().unwrap();
        let reserved: Vec<_> =
            (0..3000).map(|n| ledger.reserve(AUX, Bytes(n + 1)).name(&format!("r{n}")).try_now().unwrap()).collect();
        let profile = unpacked(&of_ledger(&ledger.snapshot()));
        let fields = fields(&profile);
        let texts: Vec<&str> =
            fields.iter().filter(|field| field.0 == 6).map(|field| std::str::from_utf8(field.2).unwrap()).collect();
        assert_eq!(texts[0], "");
        let mut by_class = BTreeMap::<&str, u64>::new();
        let mut stages = BTreeMap::<&str, u64>::new();
        for (_, _, sample) in fields.iter().filter(|field| field.0 == 2) {
            let parts = super::tests::fields(sample);
            let values = parts.iter().find(|part| part.0 == 2).unwrap().2;
            let bytes = values[1..].iter().rev().fold(0_u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
            let labels: BTreeMap<&str, &str> = parts
                .iter()
                .filter(|part| part.0 == 3)
                .map(|part| {
                    let label = super::tests::fields(part.2);
                    (texts[label[0].1 as usize], texts[label[1].1 as usize])
                })
                .collect();
            *by_class.entry(labels["class"]).or_default() += bytes;
            *stages.entry(labels["stage"]).or_default() += 1;
            assert!(labels["job"] == "job \"1\"" || labels["job"].starts_with('r'));
        }
        assert_eq!(by_class, BTreeMap::from([("aux", (1 << 40) + 3000 * 3001 / 2), ("buckets", 77)]));
        assert_eq!(stages, BTreeMap::from([("make", 2), ("no stage", 3000)]));
        let here = fields.iter().any(|field| field.0 == 6 && field.2.ends_with(b"pprof.rs"));
        assert!(here, "it says where in the source");
        drop((reserved, grant));
    }
}
