//! Bars while work goes on: on standard error, on a terminal only.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let template =
            format!("{{msg:12}} {{wide_bar}} {{pos}}/{{len}} {unit}  {{per_sec:.dim}}  {{elapsed}} + {{eta}} left");
        let style = ProgressStyle::with_template(&template)
            .expect("the template is fixed")
            .with_key("per_sec", rate)
            .progress_chars("━━ ");
        let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style).with_message(what);
        bar.enable_steady_tick(TICK);
        Self { bar }
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

/// Slow work deserves decimals: 0.42/s says more than 0/s.
fn rate(state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write) {
    let per_second = state.per_sec();
    let _ = if per_second < 10.0 { write!(out, "{per_second:.2}/s") } else { write!(out, "{per_second:.0}/s") };
}
