//! Ctrl-C. The first press raises a flag: the training loop finishes its step, saves and leaves. The second press
//! ends the process at once with code 130, the shell's code for a program ended by SIGINT.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The handler could not be installed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Ctrl-C cannot be caught: {0}")]
pub struct InterruptError(String);

/// Proof that Ctrl-C is caught; a process has one handler, so all copies answer alike.
#[derive(Clone, Copy, Debug)]
pub struct Interrupt(());

impl Interrupt {
    /// Catches Ctrl-C from now on. Calling it again is harmless.
    pub fn install() -> Result<Self, InterruptError> {
        static INSTALLED: OnceLock<Result<(), InterruptError>> = OnceLock::new();
        let install = || ctrlc::set_handler(on_press).map_err(|e| InterruptError(e.to_string()));
        INSTALLED.get_or_init(install).clone().map(Interrupt)
    }

    /// Whether the loop has been asked to stop. It costs one load.
    pub fn requested(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }
}

fn on_press() {
    if REQUESTED.swap(true, Ordering::Relaxed) {
        std::process::exit(130);
    }
    // From its own thread: a terminal or pipe that takes no more text must not keep the second press waiting.
    let say = || {
        let text = "\nstopping after this step, then saving; press Ctrl-C again to exit at once";
        let _ = writeln!(std::io::stderr(), "{text}");
    };
    let _ = std::thread::Builder::new().spawn(say);
}
