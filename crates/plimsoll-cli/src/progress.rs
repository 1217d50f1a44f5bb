//! Bars while work goes on: on standard error, on a terminal only.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// How often a bar is drawn anew though nothing happened, so that its clock runs.
const TICK: Duration = Duration::from_millis(250);

/// A bar; it vanishes when dropped.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of `total` steps that shows its rate per second and the time left.
    pub fn new(what: &'static str, unit: &'static str, total: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let progress = Self::on(
            if terminal { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() },
            what,
            unit,
            total,
        );
        progress.bar.enable_steady_tick(TICK);
        progress
    }

    fn on(target: ProgressDrawTarget, what: &'static str, unit: &'static str, total: u64) -> Self {
        let template = format!("{{msg:10}} {{wide_bar}} {{pos}}/{{len}} {unit}  {{rate}}  {{elapsed}}{{left}}");
        let style = ProgressStyle::with_template(&template)
            .expect("the template is fixed")
            .with_key("rate", rate)
            .with_key("left", left)
            .progress_chars("━━ ");
        Self { bar: ProgressBar::with_draw_target(Some(total), target).with_style(style).with_message(what) }
    }

    /// Sets how many steps are done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Changes the words in front.
    pub fn message(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    /// Changes the number of steps.
    pub fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Prints something while the bar stands.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The time left, once there is a rate to tell it from.
fn left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = write!(out, ", {} left", HumanDuration(state.eta()));
    }
}

/// Slow work deserves decimals: 0.42/s says more than 0/s.
fn rate(state: &ProgressState, out: &mut dyn Write) {
    let per_second = state.per_sec();
    let _ = if per_second < 10.0 { write!(out, "{per_second:.2}/s") } else { write!(out, "{per_second:.0}/s") };
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::InMemoryTerm;

    #[test]
    fn it_shows_count_rate_and_time_left() {
        let terminal = InMemoryTerm::new(3, 100);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let progress = Progress::on(target, "proving", "partitions", 8193);
        progress.bar.force_draw();
        assert!(!terminal.contents().contains("left"), "nothing is known yet: {:?}", terminal.contents());
        progress.set(100);
        progress.bar.force_draw();
        let shown = terminal.contents();
        for words in ["proving", "100/8193 partitions", "/s", "left"] {
            assert!(shown.contains(words), "{words:?} is not in {shown:?}");
        }
        drop(progress);
        assert_eq!(terminal.contents(), "", "it vanishes");
    }
}
