//! Progress while a run trains. On a terminal it is one bar on stderr; where stderr is a file or a pipe, a plain
//! line at the first step and about every 5 %; with `--quiet` or `--json` nothing at all. In that last mode stdout
//! carries exactly one line, the run's result as JSON, written by [`Progress::finish`].

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::records::StepRecord;
use crate::report::format::{duration, figure, si};

/// Who reads the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// A person: a bar on a terminal, lines otherwise.
    Person,
    /// A script (`--quiet`, `--json`): only the result, on stdout.
    Script,
}

/// The progress of one run.
pub struct Progress {
    first: u64,
    total: u64,
    unit: String,
    started: Instant,
    sink: Sink,
}

enum Sink {
    Bar { bar: ProgressBar, last_text: Option<Instant> },
    Lines { out: Box<dyn Write + Send>, shown: Option<u64> },
    Nothing,
}

/// The bar's text changes no more often than a person can read it.
const TEXT_EVERY: Duration = Duration::from_millis(100);

impl Progress {
    /// Progress over steps `done + 1 ..= total` (`done` is above 0 for a resumed run); `unit` is what a step
    /// consumes, in the plural: `tokens`, `images`.
    pub fn new(audience: Audience, done: u64, total: u64, unit: &str) -> Self {
        let sink = match audience {
            Audience::Script => Sink::Nothing,
            Audience::Person if io::stderr().is_terminal() => {
                Sink::Bar { bar: bar(done, total), last_text: None }
            }
            Audience::Person => Sink::Lines { out: Box::new(io::stderr()), shown: None },
        };
        Self::with_sink(sink, done, total, unit)
    }

    fn with_sink(sink: Sink, done: u64, total: u64, unit: &str) -> Self {
        Progress { first: done, total, unit: unit.into(), started: Instant::now(), sink }
    }

    /// A step is done.
    pub fn step(&mut self, record: &StepRecord) {
        let text = |unit: &str| {
            format!("loss {}  {} {unit}/s", figure(record.train_loss), si(record.items_per_second))
        };
        match &mut self.sink {
            Sink::Nothing => {}
            Sink::Bar { bar, last_text } => {
                bar.set_position(record.step);
                if record.step >= self.total || last_text.is_none_or(|at| at.elapsed() >= TEXT_EVERY) {
                    bar.set_message(text(&self.unit));
                    *last_text = Some(Instant::now());
                }
            }
            Sink::Lines { out, shown } => {
                let twentieth = twentieth(record.step, self.total);
                if shown.is_some_and(|last| last >= twentieth) {
                    return;
                }
                *shown = Some(twentieth);
                let elapsed = self.started.elapsed();
                let time = if record.step < self.total {
                    format!("{} left", time_left(elapsed, self.first, record.step, self.total))
                } else {
                    format!("in {}", duration(elapsed.as_secs_f64()))
                };
                // A reader that went away is no reason to stop training.
                let _ = writeln!(out, "step {}/{}  {}  {time}", record.step, self.total, text(&self.unit));
            }
        }
    }

    /// Says something between steps (an evaluation's result, a checkpoint) without breaking the bar.
    pub fn note(&mut self, text: &str) {
        match &mut self.sink {
            Sink::Nothing => {}
            Sink::Bar { bar, .. } => bar.println(text),
            Sink::Lines { out, .. } => {
                let _ = writeln!(out, "{text}");
            }
        }
    }

    /// Ends the progress. A script gets `result` as one line of JSON on stdout; a person keeps the last bar.
    pub fn finish(self, result: &impl Serialize) -> io::Result<()> {
        self.finish_to(result, &mut io::stdout().lock())
    }

    fn finish_to(self, result: &impl Serialize, stdout: &mut dyn Write) -> io::Result<()> {
        match self.sink {
            Sink::Bar { bar, .. } => {
                bar.set_style(style("in {elapsed}"));
                bar.abandon();
            }
            Sink::Lines { mut out, .. } => out.flush()?,
            Sink::Nothing => {
                let mut line = serde_json::to_vec(result)?;
                line.push(b'\n');
                stdout.write_all(&line)?;
                stdout.flush()?;
            }
        }
        Ok(())
    }
}

fn bar(done: u64, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_position(done);
    bar.set_style(style("{eta} left"));
    bar.reset_eta();
    bar
}

fn style(time: &str) -> ProgressStyle {
    let template = format!("{{bar:24.cyan/dim}} {{pos}}/{{len}}  {{msg}}  {time}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━╸─")
}

/// How many twentieths of the run are done; 0 to 20.
fn twentieth(step: u64, total: u64) -> u64 {
    (u128::from(step.min(total)) * 20).checked_div(u128::from(total)).unwrap_or(20) as u64
}

/// The time that the remaining steps take if they go as the past ones of this process did.
fn time_left(elapsed: Duration, first: u64, step: u64, total: u64) -> String {
    let done = step.saturating_sub(first);
    let left = total.saturating_sub(step);
    if done == 0 {
        return "unknown time".into();
    }
    duration(elapsed.as_secs_f64() / done as f64 * left as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(step: u64) -> StepRecord {
        StepRecord { step, train_loss: 1.25, items_per_second: 12_345.0, ..Default::default() }
    }

    fn lines_of(done: u64, total: u64) -> Vec<String> {
        let out = Shared::default();
        let sink = Sink::Lines { out: Box::new(out.clone()), shown: None };
        let mut progress = Progress::with_sink(sink, done, total, "tokens");
        (done + 1..=total).for_each(|step| progress.step(&record(step)));
        progress.note("saved");
        let mut stdout = Vec::new();
        progress.finish_to(&1, &mut stdout).unwrap();
        assert!(stdout.is_empty(), "only a script's result goes to stdout");
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        text.lines().map(String::from).collect()
    }

    #[test]
    fn a_log_gets_the_first_step_and_one_line_each_5_percent() {
        let lines = lines_of(0, 1000);
        assert_eq!(lines.len(), 1 + 20 + 1);
        assert!(lines[0].starts_with("step 1/1000  loss 1.250  12.3k tokens/s"), "{}", lines[0]);
        assert!(lines[20].starts_with("step 1000/1000"));
        assert_eq!(lines[21], "saved");
    }

    #[test]
    fn short_and_empty_runs_are_fine() {
        assert_eq!(lines_of(0, 3).len(), 3 + 1);
        assert_eq!(lines_of(0, 0), ["saved"]);
        assert_eq!(twentieth(7, 0), 20);
        assert_eq!(twentieth(u64::MAX, u64::MAX), 20);
    }

    #[test]
    fn a_resumed_run_counts_only_its_own_steps_in_the_time_left() {
        assert_eq!(time_left(Duration::from_secs(10), 900, 950, 1000), "10 s");
        assert_eq!(time_left(Duration::from_secs(10), 5, 5, 10), "unknown time");
    }

    #[test]
    fn a_script_gets_one_json_line() {
        let mut progress = Progress::new(Audience::Script, 0, 2, "images");
        progress.step(&record(1));
        progress.note("nobody reads this");
        let mut stdout = Vec::new();
        progress.finish_to(&record(2), &mut stdout).unwrap();
        let text = String::from_utf8(stdout).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(serde_json::from_str::<StepRecord>(&text).unwrap().step, 2);
    }

    #[test]
    fn the_bar_takes_steps_beyond_its_end_and_losses_that_are_not_finite() {
        let bar = bar(0, 2);
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        let mut progress = Progress::with_sink(Sink::Bar { bar, last_text: None }, 0, 2, "rows");
        progress.step(&StepRecord { train_loss: f64::NAN, ..record(9) });
        progress.note("x");
        progress.finish_to(&0, &mut Vec::new()).unwrap();
    }
}
