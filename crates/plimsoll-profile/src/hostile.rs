//! Traces and recordings that nobody wrote honestly: an error or a result, never a panic, an overflow or memory without bound.

use crate::diagnose::{Books, diagnose};
use crate::recorder::Recording;
use crate::timeline::Builder;
use crate::{perfetto, trace};

const TRACE: &str = r#"{"schema":"plimsoll.trace/1"}
{"seq":1,"time_ns":10,"event":"resized","space":"host","limit":4096}
{"seq":2,"time_ns":20,"event":"submitted","job":"a","id":1}
{"seq":3,"time_ns":20,"event":"asked","job":"a","id":1,"stage":"make"}
{"seq":4,"time_ns":30,"event":"granted","job":"a","id":1,"stage":"make"}
{"seq":5,"time_ns":30,"event":"changed","job":"a","id":1,"stage":"make","class":"aux","space":"host","delta":4096,"held":4096}
{"seq":6,"time_ns":35,"event":"changed","reservation":"r","id":2,"class":"b","space":"device0","delta":77,"held":77}
{"seq":7,"time_ns":35,"event":"changed","job":"a","id":1,"slots":"lane0","delta":1,"held":1}
{"time_ns":40,"event":"sampled","resident_bytes":9000,"anonymous_bytes":8000,"file_bytes":1000,"swapped_bytes":5,"allocator":"jemalloc","allocated_bytes":7000,"active_bytes":7500,"allocator_resident_bytes":7800,"muzzy_bytes":3,"machine_bytes":100000,"machine_available_bytes":50000,"group_limit_bytes":90000,"group_used_bytes":8000,"group_anonymous_bytes":1,"device0_total_bytes":1000,"device0_free_bytes":900,"line_bytes":9500,"waiting_for_memory":1,"others_children_bytes":7}
{"time_ns":41,"event":"held","job":"a","id":1,"bytes":4096,"since_ns":30,"at":"x.rs:1"}
{"seq":8,"time_ns":50,"event":"began","job":"a","id":1,"stage":"make","place":"worker"}
{"seq":9,"time_ns":60,"event":"stage_ended","job":"a","id":1,"stage":"make"}
{"seq":10,"time_ns":60,"event":"changed","job":"a","id":1,"class":"aux","space":"host","delta":-4096,"held":0}
{"seq":11,"time_ns":61,"event":"ended","job":"a","id":1}
{"seq":12,"time_ns":62,"event":"retired","space":"device0","bytes":77}
{"time_ns":70,"event":"run_ended","how":"stuck","text":"x"}
"#;

struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as usize
    }
}

/// Everything that is done with a trace.
fn read(text: &[u8]) {
    let Ok(reader) = trace::Reader::new(text) else { return };
    let (mut builder, mut books) = (Builder::new(), Books::new());
    let mut export = perfetto::Export::new(Vec::new()).unwrap();
    let mut packets = perfetto::Export::in_packets(Vec::new()).unwrap();
    for event in reader.map_while(Result::ok) {
        builder.push(&event);
        books.event(&event);
        export.event(&event).unwrap();
        packets.event(&event).unwrap();
    }
    let timeline = builder.finish();
    assert!(serde_json::to_string(&timeline).is_ok());
    export.finish().unwrap();
    packets.finish().unwrap();
    assert!(!diagnose(&books.series()).to_string().is_empty());
}

#[test]
fn traces_with_any_numbers_and_lines_are_read_or_refused() {
    let mut dice = Dice(0x9e37_79b9);
    let extremes =
        ["0", "1", "-1", "18446744073709551615", "9223372036854775807", "-9223372036854775808", "4611686018427387904"];
    for _ in 0..4000 {
        let mut lines: Vec<String> = TRACE.lines().map(str::to_owned).collect();
        for _ in 0..=dice.below(4) {
            let at = 1 + dice.below(lines.len() - 1);
            match dice.below(5) {
                0 => lines.insert(at, lines[1 + dice.below(lines.len() - 1)].clone()),
                1 if lines.len() > 3 => _ = lines.remove(at),
                2 => lines.swap(at, 1 + dice.below(TRACE.lines().count() - 4).min(1)),
                _ => {
                    // A number becomes another.
                    let line = lines[at].clone();
                    let starts: Vec<usize> = line.match_indices("\":").map(|(place, _)| place + 2).collect();
                    let start = starts[dice.below(starts.len())];
                    let length = line[start..].find([',', '}']).unwrap_or(0);
                    if !line[start..].starts_with('"') {
                        lines[at].replace_range(start..start + length, extremes[dice.below(extremes.len())]);
                    }
                }
            }
        }
        read(lines.join("\n").as_bytes());
    }
}

/// Names without number do not make pictures without bound.
#[test]
fn thousands_of_names_are_put_together() {
    let mut text = String::from("{\"schema\":\"plimsoll.trace/1\"}\n");
    for number in 0..3000 {
        text.push_str(&format!(
            r#"{{"time_ns":{number},"event":"changed","job":"j{number}","id":{number},"class":"c{number}","space":"host","delta":5,"held":5}}"#
        ));
        text.push('\n');
    }
    let timeline = crate::Timeline::read(text.as_bytes()).unwrap();
    assert!(timeline.spaces.iter().all(|space| space.classes.len() < 1000));
    read(text.as_bytes());
}

#[test]
fn recordings_with_any_bytes_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let recorder = crate::recorder::Recorder::create(&path, 1).unwrap();
    TRACE.lines().skip(1).cycle().take(3000).for_each(|line| recorder.line(line));
    let whole = std::fs::read(&path).unwrap();
    let mut dice = Dice(77);
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..=dice.below(40) {
            let at = if dice.below(4) == 0 { dice.below(64) } else { dice.below(bytes.len()) };
            bytes[at] ^= 1 << dice.below(8);
        }
        bytes.truncate(if dice.below(3) == 0 { dice.below(bytes.len()) } else { bytes.len() });
        if let Ok(recording) = Recording::parse(&bytes) {
            let _ = recording.series();
            read(recording.trace().as_bytes());
        }
    }
}
