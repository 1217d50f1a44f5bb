//! Makes the pictures of `docs/incident.md`: `cargo run -p plimsoll-sim --example incident -- docs/incident`.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::observe::Event;
use plimsoll_profile::report::{self, Chart, Page, Size};
use plimsoll_profile::{Timeline, trace};
use plimsoll_sim::policies::Return;
use plimsoll_sim::workload::{Policy, PolicyKind};
use plimsoll_sim::{Options, Outcome, Workload, simulate, sweep};

/// Seconds a proof.
const SHOWN_MAX: f64 = 100.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "docs/incident".into()));
    fs::create_dir_all(&folder)?;
    let porep = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/workloads/porep32.toml");
    let workload = Workload::read(&porep)?;
    let permits = |back, channel| PolicyKind::Permits { permits: 12, back, channel };
    for (name, title, kind) in [
        ("early-release", "Permits back at the end of synthesis: 12 permits", permits(Return::Produced, 1)),
        ("held", "Permits held until delivery: 12 permits", permits(Return::Delivered, 1)),
        ("channel", "A channel of as many: 12 permits", permits(Return::HandedOver, 12)),
        ("ours", "Plimsoll: a budget of 185 GiB", workload.policy.kind.clone()),
    ] {
        let (outcome, timeline) = run(&workload, kind)?;
        println!(
            "{name}: {:?}, {:.1} s a proof, {} bytes at most",
            outcome.end, outcome.seconds_per_proof_steady, outcome.host_peak
        );
        fs::write(folder.join(format!("{name}.html")), report::html(&timeline, title, None))?;
        for picture in report::svg(&timeline) {
            if picture.key == "bytes-host" || picture.key == "queues" && ["early-release", "ours"].contains(&name) {
                fs::write(folder.join(format!("{name}-{}.svg", picture.key)), picture.svg(Size::Wide))?;
            }
            println!("  {}", picture.key);
        }
    }
    let mut long = workload;
    long.streams[0].proofs = 60;
    let budgets = sweep::budgets(&long, 12);
    let curves = sweep::sweep(&long, &budgets, 50_000_000, &mut |_| ());
    for curve in &curves {
        print!("{:<22}", curve.policy);
        for point in &curve.points {
            let seconds = point.seconds_per_proof.map_or("–".to_owned(), |seconds| format!("{seconds:.1}"));
            print!(" {:.0}:{seconds}", point.budget as f64 / (1u64 << 30) as f64);
        }
        println!();
    }
    // What is slower than this is left out, so that the rest can be told apart.
    let shown = |point: &sweep::Point| point.seconds_per_proof.filter(|seconds| *seconds <= SHOWN_MAX);
    let series: Vec<(&str, Vec<(f64, f64)>)> = curves
        .iter()
        .map(|curve| {
            let point = |point: &sweep::Point| Some((point.budget as f64 / (1u64 << 30) as f64, shown(point)?));
            (curve.policy, curve.points.iter().filter_map(point).collect())
        })
        .collect();
    let chart = Chart::lines("GiB", "s", &series);
    fs::write(folder.join("curves.svg"), chart.svg(Size::Wide))?;
    let page = Page::new("Seconds a proof against memory");
    fs::write(
        folder.join("curves.html"),
        page.chart("Every policy", "Steady state, on the same jobs.", &chart).html(),
    )?;
    Ok(())
}

fn run(workload: &Workload, kind: PolicyKind) -> Result<(Outcome, Timeline), Box<dyn std::error::Error>> {
    let mut workload = workload.clone();
    workload.policy = Policy { kind, early_free: true, ..workload.policy };
    let mut events = Vec::new();
    let mut sink = |event: &Event| events.push(trace::Event::from(event));
    let outcome = simulate(&workload, Options { timeline: Some(&mut sink), ..Options::default() });
    Ok((outcome, Timeline::from_events(events)))
}
