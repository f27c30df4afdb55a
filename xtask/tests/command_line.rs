//! What `cargo xtask` prints without doing anything: at once, without installing, also for a reader who has seen enough.

use std::{
    fs,
    io::Read as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Commands that only print.
const PRINT: &[&[&str]] = &[
    &["--help"],
    &["setup", "--help"],
    &["build", "--help"],
    &["bench", "--help"],
    &["bench", "--list"],
    &["clusters", "--help"],
    &["deploy", "--help"],
    &["kernels", "--help"],
    &["lint", "--help"],
    &["test", "--help"],
    &["test", "--list"],
    &["test", "--list", "socket"],
];

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments);
    command
}

#[test]
fn help_and_lists_are_printed_at_once_and_install_nothing() {
    let cache = tempfile::tempdir().unwrap();
    for arguments in PRINT {
        let start = Instant::now();
        let mut command = xtask(arguments);
        // Without programs there is nothing to install or build with.
        command.env("MCS_CACHE", cache.path()).env("PATH", "").env_remove("CARGO");
        command.env("CARGO_TARGET_DIR", cache.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
        assert!(start.elapsed() < Duration::from_secs(2), "{arguments:?}");
    }
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[test]
fn every_suite_is_listed_with_its_budget() {
    let output = xtask(&["test", "--list", "unit", "node"]).output().unwrap();
    let lines: Vec<_> = str::from_utf8(&output.stdout).unwrap().lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("unit ") && lines[1].starts_with("node "), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains(" s  ")), "{lines:?}");
}

#[test]
fn a_closed_output_ends_it_quietly() {
    for arguments in PRINT {
        let mut command = xtask(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert!(said.is_empty() && status.code() == Some(0), "{arguments:?}: {status}, {said}");
    }
}

#[test]
fn a_closed_output_ends_a_verb_that_does_more_as_shells_have_it() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = xtask(&["setup", "--check"]);
    command.env("MCS_CACHE", cache.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty() && output.status.code() == Some(141), "{output:?}");
}
