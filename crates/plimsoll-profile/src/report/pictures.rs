//! The pictures of a timeline.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chart::{ALARM, Chart, GREY, INK, Shape, Size, colour};
use super::units;
use crate::timeline::{SpaceLine, Span, Timeline};

/// The most rows of a Gantt chart.
const ROWS_MAX: usize = 36;
/// The most boxes in one.
const BOXES_MAX: usize = 1500;
/// The most classes with a colour of their own; the others are one.
const CLASSES_MAX: usize = 10;

/// A chart with its words.
#[derive(Clone, Debug)]
pub struct Picture {
    /// A name for a file: lower case letters, digits and dashes.
    pub key: String,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    pub(super) chart: Both,
}

/// One chart in two sizes; series are thinned out for each.
#[derive(Clone, Debug)]
pub(super) struct Both {
    wide: Chart,
    narrow: Chart,
}

impl Both {
    fn new(draw: impl Fn(Size) -> Chart) -> Both {
        Both { wide: draw(Size::Wide), narrow: draw(Size::Narrow) }
    }

    pub(super) fn same(chart: Chart) -> Both {
        Both { wide: chart.clone(), narrow: chart }
    }

    pub(super) fn svg(&self, size: Size) -> String {
        match size {
            Size::Wide => self.wide.svg(size),
            Size::Narrow => self.narrow.svg(size),
        }
    }
}

impl Picture {
    /// As SVG, with everything in it.
    pub fn svg(&self, size: Size) -> String {
        self.chart.svg(size)
    }
}

/// All pictures that there is something to show in.
pub(super) fn pictures(timeline: &Timeline) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let colours = stage_colours(timeline);
    for space in timeline.spaces.iter().filter(|space| space.peak.bytes > 0) {
        pictures.push(bytes(timeline, space));
    }
    pictures.extend(lanes(timeline, &colours));
    pictures.extend(jobs(timeline, &colours));
    pictures.extend(running(timeline, &colours));
    pictures.extend(devices(timeline));
    pictures.extend(queues(timeline, &colours));
    pictures.extend(waits(timeline, &colours));
    pictures
}

type Colours = BTreeMap<Arc<str>, plotters::style::RGBColor>;

fn stage_colours(timeline: &Timeline) -> Colours {
    timeline.stages.iter().enumerate().map(|(n, stage)| (stage.stage.clone(), colour(n))).collect()
}

/// Time as an axis, and the pieces of it that a chart shows.
struct Clock {
    unit: f64,
    name: &'static str,
    begin: u64,
    end: u64,
    bin: u64,
}

impl Clock {
    fn of(timeline: &Timeline) -> Clock {
        let (unit, name) = units::time_axis(timeline.length_ns());
        Clock { unit, name, begin: timeline.begin_ns, end: timeline.end_ns, bin: timeline.bin_ns }
    }

    fn at(&self, time: u64) -> f64 {
        time as f64 / self.unit
    }

    /// When a piece begins; that behind the last is the end.
    fn edge(&self, bin: usize) -> f64 {
        self.at((self.begin + bin as u64 * self.bin).min(self.end))
    }

    fn range(&self) -> (f64, f64) {
        (self.at(self.begin), self.at(self.end.max(self.begin + 1)))
    }

    fn chart(&self) -> Chart {
        Chart { x: self.range(), x_unit: self.name.to_owned(), ..Chart::default() }
    }
}

/// Pieces of time joined to those that a chart of this size can show: first, one past the last.
fn columns(bins: usize, size: Size) -> Vec<(usize, usize)> {
    let each = bins.div_ceil(size.columns()).max(1);
    (0..bins).step_by(each).map(|from| (from, (from + each).min(bins))).collect()
}

/// Steps through values; what does not change has no point.
fn steps(clock: &Clock, values: &[((usize, usize), f64)]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for &((from, to), value) in values {
        match points.last_mut() {
            Some(last) if last.1 == value => last.0 = clock.edge(to),
            _ => points.extend([(clock.edge(from), value), (clock.edge(to), value)]),
        }
    }
    points
}

fn bytes(timeline: &Timeline, space: &SpaceLine) -> Picture {
    let clock = Clock::of(timeline);
    let name = match &*space.space {
        "host" => "Host memory".to_owned(),
        "pinned" => "Pinned host memory".to_owned(),
        other => format!("Memory of {other}"),
    };
    let samples: Vec<(&str, &str)> = match &*space.space {
        "host" => {
            vec![("resident_bytes", "resident, says the kernel"), ("allocated_bytes", "allocated, says the allocator")]
        }
        _ => Vec::new(),
    };
    let own = format!("{}_own_bytes", space.space);
    let mut samples: Vec<_> =
        samples.into_iter().filter_map(|(key, words)| Some((timeline.sample(key)?, words.to_owned()))).collect();
    samples.extend(timeline.sample(&own).map(|sample| (sample, "this process's, says the driver".to_owned())));
    let highest = samples.iter().map(|sample| sample.0.peak).chain([space.peak.bytes]).max().unwrap_or(0);
    let limits: Vec<(&str, Vec<Option<u64>>)> = [
        ("the ledger's line", Some(space.line.clone())),
        (
            "the process's line",
            timeline.sample("line_bytes").filter(|_| &*space.space == "host").map(|line| line.high.clone()),
        ),
    ]
    .into_iter()
    .filter_map(|(name, line)| Some((name, line.filter(|line| line.iter().any(Option::is_some))?)))
    .collect();
    let top = limits.iter().flat_map(|line| line.1.iter().flatten()).copied().max();
    // A line that is far above what was held would press everything else flat.
    let shown = top.is_none_or(|top| top / 4 <= highest);
    let reach = if shown { top.unwrap_or(0).max(highest) } else { highest };
    let (unit, unit_name) = units::bytes_axis(reach);
    let draw = |size| {
        let columns = columns(timeline.bins(), size);
        let highest_of = |&(from, to): &(usize, usize)| (from..to).max_by_key(|&bin| space.held[bin]).unwrap_or(from);
        let moments: Vec<usize> = columns.iter().map(highest_of).collect();
        let mut chart = clock.chart();
        (chart.y_max, chart.y_unit) = (reach as f64 / unit, unit_name.to_owned());
        let mut below = vec![0_u64; columns.len()];
        let (own, others) = space.classes.split_at(space.classes.len().min(CLASSES_MAX));
        let mut layer = |chart: &mut Chart, name: String, colour, held: &dyn Fn(usize) -> u64| {
            let under: Vec<_> = columns.iter().zip(&below).map(|(&column, &low)| (column, low as f64 / unit)).collect();
            for (low, &moment) in below.iter_mut().zip(&moments) {
                *low += held(moment);
            }
            let over: Vec<_> =
                columns.iter().zip(&below).map(|(&column, &high)| (column, high as f64 / unit)).collect();
            let mut outline = steps(&clock, &over);
            outline.extend(steps(&clock, &under).into_iter().rev());
            chart.shapes.push(Shape::Area(outline, colour));
            chart.legend.push((name, colour));
        };
        for (n, class) in own.iter().enumerate() {
            layer(&mut chart, class.class.to_string(), colour(n), &|bin| class.held[bin]);
        }
        if !others.is_empty() {
            let sum = |bin: usize| others.iter().map(|class| class.held[bin]).sum();
            layer(&mut chart, format!("{} others", others.len()), GREY, &sum);
        }
        for (n, (sample, words)) in samples.iter().enumerate() {
            let highs = columns
                .iter()
                .filter_map(|&(from, to)| Some((from, to, sample.high[from..to].iter().flatten().max()?)));
            let points = highs.map(|(from, to, &high)| ((clock.edge(from) + clock.edge(to)) / 2.0, high as f64 / unit));
            let colour = if n == 0 { INK } else { GREY };
            chart.shapes.push(Shape::Line { points: points.collect(), colour, width: 2, dashed: false });
            chart.legend.push((words.clone(), colour));
        }
        for (name, line) in limits.iter().filter(|_| shown) {
            let known = columns.iter().filter_map(|&(from, to)| Some(((from, to), line[to - 1]? as f64 / unit)));
            let points = steps(&clock, &known.collect::<Vec<_>>());
            chart.shapes.push(Shape::Line { points, colour: ALARM, width: 2, dashed: true });
            chart.legend.push(((*name).to_owned(), ALARM));
        }
        chart
    };
    let line = match top {
        Some(top) if shown => format!("The line is at {}.", units::bytes(top)),
        Some(top) => format!("The line is at {}, far above the picture.", units::bytes(top)),
        None => "The trace does not say where the line is.".to_owned(),
    };
    let caption = format!(
        "What is held of each class, one on top of the other; each step shows its highest moment. {line} At most {} were held, {} \
         after the trace began.",
        units::bytes(space.peak.bytes),
        units::time(space.peak.time_ns - timeline.begin_ns),
    );
    Picture { key: format!("bytes-{}", key_of(&space.space)), title: name, caption, chart: Both::new(draw) }
}

/// What is good in the name of a file.
fn key_of(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// Spans that a Gantt chart can show: all, or those around the middle of what is there.
fn window(timeline: &Timeline, time: u64) -> (&[Span], bool) {
    let spans = &timeline.spans[..];
    if spans.len() <= BOXES_MAX {
        return (spans, timeline.spans_left_out > 0);
    }
    let middle = spans.partition_point(|span| span.granted_ns < time);
    let from = middle.saturating_sub(BOXES_MAX / 2).min(spans.len() - BOXES_MAX);
    (&spans[from..from + BOXES_MAX], true)
}

fn gantt(timeline: &Timeline, spans: &[&Span], rows: &[(String, Vec<usize>)], colours: &Colours) -> Chart {
    let begin = spans.iter().map(|span| span.asked_ns).min().unwrap_or(timeline.begin_ns);
    let end = spans.iter().map(|span| span.ended_ns).max().unwrap_or(timeline.end_ns);
    let (unit, name) = units::time_axis(end - begin);
    let clock = Clock { unit, name, begin, end, bin: timeline.bin_ns };
    let mut chart = clock.chart();
    (chart.y_max, chart.rows) = (rows.len() as f64, rows.iter().map(|row| row.0.clone()).collect());
    for (n, row) in rows.iter().enumerate() {
        let top = (rows.len() - n) as f64;
        for &span in &row.1 {
            let span = spans[span];
            let colour = colours.get(&span.stage).copied().unwrap_or(GREY);
            let start = clock.at(span.start_ns());
            if span.start_ns() > span.asked_ns {
                let (from, to) = ((clock.at(span.asked_ns), top - 0.3), (start, top - 0.7));
                chart.shapes.push(Shape::Box { from, to, colour, faint: true });
            }
            let (from, to) = ((start, top - 0.1), (clock.at(span.ended_ns), top - 0.9));
            chart.shapes.push(Shape::Box { from, to, colour, faint: false });
        }
    }
    let there = |stage: &Arc<str>| spans.iter().any(|span| span.stage == *stage);
    let stages = timeline.stages.iter().filter(|stage| there(&stage.stage));
    chart.legend = stages.map(|stage| (stage.stage.to_string(), colours[&stage.stage])).collect();
    chart
}

/// Rows for places to run: what runs at the same time is in different rows.
fn lanes(timeline: &Timeline, colours: &Colours) -> Option<Picture> {
    let peak = timeline.spaces.first().map_or(timeline.begin_ns, |space| space.peak.time_ns);
    let (spans, partly) = window(timeline, peak);
    let mut order: Vec<&Span> = spans.iter().collect();
    order.sort_by_key(|span| (span.start_ns(), span.id));
    // By kind of place: when each of its rows is free again, and what is in it.
    let mut places: BTreeMap<String, Vec<(u64, Vec<usize>)>> = BTreeMap::new();
    for (n, span) in order.iter().enumerate() {
        let place = span.device.as_ref().or(span.place.as_ref()).map_or("lane", |place| place).to_owned();
        let rows = places.entry(place).or_default();
        match rows.iter_mut().find(|row| row.0 <= span.start_ns()) {
            Some(row) => {
                row.0 = span.ended_ns;
                row.1.push(n);
            }
            None => rows.push((span.ended_ns, vec![n])),
        }
    }
    let several =
        |count: usize, place: &str, n: usize| if count == 1 { place.to_owned() } else { format!("{place} {}", n + 1) };
    let all = places.iter().flat_map(|(place, rows)| {
        rows.iter().enumerate().map(|(n, row)| (several(rows.len(), place, n), row.1.clone()))
    });
    let rows: Vec<(String, Vec<usize>)> = all.take(ROWS_MAX).collect();
    if rows.is_empty() {
        return None;
    }
    // What a job waited for is the other chart's to show.
    let boxes: Vec<Span> = order.iter().map(|&span| Span { asked_ns: span.start_ns(), ..span.clone() }).collect();
    let chart = gantt(timeline, &boxes.iter().collect::<Vec<_>>(), &rows, colours);
    Some(Picture {
        key: "lanes".into(),
        title: "What ran where".into(),
        caption: format!("Each box is a stage of a job. {}", part(partly)),
        chart: Both::same(chart),
    })
}

fn part(partly: bool) -> &'static str {
    if partly { "Not the whole run: the time around the peak." } else { "" }
}

fn jobs(timeline: &Timeline, colours: &Colours) -> Option<Picture> {
    let peak = timeline.spaces.first().map_or(timeline.begin_ns, |space| space.peak.time_ns);
    let (spans, mut partly) = window(timeline, peak);
    let spans: Vec<&Span> = spans.iter().collect();
    // Numbers are given again: a job is its number and its name.
    let mut rows: Vec<((u64, &str), Vec<usize>)> = Vec::new();
    for (n, span) in spans.iter().enumerate() {
        match rows.iter_mut().find(|row| row.0 == (span.id, &*span.name)) {
            Some(row) => row.1.push(n),
            None => rows.push(((span.id, &*span.name), vec![n])),
        }
    }
    if rows.is_empty() {
        return None;
    }
    if rows.len() > ROWS_MAX {
        partly = true;
        let middle = rows.iter().position(|row| row.1.iter().any(|&n| spans[n].ended_ns >= peak)).unwrap_or(0);
        let from = middle.saturating_sub(ROWS_MAX / 2).min(rows.len() - ROWS_MAX);
        rows = rows.split_off(from);
        rows.truncate(ROWS_MAX);
    }
    let mut shown = Vec::new();
    let rows: Vec<(String, Vec<usize>)> = rows
        .into_iter()
        .map(|((_, name), row)| {
            let from = shown.len();
            shown.extend(row.iter().map(|&n| spans[n]));
            (name.to_owned(), (from..shown.len()).collect())
        })
        .collect();
    let chart = gantt(timeline, &shown, &rows, colours);
    let caption = format!(
        "One row a job. A full box runs; a thin pale one waits, for memory or for a place to run. {}",
        part(partly)
    );
    Some(Picture { key: "jobs".into(), title: "Jobs".into(), caption, chart: Both::same(chart) })
}

fn running(timeline: &Timeline, colours: &Colours) -> Option<Picture> {
    let clock = Clock::of(timeline);
    let stages: Vec<_> = timeline.stages.iter().filter(|stage| stage.running_all > 0.0).collect();
    let draw = |size| {
        let columns = columns(timeline.bins(), size);
        let mut chart = clock.chart();
        let mut below = vec![0.0; columns.len()];
        for stage in &stages {
            let under: Vec<_> = columns.iter().copied().zip(below.iter().copied()).collect();
            for (low, &(from, to)) in below.iter_mut().zip(&columns) {
                *low += stage.running[from..to].iter().sum::<f64>() / (to - from) as f64;
            }
            let over: Vec<_> = columns.iter().copied().zip(below.iter().copied()).collect();
            let mut outline = steps(&clock, &over);
            outline.extend(steps(&clock, &under).into_iter().rev());
            chart.shapes.push(Shape::Area(outline, colours[&stage.stage]));
            chart.legend.push((stage.stage.to_string(), colours[&stage.stage]));
        }
        chart.y_max = below.iter().copied().fold(0.0, f64::max);
        chart
    };
    (!stages.is_empty()).then(|| Picture {
        key: "running".into(),
        title: "Stages that run".into(),
        caption: "How many run at once, on average over each step.".into(),
        chart: Both::new(draw),
    })
}

fn devices(timeline: &Timeline) -> Option<Picture> {
    let clock = Clock::of(timeline);
    let of_device = |name: &str| name.starts_with("lane") || name.starts_with("lease");
    let slots: Vec<_> = timeline.slots.iter().filter(|slots| of_device(&slots.slots)).collect();
    let draw = |size| {
        let columns = columns(timeline.bins(), size);
        let mut chart = clock.chart();
        (chart.y_max, chart.y_unit) = (100.0, "%".into());
        for (n, slots) in slots.iter().enumerate() {
            let there = slots.limit.unwrap_or(slots.peak).max(1) as f64;
            let mean = |&(from, to): &(usize, usize)| {
                ((from, to), 100.0 * slots.mean[from..to].iter().sum::<f64>() / (to - from) as f64 / there)
            };
            let points = steps(&clock, &columns.iter().map(mean).collect::<Vec<_>>());
            chart.shapes.push(Shape::Line { points, colour: colour(n), width: 2, dashed: false });
            let all = 100.0 * slots.mean_all / there;
            chart.legend.push((format!("{} ({all:.0} %)", slots.slots), colour(n)));
        }
        chart
    };
    (!slots.is_empty()).then(|| Picture {
        key: "devices".into(),
        title: "Devices".into(),
        caption: "How much of each device's lanes and lease is taken. In brackets, over the whole run.".into(),
        chart: Both::new(draw),
    })
}

fn queues(timeline: &Timeline, colours: &Colours) -> Option<Picture> {
    let clock = Clock::of(timeline);
    let stages: Vec<_> = timeline.stages.iter().filter(|stage| stage.queue_peak > 0).collect();
    let draw = |size| {
        let columns = columns(timeline.bins(), size);
        let mut chart = clock.chart();
        for stage in &stages {
            let high = |&(from, to): &(usize, usize)| {
                ((from, to), stage.queue[from..to].iter().copied().max().unwrap_or(0) as f64)
            };
            let points = steps(&clock, &columns.iter().map(high).collect::<Vec<_>>());
            chart.y_max = chart.y_max.max(stage.queue_peak as f64);
            chart.shapes.push(Shape::Line { points, colour: colours[&stage.stage], width: 2, dashed: false });
            chart.legend.push((format!("for {}", stage.stage), colours[&stage.stage]));
        }
        chart
    };
    stages.iter().any(|stage| stage.wait.max_ns > 0 || stage.queue_peak > 1).then(|| Picture {
        key: "queues".into(),
        title: "Queues".into(),
        caption: "How many jobs wait to enter each stage. Before every stage but the first, they hold what the stage before has made."
            .into(),
        chart: Both::new(draw),
    })
}

fn waits(timeline: &Timeline, colours: &Colours) -> Option<Picture> {
    let stages: Vec<_> = timeline.stages.iter().filter(|stage| stage.wait.max_ns > 0).collect();
    let longest = stages.iter().map(|stage| stage.wait.max_ns).max()?;
    let (unit, name) = units::time_axis(longest);
    let rows = stages.len();
    let mut chart =
        Chart { x: (0.0, longest as f64 / unit), x_unit: name.to_owned(), y_max: rows as f64, ..Chart::default() };
    for (n, stage) in stages.iter().enumerate() {
        let top = (rows - n) as f64;
        let colour = colours[&stage.stage];
        let mut draw = |to: u64, half: f64, faint| {
            let (from, to) = ((0.0, top - 0.5 + half), (to as f64 / unit, top - 0.5 - half));
            chart.shapes.push(Shape::Box { from, to, colour, faint });
        };
        draw(stage.wait.max_ns, 0.12, true);
        draw(stage.wait.p95_ns, 0.25, true);
        draw(stage.wait.p50_ns, 0.4, false);
        chart.rows.push(stage.stage.to_string());
    }
    Some(Picture {
        key: "waits".into(),
        title: "Waits for memory".into(),
        caption: "From asking to the grant. Full: half of all waits are at most this long; pale: nineteen of twenty; thin: the longest."
            .into(),
        chart: Both::same(chart),
    })
}
