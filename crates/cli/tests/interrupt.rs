//! Ctrl-C against a real process: this test starts itself again as the program that is interrupted.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onestep_cli::interrupt::Interrupt;

const ROLE: &str = "ONESTEP_TEST_INTERRUPT_ROLE";

/// Not a test of its own: the program that the tests below interrupt.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let interrupt = Interrupt::install().unwrap();
    Interrupt::install().expect("a second call is harmless");
    println!("\nready");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if interrupt.requested() && role == "stops" {
            std::process::exit(7);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start(role: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    child
}

fn press(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn the_first_press_asks_the_loop_to_stop() {
    let child = start("stops");
    press(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn the_second_press_exits_at_once_with_130() {
    let mut child = start("is stuck");
    press(&child);
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("again") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "the process ended: {said}");
    }
    press(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
