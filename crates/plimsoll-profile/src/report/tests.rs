use super::*;
use crate::trace::{Event, Subject, What};

const NASTY: &str = "</text></svg><script>alert(1)</script>\" onload=\"x' & \u{202e}gpj";

fn nasty() -> Timeline {
    let subject =
        |stage: Option<&str>| Some(Subject { id: 1, name: NASTY.into(), is_job: true, stage: stage.map(Into::into) });
    let at = |time, stage, what| Event { sequence: None, time, subject: subject(stage), what };
    let all = |time, what| Event { sequence: None, time, subject: None, what };
    let hold = |delta, held| What::Changed { class: NASTY.into(), space: "host".into(), delta, held };
    let slots = |delta, held| What::ChangedSlots { slots: "lane0".into(), delta, held };
    Timeline::from_events([
        all(0, What::Resized { space: "host".into(), limit: 3 << 20 }),
        all(0, What::Unknown(NASTY.into())),
        at(0, None, What::Submitted),
        at(0, Some(NASTY), What::Asked),
        at(1_000_000, Some(NASTY), What::Granted),
        at(1_000_000, Some(NASTY), hold(1 << 20, 1 << 20)),
        at(1_000_000, Some(NASTY), slots(1, 1)),
        at(2_000_000, Some(NASTY), What::Began { place: NASTY.into() }),
        all(3_000_000, What::Sampled(vec![("resident_bytes".into(), 2 << 20)])),
        at(9_000_000, Some(NASTY), What::StageEnded),
        at(9_000_000, None, slots(-1, 0)),
        at(9_000_000, None, What::Finished { how: NASTY.into(), late: false }),
    ])
}

#[test]
fn no_name_gets_out_of_its_place() {
    let findings = Findings {
        verdict: NASTY.into(),
        headline: NASTY.into(),
        evidence: vec![NASTY.into()],
        next_step: vec![NASTY.into()],
        alarm: true,
    };
    let page = html(&nasty(), NASTY, Some(&findings));
    assert!(!page.contains("<script") && !page.contains("onload=\"") && !page.contains('\u{202e}'));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(page.matches("&lt;script&gt;").count() >= 12, "it is shown, as what it is");
    for picture in svg(&nasty()) {
        let svg = picture.svg(Size::Wide);
        assert!(!svg.contains("<script") && !svg.contains("\" onload"), "{}", picture.key);
        assert!(picture.key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
    }
}

#[test]
fn a_page_needs_nothing_from_elsewhere() {
    let page = html(&nasty(), "a run", None);
    let namespace = "http://www.w3.org/2000/svg";
    for (at, _) in page.match_indices("http") {
        assert!(page[at..].starts_with(namespace) || page[at..].starts_with("http-equiv"), "{}", &page[at..at + 60]);
    }
    for word in ["<link rel=\"stylesheet", "src=", "url(", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn every_picture_is_there_twice_and_the_verdict_comes_first() {
    let timeline = nasty();
    let keys: Vec<String> = svg(&timeline).into_iter().map(|picture| picture.key).collect();
    assert_eq!(keys, ["bytes-host", "lanes", "jobs", "running", "devices", "queues", "waits"]);
    let findings = Findings { verdict: "Backlog".into(), ..Findings::default() };
    let page = html(&timeline, "a run", Some(&findings));
    assert_eq!(page.matches("<svg").count(), 2 * keys.len());
    assert!(page.find("Backlog").unwrap() < page.find("What happened").unwrap());
    assert!(page.contains("the line is at 3.00 MiB") || page.contains("The line is at 3.00 MiB"), "the line is shown");
}

#[test]
fn a_trace_of_nothing_makes_a_page() {
    let page = html(&Timeline::default(), "nothing", None);
    assert!(page.contains("0 events"));
    let page =
        Page::new("curves").chart("t", "c", &Chart::lines("GiB", "s", &[("none", vec![(f64::NAN, 1.0)])])).html();
    assert!(page.contains("<svg"));
}
