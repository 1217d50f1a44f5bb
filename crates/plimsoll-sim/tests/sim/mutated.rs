//! The shipped examples, spoilt in every line: nothing panics or hangs, and nothing that makes no sense is taken without a word.
//!
//! `PLIMSOLL_MUTATED=all` spoils all of them.

use plimsoll_sim::{Options, Workload, plan, simulate};

use super::support::path;

/// What may be left out, and means what the README says then.
const OPTIONAL: [&str; 18] = [
    "name",
    "others",
    "runtime",
    "slowdown",
    "lanes",
    "space",
    "preloaded",
    "parts",
    "priority",
    "urgent",
    "deadline",
    "on",
    "bandwidth",
    "pcie",
    "frees",
    "proofs",
    "budget",
    "urgent_reserve",
];

/// What is made of a spoilt file: the error, which says file, line and fix; or the workload, which runs to some end.
fn check(what: &str, text: &str) -> Option<Workload> {
    match Workload::parse("w.toml", text) {
        Err(error) => {
            let told = error.to_string();
            assert!(told.starts_with("w.toml:") && error.line.is_some(), "{what}: no line in {told}");
            let has_fix = !error.fix.is_empty() || told.contains("write ");
            assert!(has_fix, "{what}: no fix in {told}");
            None
        }
        Ok(mut workload) => {
            workload.streams.iter_mut().for_each(|stream| stream.proofs = stream.proofs.min(2));
            simulate(&workload, Options { events_max: 2000, ..Options::default() });
            (0..workload.circuits.len()).for_each(|circuit| _ = plan::forecast(&workload, circuit));
            Some(workload)
        }
    }
}

/// The lines that say something.
fn lines(text: &str) -> Vec<String> {
    let said = |line: &str| line.split('#').next().unwrap_or_default().trim_end().to_owned();
    text.lines().map(said).filter(|line| !line.is_empty()).collect()
}

/// Where numbers stand in a line.
fn numbers(line: &str) -> Vec<std::ops::Range<usize>> {
    let is_of = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let bytes = line.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|byte| is_of(**byte)).count();
        if end > at && bytes[at].is_ascii_digit() {
            found.push(at..end);
        }
        at = end.max(at + 1);
    }
    found
}

fn spoil(name: &str) {
    let text = std::fs::read_to_string(path(name)).expect("it is there");
    let lines = lines(&text);
    assert!(check(name, &lines.join("\n")).is_some(), "{name} is good");
    let mut refused = 0;
    let mut must = |what: String, at: usize, line: &str| {
        let mut spoilt = lines.clone();
        spoilt[at] = line.to_owned();
        assert!(check(&what, &spoilt.join("\n")).is_none(), "{name}: {what} is accepted");
        refused += 1;
    };
    for (at, line) in lines.iter().enumerate() {
        let key = line.split('=').next().unwrap_or_default().trim();
        must(format!("line {line:?} twice"), at, &format!("{line}\n{line}"));
        if line.contains(" = ") && !line.contains('{') && !line.ends_with('[') && key != "name" {
            for value in ["\"\"", "nan", "{}", "\"no such thing\"", "1979-05-27"] {
                must(format!("{key} = {value}"), at, &format!("{key} = {value}"));
            }
            must(format!("{key} of another name"), at, &line.replacen(key, &format!("{key}s"), 1));
        }
        for number in numbers(line).into_iter().filter(|_| !matches!(key, "name" | "priority" | "at")) {
            let with = |number_text: &str| {
                let mut line = line.clone();
                line.replace_range(number.clone(), number_text);
                line
            };
            let own = &line[number.clone()];
            must(format!("{line:?} below zero"), at, &with(&format!("-{own}")));
            must(format!("{line:?} beyond 64 bits"), at, &with(&format!("99999999999999999999{own}")));
            must(format!("{line:?} with two points"), at, &with(&format!("{own}.1.1")));
            // May be meant: it only has to end.
            for text in ["0", "0.0000000001", "1000000"] {
                let mut spoilt = lines.clone();
                spoilt[at] = with(text);
                check(&format!("{line:?} with {text}"), &spoilt.join("\n"));
            }
        }
    }
    assert!(refused > 200, "{name}: only {refused} were tried");
    for at in 0..lines.len() {
        let mut spoilt = lines.clone();
        let gone = spoilt.remove(at);
        let key = gone.split('=').next().unwrap_or_default().trim();
        let is_accepted = check(&format!("without {gone:?}"), &spoilt.join("\n")).is_some();
        let may_go = OPTIONAL.contains(&key) || gone.trim_start().starts_with("{ class") || key == "takes";
        assert!(!is_accepted || may_go, "{name} is accepted without {gone:?}");
    }
}

#[test]
fn no_line_of_an_example_can_be_spoilt_without_a_word() {
    spoil("porep32.toml");
    if std::env::var_os("PLIMSOLL_MUTATED").is_some() {
        ["mix.toml", "windowpost.toml", "snapdeals.toml", "winningpost.toml"].into_iter().for_each(spoil);
    }
}
