use std::sync::mpsc;

use plimsoll::{Bytes, Class, Ledger, Space};

use super::files::tests::Tree;
use super::*;

fn full() -> Sample {
    let tree = Tree::new(&[
        (
            "proc/self/status",
            "VmHWM: 9 kB\nVmRSS: 8 kB\nRssAnon: 5 kB\nRssFile: 2 kB\nRssShmem: 1 kB\nVmSwap: 3 kB\nVmLck: 4 kB\nThreads: 6\n",
        ),
        ("proc/self/stat", "1 (x) S 1 2 3 4 5 6 77 8 99 10\n"),
        ("proc/self/smaps_rollup", "AnonHugePages: 11 kB\nLazyFree: 12 kB\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 50 kB\nShmem: 13 kB\nSwapTotal: 14 kB\nSwapFree: 15 kB\n"),
        ("proc/pressure/memory", "some avg10=0 avg60=0 avg300=0 total=16\nfull avg10=0 avg60=0 avg300=0 total=17\n"),
        ("sys/fs/cgroup/a/memory.max", "40960\n"),
        ("sys/fs/cgroup/a/memory.current", "18\n"),
        ("sys/fs/cgroup/a/memory.stat", "inactive_file 19\nanon 41\n"),
        ("sys/fs/cgroup/a/memory.events", "oom_kill 20\n"),
    ]);
    #[derive(Debug)]
    struct Card;
    impl Devices for Card {
        fn name(&self) -> &str {
            "card"
        }
        fn read(&mut self) -> Vec<DeviceMemory> {
            let memory = |device, own_bytes| DeviceMemory {
                device,
                total_bytes: 21,
                free_bytes: 22,
                own_bytes,
                ..DeviceMemory::default()
            };
            vec![memory(0, Some(23)), memory(12, None)]
        }
    }
    let mut sample = Reader::at(tree.root()).with_devices(Box::new(Card)).with_line(24).sample(25);
    let mut next = 26..;
    let mut some = || next.next();
    sample.allocator = Some(AllocatorMemory {
        allocated_bytes: 1 << 40,
        active_bytes: some(),
        resident_bytes: some(),
        mapped_bytes: some(),
        retained_bytes: some(),
        metadata_bytes: some(),
        dirty_bytes: some(),
        muzzy_bytes: some(),
        free_bytes: some(),
        arenas: some(),
        ..AllocatorMemory::default()
    });
    let others =
        Others { resident_bytes: 36, largest_id: 37, largest_bytes: 38, children_bytes: 42, ..Others::default() };
    sample.others = Some(others);
    (sample.ledger_limit, sample.waiting_for_memory) = (Some(39), Some(40));
    sample
}

/// What a trace does not keep: names, and percentages, which follow from what it does keep.
fn without_words(mut sample: Sample) -> Sample {
    if let Some(group) = &mut sample.group {
        group.file = Default::default();
    }
    if let Some(machine) = &mut sample.machine {
        (machine.huge_bytes, machine.huge_free_bytes, machine.locked_bytes) = (0, 0, 0);
    }
    sample
}

#[test]
fn a_sample_has_everything() {
    let sample = full();
    assert!(
        sample.process.is_some() && sample.machine.is_some() && sample.group.is_some() && sample.pressure.is_some()
    );
    assert_eq!(sample.left_bytes(), Some(40960), "the group: 18 used, 19 of it reclaimable");
    assert_eq!((sample.devices.len(), sample.line), (2, Some(24)));
}

#[test]
fn every_number_survives_the_trace() {
    let sample = full();
    let fields = sample.fields();
    assert_eq!(Sample::from_fields(sample.time, fields.clone()), without_words(sample.clone()));
    // Two fields in one place, or one field of two names, would show here.
    let mut values: Vec<u64> = fields.iter().map(|(_, value)| *value).collect();
    let all = values.len();
    values.sort_unstable();
    values.dedup();
    let twice = 3 + 1; // two devices have the same total and free bytes
    assert!(values.len() + twice >= all, "{fields:?}");
    assert!(fields.iter().all(|(name, _)| name.is_ascii()));
}

#[test]
fn the_line_is_read_back_by_the_trace_reader() {
    let mut sample = full();
    sample.others.as_mut().unwrap().largest = "a \"name\"\n".to_owned();
    let text = format!("{{\"schema\":\"{}\"}}\n{}\n", plimsoll::observe::SCHEMA, sample.json());
    let event = crate::trace::Reader::new(text.as_bytes()).unwrap().next().unwrap().unwrap();
    assert_eq!((event.time, event.sequence), (25, None));
    let crate::trace::What::Sampled(fields) = event.what else { panic!("{:?}", event.what) };
    sample.others.as_mut().unwrap().largest.clear();
    assert_eq!(Sample::from_fields(event.time, fields), without_words(sample));
}

#[test]
fn an_empty_machine_gives_an_empty_sample() {
    let tree = Tree::new(&[]);
    let sample = Reader::at(tree.root()).sample(7);
    assert_eq!(sample, Sample { time: 7, ..Sample::default() });
    assert_eq!(sample.json().to_string(), r#"{"time_ns":7,"event":"sampled"}"#);
}

#[test]
fn this_machine_is_read() {
    let sample = Reader::new().sample(0);
    let process = sample.process.unwrap();
    assert!(process.resident_bytes > 0 && process.peak_bytes >= process.resident_bytes);
    assert!(sample.machine.unwrap().total_bytes > process.resident_bytes);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn the_allocator_says_what_it_was_asked_for() {
    // These tests use the system's allocator.
    let reader = Reader::new();
    let allocator = reader.allocator().expect("glibc tells");
    assert_eq!(allocator.name(), "glibc");
    let before = allocator.read().unwrap().allocated_bytes;
    let buffer = std::hint::black_box(vec![1_u8; 256 << 20]);
    let during = allocator.read().unwrap().allocated_bytes;
    assert!(during >= before + (200 << 20), "{before} {during}");
    drop(buffer);
    assert!(allocator.purge());
}

#[test]
fn a_sampler_looks_at_the_beginning_and_at_the_end_and_in_between() {
    let ledger = Ledger::unlimited();
    let (tell, told) = mpsc::channel();
    let reader = Reader::new().without_others();
    let sampler = Sampler::start(&ledger, reader, Duration::from_millis(1), move |sample, _| {
        let _ = tell.send(sample);
    })
    .unwrap();
    let first: Vec<Sample> = told.iter().take(3).collect();
    assert!(first.windows(2).all(|two| two[0].time < two[1].time));
    assert!(sampler.stop().is_some());
    // The sink is gone with its thread, so this ends.
    let last = told.iter().last().expect("one at the end");
    assert!(last.time > first[2].time && last.time <= ledger.snapshot().time);
}

#[test]
fn a_long_period_does_not_delay_the_end() {
    let ledger = Ledger::unlimited();
    let (tell, told) = mpsc::channel();
    let sampler =
        Sampler::start(&ledger, Reader::at(Root::new("/nowhere")), Duration::from_secs(3600), move |sample, _| {
            let _ = tell.send(sample);
        })
        .unwrap();
    told.recv().unwrap();
    drop(sampler);
    assert_eq!(told.iter().count(), 1);
}

#[test]
fn holders_say_where_they_asked() {
    const KEPT: Class = Class::new("kept", Space::HOST);
    let ledger = Ledger::unlimited();
    let _held = ledger.reserve(KEPT, Bytes(4096)).name("a \"b\"").try_now().unwrap();
    let lines: Vec<String> = holder_lines(&ledger.snapshot()).collect();
    let value: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((value["reservation"].as_str(), value["bytes"].as_u64()), (Some("a \"b\""), Some(4096)));
    assert!(value["at"].as_str().unwrap().contains("sample/tests.rs"), "{value}");
}
