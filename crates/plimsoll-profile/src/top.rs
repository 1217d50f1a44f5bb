//! A running process in the terminal: bytes by class against the line, lanes, holders, and who waits for what.
//!
//! [`draw`] is a pure function of a snapshot (`crate::live`); [`run`] has a thread ask for one twice a second until `q` is pressed or the
//! process is gone, and says so when there is no answer: keys are heard all the same. Names come from the process: control characters
//! in them do not reach the terminal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table, Wrap};
use serde_json::{Value, json};

use crate::live::{CallError, Client};

/// How often the process is asked.
const PERIOD: Duration = Duration::from_millis(500);

/// Colours for classes, in their order.
const COLOURS: [Color; 6] = [Color::Blue, Color::Yellow, Color::Green, Color::Magenta, Color::Cyan, Color::Red];

/// Without an answer for so long it is said that there is none.
const QUIET: Duration = Duration::from_secs(2);
/// Keys and signals are looked for so often.
const KEYS: Duration = Duration::from_millis(100);

/// Shows the process behind a socket until `q`, escape or control-C is pressed, `stop` is set (by a handler of signals, for example), or
/// the process has ended. However it ends, the terminal is as it was.
///
/// # Errors
///
/// When nobody answers at first, or the terminal cannot be used.
pub fn run(socket: &Path, stop: &AtomicBool) -> io::Result<()> {
    let client = Client::connect(socket)?;
    let answers = asker(socket.to_owned(), client)?;
    let title = socket.display().to_string();
    // Before there is anything to be restored: half of it may have been done when it fails.
    let restored = Restored;
    let mut terminal = ratatui::try_init()?;
    let (mut picture, mut since) = (Value::Null, Instant::now());
    loop {
        match answers.try_recv() {
            Ok(Answer::Picture(next)) => (picture, since) = (next, Instant::now()),
            // What was seen last has been seen.
            Ok(Answer::Gone) | Err(TryRecvError::Disconnected) => break,
            Ok(Answer::Failed(error)) => return Err(error),
            Err(TryRecvError::Empty) => {}
        }
        let title = titled(&title, since.elapsed());
        terminal.draw(|frame| draw(frame, &title, &picture))?;
        if ended_by_user()? || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    drop(restored);
    Ok(())
}

/// Gives the terminal back as it was.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // Where it cannot be done there is nobody left to be told.
        let _ = ratatui::try_restore();
    }
}

/// What is above the picture.
fn titled(title: &str, quiet: Duration) -> String {
    if quiet < QUIET {
        return title.to_owned();
    }
    format!("{title}: no answer for {} s", quiet.as_secs())
}

/// What came of asking.
#[derive(Debug)]
enum Answer {
    Picture(Value),
    /// The process has closed the connection: it has ended.
    Gone,
    Failed(io::Error),
}

/// A thread that asks until nobody listens any more.
fn asker(socket: PathBuf, mut client: Client) -> io::Result<Receiver<Answer>> {
    let (tell, answers) = channel();
    let body = move || {
        loop {
            let answer = match ask(&mut client) {
                Ok(picture) => Answer::Picture(picture),
                // It may be stopped, or busy. What comes late would be taken for the next answer, so it is asked anew.
                Err(error) if is_late(&error) => match Client::connect(&socket) {
                    Ok(next) => {
                        client = next;
                        continue;
                    }
                    Err(error) if is_late(&error) => continue,
                    Err(_) => Answer::Gone,
                },
                Err(error) if is_end(&error) => Answer::Gone,
                Err(error) => Answer::Failed(error),
            };
            let over = !matches!(answer, Answer::Picture(_));
            if tell.send(answer).is_err() || over {
                return;
            }
            std::thread::sleep(PERIOD); // tidy: sleep, a period between looks at another process
        }
    };
    std::thread::Builder::new().name("plimsoll top".to_owned()).spawn(body)?;
    Ok(answers)
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset)
}

fn ask(client: &mut Client) -> io::Result<Value> {
    match client.call("snapshot", &json!({})) {
        // What is known of the process goes with what the ledger says of itself.
        Ok(mut answer) => {
            let mut picture = answer["snapshot"].take();
            (picture["process"], picture["verdict"]) = (answer["process"].take(), answer["verdict"].take());
            Ok(picture)
        }
        Err(CallError::Io(error)) => Err(error),
        Err(other) => Err(io::Error::other(other)),
    }
}

fn ended_by_user() -> io::Result<bool> {
    if !event::poll(KEYS)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else { return Ok(false) };
    let ends = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
        || key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(ends && key.kind == KeyEventKind::Press)
}

fn list<'v>(picture: &'v Value, name: &str) -> &'v [Value] {
    picture[name].as_array().map_or(&[], Vec::as_slice)
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or_else(|| "–".to_owned(), |bytes| plimsoll::Bytes(bytes).to_string())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("–").to_owned()
}

/// How long ago something was, in the process's own time.
fn ago(picture: &Value, since: &Value) -> String {
    let ago = picture["time_ns"].as_u64().unwrap_or(0).saturating_sub(since.as_u64().unwrap_or(0));
    format!("{:.1} s", ago as f64 / 1e9)
}

/// Draws a snapshot.
pub fn draw(frame: &mut Frame<'_>, title: &str, picture: &Value) {
    let spaces: Vec<&Value> = list(picture, "spaces").iter().filter(|space| space["limit_bytes"].is_u64()).collect();
    let slots = list(picture, "slots");
    let lines = |count: usize| Constraint::Length(u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2));
    let verdict = verdict(picture);
    // As many lines as they take where the screen is narrow.
    let inner = usize::from(frame.area().width.saturating_sub(2)).max(1);
    let wrapped = verdict.iter().map(|line| line.width().div_ceil(inner.saturating_sub(8).max(1)).max(1)).sum();
    let areas = Layout::vertical([
        lines(wrapped),
        lines(spaces.len() * 2 + 1),
        lines(slots.len().min(6)),
        Constraint::Min(4),
        Constraint::Min(4),
    ])
    .split(frame.area());
    let block = Block::bordered().title(" verdict ");
    frame.render_widget(Paragraph::new(verdict).wrap(Wrap { trim: true }).block(block), areas[0]);
    let areas = &areas[1..];
    draw_spaces(frame, areas[0], title, picture, &spaces);
    let slot_lines = slots.iter().map(|slots| {
        let (held, limit) = (&slots["held"], &slots["limit"]);
        Line::from(format!("{:<24} {held} of {limit}, at most {}", text(&slots["slots"]), slots["peak"]))
    });
    let block = Block::bordered().title(" lanes and slots ");
    frame.render_widget(Paragraph::new(slot_lines.collect::<Vec<_>>()).block(block), areas[1]);
    let waiters = list(picture, "waiters");
    let rows = waiters.iter().map(|waiter| {
        let kind = if waiter["in_flight"] == true { "in flight" } else { "new" };
        Row::new([text(&waiter["stage"]), ago(picture, &waiter["since_ns"]), kind.to_owned(), text(&waiter["why"])])
    });
    let widths = [Constraint::Length(14), Constraint::Length(10), Constraint::Length(10), Constraint::Min(20)];
    table(
        frame,
        areas[2],
        &format!(" waiting: {} ", picture["waiters_count"]),
        ["for", "since", "job", "why"],
        widths,
        rows,
    );
    let rows = list(picture, "holders").iter().map(|holder| {
        let at = holder["external"].as_str().map_or_else(|| text(&holder["at"]), |what| format!("waits for {what}"));
        Row::new([bytes(&holder["held_bytes"]), text(&holder["who"]), text(&holder["stage"]), at])
    });
    let widths = [Constraint::Length(12), Constraint::Min(20), Constraint::Length(14), Constraint::Min(20)];
    table(
        frame,
        areas[3],
        &format!(" holders: {} ", picture["holders_count"]),
        ["bytes", "who", "stage", "at"],
        widths,
        rows,
    );
}

fn table<'r, const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    head: [&'static str; N],
    widths: [Constraint; N],
    rows: impl Iterator<Item = Row<'r>>,
) {
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    let block = Block::bordered().title(title.to_owned());
    frame.render_widget(Table::new(rows.take(200), widths).header(head).block(block), area);
}

/// What is the matter so far, and what the kernel says.
fn verdict(picture: &Value) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let verdict = &picture["verdict"];
    if let (Some(name), Some(headline)) = (verdict["verdict"].as_str(), verdict["headline"].as_str()) {
        let colour = if name == "healthy" { Color::Green } else { Color::Red };
        let name = Span::styled(name.replace('_', " "), Style::new().fg(colour).add_modifier(Modifier::BOLD));
        lines.push(Line::from(vec![name, Span::raw(format!(": {headline}"))]));
        if let Some(next) = verdict["next_step"].as_str().filter(|_| colour == Color::Red) {
            lines.push(Line::from(format!("next: {next}")));
        }
    } else {
        lines.push(Line::from("none: this process keeps no books (it was started with --sample-ms 0)"));
    }
    let process = &picture["process"];
    if process["resident_bytes"].is_u64() {
        let table = &process["tables"][0];
        let rows = table["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let rest = rows.iter().find(|row| row[0] == "unaccounted").and_then(|row| row[1].as_i64()).unwrap_or(0);
        let sign = if rest < 0 { "-" } else { "" };
        lines.push(Line::from(format!(
            "process: {} resident of {}, {sign}{} unaccounted, {} kept by the allocator, {} left on the machine",
            bytes(&process["resident_bytes"]),
            bytes(&process["line_bytes"]),
            plimsoll::Bytes(rest.unsigned_abs()),
            bytes(&process["allocator_kept_bytes"]),
            bytes(&process["left_bytes"]),
        )));
    }
    if let Some(alarm) = process["alarm"].as_str() {
        lines.push(Line::from(Span::styled(format!("alarm: {alarm}"), Style::new().fg(Color::Red))));
    }
    if picture["paused"] == true {
        let words = "admission is paused: `plimsoll ctl SOCKET resume`";
        lines.push(Line::from(Span::styled(words, Style::new().fg(Color::Yellow))));
    }
    lines
}

/// Of each space a line of figures, and a bar of its classes up to the limit.
fn draw_spaces(frame: &mut Frame<'_>, area: Rect, title: &str, picture: &Value, spaces: &[&Value]) {
    let width = usize::from(area.width.saturating_sub(4));
    let classes = list(picture, "classes");
    let colour = |class: &Value| {
        let place = classes.iter().position(|other| std::ptr::eq(other, class)).unwrap_or(0);
        COLOURS[place % COLOURS.len()]
    };
    let mut lines = Vec::new();
    for space in spaces {
        let name = text(&space["space"]);
        let (held, limit) = (&space["held_bytes"], &space["limit_bytes"]);
        let child = space["child"].as_str().map(|child| format!(" of {child}")).unwrap_or_default();
        let full = 100.0 * held.as_f64().unwrap_or(0.0) / limit.as_f64().unwrap_or(1.0).max(1.0);
        lines.push(Line::from(format!(
            "{name}{child}: {} of {} ({full:.0} %), at most {}",
            bytes(held),
            bytes(limit),
            bytes(&space["peak_bytes"])
        )));
        let mut bar = Vec::new();
        let mut cells = 0;
        let own = |class: &&Value| class["space"] == name.as_str() || name == "host" && class["space"] == "pinned";
        for class in classes.iter().filter(own).filter(|_| child.is_empty()) {
            let part = class["held_bytes"].as_f64().unwrap_or(0.0) / limit.as_f64().unwrap_or(1.0).max(1.0);
            let count = ((part * width as f64).round() as usize).min(width - cells.min(width));
            cells += count;
            bar.push(Span::styled("█".repeat(count), Style::new().fg(colour(class))));
        }
        bar.push(Span::styled("·".repeat(width.saturating_sub(cells)), Style::new().fg(Color::DarkGray)));
        lines.push(Line::from(bar));
    }
    let legend = classes.iter().filter(|class| class["held_bytes"].as_u64() > Some(0)).flat_map(|class| {
        let words = format!("█ {} {}  ", text(&class["class"]), bytes(&class["held_bytes"]));
        [Span::styled(words, Style::new().fg(colour(class)))]
    });
    lines.push(Line::from(legend.collect::<Vec<_>>()));
    let block = Block::bordered().title(format!(" {title} – q ends "));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Slots, Space};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn the_line_the_holders_and_who_waits_for_what_are_on_the_screen() {
        const AUX: Class = Class::new("aux", Space::HOST);
        let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::GIB).slots(Slots::lane(0), 2));
        let held = ledger.reserve(AUX, Bytes(700 << 20)).name("the \u{1b}[31mholder").try_now().unwrap();
        let profile = Profile::new().stage("prove", Demand::new().bytes(AUX, Bytes(600 << 20)), Demand::new());
        let mut job = ledger.submit(JobSpec::new("the waiter", profile)).unwrap();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(job.poll_enter(&mut cx, 0).is_pending());
        let mut picture = crate::live::picture(&ledger.snapshot());
        picture["paused"] = true.into();
        picture["verdict"] = json!({"verdict": "leak", "headline": "5.00 MiB a job", "next_step": "look"});
        picture["process"] = json!({
            "resident_bytes": 900 << 20, "line_bytes": 1 << 30, "alarm": "host: odd",
            "tables": [{"space": "host", "rows": [[{"held": "aux"}, 5], ["unaccounted", -1024]], "total": 9}],
        });
        for (width, height) in [(120, 40), (80, 24), (40, 12), (3, 2)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, "/tmp/s", &picture)).unwrap();
            let screen = terminal.backend().to_string();
            assert!(!screen.contains('\u{1b}'));
            if width == 80 {
                for word in [
                    "leak: 5.00 MiB a job",
                    "unaccounted",
                    "left on the machine",
                    "alarm: host: odd",
                    "admission is paused",
                ] {
                    assert!(screen.contains(word), "{word}:\n{screen}");
                }
            }
            if width == 120 {
                for word in [
                    "700.00 MiB of 1.00 GiB (68 %)",
                    "lane0",
                    "0 of 2",
                    "holder",
                    "prove",
                    "\"the waiter\" needs 600",
                    "admission is paused",
                    "leak: 5.00 MiB a job",
                    "next: look",
                    "900.00 MiB resident of 1.00 GiB, -1.00 KiB unaccounted",
                    "alarm: host: odd",
                ] {
                    assert!(screen.contains(word), "{word}:\n{screen}");
                }
            }
        }
        drop((job, held));
    }

    /// A process that takes the connection and never answers is no process that has ended.
    #[test]
    fn silence_is_not_the_end() {
        assert_eq!(titled("s", Duration::from_secs(1)), "s");
        assert_eq!(titled("s", Duration::from_secs(7)), "s: no answer for 7 s");
        assert!(is_late(&io::ErrorKind::WouldBlock.into()) && !is_end(&io::ErrorKind::WouldBlock.into()));
        assert!(is_end(&io::ErrorKind::UnexpectedEof.into()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let answers = asker(path.clone(), Client::connect(&path).unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert!(answers.recv_timeout(Duration::from_millis(50)).is_err(), "nothing yet");
        drop(stream);
        assert!(matches!(answers.recv().unwrap(), Answer::Gone));
    }

    /// A process that does not even take the connection is waited for only so long.
    #[test]
    fn a_full_queue_of_connections_is_no_trap() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let within = Duration::from_millis(100);
        let clients: Vec<_> = (0..8).map(|_| Client::connect_within(&path, within)).collect();
        let late = clients.into_iter().find_map(Result::err).expect("nobody takes them");
        assert!(is_late(&late), "{late}");
    }
}
